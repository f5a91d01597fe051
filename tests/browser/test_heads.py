"""HeadView in a page: hover, pins, chips, texts, long inputs, missing rows, all of it by keyboard too."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw

from .conftest import drawn
from .settling import settle

COLOURS = """(c, [left, right]) => {
  const wide = Math.round((right - left) * c.width);
  const {data} = c.getContext("2d").getImageData(Math.round(left * c.width), 0, wide, c.height);
  const colours = new Set();
  for (let i = 0; i < data.length; i += 4) {
    if (data[i + 3] > 200) colours.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
  }
  return [...colours];
}"""


@pytest.fixture
def page_of(open_page, tmp_path):
    def make(*views, **options):
        page = open_page(aw.to_html(list(views), tmp_path / "page.html", **options).as_uri())
        drawn(page)
        return page

    return make


@pytest.fixture
def pair():
    numbers = np.random.default_rng(1).dirichlet(np.ones(5) * 0.4, (2, 3, 5)).astype(np.float32)
    return aw.from_attentions(numbers, ["one", "two", "three", "four", "five"], second_text=2)


@pytest.fixture
def page(page_of, pair):
    return page_of(aw.HeadView(pair, layer=0, head=0, heads=[0, 1, 2]))


@pytest.fixture
def single(page_of, pair):
    """A page with the first head alone."""
    return page_of(aw.HeadView(pair, layer=0, head=0))


def title(page):
    settle(page)
    return page.locator(".aw-headview .aw-title").inner_text()


def row(page, side, i):
    return page.locator(f".aw-hv-{side} .aw-hv-row:visible").nth(i)


def said(page):
    settle(page)
    return (
        page.locator(".aw-headview > .aw-footer > .aw-readout")
        .inner_text()
        .translate({0x2068: None, 0x2069: None})
    )


def values(page, side):
    settle(page)
    return page.locator(f".aw-hv-{side} .aw-hv-row:visible .aw-hv-value").all_inner_texts()


def heights(page):
    boxes = (
        "view => [view, view.querySelector('.aw-hv-plot')].map(el => el.getBoundingClientRect().height)",
    )
    settle(page)
    return page.locator(".aw-headview").evaluate(*boxes)


def pressed(page):
    settle(page)
    return [chip.get_attribute("aria-pressed") == "true" for chip in page.locator(".aw-hv-chip").all()]


def pinned(page):
    settle(page)
    return page.locator(".aw-hv-pin:visible").count()


def test_a_token_shows_its_lines_and_a_bar_for_each_head_at_the_other_side(page, pair):
    canvas = page.locator(".aw-hv-canvas")
    row(page, "query", 3).hover()
    values = aw.attention(pair).layer(0)[:, 3]
    head, key = np.unravel_index(values.argmax(), values.shape)
    words = said(page)
    assert words.startswith(f"“four” reads “{('one', 'two', 'three', 'four', 'five')[key]}”")
    assert f"(head {head})" in words.split(",")[0]
    heads = [part.rpartition("(")[2] for part in words.split(", ") if "(head" in part]
    assert len(set(heads)) > 1 or len(heads) == 1  # a head of all lines is named once
    bars = canvas.evaluate(COLOURS, [0.95, 1])
    assert {0x0072B2, 0xD55E00, 0x701031} & set(bars)
    assert canvas.evaluate(COLOURS, [0, 0.02]) == []
    row(page, "key", 0).hover()
    assert said(page).startswith("“one” is read by")
    assert {0x0072B2, 0xD55E00, 0x701031} & set(canvas.evaluate(COLOURS, [0, 0.05]))
    page.mouse.move(2, 2)
    assert said(page).startswith("“five” reads")  # the last token, until another is chosen


def test_one_head_is_shown_with_the_values_of_one_token(single, pair):
    exact = aw.attention(pair).layer(0)[0]
    assert single.locator(".aw-hv-heads").is_hidden()
    assert [float(text.lstrip("< ")) for text in values(single, "key")] == pytest.approx(
        exact[4].tolist(), abs=0.011
    )
    row(single, "query", 1).hover()
    assert float(max(values(single, "key"))) == pytest.approx(exact[1].max(), abs=0.011)
    strong = single.locator(".aw-hv-key [data-strong] .aw-hv-name").inner_text()
    assert strong == ("one", "two", "three", "four", "five")[exact[1].argmax()]
    assert values(single, "query") == [""] * 5
    row(single, "key", 2).hover()
    assert float(max(values(single, "query"))) == pytest.approx(exact[:, 2].max(), abs=0.011)
    assert values(single, "key") == [""] * 5
    single.get_by_role("button", name="next head").click()
    assert "head 1" in title(single)
    single.get_by_role("button", name="several").click()
    assert pressed(single) == [False, True, False]


def test_the_height_is_constant(single):
    before = heights(single)
    assert before[0] <= 560
    row(single, "query", 1).hover()
    assert heights(single) == before
    row(single, "query", 1).click()
    assert heights(single) == before
    single.get_by_role("button", name="next layer").click()
    single.get_by_role("button", name="next head").click()
    assert heights(single) == before
    single.get_by_role("button", name="several").click()
    assert heights(single)[0] == before[0]


def test_special_tokens_stand_apart_with_the_share_that_goes_to_them(page_of):
    numbers = np.random.default_rng(3).dirichlet(np.ones(4), (1, 1, 4)).astype(np.float32)
    page = page_of(aw.HeadView(aw.from_attentions(numbers, ["[CLS]", "a", "b", "[SEP]"])))
    assert page.locator(".aw-hv-key .aw-hv-row:visible .aw-hv-name").all_inner_texts() == ["a", "b"]
    apart = page.locator(".aw-hv-apart")
    *names, share = apart.inner_text().split()
    assert names == ["[CLS]", "[SEP]"]
    assert float(share) == pytest.approx(numbers[0, 0, 2, [0, 3]].sum(), abs=0.02)
    sides = page.locator(".aw-hv-sides").inner_text()
    assert "to [CLS] [SEP]" in sides
    assert "by" in sides
    grey = page.locator(".aw-hv-canvas").evaluate(COLOURS, [0, 0.05])
    assert grey, "no bar of the weight on special tokens"


def test_a_third_column_names_the_heads_in_which_the_pair_is_strongest(page_of, pair):
    page = page_of(aw.HeadView(pair, layer=0, head=0))
    aside = page.locator(".aw-hv-aside")
    page.set_viewport_size({"width": 800, "height": 700})
    aside.wait_for(state="hidden")
    page.set_viewport_size({"width": 1300, "height": 700})
    aside.wait_for()
    row(page, "query", 3).click()
    row(page, "key", 0).click()
    settle(page)
    weights = np.stack([aw.attention(pair).layer(layer)[:, 3, 0] for layer in (0, 1)])
    order = np.dstack(np.unravel_index(np.argsort(-weights, axis=None), weights.shape))[0]
    heads = aside.locator(".aw-hv-head:visible b").all_inner_texts()
    assert heads == [f"{layer}.{head}" for layer, head in order]
    aside.locator(".aw-hv-head").nth(1).click()
    layer, head = order[1]
    assert f"({layer}.{head})" in title(page)


def test_nothing_overlaps_where_there_is_little_room(page_of, pair):
    page = page_of(aw.HeadView(pair, layer=0, head=0))
    for width in (480, 360):
        page.set_viewport_size({"width": width, "height": 700})
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        query, key = (page.locator(f".aw-hv-{side}").bounding_box() for side in ("query", "key"))
        assert query["x"] + query["width"] <= key["x"]


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
    chips = page.locator(".aw-hv-chip")
    chips.nth(1).click()
    assert pressed(page) == [True, False, True]
    chips.nth(2).dblclick()
    assert pressed(page) == [False, False, True]
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
    region = page.locator(".aw-headview > .aw-footer > .aw-sr")
    page.wait_for_function("el => el.textContent.includes('five')", arg=region.element_handle())
    page.keyboard.press("PageDown")
    assert "layer 1" in title(page)
    page.keyboard.press("Escape")
    assert pinned(page) == 0


def test_a_causal_model_s_later_tokens_are_hatched_and_not_zero(page_of):
    numbers = np.tril(np.random.default_rng(0).random((1, 2, 6, 6)) + 0.1)
    page = page_of(aw.HeadView(aw.from_attentions(numbers / numbers.sum(-1, keepdims=True), list("abcdef"))))
    row(page, "query", 2).hover()
    settle(page)
    hatched = page.locator(".aw-hv-key .aw-hv-masked").bounding_box()
    assert hatched["height"] == pytest.approx(3 * row(page, "key", 0).bounding_box()["height"], abs=1)
    row(page, "key", 2).hover()
    settle(page)
    hatched = page.locator(".aw-hv-query .aw-hv-masked").bounding_box()
    assert hatched["height"] == pytest.approx(2 * row(page, "key", 0).bounding_box()["height"], abs=1)


def test_long_texts_scroll_and_a_pinned_token_stays_in_view(page_of):
    n = 400
    numbers = np.full((1, 2, n, n), 0.1 / n, dtype=np.float32)
    numbers[0, 0, 5, 350] = 0.9
    page = page_of(
        aw.HeadView(aw.from_attentions(numbers, [f"t{i}" for i in range(n)]), units=["token"], head=0)
    )
    assert page.evaluate("document.querySelectorAll('.aw-headview *').length") < 480
    tops = "['query', 'key'].map((side) => document.querySelector('.aw-hv-' + side).scrollTop)"
    assert page.locator(".aw-hv-query").get_by_text("t399", exact=True).is_visible()  # it opens on the last
    page.evaluate(
        "for (const side of ['query', 'key']) document.querySelector('.aw-hv-' + side).scrollTop = 0"
    )
    settle(page)
    box = page.locator(".aw-hv-plot").bounding_box()
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + 100)
    page.mouse.wheel(0, 300)
    page.wait_for_function(f"String({tops}) === '300,300'")  # the browser scrolls when it likes
    page.mouse.wheel(0, -300)
    page.wait_for_function(f"String({tops}) === '0,0'")
    page.locator(".aw-hv-query").get_by_text("t5", exact=True).click()
    below = page.locator(".aw-hv-beyond button:visible")
    assert said(page).startswith("pinned “t5” reads “t350” ≈ 0.9 (head 0)")
    assert below.inner_text().startswith("↓")
    below.click()
    settle(page)
    query, key = page.evaluate(tops)
    assert query == 0  # the pinned token is where it was
    assert page.locator(".aw-hv-key").get_by_text("t350", exact=True).is_visible()
    assert key > 5000


def test_what_is_not_in_the_file_is_said_and_the_rest_still_works(page_of):
    numbers = np.random.default_rng(0).dirichlet(np.ones(220), (2, 12, 220)).astype(np.float32)
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(220)])
    page = page_of(aw.HeadView(trace, units=["token"], layer=0, head=0), layers=[0])
    page.locator(".aw-hv-plot").focus()
    page.keyboard.press("PageDown")
    page.locator(".aw-footer").get_by_text(
        re.compile(r"layer 1, head 0 .*is missing: not in this file")
    ).wait_for()
    settle(page)
    assert not any(page.locator(".aw-hv-key .aw-hv-value").all_inner_texts())  # none of the layer before
    page.keyboard.press("PageUp")
    row(page, "query", 3).hover()
    assert re.match(r"“t\d+” reads “t", said(page))


def test_it_is_linked_with_other_views(page_of, pair):
    page = page_of(aw.Heatmap(pair), aw.HeadView(pair), aw.HeadView(aw.rollout(pair)))
    box = page.locator(".aw-heatmap .aw-plot").bounding_box()
    page.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.3)
    page.mouse.move(2, 2)
    settle(page)
    told = page.locator(".aw-headview > .aw-footer > .aw-readout").all_inner_texts()
    assert len(told) == 2
    assert all(re.match("pinned .*two.* reads .*three", text) for text in told)
