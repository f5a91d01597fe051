"""An Explorer of a text with a prediction opens explained, on a page and with a kernel."""

from __future__ import annotations

import pytest

import attnwidgets as aw
from attnwidgets.explanations.results.verbalise import findings_of

from .settling import settle

FILM = "A wonderful film, and not too melodramatic."
CELLS = (
    f"""import attnwidgets as aw
trace = aw.trace(*aw.demo_model("classifier"), {FILM!r})""",
    "explorer = aw.Explorer(trace)\nexplorer",
)
# The colours behind the words.
COLOURS = "root => [...root.querySelectorAll('.aw-reading canvas')].map(canvas => canvas.toDataURL())"


def plain(element):
    """The text of an element, without the marks that isolate a token from the direction of its sentence."""
    return element.inner_text().replace("\u2068", "").replace("\u2069", "")


@pytest.fixture(scope="module")
def explained():
    return aw.trace(*aw.demo_model("classifier"), FILM)


@pytest.fixture
def page(page_of, explained):
    page = page_of(aw.Explorer(aw.trace(explained.model, explained.tokenizer, FILM)))
    settle(page)
    return page


def test_a_page_opens_with_the_words_that_speak_for_the_prediction(page, explained):
    root = page.locator(".aw-explorer")
    assert root.locator(".aw-sentence").inner_text() == findings_of(aw.lrp(explained))[0]
    assert "attend most to “wonderful”" in root.locator(".aw-heatmap .aw-opens").inner_text()


def test_a_pin_shows_what_a_token_reads_and_escape_the_explanation(page, explained):
    root = page.locator(".aw-explorer")
    sentence, opened = root.locator(".aw-sentence"), root.evaluate(COLOURS)
    root.locator(".aw-reading .aw-tok").nth(6).click()
    settle(page)
    assert plain(sentence) == "what “not” reads in layer 5, head 4 (5.4)"
    assert root.evaluate(COLOURS) != opened
    page.keyboard.press("Escape")
    page.mouse.move(0, 0)
    settle(page)
    assert sentence.inner_text() == findings_of(aw.lrp(explained))[0]
    assert root.evaluate(COLOURS) == opened


def test_every_prediction_of_a_page_is_explained_by_a_click(page, explained):
    root = page.locator(".aw-explorer")
    for label, target in (("negative", 0), ("positive", 1)):
        chip = root.locator(".aw-chip", has_text=label)
        chip.click()
        settle(page)
        assert chip.get_attribute("aria-pressed") == "true"
        assert root.locator(".aw-sentence").inner_text() == findings_of(aw.lrp(explained, target))[0]


def test_what_a_page_does_not_explain_is_no_button(page_of, explained):
    trace = aw.trace(explained.model, explained.tokenizer, FILM)
    page = page_of(aw.Explorer(trace, methods=["attention"]))
    settle(page)
    assert page.locator(".aw-chip:enabled").count() == 0
    assert plain(page.locator(".aw-sentence")).startswith("what “not” reads")


def test_a_kernel_explains_the_prediction_after_the_first_picture_and_moves_nothing(
    lab, screenshot, explained
):
    lab.write("explained.ipynb", *CELLS)
    page = lab.open("explained.ipynb")
    lab.run_all()
    sentence = page.locator(".aw-explorer .aw-sentence")
    sentence.filter(has_text="speaks for").wait_for(timeout=90_000)
    assert sentence.inner_text() == findings_of(aw.lrp(explained))[0]
    assert lab.ask("[explorer.selection.method, explorer.selection.layer, explorer.selection.head]") == [
        "attention",
        5,
        4,
    ]
    screenshot(page, "explained-in-lab.png")
    lab.do("explorer.show_text('A dreadful film, and far too melodramatic.')")
    sentence.filter(has_text="speaks for “negative”").wait_for(timeout=60_000)
    other = aw.trace(explained.model, explained.tokenizer, "A dreadful film, and far too melodramatic.")
    assert sentence.inner_text() == findings_of(aw.lrp(other))[0]
