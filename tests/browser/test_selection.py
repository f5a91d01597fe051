"""Several cells, heads and tokens, and spans: chosen with Shift and by dragging, drawn in linked views."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

TOKENS = 12
# Lines as a reader sees them: with a colour, and without a filled area.
DRAWN = """el => [...el.querySelectorAll('.aw-chosen path')].map(path => {
  const { stroke, fill } = getComputedStyle(path);
  return stroke === 'none' || fill !== 'none' ? '' : path.getAttribute('d');
})"""


@pytest.fixture
def trace():
    draw = np.random.default_rng(0)
    powers = np.exp(draw.normal(size=(3, 4, TOKENS, TOKENS)))
    weights = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
    return aw.from_attentions(weights, [f"word{i}" for i in range(TOKENS)])


@pytest.fixture
def page(trace, page_of):
    page = page_of(aw.Heatmap(trace), aw.TokenStrip(trace), aw.HeadGrid(trace), aw.HeadView(trace))
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for()
    return page


def at(plot, row, col, rows=TOKENS, cols=TOKENS):
    """The middle of a cell of a picture, on the screen."""
    plot.scroll_into_view_if_needed()
    box = plot.bounding_box()
    return box["x"] + (col + 0.5) * box["width"] / cols, box["y"] + (row + 0.5) * box["height"] / rows


def click(page, point, key="Shift"):
    page.keyboard.down(key)
    page.mouse.click(*point)
    page.keyboard.up(key)


def drag(page, start, end):
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*end, steps=4)
    page.mouse.up()


def tokens(page, name):
    """Indices of the tokens in the text with a class."""
    result = page.locator(f".aw-strip .aw-tok.{name}")
    return [int(i) for i in result.evaluate_all("all => all.map(el => el.dataset.i)")]


def outlines(root):
    """The number of lines around the chosen cells of a picture."""
    drawn = root.evaluate(DRAWN)
    return drawn[1].count("M") if drawn else 0


def test_shift_pins_several_cells_of_a_map_and_the_text_shows_them(page):
    heatmap = page.locator(".aw-heatmap")
    plot = heatmap.locator(".aw-plot")
    page.mouse.click(*at(plot, 2, 3))
    assert outlines(heatmap) == 0
    click(page, at(plot, 5, 6))
    click(page, at(plot, 8, 1), "Control")
    assert outlines(heatmap) == 3 * 4
    assert tokens(page, "aw-tok-chosen") == [2, 5, 8]
    assert tokens(page, "aw-query") == [8]
    assert "word8" in heatmap.locator(".aw-readout").inner_text()
    click(page, at(plot, 8, 1))
    assert outlines(heatmap) == 2 * 4
    assert tokens(page, "aw-query") == [5]
    page.mouse.click(*at(plot, 0, 0))
    assert outlines(heatmap) == 0
    assert tokens(page, "aw-query") == [0]


def test_a_drag_pins_the_cells_it_covers_but_not_too_many(page, trace):
    heatmap = page.locator(".aw-heatmap")
    plot = heatmap.locator(".aw-plot")
    drag(page, at(plot, 4, 5), at(plot, 2, 3))
    assert outlines(heatmap) == 12  # a single outline around three by three
    assert tokens(page, "aw-tok-chosen") == [2, 3, 4]
    page.mouse.move(*at(plot, 1, 1))
    page.mouse.down()
    page.mouse.move(*at(plot, 6, 6))
    band = page.locator(".aw-picking")
    assert band.get_attribute("data-words") == "6 × 6"
    assert band.bounding_box()["height"] == pytest.approx(plot.bounding_box()["height"] / 2, abs=2)
    page.keyboard.press("Escape")
    page.mouse.up()
    assert page.locator(".aw-picking").count() == 0
    page.mouse.click(2, 2)  # outside of all views
    assert outlines(heatmap) == 0


def test_a_drag_along_labels_and_through_the_text_chooses_a_span(page):
    heatmap = page.locator(".aw-heatmap")
    left = heatmap.locator(".aw-labs-left")
    plot = heatmap.locator(".aw-plot")
    x = left.bounding_box()["x"] + 20
    drag(page, (x, at(plot, 3, 0)[1]), (x, at(plot, 5, 0)[1]))
    assert tokens(page, "aw-in-span") == [3, 4, 5]
    assert heatmap.evaluate(DRAWN)[2].count("M") == 2  # self-attention: the text is on both sides
    token = page.locator(".aw-strip .aw-tok")
    token.nth(6).scroll_into_view_if_needed()
    boxes = [token.nth(i).bounding_box() for i in (6, 9)]
    ends = [(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes]
    drag(page, *ends)
    assert tokens(page, "aw-in-span") == [6, 7, 8, 9]
    assert "word7" in page.evaluate("getSelection().toString()")  # copying works as before
    page.keyboard.press("Escape")
    page.locator(".aw-heatmap .aw-plot").focus()
    page.keyboard.press("Escape")
    assert tokens(page, "aw-in-span") == []


def test_shift_in_the_text_pins_tokens_and_selects_no_text(page):
    token = page.locator(".aw-strip .aw-tok")
    token.nth(1).click()
    token.nth(7).click(modifiers=["Shift"])
    token.nth(4).click(modifiers=["Shift"])
    assert tokens(page, "aw-tok-chosen") == [1, 4, 7]
    assert page.evaluate("getSelection().toString()") == ""
    token.nth(7).click(modifiers=["Shift"])
    assert tokens(page, "aw-tok-chosen") == [1, 4]
    assert outlines(page.locator(".aw-hv-query")) == 2 * 4


def test_heads_are_chosen_together_in_the_grid(page):
    grid = page.locator(".aw-headgrid")
    plot = grid.locator(".aw-grid-plot")
    click(page, at(plot, 2, 3, 3, 4))
    assert outlines(grid) == 2 * 4  # with the shown head
    drag(page, at(plot, 1, 1, 3, 4), at(plot, 1, 2, 3, 4))
    assert outlines(grid) == 6
    page.mouse.click(*at(plot, 0, 3, 3, 4))
    assert outlines(grid) == 0


def test_all_of_it_works_with_keys(page):
    heatmap = page.locator(".aw-heatmap")
    heatmap.locator(".aw-plot").focus()
    for key in ("Enter", "Shift+Enter", "Shift+ArrowDown", "Shift+ArrowDown"):
        page.keyboard.press(key)
    assert outlines(heatmap) == 2 * 4
    page.keyboard.press("Escape")
    assert outlines(heatmap) == 0
    page.locator(".aw-strip .aw-tok").first.focus()
    for key in ("ArrowRight", "Shift+ArrowRight", "Shift+ArrowRight"):
        page.keyboard.press(key)
    assert tokens(page, "aw-in-span") == [1, 2, 3]
    grid = page.locator(".aw-headgrid")
    grid.locator(".aw-grid-plot").focus()
    page.keyboard.press("Shift+ArrowRight")
    assert outlines(grid) == 6


@pytest.mark.parametrize("make", [aw.views.CompareView, aw.views.LayerProfile])
def test_a_span_without_a_side_is_drawn_in_comparisons_linked_with_maps(demo_trace, page_of, make):
    view = make([aw.attention(demo_trace), aw.rollout(demo_trace)])
    # The map was there first: without a side, the span is of queries.
    view.selection.span = (2, 4)
    page = page_of(aw.Heatmap(demo_trace), view)
    page.locator(".aw-strip .aw-in-span").first.wait_for()
    strips = page.locator(".aw-strip").all()
    assert [strip.locator(".aw-in-span").count() for strip in strips] == [2] * len(strips)
    assert tokens(page, "aw-in-span")[:2] == [2, 3]


def test_what_python_chooses_is_drawn_and_costs_no_nodes(trace, page_of):
    view = aw.Heatmap(trace)
    view.selection.pins = [(row, col) for row in range(TOKENS) for col in range(0, TOKENS, 2)]
    view.selection.heads = [(0, 1), (2, 2)]
    view.selection.span = (1, 4)
    page = page_of(view, aw.TokenStrip(trace), aw.HeadGrid(trace))
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for()
    heatmap = page.locator(".aw-heatmap")
    assert outlines(heatmap) == 6 * (2 * TOKENS + 2)
    assert heatmap.locator(".aw-chosen path").count() == 3
    assert outlines(page.locator(".aw-headgrid")) == 8
    assert tokens(page, "aw-in-span") == [1, 2, 3]


def test_cells_of_a_layer_are_outlined_there_only(trace, page_of):
    heatmap, relevance = aw.Heatmap(trace, layer=0), aw.views.RelevanceMap(aw.rollout(trace))
    page = page_of(heatmap, relevance)
    layers = page.locator(".aw-layermap")
    plot = layers.locator(".aw-plot")
    drag(page, at(plot, 1, 2, 3), at(plot, 2, 3, 3))
    assert outlines(layers) == 8
    assert outlines(page.locator(".aw-root.aw-heatmap")) == 0  # it shows layer 0


LIVE = (
    """import numpy as np, attnwidgets as aw
