"""The page of a hybrid: its blocks carry their kinds, and a strip beneath the text shows their decay."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from tests.tracing.test_anatomy import qwen3_next, traced
from tests.views.test_mixing_views import lfm2

from .settling import settle

WIDTH = 760


def plain(words):
    return re.sub("[\u2068\u2069]", "", words)


def ends_of(row):
    """The smallest and the largest number of a row as printed; the first of equal numbers."""
    return list(dict.fromkeys(f"{end:.2f}" for end in (row.min(), row.max())))


def next_layer(page):
    page.get_by_role("button", name="next layer").click()
    settle(page)


@pytest.mark.slow  # a model, its page and a browser
def test_the_kind_stands_with_the_number_and_the_strip_beneath_the_text(page_of):
    trace = traced(qwen3_next)
    view = aw.Explorer(trace, layer=0, head=1)
    page = page_of(view, viewport={"width": WIDTH, "height": 900})
    title = page.locator(".aw-heatmap .aw-title")
    group = page.get_by_role("group", name="layer", exact=True)
    slider, strip = page.get_by_role("slider", name="layer"), page.locator(".aw-forget")
    assert title.inner_text() == "head 0.1 · gated delta rule"
    assert group.get_attribute("title") == "block 0: gated delta rule"
    assert slider.get_attribute("aria-valuetext") == "layer 0 · head 0.1 · gated delta rule"
    rows = page.locator(".aw-grid-rows span")
    assert [row.get_attribute("title") for row in rows.all()] == ["gated delta rule", "attention"] * 2
    forgotten = view.presentation.forgotten
    ends = [f"{name} " + " to ".join(ends_of(row)) for name, row in forgotten.items()]
    assert strip.inner_text() == ", ".join(ends)
    cells = page.get_by_role("slider", name="What is forgotten")
    said = cells.get_attribute("aria-label")
    assert said in view.describe()
    # Each cell stands under its token.
    token = page.locator(".aw-reading .aw-tok").nth(3).bounding_box()
    cells.hover(position={"x": token["x"] + token["width"] / 2 - cells.bounding_box()["x"], "y": 5})
    settle(page)
    numbers = ", ".join(f"{name} {row[3]:.2f}" for name, row in forgotten.items())
    assert plain(strip.inner_text()) == f"“{trace.tokens[3]}”: {numbers}"
    cells.press("Home")
    settle(page)
    numbers = ", ".join(f"{name} {row[0]:.2f}" for name, row in forgotten.items())
    assert plain(cells.get_attribute("aria-valuetext")) == f"“{trace.tokens[0]}”: {numbers}"
    cells.blur()
    page.mouse.move(0, 0)
    before = page.locator(".aw-root").first.bounding_box(), title.bounding_box()
    next_layer(page)
    assert title.inner_text() == "head 1.1 · attention"
    assert strip.inner_text() == "head 1.1 forgets nothing"
    after = page.locator(".aw-root").first.bounding_box(), title.bounding_box()
    assert before[0] == after[0]  # nothing moves
    assert before[1]["y"] == after[1]["y"]


@pytest.mark.slow
def test_a_block_without_heads_is_not_called_a_head(page_of):
    trace = traced(lfm2)
    view = aw.Explorer(trace, layer=1, head=2)
    page = page_of(view, viewport={"width": WIDTH, "height": 900})
    title = page.locator(".aw-heatmap .aw-title")
    heads = page.get_by_role("combobox", name="head")
    assert title.inner_text() == "head 1.2 · attention"
    next_layer(page)
    assert title.inner_text() == "layer 2 · convolution, reaches back 2 tokens"
    assert heads.locator("option").all_inner_texts() == ["all channels"]
    legend = page.locator(".aw-heatmap .aw-scale")
    assert "share of the length of what each token adds" in legend.get_attribute("title")
    assert page.locator(".aw-headgrid .aw-title").inner_text() == "4 heads, 2 layers"
    assert not page.locator(".aw-forget").is_visible()  # no block of this model forgets
    # The single map of a block takes the room of all heads, and can be chosen anywhere in it.
    plot = page.locator(".aw-grid-plot")
    box = plot.bounding_box()
    plot.click(position={"x": 0.9 * box["width"], "y": box["height"] / 6})
    settle(page)
    assert title.inner_text() == "layer 0 · convolution, reaches back 2 tokens"
    chosen = page.locator(".aw-spot-selected").bounding_box()
    assert np.isclose(chosen["width"], box["width"], atol=3)  # the outline lies around it
