"""The cost of a turn, counted rather than timed: new nodes, and reads that make the page lay itself out."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest

import attnwidgets as aw

from .settling import after, settle

LAYERS, HEADS, COUNT = 4, 4, 48

# Counts new nodes and reads from now on. A canvas on the page resolves its font by the page's styles.
WATCH = """() => {
  window.made = 0;
  window.read = {};
  const count = (prototype, name, kind, note) => {
    const descriptor = Object.getOwnPropertyDescriptor(prototype, name);
    const before = descriptor[kind];
    const noted = function (...values) { note(this, name); return before.apply(this, values); };
    Object.defineProperty(prototype, name, { ...descriptor, [kind]: noted });
  };
  const make = () => { window.made += 1; };
  const read = (at, name) => { window.read[name] = (window.read[name] ?? 0) + 1; };
  for (const name of ["createElement", "createElementNS"]) count(Document.prototype, name, "value", make);
  count(window, "getComputedStyle", "value", read);
  const boxes = ["getBoundingClientRect", "getClientRects"];
  for (const name of boxes) count(Element.prototype, name, "value", read);
  for (const end of ["Width", "Height", "Left", "Top"]) {
    if (end[0] === "W" || end[0] === "H") count(Element.prototype, `client${end}`, "get", read);
    count(HTMLElement.prototype, `offset${end}`, "get", read);
  }
  for (const name of ["scrollLeft", "scrollTop", "scrollWidth", "scrollHeight"])
    count(Element.prototype, name, "get", read);
  const font = (pen) => pen.canvas.isConnected && read(pen, "font");
  count(CanvasRenderingContext2D.prototype, "font", "set", font);
}"""

TURN = """(layer) => {
  const slider = document.querySelector("input[aria-label=layer]");
  slider.value = String(layer);
  [window.made, window.read] = [0, {}];
  slider.dispatchEvent(new Event("input", { bubbles: true }));
}"""


def turn_to(page, layer, rest=settle):
    """Change the layer; return the nodes made and read once its answers are there and its frames drawn."""
    page.evaluate(TURN, layer)
    for _ in range(2):
        rest(page)
        page.wait_for_function("() => !document.querySelector('.aw-view [aria-busy=true]')")
    return page.evaluate("({ made: window.made, read: window.read })")


@pytest.fixture(scope="module")
def trace():
    numbers = np.exp(np.random.default_rng(0).normal(0, 2, (LAYERS, HEADS, COUNT, COUNT)))
    tokens = ["[CLS]", *(f"word{i}" for i in range(COUNT - 2)), "[SEP]"]
    return aw.from_attentions(numbers / numbers.sum(-1, keepdims=True), tokens)


@pytest.mark.parametrize(
    ("view", "most"),
    [
        (aw.Heatmap, 0),
        (aw.TokenStrip, 0),
        (aw.HeadView, 0),
        (aw.compare, 0),
        (aw.views.LayerProfile, 1),  # the mark of the layer
        (aw.FlowView, 0),
        (aw.Explorer, 0),
    ],
)
def test_a_layer_change_draws_and_does_nothing_else(open_page, tmp_path, trace, view, most):
    """Nodes stay when only their words change; sizes and styles are cached, so nothing is laid out twice."""
    views = [view(trace)] if view is aw.Explorer else [view(trace), aw.LayerSlider(trace)]
    page = open_page()
    page.clock.install(time=0)
    page.goto(aw.to_html(views, tmp_path / "page.html").as_uri())
    for cell in page.locator(".aw-view").all():
        cell.locator(".aw-root > *").first.wait_for(state="attached")
    page.clock.pause_at(100)
    rest = partial(after, milliseconds=2000)  # the theme is looked at for the last time after 1.5 s
    rest(page)
    page.evaluate(WATCH)
    for layer in (1, 2, 3):  # answers and sizes arrive that later turns know
        turn_to(page, layer, rest)
    turn = turn_to(page, 2, rest)
    assert turn["made"] <= most
    assert turn["read"] == {}


HIDDEN = """() => {
  window.changed = 0;
  const watched = { subtree: true, childList: true, attributes: true, characterData: true };
  const count = (records) => { window.changed += records.length; };
  new MutationObserver(count).observe(document.querySelector(".aw-answer"), watched);
}"""


def test_a_panel_out_of_sight_is_not_drawn(page_of, trace):
    """The answer beside the map is made when it is opened, and rests while it is not in sight."""
    page = page_of(aw.Explorer(trace), viewport={"width": 760, "height": 700})
    assert page.locator(".aw-answer .aw-meter").count() == 0
    page.get_by_role("tab", name="in words").click()
    page.locator(".aw-answer .aw-meter").first.wait_for()
    first = page.locator(".aw-answer-head .aw-dim").first
    layer = page.locator("input[aria-label=layer]").input_value()
    words = first.inner_text()
    page.get_by_role("tab", name="Heads").click()
    page.evaluate(HIDDEN)
    turn_to(page, 1 if layer != "1" else 2)
    assert page.evaluate("window.changed") == 0
    page.get_by_role("tab", name="in words").click()
    assert first.inner_text() != words, "it is drawn anew when it is opened"


def test_the_list_of_a_menu_is_made_when_it_opens(page_of, trace):
    page = page_of(aw.Explorer(trace))
    assert page.locator(".aw-menu-item").count() == 0
    page.get_by_role("combobox", name="other panels").click()
    assert page.locator(".aw-menu-item:visible").count() >= 2
