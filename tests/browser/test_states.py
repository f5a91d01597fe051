"""A view's states without its picture: on its way, failed, without a kernel; as high as the picture."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from tests.sae import made
from tests.views.every import every_view, make

from .settling import after
from .stage import play

WAITS = 600  # milliseconds until a slow answer is announced
GONE = 9000  # until nobody is expected to answer
ASKS = (
    "CompareView",
    "FeatureStrip",
    "FeatureTable",
    "LayerProfile",
    "NeuronView",
    "RemovalView",
    "SteerView",
)


def given():
    numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype("float32")
    return aw.from_attentions(numbers, [f"t{i}" for i in range(6)])


@pytest.fixture
def made_view(minilm):
    def draw(name):
        if name != "SteerView":
            return make(name, given)
        sae = made.sae(d_in=384, site="blocks.3.hook_resid_post")
        return aw.SteerView(aw.trace(*minilm, "the cat sat"), sae, maximum=3)

    return draw


@pytest.fixture(scope="module")
def page(open_page_for_all):
    page = open_page_for_all(viewport={"width": 776, "height": 700})
    page.clock.install()
    return page


@pytest.fixture
def stage(page):
    page.mouse.move(-9, -9)  # over no view
    return page


def seen(root):
    return root.evaluate(
        "(root) => [root.getBoundingClientRect().height, root.scrollWidth <= root.clientWidth]"
    )


@pytest.mark.parametrize("name", every_view())
def test_the_height_is_the_same_whatever_the_kernel_does(stage, made_view, screenshot, name):
    view, heights = made_view(name), {}
    for kernel, cold, later in (
        ("silent", False, WAITS),
        ("silent", True, 0),
        ("silent", True, WAITS),
        ("works", True, WAITS),
        ("refuses", True, WAITS),
        ("silent", True, GONE),
    ):
        root = play(stage, view, kernel, cold=cold)
        after(stage, later)
        heights[kernel, cold, later], fits = seen(root)
        assert fits, (kernel, later)
        screenshot(stage, f"state-{name}-{kernel}-{later}.png")
    assert len(set(heights.values())) == 1, heights


NEAR = {"Heatmap": 120, "LayerSlider": 1, "TokenStrip": 20}  # px; the others differ


@pytest.mark.parametrize("name", every_view())
def test_a_skeleton_of_the_height_stands_there_until_the_code_comes(stage, made_view, name):
    play(stage, made_view(name), cold=False, late=True)
    skeleton = stage.locator("p").bounding_box()["height"]
    assert stage.locator(".aw-root").count() == 0
    stage.evaluate("come()")
    after(stage, WAITS)
    assert stage.locator("p[style]").count() == 0
    assert stage.locator(".aw-root").bounding_box()["height"] == pytest.approx(
        skeleton, abs=NEAR.get(name, 0)
    )


@pytest.mark.parametrize("name", ASKS)
def test_what_is_missing_is_said_and_can_be_tried_again(stage, made_view, name):
    view = made_view(name)
    root = play(stage, view, "works")
    after(stage, WAITS)
    veil = root.locator("> .aw-body > .aw-veil")
    veil.filter(has_text="value zeroing: layers").filter(has_text="3 of 6").wait_for()
    assert veil.get_by_role("progressbar").get_attribute("value") == "3"
    root = play(stage, view, "refuses")
    after(stage, WAITS)
    alert = root.locator("> .aw-body > .aw-veil").get_by_role("alert")
    alert.filter(has_text="no memory is left").wait_for()
    assert root.locator(".aw-hint:visible").count() == 0  # there is nothing to try
    stage.evaluate("window.kernel = 'works'; sent.length = 0")
    alert.get_by_role("button", name="Retry").click()
    after(stage, WAITS)
    assert stage.evaluate("sent.length") > 0
    root.locator("> .aw-body > .aw-veil").filter(has_text="3 of 6").wait_for()


def test_a_lost_kernel_leaves_the_picture_and_is_said_in_the_footer(stage, made_view):
    root = play(stage, made_view("Heatmap"), cold=False)
    after(stage, WAITS)
    root.locator(".aw-plot").click()  # the exact row is requested
    after(stage, GONE)
    note = root.locator("> .aw-footer > .aw-status")
    note.filter(has_text=re.compile("^No answer from a kernel")).wait_for()
    assert "What is loaded still works" in note.get_attribute("title")
    assert root.locator("canvas").first.is_visible()
    assert root.locator(".aw-veil:visible").count() == 0
    stage.evaluate("window.kernel = 'works'")
    after(stage, GONE)  # a ping is answered
    note.filter(has_text=re.compile("^$")).wait_for(state="attached")


def test_a_request_that_a_busy_kernel_lost_is_sent_again_when_it_is_back(stage, made_view):
    root = play(stage, made_view("CompareView"))
    after(stage, GONE)
    root.get_by_role("alert").filter(has_text="No answer").wait_for()
    stage.evaluate("window.kernel = 'works'; sent.length = 0")
    after(stage, GONE)
    assert "strips" in stage.evaluate("sent.map(({ topic }) => topic)")
    root.locator(".aw-veil").filter(has_text="3 of 6").first.wait_for()


def test_controls_that_need_the_kernel_do_nothing_without_it_and_say_why(stage, made_view):
    root = play(stage, made_view("SteerView"))
    strength = root.get_by_role("group", name="strength")
    after(stage, GONE)
    root.locator("[role=group][aria-label=strength][aria-disabled=true]").wait_for()
    assert "No answer" in strength.get_attribute("aria-description")
    before = strength.inner_text()
    strength.get_by_role("button", name="stronger").click(force=True)
    strength.get_by_role("slider").focus()
    stage.keyboard.press("ArrowRight")
    after(stage, WAITS)
    assert strength.inner_text() == before


@pytest.mark.parametrize(
    "name", sorted(set(every_view()) - {"LayerSlider", "Predictions", "Question", "StudyView"})
)
def test_a_hint_says_what_to_try_until_the_first_click(stage, made_view, name):
    root = play(stage, made_view(name), cold=False)
    hint = root.locator(".aw-hint")
    assert hint.count() == 1  # none in a view inside this view
    assert 10 < len(hint.inner_text()) <= 50
    root.locator("> .aw-toolbar").click(position={"x": 2, "y": 2})
    stage.mouse.move(0, 0)
    after(stage, WAITS)
    assert not hint.is_visible()


def test_what_there_is_not_is_said(stage, made_view):
    said = {
        "Predictions": "predicts neither tokens nor classes",
        "FeaturePanel": "No statistics for this SAE",
    }
    for name, words in said.items():
        root = play(stage, made_view(name))
        assert words in root.get_by_role("note").first.inner_text()
    card = aw.results.Scorecard([[[[1.0], [2.0]]]], metrics=["m"], methods=["one", "two"], x=[0])
    root = play(stage, aw.views.ScorecardView(card))
    for method in ("one", "two"):
        root.locator(".aw-lead button", has_text=method).click()
    assert "Every method is hidden" in root.get_by_role("note").inner_text()
    root.locator(".aw-lead button", has_text="one").click()
    assert root.locator(".aw-veil:visible").count() == 0
