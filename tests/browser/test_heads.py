"""HeadView in a page: hover, pins, chips, texts, long inputs, what is missing, all of it by keyboard too."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw

COLOURS = """(c, [left, right]) => {
  const wide = Math.round((right - left) * c.width);
  const {data} = c.getContext("2d").getImageData(Math.round(left * c.width), 0, wide, c.height);
  const found = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) found.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
  }
  return [...found];
}"""


@pytest.fixture
def page_of(open_page, tmp_path):
    def make(*views, **options):
        page = open_page(aw.to_html(list(views), tmp_path / "page.html", **options).as_uri())
        page.locator(".aw-hv-row").first.wait_for()
        page.wait_for_timeout(60)  # a frame
        return page

    return make


@pytest.fixture
def pair():
    numbers = np.random.default_rng(1).dirichlet(np.ones(5) * 0.4, (2, 3, 5)).astype(np.float32)
    return aw.from_attentions(numbers, ["one", "two", "three", "four", "five"], second_text=2)


@pytest.fixture
def page(page_of, pair):
    return page_of(aw.HeadView(pair))


def row(page, side, i):
    return page.locator(f".aw-hv-{side} .aw-hv-row:visible").nth(i)


def said(page):
    page.wait_for_timeout(60)
    return page.locator(".aw-headview > .aw-readout").inner_text().translate({0x2068: None, 0x2069: None})


def caption(page):
    page.wait_for_timeout(60)
    return page.locator(".aw-headview > .aw-line").inner_text()


def pressed(page):
    return [chip.get_attribute("aria-pressed") == "true" for chip in page.locator(".aw-chip").all()]


def pinned(page):
    return page.locator(".aw-hv-pin:visible").count()


def test_a_token_shows_its_lines_and_a_bar_for_each_head_at_the_other_side(page, pair):
    canvas = page.locator(".aw-hv-canvas")
    row(page, "query", 3).hover()
    values = aw.attention(pair).layer(0)[:, 3]
    head, key = np.unravel_index(values.argmax(), values.shape)
    words = said(page)
    assert words.startswith(f"“four” reads “{('one', 'two', 'three', 'four', 'five')[key]}”")
    assert f"(head {head})" in words.split(",")[0]
    bars = canvas.evaluate(COLOURS, [0.95, 1])
    assert {0x0072B2, 0xD55E00, 0x701031} & set(bars)
    assert canvas.evaluate(COLOURS, [0, 0.02]) == []
    row(page, "key", 0).hover()
    assert said(page).startswith("“one” is read by")
    assert {0x0072B2, 0xD55E00, 0x701031} & set(canvas.evaluate(COLOURS, [0, 0.05]))
    page.mouse.move(2, 2)
    assert said(page).startswith("strongest: ")
    assert re.match(r"7\d of 75 edges, all of the mass", caption(page))


def test_a_click_pins_and_the_other_side_then_tells_the_pair(page):
    row(page, "query", 1).click()
    row(page, "key", 4).hover()
    words = said(page)
    assert words.startswith("pinned “two” reads “five”: head ")
    assert "mean of 3 heads" in words
    page.mouse.move(2, 2)
    assert said(page).startswith("pinned “two” reads")
    row(page, "query", 1).click()
    page.mouse.move(2, 2)
    assert pinned(page) == 0


def test_chips_show_hide_and_single_out_heads(page):
    chips = page.locator(".aw-chip")
    chips.nth(1).click()
    assert pressed(page) == [True, False, True]
    assert "of 50 edges" in caption(page)
    chips.nth(2).dblclick()
    assert pressed(page) == [False, False, True]
    assert "of 25 edges" in caption(page)
    chips.nth(2).dblclick()
    assert pressed(page) == [True, True, True]
    chips.nth(0).focus()
    page.keyboard.press("ArrowRight")
    page.keyboard.press("Space")
    assert pressed(page) == [True, False, True]
    page.keyboard.press("s")
    assert pressed(page) == [False, True, False]
    page.keyboard.press("Space")
    assert said(page) == "No head is chosen."
    page.keyboard.press("a")
    assert pressed(page) == [True, True, True]


def test_a_pair_is_looked_at_between_its_texts(page):
    page.get_by_text("B → A", exact=True).click()
    assert "of 18 edges" in caption(page)  # 3 heads, 3 tokens of B, 2 of A
    row(page, "query", 3).hover()
    words = said(page)
    assert "“one”" in words
    assert "“two”" in words
    assert not re.search("three|five", words)
    row(page, "query", 0).hover()
    assert said(page) == "“one” reads nothing shown"


def test_everything_goes_by_keyboard(page):
    plot = page.locator(".aw-hv-plot")
    plot.focus()
    for _ in range(3):
        page.keyboard.press("ArrowDown")
    assert said(page).startswith("“three” reads")
    page.keyboard.press("Enter")
    assert said(page).startswith("pinned “three” reads")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("End")
    assert said(page).startswith("pinned “three” reads “five”: head")
    region = page.locator(".aw-headview > .aw-sr")
    page.wait_for_function("el => el.textContent.includes('five')", arg=region.element_handle())
    page.keyboard.press("PageDown")
    assert "layer 1" in page.locator(".aw-headview .aw-where").first.inner_text()
    page.keyboard.press("Escape")
    assert pinned(page) == 0


def test_a_causal_model_s_later_tokens_are_hatched_and_not_zero(page_of):
    numbers = np.tril(np.random.default_rng(0).random((1, 2, 6, 6)) + 0.1)
    page = page_of(aw.HeadView(aw.from_attentions(numbers / numbers.sum(-1, keepdims=True), list("abcdef"))))
    assert "of 42 edges" in caption(page)
    row(page, "query", 2).hover()
    hatched = page.locator(".aw-hv-key .aw-hv-masked").bounding_box()
    assert hatched["height"] == pytest.approx(3 * row(page, "key", 0).bounding_box()["height"], abs=1)
    row(page, "key", 2).hover()
    hatched = page.locator(".aw-hv-query .aw-hv-masked").bounding_box()
    assert hatched["height"] == pytest.approx(2 * row(page, "key", 0).bounding_box()["height"], abs=1)


def test_long_texts_scroll_and_a_pinned_token_stays_in_view(page_of):
    n = 400
    numbers = np.full((1, 2, n, n), 0.1 / n, dtype=np.float32)
    numbers[0, 0, 5, 350] = 0.9
    page = page_of(aw.HeadView(aw.from_attentions(numbers, [f"t{i}" for i in range(n)]), units=["token"]))
    assert page.evaluate("document.querySelectorAll('.aw-headview *').length") < 400
    tops = "['query', 'key'].map((side) => document.querySelector('.aw-hv-' + side).scrollTop)"
    box = page.locator(".aw-hv-plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.wheel(0, 300)
    page.wait_for_timeout(200)
    assert page.evaluate(tops) == [300, 300]
    page.mouse.wheel(0, -300)
    page.wait_for_timeout(200)
    assert "of the 32 tokens in view" in caption(page)
    row(page, "query", 5).click()
    below = page.locator(".aw-hv-beyond button:visible")
    assert said(page).startswith("pinned “t5” reads “t350” ≈ 0.9 (head 0)")
    assert below.inner_text().startswith("↓ 9")
    below.click()
    page.wait_for_timeout(200)
    query, key = page.evaluate(tops)
    assert query == 0  # the pinned token is where it was
    assert page.locator(".aw-hv-key").get_by_text("t350", exact=True).is_visible()
    assert key > 5000


def test_what_is_not_in_the_file_is_said_and_the_rest_still_works(page_of):
    numbers = np.random.default_rng(0).dirichlet(np.ones(220), (2, 12, 220)).astype(np.float32)
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(220)])
    page = page_of(aw.HeadView(trace, units=["token"]), layers=[0])
    page.locator(".aw-hv-plot").focus()
    page.keyboard.press("PageDown")
    page.locator(".aw-hv-plot > .aw-busy").get_by_text(re.compile("layer 1: not in this file")).wait_for()
    page.keyboard.press("PageUp")
    row(page, "query", 3).hover()
    assert said(page).startswith("“t3” reads “t")


def test_it_is_linked_with_other_views(page_of, pair):
    page = page_of(aw.Heatmap(pair), aw.HeadView(pair), aw.HeadView(aw.rollout(pair)))
    box = page.locator(".aw-heatmap .aw-plot").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    page.mouse.move(2, 2)
    page.wait_for_timeout(80)
    told = page.locator(".aw-headview > .aw-readout").all_inner_texts()
    assert len(told) == 2
    assert all(re.match("pinned .*two.* reads .*three", text) for text in told)
