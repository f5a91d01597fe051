"""What a turn costs, counted rather than timed: new nodes, and reads that make the page lay itself out."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

LAYERS, HEADS, COUNT = 4, 4, 48

# Counts what is made and read from now on. A canvas on the page resolves its font by the page's styles.
WATCH = """() => {
  window.made = 0;
  window.read = {};
  const count = (prototype, name, kind, note) => {
    const own = Object.getOwnPropertyDescriptor(prototype, name);
    const before = own[kind];
    const noted = function (...values) { note(this, name); return before.apply(this, values); };
    Object.defineProperty(prototype, name, { ...own, [kind]: noted });
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

# Long after a turn its answers have arrived and its frames are drawn.
TURN = """async (layer) => {
  const slider = document.querySelector("input[aria-label=layer]");
  slider.value = String(layer);
  [window.made, window.read] = [0, {}];
  slider.dispatchEvent(new Event("input", { bubbles: true }));
  await new Promise((done) => setTimeout(done, 300));
  return { made: window.made, read: window.read };
}"""


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
        (aw.LayerProfile, 1),  # the mark of the layer
        (aw.FlowView, 0),
        (aw.Explorer, 0),
    ],
)
def test_a_layer_change_draws_and_does_nothing_else(page_of, trace, view, most):
    """Nodes stay when only their words change; sizes and styles are known, so nothing is laid out twice."""
    page = page_of(view(trace), *([] if view is aw.Explorer else [aw.LayerSlider(trace)]))
    page.wait_for_timeout(2000)  # the theme is looked at for the last time 1.5 s after a view is shown
    page.evaluate(WATCH)
    for layer in (1, 2, 3):  # answers and sizes arrive that later turns know
        page.evaluate(TURN, layer)
    turn = page.evaluate(TURN, 2)
    assert turn["made"] <= most
    assert turn["read"] == {}
