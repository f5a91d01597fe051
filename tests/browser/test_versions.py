"""Two notebooks of a JupyterLab may have two versions of this package: each view has its look."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .stage import play

# As another version may have it: the same classes, with the weight that the build gives every rule.
OTHER = """.aw-root .aw-plot:not(#aw#aw) { outline: 3px solid rgb(1, 2, 3); }
.aw-toolbar:not(#aw#aw) { gap: 77px; }"""
LOOKS = """root => [getComputedStyle(root.querySelector('.aw-plot')).outlineColor,
  getComputedStyle(root.querySelector('.aw-toolbar')).columnGap]"""


@pytest.fixture
def heatmap():
    numbers = np.random.default_rng(0).dirichlet(np.ones(4), (2, 2, 4)).astype("float32")
    view = aw.Heatmap(aw.from_attentions(numbers, list("abcd")))
    yield view
    view.close()


@pytest.mark.parametrize("other_first", [True, False])
def test_a_view_has_the_style_of_its_own_version(heatmap, open_page, other_first):
    page = open_page()
    alone = play(page, heatmap, "works", cold=False)
    alone.locator(".aw-plot").first.wait_for()
    plain = alone.evaluate(LOOKS)
    drawn = {}
    for index, style in enumerate((OTHER, "") if other_first else ("", OTHER)):
        drawn[style] = play(page, heatmap, "works", cold=False, style=style, beside=index > 0)
        drawn[style].locator(".aw-plot").first.wait_for()
    roots = page.locator(".aw-root")
    assert roots.count() == 2
    others, ours = (roots.nth(0), roots.nth(1)) if other_first else (roots.nth(1), roots.nth(0))
    assert others.evaluate(LOOKS) == ["rgb(1, 2, 3)", "77px"]
    assert ours.evaluate(LOOKS) == plain


def test_where_rules_cannot_be_told_apart_views_have_their_style_all_the_same(heatmap, open_page):
    page = open_page()
    scoped = play(page, heatmap, "works", cold=False)
    scoped.locator(".aw-plot").first.wait_for()
    looks, size = scoped.evaluate(LOOKS), scoped.bounding_box()
    page.evaluate("delete window.CSSScopeRule")  # browsers before the end of 2025
    old = play(page, heatmap, "works", cold=False)
    old.locator(".aw-plot").first.wait_for()
    assert (old.evaluate(LOOKS), old.bounding_box()) == (looks, size)
