"""`view.save`: the figure of a view has the colours that its canvas has on the page."""

from __future__ import annotations

import numpy as np
import pytest
from matplotlib.patches import FancyBboxPatch

import attnwidgets as aw

CELLS = """() => [...document.querySelectorAll('.aw-heatmap canvas.aw-cells')].map(canvas => {
  const { height, width } = canvas;
  return [height, width, ...canvas.getContext('2d').getImageData(0, 0, width, height).data];
})"""
BOXES = """() => [...document.querySelectorAll('.aw-strip-view')].map(view => {
  const canvas = view.querySelector('.aw-underlay canvas'), box = canvas.getBoundingClientRect();
  const pen = canvas.getContext('2d'), dots = canvas.width / box.width;
  return [...view.querySelectorAll('.aw-tok')].map(word => {
    const at = word.getClientRects()[0];
    const x = Math.round((at.x + at.width / 2 - box.x) * dots);
    return [...pen.getImageData(x, Math.round((at.y - box.y + 3) * dots), 1, 1).data];
  });
})"""
LOOKS = [
    {},
    {"hide_special": "renormalise", "keep_mass": 0.9, "scale": "log", "palette": "cividis"},
    {"hide_special": True, "threshold": 0.03, "scale": "linear", "palette": "greys", "color_range": "all"},
]


def on_white(rgba):
    alpha = rgba[..., 3:] / 255
    return 255 * (1 - alpha) + alpha * rgba[..., :3]


def test_a_figure_has_the_colours_of_the_page(minilm, open_page, tmp_path):
    trace = aw.trace(*minilm, "The keys to the cabinet are here.")
    views = [view(trace, layer=3, head=5, **look) for view in (aw.Heatmap, aw.TokenStrip) for look in LOOKS]
    page = open_page(aw.to_html(views, tmp_path / "page.html").as_uri())
    page.wait_for_function("document.querySelectorAll('.aw-heatmap [aria-busy=false]').length === 3")
    page.wait_for_function("document.querySelectorAll('.aw-underlay canvas').length === 3")
    figures = [view.figure() for view in views]
    for data, figure in zip(page.evaluate(CELLS), figures[:3], strict=True):
        height, width, *numbers = data
        seen = on_white(np.array(numbers, dtype=float).reshape(height, width, 4))
        left_out = np.array(numbers).reshape(height, width, 4)[..., 3] == 0
        [image] = figure.axes[0].images
        drawn = np.asarray(image.to_rgba(image.get_array()))
        masked = np.ma.getmaskarray(image.get_array())
        assert (masked != left_out).mean() <= 0.02  # pixels next to the limit, and a byte a value
        difference = np.abs(255 * drawn[..., :3] - seen)[~left_out & ~masked]
        # A byte a value: neighbouring colours, where a logarithm does not spread the smallest of them.
        assert np.quantile(difference, 0.9) < 8
        assert np.median(difference) < 4
    for data, figure in zip(page.evaluate(BOXES), figures[3:], strict=True):
        pixels = np.array(data, dtype=float)
        filled = pixels[pixels[:, 3] > 0]  # special tokens have no box, but where they are left out
        boxes = [patch for patch in figure.axes[0].patches if isinstance(patch, FancyBboxPatch)]
        colours = np.asarray([box.get_facecolor() for box in boxes if box.get_facecolor()[3] > 0])
        np.testing.assert_allclose(on_white(255 * colours), on_white(filled), atol=8)


def test_what_draws_nothing_says_what_to_save(minilm, tmp_path):
    with pytest.raises(TypeError, match="LayerSlider draws nothing of its own"):
        aw.LayerSlider(aw.trace(*minilm, "A cat.")).save(tmp_path / "a.svg")
