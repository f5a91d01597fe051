"""SentenceView on a page: pointer, keys, values in words, linking, widths, and text that is hostile."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw

from .checks import BLANK, CLIPPED, OVERLAPS
from .settling import settle

SENTENCES = ["One is here.", "Two was there.", "Three reads one.", "Four."]
VALUES = np.array([[0, 0, 0, 0], [3, 0, 0, 0], [2, 1, 0, 0], [0.5, 0, 4, 0]], dtype=np.float32)
HOSTILE = ["<img src=x onerror=alert(1)>", "\u202eevil", "", "a\x00b", "עברית", "x" * 900, "</script>"]


def shown(values=VALUES, labels=SENTENCES):
    return aw.results.MixingMap(values[None], query=labels)


def readout(page):
    page.mouse.move(2, 2)
    return page.locator(".aw-sentences > .aw-footer > .aw-readout").inner_text()


def values(page, group):
    items = page.locator(f".aw-sentence-bars[aria-label='{group}'] .aw-sentence-bar").all()
    return [" ".join(item.inner_text().split()) for item in items]


def chosen(page):
    return page.locator(".aw-sentence-row[aria-selected=true]").inner_text().split("\n")[-1]


@pytest.fixture
def page(page_of):
    sentences = shown()
    page = page_of(aw.views.SentenceView(sentences), aw.Heatmap(sentences))
    page.locator(".aw-sentence-arc").first.wait_for(state="attached")
    return page


def test_it_opens_on_the_last_sentence_with_both_sides_in_words(page):
    assert chosen(page) == "Four."
    assert values(page, "what it depends on") == ["2 Three reads one. 4.0", "0 One is here. 0.50"]
    assert values(page, "what depends on it") == []
    assert page.locator(".aw-sentence-arc").count() == 5
    assert page.locator(".aw-sentence-on").count() == 2
    widths = page.locator(".aw-sentence-arc").evaluate_all(
        "all => all.map(e => +e.getAttribute('stroke-width'))"
    )
    assert max(widths) == 6, "the largest value ends the scale"


def test_a_click_chooses_and_links_and_a_value_pins_the_pair(page):
    height = page.locator(".aw-sentences").bounding_box()["height"]
    page.locator(".aw-sentence-row").nth(2).click()
    assert chosen(page) == "Three reads one."
    assert values(page, "what it depends on") == ["0 One is here. 2.0", "1 Two was there. 1.01"]
    assert values(page, "what depends on it")[0].startswith("3 Four. 4")
    assert readout(page).startswith("2 \u2068“Three reads one.”\u2069 depends on 0 ≈ 2.0")
    assert page.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").inner_text() == "Three reads one."
    page.locator(".aw-sentence-bar").last.click()
    assert chosen(page) == "Three reads one.", "the chosen sentence stays"
    assert page.locator(".aw-sentence-bar[aria-pressed=true]").count() == 1
    assert page.locator(".aw-heatmap .aw-labs-left > .aw-lab-pin").inner_text() == "Four."
    assert page.locator(".aw-sentences .aw-copy").is_enabled()
    assert page.locator(".aw-sentences").bounding_box()["height"] == height == 500


def test_keys_walk_along_sentences_and_arcs(page):
    page.locator(".aw-sentence-list").focus()
    for key, expected in [
        ("ArrowUp", "Three reads one."),
        ("ArrowLeft", "One is here."),
        ("ArrowRight", "Two was there."),
        ("Home", "One is here."),
        ("End", "Four."),
        ("Escape", "Four."),
    ]:
        page.keyboard.press(key)
        assert chosen(page) == expected, key
    active = page.locator(".aw-sentence-list").get_attribute("aria-activedescendant")
    assert page.locator(f"[id='{active}']").inner_text().endswith("Four.")


def test_a_pin_and_a_pointer_in_another_view_are_followed(page):
    plot = page.locator(".aw-heatmap .aw-plot")
    box = plot.bounding_box()
    plot.click(position={"x": 10, "y": 1.5 * box["height"] / 4})
    assert chosen(page) == "Two was there."


def test_the_threshold_and_the_distance_leave_arcs_out(page):
    slider = page.get_by_role("slider", name="smallest arc")
    slider.fill("0.7")
    assert page.locator(".aw-sentence-arc").count() == 2
    slider.fill("0")
    page.locator(".aw-sentences .aw-menu-button").click()
    page.get_by_role("option", name="2 or more apart").click()
    assert page.locator(".aw-sentence-arc").count() == 2
    assert values(page, "what it depends on") == ["0 One is here. 0.50"]
    assert "2 or more apart" in page.locator(".aw-sentence-note").inner_text()


@pytest.mark.parametrize("count", [2, 7, 200])
def test_it_fits_at_any_width_whatever_the_text_is(page_of, count):
    labels = [HOSTILE[index % 7] if count == 7 else f"Sentence {index} " * 9 for index in range(count)]
    numbers = np.tril(np.random.default_rng(0).normal(size=(count, count)).astype("f4"), -1)
    numbers[1, 0] = -2
    page = page_of(aw.views.SentenceView(shown(numbers, labels)), viewport={"width": 528, "height": 900})
    page.locator(".aw-sentence-arc").first.wait_for(state="attached")
    for width in (480, 760, 1200):
        page.set_viewport_size({"width": width + 48, "height": 900})
        settle(page)
        assert page.locator(".aw-sentences").bounding_box()["height"] == 500
        for check in (BLANK, CLIPPED, OVERLAPS):
            assert page.evaluate(check) == []
    assert page.locator(".aw-sentence-fill[data-side]").count() > 0
    assert page.locator(".aw-root img").count() == 0


def test_one_sentence_says_what_is_missing(page_of):
    page = page_of(aw.views.SentenceView(shown(np.ones((1, 1), dtype=np.float32), ["Alone."])))
    assert "has one token" in page.get_by_role("note").filter(has_text="This text").inner_text()
