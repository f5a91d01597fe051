"""The strip's tools, the filters of every map, and the panel of predictions, by keyboard and by pointer."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.text.units import Unit

from .lab import switch
from .settling import settle

TEXT = "The doctor met the nurse.\n\nThe electroencephalographer had not come."


def painted(page, selector):
    """How many pixels of a canvas are not painted, how many colours it has, and how many pixels."""
    settle(page)
    return page.locator(selector).first.evaluate(
        """c => {
          const pixels = c.getContext('2d').getImageData(0, 0, c.width, c.height).data;
          const words = new Uint32Array(pixels.buffer);
          return [[...words].filter(w => w === 0).length, new Set(words).size, words.length];
        }"""
    )


def test_a_piece_of_the_text_is_found_by_keyboard(minilm, page_of):
    page = page_of(aw.TokenStrip(aw.trace(*minilm, TEXT)))
    assert page.locator(".aw-paragraph").count() == 1  # WordPiece has no line ends
    page.locator(".aw-tok").first.focus()
    page.keyboard.press("/")
    page.keyboard.type("the ")
    count = page.locator(".aw-find output")
    assert count.inner_text() == "1 of 3"
    page.keyboard.press("Shift+Enter")
    assert count.inner_text() == "3 of 3"
    page.get_by_label("find in the text", exact=True).fill("enceph")
    assert count.inner_text() == "1 of 1"  # over the pieces of a word
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.textContent") == "##ence"
    page.keyboard.press("Enter")
    assert re.search("what .*##ence.* reads", page.locator(".aw-what").inner_text())
    page.keyboard.press("/")
    page.get_by_label("find in the text", exact=True).fill("nowhere")
    assert count.inner_text() == "not found"


def test_a_strip_is_read_by_any_unit_densely_and_underlined(minilm, page_of):
    page = page_of(aw.TokenStrip(aw.trace(*minilm, TEXT)))
    canvas = ".aw-underlay canvas"
    empty, _, pixels = painted(page, canvas)
    page.locator(".aw-tools > button").click()
    page.get_by_label("colour below the text").check()
    assert pixels - painted(page, canvas)[0] < 0.6 * (pixels - empty)
    high = page.locator(".aw-strip").bounding_box()["height"]
    page.get_by_label("compact").check()
    assert page.locator(".aw-strip").bounding_box()["height"] < high
    top = page.locator(".aw-ramp + span")
    before = float(top.inner_text())
    page.get_by_label(re.compile("^colour intensity")).fill("1")
    assert float(re.fullmatch(r"([\d.]+)\+", top.inner_text())[1]) == pytest.approx(before / 2, rel=0.05)
    assert re.search(r"largest [\d.]+", top.get_attribute("title"))
    page.keyboard.press("Escape")
    page.get_by_role("radio", name="tokens").focus()
    for unit, count in (("words", 14), ("sentences", 4), ("paragraphs", 4)):
        page.keyboard.press("ArrowRight")
        assert page.get_by_role("radio", name=unit).is_checked()
        assert page.locator(".aw-tok").count() == count


def test_many_targets_have_a_tab_each_and_are_read_together(page_of):
    values = [[0.5, -0.25, 0.125], [0.1, 0.2, 0.3], [0, 0, 0.75], [1, -1, 0.5]]
    scores = aw.results.Attributions(values, axis=list("abc"), target=[f"emotion {i}" for i in range(4)])
    page = page_of(aw.TokenStrip(scores))
    tabs = page.get_by_role("listbox").first
    tabs.get_by_text("emotion 2").click()
    shown = page.locator(".aw-strip-view").inner_text()
    assert re.search("attribution to target \\W*emotion 2", shown)
    page.locator(".aw-tok", has_text=re.compile("^c$")).hover()
    said = page.locator(".aw-readout").inner_text()
    read = dict(re.findall(r"“(emotion \d)”\W*[≈→]\W*(?:“c”\W*[=≈]\s*)?([\d.]+)", said))
    expected = {f"emotion {i}": row[2] for i, row in enumerate(values)}
    assert {name: pytest.approx(float(value), abs=0.01) for name, value in read.items()} == expected


def test_a_text_from_right_to_left_is_laid_out_and_walked_so(page_of):
    words = ("<s>", "הסרט", "הזה", "היה", "נפלא", "</s>")
    unit = Unit("word", words, tuple((i,) for i in range(6)), (True, *[False] * 4, True))
    scores = aw.results.Attributions(
        [[0, 4, 2, 1, 3, 0]], axis=aw.results.TokenAxis(words, {"word": unit}), unit="word"
    )
    page = page_of(aw.TokenStrip(scores))
    tokens = page.locator(".aw-tok")
    lefts = [token.bounding_box()["x"] for token in tokens.all()]
    assert lefts == sorted(lefts, reverse=True)
    tokens.nth(1).focus()
    page.keyboard.press("ArrowLeft")  # the next word is to the left
    assert page.evaluate("document.activeElement.textContent") == "הזה"
    # A marker stays in its order: "<" is left of "s".
    inside = """(token, i) => {
      const range = document.createRange();
      range.setStart(token.firstChild, i); range.setEnd(token.firstChild, i + 1);
      return range.getBoundingClientRect().left;
    }"""
    assert tokens.nth(5).evaluate(inside, 0) < tokens.nth(5).evaluate(inside, 2)


def test_what_a_filter_leaves_out_is_said_and_is_not_painted(minilm, page_of):
    page = page_of(
        aw.Heatmap(aw.trace(*minilm, "the cat sat on the mat"), layer=2, head=1, hide_special=False)
    )
    assert painted(page, ".aw-cells")[0] == 0
    dot = page.locator(".aw-tools .aw-dot")
    assert not dot.is_visible()
    page.locator(".aw-tools > button").focus()
    page.keyboard.press("Enter")
    page.get_by_label("special tokens").select_option("hide")
    note = page.locator(".aw-filters .aw-note")
    assert "rows sum to less than 1" in note.inner_text()
    empty, _, cells = painted(page, ".aw-cells")
    assert (empty, cells) == (8 * 8 - 6 * 6, 64)
    page.get_by_label("special tokens").select_option("renormalise")
    assert "divided by its sum" in note.inner_text()
    page.keyboard.press("Escape")
    assert not page.locator(".aw-tools-menu").is_visible()
    assert dot.is_visible()
    box = page.locator(".aw-plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 16, box["y"] + box["height"] / 2)
    assert "[CLS]" in page.locator(".aw-readout").inner_text()
    assert "left out" in page.locator(".aw-readout").inner_text()
    page.locator(".aw-tools > button").click()
    page.get_by_role("button", name="show everything").click()
    assert note.inner_text() == ""
    assert not dot.is_visible()
    assert painted(page, ".aw-cells")[0] == 0


def test_sliders_act_on_the_distribution_and_the_text_tells_its_surprisal(page_of, screenshot, smollm2):
    trace = aw.trace(*smollm2, "The capital of France is")
    page = page_of(aw.Predictions(trace))
    first = page.locator(".aw-predictions .aw-value").first
    probability = trace.predictions()[0].probability
    assert float(first.inner_text().split()[0]) == pytest.approx(100 * probability, abs=0.06)
    page.get_by_label("temperature").fill("2")
    warm = (trace.logits[-1].double() / 2).softmax(-1)
    assert float(first.inner_text().split()[0]) == pytest.approx(100 * float(warm.max()), abs=0.06)
    page.get_by_label("top k").fill("3")
    top = warm.topk(3).values
    assert float(first.inner_text().split()[0]) == pytest.approx(100 * float(top[0] / top.sum()), abs=0.06)
    assert "sampled from 3 of" in page.locator(".aw-predicts").inner_text()
    page.get_by_label("temperature").fill("0")
    assert first.inner_text() == "100.0\N{NO-BREAK SPACE}%"
    page.locator(".aw-segment", has_text="surprisal").click()
    page.locator(".aw-predicted .aw-tok").nth(2).hover()
    bits = aw.surprisal(trace).values[2]
    said = page.locator(".aw-predicted .aw-readout").inner_text()
    assert float(re.search(r"([\d.]+) bits", said)[1]) == pytest.approx(bits, rel=1e-3)
    page.locator(".aw-segment", has_text="continuations").click()
    page.get_by_role("button", name="write").click()
    page.get_by_text("kernel").first.wait_for()
    screenshot(page, "predictions.png", full_page=True)


def test_what_does_not_keep_its_rank_is_hatched_and_says_so(open_page, tmp_path, screenshot):
    words = ["The", "keys", "to", "the", "cabinet"]
    rows = {
        str(i): aw.results.Attributions(row, axis=words)
        for i, row in enumerate([[5.0, 4, 3, 2, 1], [5.0, 3, 4, 2, 1]])
    }
    view = aw.TokenStrip(aw.evaluate.robustness(rows))
    page = open_page(aw.to_html(view, tmp_path / "page.html").as_uri())
    hatched = page.locator(".aw-tok[data-unsettled]")
    hatched.first.wait_for()
    assert hatched.all_inner_texts() == ["keys", "to"]
    assert "gradient" in hatched.first.evaluate("el => getComputedStyle(el).backgroundImage")
    assert hatched.first.get_attribute("title") == "rank 2 to 3 over 2 defensible choices"
    page.get_by_text("hatched: the ranking of 2 of 5 tokens does not survive 2 defensible choices").wait_for()
    hatched.first.hover()
    assert "rank 2 to 3 over 2 defensible choices" in page.locator(".aw-readout").inner_text()
    page.locator(".aw-tok").first.hover()
    assert "· rank 1 over 2 defensible choices" in page.locator(".aw-readout").inner_text()
    screenshot(page, "hatched.png")


@pytest.mark.parametrize("width", [480, 760, 1200])
def test_a_strip_keeps_its_height_and_shows_a_row_at_once(minilm, page_of, width):
    view = aw.TokenStrip(aw.trace(*minilm, f"{TEXT} " * 20))
    page = page_of(view, viewport={"width": width, "height": 900})
    root = page.locator(".aw-strip-view")
    reading = page.locator(".aw-what")
    opening = view.selection.opening
    assert re.search(rf"what .*{view.trace.tokens[opening.query]}.* reads", reading.inner_text())
    assert opening.words in reading.inner_text()
    before = root.bounding_box()["height"]
    assert before <= 560
    # The query is in sight: the text has scrolled, and the page has not.
    texts = page.locator(".aw-texts").bounding_box()
    query = page.locator(".aw-query").bounding_box()
    assert texts["y"] <= query["y"] < texts["y"] + texts["height"]
    assert page.evaluate("scrollY") == 0
    tokens = page.locator(".aw-tok")
    for act in (
        lambda: tokens.nth(3).hover(),
        lambda: tokens.nth(3).click(),
        lambda: tokens.nth(5).click(),
        lambda: page.keyboard.press("/"),
        lambda: page.keyboard.press("Escape"),
        lambda: page.locator(".aw-segment", has_text="words").click(),
    ):
        act()
        settle(page)
        assert root.bounding_box()["height"] == before
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@pytest.mark.parametrize("width", [480, 760])
def test_predictions_keep_their_height_in_every_panel(page_of, width, smollm2):
    trace = aw.trace(*smollm2, "The capital of France is")
    page = page_of(aw.Predictions(trace), viewport={"width": width, "height": 900})
    root = page.locator(".aw-predicts")
    before = root.bounding_box()["height"]
    assert before <= 560
    page.get_by_role("button", name="show 40").click()
    assert page.locator(".aw-predictions > li").count() == 40
    for name in ("continuations", "surprisal"):
        switch(page, root, "panel", name)
        settle(page)
        assert root.bounding_box()["height"] == before
    page.locator(".aw-predicted .aw-tok").nth(2).click()
    page.get_by_role("button", name="back to the next token").wait_for()
    assert root.bounding_box()["height"] == before
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


COLOURED = """() => [...document.querySelectorAll(".aw-underlay canvas")].map(
  canvas => canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height).data.some(Boolean)
)"""


def test_of_a_long_text_the_part_in_sight_is_coloured_and_the_rest_when_it_comes_into_sight(page_of):
    weights = np.random.default_rng(0).dirichlet(np.full(512, 0.5), (1, 1, 512)) / 2
    weights[..., 200] += 0.5
    page = page_of(aw.TokenStrip(aw.from_attentions(weights, [f"token{i}" for i in range(512)])))
    page.wait_for_function(f"() => ({COLOURED})()[0]")
    settle(page)
    coloured = page.evaluate(COLOURED)
    assert coloured[-1]  # a long text opens on its query, the last token
    assert not any(coloured[2:4])
    assert page.locator(".aw-tok[data-flip]").count() == 0
    page.locator(".aw-tok").nth(200).scroll_into_view_if_needed()
    page.wait_for_function(f"() => ({COLOURED})()[3]")
    assert page.locator(".aw-tok[data-flip]").all_inner_texts() == ["token200"]
