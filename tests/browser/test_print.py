"""Views on paper: the browser's settings, A4, a light and a dark page."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .settling import settle

A4 = 718  # CSS pixels between the margins
WIDTHS = "() => [...document.querySelectorAll('.aw-root')].map(root => root.getBoundingClientRect().width)"
# Right edges of whatever a view shows, beyond those of the page.
CUT = """() => [...document.querySelectorAll('.aw-root *')]
  .filter(el => el.checkVisibility() && !el.closest('.aw-sr'))
  .filter(el => el.getBoundingClientRect().right > innerWidth)
  .map(el => el.className)"""
THEMES = "() => [...new Set([...document.querySelectorAll('.aw-root')].map(root => root.dataset.awTheme))]"
# Luminance of the pixels of a map: near 1 on paper, near 0 on a dark screen.
LIGHT = """canvas => {
  const {data} = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
  return data.reduce((sum, value) => sum + value, 0) / data.length / 255;
}"""


@pytest.fixture
def page(page_of, request):
    weights = np.random.default_rng(0).dirichlet(np.ones(9), (4, 6, 9)).astype("float32")
    trace = aw.from_attentions(weights, [f"word{i}" for i in range(9)])
    views = (aw.Explorer(trace), aw.Heatmap(trace), aw.HeadView(trace), aw.TokenStrip(trace))
    return page_of(*views, color_scheme=request.param)


@pytest.mark.parametrize("page", ["light"], indirect=True)
def test_pictures_do_not_need_background_graphics(page):
    with_backgrounds, without = (len(page.pdf(format="A4", print_background=on)) for on in (True, False))
    assert without > 0.97 * with_backgrounds


@pytest.mark.parametrize("page", ["light", "dark"], indirect=True)
def test_a_printed_page_is_light_and_whole(page, screenshot, request):
    screen, theme = page.evaluate(WIDTHS), page.evaluate(THEMES)
    cells = page.locator(".aw-heatmap .aw-cells").last
    before = cells.evaluate(LIGHT)
    page.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(THEMES) == ["light"]
    assert cells.evaluate(LIGHT) > 0.6
    page.emulate_media(media="print")
    page.set_viewport_size({"width": A4, "height": 1000})
    settle(page)
    screenshot(page, f"{request.node.name}.png", full_page=True)
    assert page.evaluate(CUT) == []
    assert max(page.evaluate(WIDTHS)) < A4
    page.emulate_media(media="screen")
    page.set_viewport_size({"width": 1200, "height": 900})
    page.evaluate("dispatchEvent(new Event('afterprint'))")
    settle(page)
    assert page.evaluate(WIDTHS) == screen
    assert page.evaluate(THEMES) == theme
    assert cells.evaluate(LIGHT) == pytest.approx(before)
