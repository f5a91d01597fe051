"""RemovalView on a page: the slider plays without a kernel, and parts that need a kernel say so."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from tests.explanations.made import random_classifier
from tests.tracing import tiny

from .lab import choose, switch
from .settling import settle


@pytest.fixture(scope="module")
def trace():
    return aw.trace(random_classifier(), tiny.wordpiece(), "unbelievable cat the cat")


@pytest.fixture(scope="module")
def attributions(trace):
    values = np.random.default_rng(2).normal(size=len(trace.axes()[0]))
    return aw.results.Attributions(values, axis=trace.axes()[0], trace_id=trace.id, method="made")


@pytest.fixture
def page(trace, attributions, page_of, request):
    page = page_of(aw.RemovalView(trace, attributions), **getattr(request, "param", {}))
    page.locator(".aw-removal .aw-point").wait_for(state="attached")
    return page


def struck(page):
    return page.locator(".aw-removal .aw-tok[data-gone]").all_inner_texts()


def step(page, key, times=1):
    page.locator(".aw-removal-control input").focus()
    for _ in range(times):
        page.keyboard.press(key)


def test_the_slider_takes_tokens_away_in_the_order_of_the_explanation(page, trace, attributions):
    order = [
        i
        for i in np.argsort(-attributions.values, kind="stable")
        if not trace.axes()[0].units["token"].special[i]
    ]
    curve = aw.evaluate.faithfulness(
        trace,
        attributions,
        removal=aw.evaluate.Removal("mask", thresholds=[k / len(order) for k in range(4)]),
        metrics="deletion",
    ).of("made")[0, 0]
    told = page.locator(".aw-chart-told").text_content()
    assert told.startswith("without \u2068“"), "it opens on the effect of a single token"
    assert "points" in told
    assert struck(page) == [trace.tokens[order[0]]]
    height = page.locator(".aw-removal").bounding_box()["height"]
    step(page, "ArrowRight", 2)
    labels = [trace.tokens[i] for i in sorted(order[:3])]
    assert struck(page) == labels
    said = page.locator(".aw-removal > .aw-footer > .aw-readout").inner_text()
    before, now = (float(group) for group in re.search(r"([\d.]+) → ([\d.]+) · mask · k = 3", said).groups())
    assert now == pytest.approx(curve[3], abs=6e-5)
    assert before == pytest.approx(curve[0], abs=6e-5)
    assert said.count("“") == 3
    assert page.get_by_text("Now predicted:").count() == 1
    slider = page.locator(".aw-removal-control input")
    assert slider.get_attribute("aria-valuetext").startswith(f"3 of {len(order)}")
    listed = page.locator(".aw-removal-row").all_inner_texts()
    assert len(listed) == len(order)
    page.get_by_text("keep top").click()
    assert struck(page) == [label for i, label in enumerate(trace.tokens) if i in order[3:]]
    page.locator(".aw-tok", has_text=trace.tokens[order[0]]).first.click()
    assert page.locator(".aw-removal-control output").inner_text().startswith("1 of")
    assert page.locator(".aw-removal").bounding_box()["height"] == height


def test_the_point_moves_with_a_drag_on_the_curve_and_plays(page):
    plot = page.locator(".aw-removal .aw-profile-plot")
    box = plot.bounding_box()
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + 60)
    half = page.locator(".aw-removal-control output").inner_text()
    assert not half.startswith(("0 of", "1 of"))
    step(page, "Home")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    page.get_by_role("button", name="play").click()
    page.clock.run_for(1000)
    said = page.locator(".aw-removal-control output")
    assert said.inner_text().startswith("2 of")
    page.get_by_role("button", name="pause").click()
    page.clock.run_for(2000)
    assert said.inner_text().startswith("2 of")


@pytest.mark.parametrize("page", [{"viewport": {"width": 340, "height": 800}}], indirect=True)
def test_on_a_page_other_operators_say_that_they_need_a_kernel(page, screenshot):
    page.get_by_role("combobox", name="by").click()
    grey = page.locator(".aw-menu [aria-disabled=true]")
    assert grey.count() == 5
    assert all("needs a running kernel" in text for text in grey.all_inner_texts())
    page.keyboard.press("Escape")
    switch(page, page.locator(".aw-removal"), "unit", "words")
    page.locator(".aw-removal .aw-tok", has_text="unbelievable").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(page, "removal-narrow.png", full_page=True)


def test_a_map_says_which_rows_it_reads_and_what_a_page_lacks_needs_a_kernel(trace, page_of):
    page = page_of(aw.RemovalView(trace, units=["token"]))
    page.locator(".aw-removal .aw-point").wait_for(state="attached")
    where = page.locator(".aw-removal .aw-where")
    assert "mean over its rows" in where.inner_text()
    page.locator(".aw-removal .aw-tok", has_text="cat").first.click()
    page.get_by_text("not in this file; it needs a running kernel").first.wait_for()
    page.locator(".aw-removal .aw-tok", has_text="cat").first.click()
    page.locator(".aw-removal-grid:not([data-old])").wait_for()


def test_at_760_the_order_is_one_click_away_and_a_row_moves_the_slider(page, trace, attributions):
    page.set_viewport_size({"width": 780, "height": 700})
    rows = page.locator(".aw-removal-row")
    rows.first.wait_for(state="hidden")
    page.locator(".aw-removal-legend").get_by_text("order").click()
    rows.nth(1).click()
    assert page.locator(".aw-removal-control output").inner_text().startswith("2 of")
    page.set_viewport_size({"width": 1240, "height": 700})
    page.locator(".aw-removal .aw-point").wait_for()
    rows.nth(1).wait_for()


def test_in_an_explorer_nothing_is_asked_while_the_panel_is_away(trace, page_of):
    view = aw.Explorer(trace, units=["token"], layer=0, head=0)
    args = {
        "source": "attention/token/self",
        "layer": 0,
        "head": 0,
        "row": -1,
        "target": None,
        "operator": None,
    }
    view.requests.answer("removal", args)
    view.selection.pinned = None
    page = page_of(view, viewport={"width": 1240, "height": 800})
    choose(page, "other panels", "what if tokens were removed")
    panel = page.locator("[data-of=RemovalView]")
    panel.locator(".aw-point").wait_for(state="attached")
    where = panel.locator(".aw-where")
    assert "layer 0" in where.inner_text()
    page.locator(".aw-tab", has_text="what if tokens").wait_for()
    choose(page, "other panels", "in words")
    settle(page)  # the panel hears in the next frame that it is out of sight
    page.locator("input[aria-label=layer]").first.focus()
    page.keyboard.press("End")
    page.locator(".aw-explorer .aw-heatmap", has_text=re.compile("head [1-9]")).first.wait_for()
    settle(page)
    assert "layer 0" in where.text_content()
    choose(page, "other panels", "what if tokens were removed")
    panel.get_by_text(
        "not in this file; it needs a running kernel"
    ).wait_for()  # asked now, and not in the file