powers = np.exp(np.random.default_rng(0).normal(size=(3, 4, 12, 12)))
weights = (powers / powers.sum(-1, keepdims=True)).astype(np.float32)
trace = aw.from_attentions(weights, [f"word{i}" for i in range(12)])
map_, text, grid = aw.Heatmap(trace, layer=0, head=0), aw.TokenStrip(trace), aw.HeadGrid(trace)
chosen = map_.selection
saved = []
chosen.observe(lambda change: saved.append(change.name), ["pins", "heads", "span"])
map_""",
    "text",
    "grid",
)


def test_in_a_notebook_all_of_it_arrives_in_python_and_comes_back(lab):
    lab.write("sets.ipynb", *LIVE)
    page = lab.open("sets.ipynb", viewport={"width": 1000, "height": 2200})
    lab.run_all()
    page.locator(".aw-grid-plot[aria-busy=false]").wait_for(timeout=90_000)
    heatmap, grid = page.locator(".aw-heatmap").first, page.locator(".aw-headgrid").first
    plot, heads = heatmap.locator(".aw-plot"), grid.locator(".aw-grid-plot")
    heatmap.locator(".aw-plot:not([data-stale])").wait_for()
    page.mouse.click(*at(plot, 2, 3))
    click(page, at(plot, 5, 6))
    lab.until("chosen.pins", [[2, 3], [5, 6]])
    assert lab.ask("chosen.pinned") == [5, 6]
    drag(page, at(plot, 7, 1), at(plot, 8, 2))
    lab.until("chosen.pins", [[7, 1], [7, 2], [8, 1], [8, 2]])
    assert lab.ask("saved") == ["pins"] * 3  # a message each, nothing while dragging
    click(page, at(heads, 2, 3, 3, 4))
    lab.until("chosen.heads", [[0, 0], [2, 3]])
    drag(page, at(heads, 0, 1, 3, 4), at(heads, 1, 1, 3, 4))
    lab.until("chosen.heads", [[0, 1], [1, 1]])
    token = page.locator(".aw-strip .aw-tok")
    token.nth(6).scroll_into_view_if_needed()
    boxes = [token.nth(i).bounding_box() for i in (6, 9)]
    drag(page, *[(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2) for box in boxes])
    lab.until("chosen.span", [6, 10, "token", "query"])
    assert lab.ask("saved")[-1] == "span"
    lab.do("chosen.pins, chosen.heads, chosen.span = [(1, 1), (4, 4)], [(2, 0)], (0, 2)")
    page.wait_for_function("document.querySelectorAll('.aw-strip .aw-in-span').length === 2")
    assert tokens(page, "aw-tok-chosen") == [1, 4]
    assert (outlines(heatmap), outlines(grid)) == (8, 4)
    plot.focus()
    page.keyboard.press("Escape")
    lab.until("[chosen.pins, chosen.heads, chosen.span, chosen.pinned]", [[], [], None, None])


@pytest.mark.parametrize("kind", [aw.NeuronView, aw.FlowView])
def test_a_shift_click_and_a_drag_choose_in_other_views(demo_trace, page_of, kind):
    view = kind(demo_trace)
    page = page_of(view, aw.TokenStrip(demo_trace))
    root = page.locator(f".aw-{'neuron' if kind is aw.NeuronView else 'flow'}")
    plot = root.locator(".aw-neuron-space" if kind is aw.NeuronView else ".aw-flow-plot")
    plot.wait_for()
    count = len(demo_trace.tokens)
    shape = (count, 1) if kind is aw.NeuronView else (1, count)

    def point(i):
        return at(plot, *((i, 0) if kind is aw.NeuronView else (0, i)), *shape)

    page.mouse.click(*point(2))
    click(page, point(4))
    assert outlines(root) == 2 * 4
    drag(page, point(5), point(3))
    page.wait_for_function("() => document.querySelectorAll('.aw-strip .aw-in-span').length === 3")
    assert tokens(page, "aw-in-span") == [3, 4, 5]
    assert root.evaluate(DRAWN)[2].count("M") == 1


@pytest.fixture(scope="module")
def demo_trace():
    return aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")


def test_sets_are_drawn_in_comparisons(demo_trace, page_of):
    shown = [aw.rollout(demo_trace), aw.value_zeroing(demo_trace)]
    view = aw.views.CompareView(shown)
    view.selection.pins = [(3, 1), (3, 5)]
    view.selection.span = (2, 4, "token", "key")
    page = page_of(view)
    root = page.locator(".aw-compare")
    page.locator(".aw-strip .aw-in-span").first.wait_for()
    # Outlines are drawn once the picture has its size.
    root.locator(".aw-compare-plot > .aw-chosen > path:nth-child(2)[d^=M]").first.wait_for(state="attached")
    assert outlines(root) == 2 * 4
    assert tokens(page, "aw-in-span") == [2, 3]
    assert tokens(page, "aw-tok-chosen-key") == [1, 5]
    click(page, at(root.locator(".aw-compare-plot").first, 0, 6, 1, len(demo_trace.tokens)))
    assert tokens(page, "aw-tok-chosen-key") == [1, 5, 6]
