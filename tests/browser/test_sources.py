"""SourcesView on a page: words, messages and parts of a picture by pointer and keys, widths, and a kernel."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from tests.tracing import chats
from tests.views.test_sources_view import MESSAGES, many

from .checks import CLIPPED, OVERLAPS
from .settling import settle
from .stage import play


@pytest.fixture(scope="module")
def result():
    trace = aw.trace(chats.model(), chats.tokenizer("chatml"), messages=MESSAGES)
    return aw.circuits.sources(trace)


def numbers(root):
    return [text.replace("−", "-") for text in root.locator(".aw-source-value").all_inner_texts()]


def selected(root):
    return root.locator(".aw-source-card[aria-selected=true]").evaluate_all(
        "all => all.map(e => e.dataset.part)"
    )


def test_it_is_read_by_pointer_and_keys(result, page_of):
    values = np.full(60, 0.01)
    values[[0, 17, 40, 59]] = 9, 2, -1.5, 9
    view = result.view()
    view.written_without(1)
    page = page_of(view, many(values).view())
    first, second = page.locator(".aw-sources").all()
    page.locator(".aw-source-card").first.wait_for()

    def shown(row):
        return [f"{value:+.2f}".replace("+0.00", "0.00").replace("-0.00", "0.00") for value in row]

    # The first sentence has no words before it.
    assert numbers(first) == shown(result.scores.values[0][:4])
    assert first.locator(".aw-source-card[data-kind=question] .aw-source-head").inner_text() == "3 user"
    pieces = first.locator(".aw-source-piece")
    pieces.nth(1).click()
    settle(page)
    assert numbers(first) == shown(result.scores.values[1])
    assert first.locator(".aw-source-card[data-kind=answer] .aw-source-text").inner_text() == "It is Ada."
    # Up and down choose a message, left and right a sentence.
    first.locator(".aw-source-cards").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    settle(page)
    assert selected(first) == ["1"]
    assert "without message 1 · sentence 1" in first.locator(".aw-readout").inner_text()
    assert (
        first.locator(".aw-source-written").inner_text().startswith("Without message 1 it would have said: “")
    )
    page.keyboard.press("ArrowDown")
    settle(page)
    # A page holds the written text, and offers nothing else.
    assert first.locator(".aw-source-without").is_hidden()
    page.keyboard.press("ArrowLeft")
    settle(page)
    assert numbers(first) == shown(result.scores.values[0][:4])
    page.keyboard.press("Escape")
    settle(page)
    assert selected(first) == []
    assert "No message matters much" in first.locator(".aw-source-notes").inner_text()
    # Words are in the page as well.
    first.locator(".aw-segment", has_text="words").click()
    first.locator(".aw-source-piece", has_text="Ada").click()
    settle(page)
    assert numbers(first) == shown(view.score(0, part, word=2) for part in range(4))
    assert second.get_attribute("aria-label").startswith(
        "Which token does this sentence rest on? “Yes.” rests"
    )
    check_folds(page, second)


def check_folds(page, root):
    folds = root.locator(".aw-source-fold")
    assert folds.all_inner_texts() == ["… 15 tokens", "… 20 tokens", "… 17 tokens"]
    folds.nth(1).click()
    settle(page)
    assert folds.all_inner_texts() == ["… 15 tokens", "… 17 tokens"]
    assert selected(root) == ["19"]
    root.locator(".aw-source-cards").focus()
    page.keyboard.press("Home")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    settle(page)
    assert folds.all_inner_texts() == ["… 17 tokens"]
    assert selected(root) == ["1"]
    # The strip reaches a message that is folded.
    root.locator(".aw-source-strip > [data-part='50']").click()
    settle(page)
    assert selected(root) == ["50"]
    assert root.locator("[data-part='50'].aw-source-card").is_visible()


def test_it_fits_narrow_and_wide_pages(result, page_of):
    view = result.view()
    view.written_without(1)
    page = page_of(view, many(np.linspace(-1, 5, 200)).view(), viewport={"width": 480, "height": 900})
    root = page.locator(".aw-sources").first
    page.locator(".aw-source-card").first.wait_for()
    for width in (480, 760, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CLIPPED) == []
        assert root.evaluate("e => e.offsetHeight") == 540
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        (answer, card) = (
            root.locator(name).first.evaluate("e => e.getBoundingClientRect().left")
            for name in (".aw-source-answer", ".aw-source-card")
        )
        assert (answer > card + 200) == (width == 1200)


def test_the_model_writes_again_on_request(result, open_page):
    view, page = result.view(), open_page()
    view._send_along()
    play(page, view, "works", cold=False)
    page.locator(".aw-source-card").nth(1).click()
    page.get_by_role("button", name="Without message 1 it would have said").click()
    page.get_by_text("3 of 6").wait_for()
    asked = page.evaluate("() => sent.find(({topic}) => topic === 'written_without')")
    assert asked["args"] == {"part": 1}
    page.get_by_role("button", name="Cancel").click()
    assert page.evaluate("() => sent.find(({kind}) => kind === 'cancel').job") == asked["id"]


@pytest.fixture(scope="module")
def scene_trace():
    model, processor = aw.zoo.trained("scenes")
    scene = model.truth.scene(7)
    return aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)


def test_a_picture_has_a_copy_for_each_word_that_rests_on_it(scene_trace, page_of):
    view = aw.vision.sources(scene_trace, (16, 24)).view()
    view.written_without(5)
    page = page_of(view, viewport={"width": 1200, "height": 900})
    root, copies = page.locator(".aw-sources"), page.locator(".aw-source-picture")
    copies.first.wait_for()
    settle(page)
    assert copies.locator("b").all_inner_texts() == ["red", "middle", "right"]
    readout, pin = root.locator(".aw-readout"), root.locator(".aw-source-pin").first
    # The cell of the circle is in another colour than in the picture, and others are veiled.
    pixels = """(canvas, at) => [...canvas.getContext("2d").getImageData(
      at[0] * canvas.width, at[1] * canvas.height, 1, 1).data].slice(0, 3)"""
    canvas = copies.nth(0).locator("canvas")
    middle, edge, shape = (canvas.evaluate(pixels, at) for at in ([0.83, 0.5], [0.67, 0.5], [0.12, 0.5]))
    assert middle[0] > 2 * middle[2]  # red
    assert edge != middle
    assert min(shape) > 100  # a purple cross beneath the veil
    # A part under the pointer is read for the word of its copy.
    box = copies.nth(1).locator("canvas").bounding_box()
    page.mouse.move(box["x"] + 0.8 * box["width"], box["y"] + 0.5 * box["height"])
    settle(page)
    assert "+0.7724 nats without patch 1,2 · " in readout.inner_text()
    page.mouse.move(box["x"] + 0.1 * box["width"], box["y"] + 0.1 * box["height"])
    page.mouse.down()
    page.mouse.up()
    settle(page)
    assert root.locator(".aw-source-picture[aria-selected=true] b").inner_text() == "middle"
    assert pin.evaluate("e => [e.style.left, e.style.visibility]") == ["0%", "visible"]
    # A page holds the text that was written without the circle, and nothing else.
    assert root.locator(".aw-source-without").is_hidden()
    root.locator(".aw-source-pictures").focus()
    page.keyboard.press("Home")
    settle(page)
    assert "the circle is green" in root.locator(".aw-source-written").inner_text()
    page.keyboard.press("ArrowLeft")  # "at" rests on nothing, and has no copy
    settle(page)
    assert root.locator(".aw-source-picture[aria-selected=true]").count() == 0
    assert "No part matters much" in root.locator(".aw-source-notes").inner_text()
    page.keyboard.press("Escape")
    page.locator(".aw-segment", has_text="whole answer").click()
    settle(page)
    assert copies.locator("b").all_inner_texts() == ["the whole answer"]
    assert "+31.2057 nats without patch 1,2 · " in readout.inner_text()
    for width in (480, 760, 1200):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert page.evaluate(OVERLAPS) == []
        assert page.evaluate(CLIPPED) == []
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert root.evaluate("e => e.offsetHeight") == 600


def test_logits_and_shares_of_a_picture_are_named(scene_trace, page_of):
    views = [aw.vision.sources(scene_trace, (16, 24), by=by).view() for by in ("lrp", "rollout")]
    page = page_of(*views, viewport={"width": 1200, "height": 900})
    page.locator(".aw-source-picture").nth(11).wait_for()
    settle(page)
    relevance, shares = page.locator(".aw-sources").all()
    assert relevance.locator(".aw-readout").inner_text().startswith("+10.1831 logits from token 1,2 · ")
    assert shares.locator(".aw-readout").inner_text().startswith("12.852% from token 1,2 · ")
    assert shares.locator(".aw-scale").get_attribute("aria-label") == (
        "0 to 12.9%, share of the picture's tokens in attention rollout; one scale for all words"
    )
    labels = [
        root.locator(".aw-source-picture[aria-selected=true]").get_attribute("aria-label")
        for root in (relevance, shares)
    ]
    assert labels[0].endswith("+10.18 logits from token 1,2")
    assert labels[1].endswith("12.9% from token 1,2")
    assert "none that reaches 2.5 logits, a quarter of the largest" in relevance.inner_text()
    notes = relevance.locator(".aw-source-notes").inner_text()
    assert "Rests most on token 1,2: +10.18 logits." in notes
    assert "likely" not in notes
    assert "the text +1.49 logits" in notes
    shares.locator(".aw-segment", has_text="whole answer").click()
    settle(page)
    assert "the mean of their shares" in shares.inner_text()
