"""AudioView on a page: it plays the marked span; words, spans and linked views share a selection."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from tests.browser.checks import CLIPPED
from tests.speech.made import RATE, heard, spoken, tones

# Every buffer that a page has played.
LISTEN = """() => {
  window.played = [];
  const begin = AudioBufferSourceNode.prototype.start;
  AudioBufferSourceNode.prototype.start = function (...args) {
    window.played.push({ rate: this.buffer.sampleRate, samples: [...this.buffer.getChannelData(0)] });
    return begin.apply(this, args);
  };
}"""


@pytest.fixture(scope="module")
def times():
    return heard()


@pytest.fixture
def page(times, page_of, request):
    zeroed = aw.value_zeroing(times.trace, stack="encoder", unit="word")
    views = [aw.AudioView(times), aw.Heatmap(zeroed)]
    page = page_of(*views, **getattr(request, "param", {}))
    page.evaluate(LISTEN)
    page.locator(".aw-audio .aw-audio-box").first.wait_for()
    return page


def word(page, number):
    return page.locator(".aw-audio-word").nth(number)


def marked(page):
    return page.locator(".aw-audio-stage .aw-audio-edge").count()


def footer(page):
    return page.locator(".aw-audio > .aw-footer > .aw-readout").inner_text()


def play(page):
    return page.locator(".aw-audio-play")


def test_the_samples_that_are_played_are_those_of_the_word(page, times):
    assert page.evaluate("window.played.length") == 0, "nothing plays by itself"
    assert play(page).is_disabled()
    word(page, 1).click()
    assert marked(page) == 2
    assert play(page).inner_text() == "▶ 0.25 – 0.50 s"
    play(page).click()
    [heard] = page.evaluate("window.played")
    expected = tones()[round(0.25 * RATE) : round(0.5 * RATE)]
    assert heard["rate"] == RATE
    assert len(heard["samples"]) == len(expected)
    assert np.abs(np.array(heard["samples"]) - expected).max() < 2 / 2**15
    page.locator(".aw-audio-all").click()  # stops playing, or plays all
    page.wait_for_function("() => document.querySelector('.aw-audio-play').textContent.startsWith('▶')")


def test_keys_go_from_word_to_word_and_play_them(page):
    stage = page.locator(".aw-audio-stage")
    stage.focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert "“<b>mid</b>” 0.25 – 0.50 s" in footer(page)
    assert word(page, 1).get_attribute("aria-selected") == "true"
    assert "<b>mid</b>" in stage.get_attribute("aria-label")
    page.keyboard.press(" ")
    assert page.evaluate("window.played[0].samples.length") == RATE // 4
    page.keyboard.press("Escape")
    assert marked(page) == 0
    page.keyboard.press("+")
    page.keyboard.press("+")
    ticks = page.locator(".aw-audio-front text").all_text_contents()
    page.keyboard.press("Shift+ArrowRight")
    assert page.locator(".aw-audio-front text").all_text_contents() != ticks
    page.keyboard.press("0")
    assert "0 s" in page.locator(".aw-audio-front text").all_text_contents()


def test_a_span_is_dragged_and_heard_and_marks_its_words_in_linked_views(page):
    box = page.locator(".aw-audio-stage").bounding_box()
    left = page.locator(".aw-audio-stage canvas").first.bounding_box()
    at = [left["x"] + left["width"] * second / 0.75 for second in (0.3, 0.6)]
    page.mouse.move(at[0], box["y"] + 20)
    page.mouse.down()
    page.mouse.move(at[1] - 30, box["y"] + 20, steps=3)
    page.mouse.move(at[1], box["y"] + 20)
    page.mouse.up()
    assert marked(page) == 2
    begin, end = (float(part) for part in play(page).inner_text().strip("▶ s").split(" – "))
    assert (begin, end) == (pytest.approx(0.3, abs=0.01), pytest.approx(0.6, abs=0.01))
    play(page).click()
    count = page.evaluate("window.played[0].samples.length")
    assert count == pytest.approx((end - begin) * RATE, abs=0.02 * RATE)
    word(page, 0).click()
    assert play(page).inner_text() == "▶ 0.00 – 0.25 s"


def test_a_word_is_one_in_text_boxes_map_and_linked_views(page):
    page.locator(".aw-audio .aw-toolbar .aw-menu-button").first.click()
    page.get_by_role("option", name="encoder", exact=True).click()
    page.locator(".aw-audio .aw-audio-map").wait_for()
    box = page.locator(".aw-audio-box").nth(2).bounding_box()
    page.mouse.click(box["x"] + 20, box["y"] + 10)
    assert word(page, 2).get_attribute("aria-selected") == "true"
    assert page.locator(".aw-audio-box[data-pinned]").inner_text() == "high"
    assert "high" in page.locator(".aw-heatmap > .aw-footer > .aw-readout").inner_text()
    assert page.locator(".aw-audio .aw-audio-row").count() == 1


@pytest.mark.parametrize(
    "page",
    [
        {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
        for width, scheme in ((500, "light"), (780, "dark"), (1220, "light"), (1220, "dark"))
    ],
    indirect=True,
)
def test_it_fits_and_keeps_its_height(page, screenshot):
    view = page.locator(".aw-audio")
    height = view.bounding_box()["height"]
    assert height <= 560
    word(page, 1).click()
    page.mouse.move(2, 2)
    assert view.bounding_box()["height"] == height
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert [result for result in page.evaluate(CLIPPED) if "audio" in result] == []
    width = page.viewport_size["width"]
    screenshot(view, f"audio-{width}-{view.get_attribute('data-aw-theme')}.png")
    assert page.locator(".aw-audio-panel").is_visible() == (width > 1100)


@pytest.mark.parametrize(
    ("width", "scheme"), [(480, "light"), (760, "dark"), (1200, "light"), (1200, "dark")]
)
def test_an_explorer_of_a_sound_shows_it_under_wave_and_words_in_one_screen(
    page_of, screenshot, width, scheme
):
    view = aw.Explorer(spoken(), layer=1, head=2)
    page = page_of(view, viewport={"width": width, "height": 800}, color_scheme=scheme)
    page.locator(".aw-audio .aw-audio-box").first.wait_for()
    root = page.locator(".aw-explorer")
    assert root.bounding_box()["height"] <= 560
    assert page.locator(".aw-heatmap").count() == 0
    assert play(page).is_disabled()
    page.locator(".aw-explorer .aw-reading .aw-tok", has_text="ate").click()
    page.mouse.move(2, 2)
    assert page.locator(".aw-audio-box[data-pinned]").inner_text() in ("ate", "")  # a name that fits
    assert play(page).is_enabled()
    assert page.locator(".aw-audio .aw-audio-row").count() == 1
    stage = page.locator(".aw-audio-stage").bounding_box()
    readout = page.locator(".aw-explorer > .aw-footer .aw-readout").inner_text()
    assert "“ate”" in readout
    assert "pinned" in readout
    assert stage["y"] + stage["height"] <= root.bounding_box()["y"] + root.bounding_box()["height"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    screenshot(root, f"explorer-audio-{width}-{scheme}.png")


def test_the_row_that_an_explorer_draws_over_the_sound_is_that_of_the_unit_that_is_shown(page_of):
    page = page_of(aw.Explorer(spoken(), layer=1, head=2))
    page.locator(".aw-audio .aw-audio-box").first.wait_for()
    names = page.locator(".aw-audio-front .aw-audio-name").all_text_contents()
    assert names[:2] == ["he", "ate"]
    page.locator(".aw-segment", has_text="frames").click()
    page.locator(".aw-audio-front .aw-audio-name", has_text="0.00 s").wait_for()
    page.locator(".aw-segment", has_text="words").click()
    page.locator(".aw-audio-front .aw-audio-name", has_text="ate").wait_for()
