"""WhyView on a page: rows, lines and words by pointer and keys, other cells, parts and foils, widths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.circuits.why_view import WhyView
from attnwidgets.views.circuits.why_words import ShownWhy
from tests.sae.made import SITE, sae
from tests.tracing.families import FAMILIES
from tests.zoo.made import made

from .checks import BLANK, CLIPPED, OVERLAPS
from .settling import settle
from .stage import play


@pytest.fixture(scope="module")
def induction():
    return aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")


@pytest.fixture
def page(page_of, induction):
    page = page_of(WhyView(aw.why(induction, 11, 6, layer=1, head=0)), aw.Heatmap(induction))
    page.locator(".aw-why-row").first.wait_for()
    return page


def sentence(page):
    return page.locator(".aw-why-said").inner_text()


def readout(page):
    return page.locator(".aw-why > .aw-footer > .aw-readout").inner_text()


def rows(page, side):
    items = page.locator(".aw-why-rows").nth(["asks", "offers"].index(side)).locator(".aw-why-row").all()
    return [" ".join(item.inner_text().split()) for item in items]


def marked(page, name):
    return page.locator(f".aw-why-token[data-{name}]").all_inner_texts()


def test_it_opens_with_the_sentence_both_lists_and_their_lines(page):
    assert sentence(page) == "“b” asks with its token; “c” offers head 0.0, which read “b”."
    assert rows(page, "asks") == ["token +38.59"]
    assert rows(page, "offers") == ["+77.19 head 0.0 ← b", "−38.59 token"]
    widths = page.locator(".aw-why-lines > path").evaluate_all(
        "all => all.map(e => [+e.getAttribute('stroke-width'), e.dataset.of])"
    )
    assert sorted(widths) == [[4.5, "against"], [9, "for"]]
    assert marked(page, "key") == ["c"]
    assert marked(page, "query") == ["b"]
    removal = page.locator(".aw-why-removal").first.inner_text().split()
    assert " ".join(removal) == "without head 0.0 in “c” 1.00 → 0.00 another at random 1.00"
    assert readout(page).endswith("head 1.0 · rather than the other tokens · norms held fixed")


def test_a_row_brings_out_its_lines_and_its_words(page, induction):
    page.locator(".aw-why .aw-segment", has_text="tokens").click()
    page.locator(".aw-why-row", has_text="+77.19").wait_for()
    row = page.locator(".aw-why-rows").nth(1).locator(".aw-why-row").first
    row.hover()
    settle(page)
    assert marked(page, "part") == ["b"]
    assert readout(page) == "b [5] +77.19: b [11] × b [5] +77.19"
    assert page.locator(".aw-why-lines > [data-on]").count() == 1
    page.mouse.move(2, 2)
    settle(page)
    assert marked(page, "part") == []
    row.focus()
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.dataset.row") == "1"


def test_another_word_is_asked_about_by_click_and_by_keys(page_of):
    trace = FAMILIES["GPT-2"].traced()
    view = WhyView(aw.why(trace, 6, 2, layer=1, head=1))
    pairs = {(args["query"], args["key"]) for topic, args, _ in view.requests.for_page() if topic == "why"}
    page = page_of(view, aw.Heatmap(trace))
    page.locator(".aw-why-row").first.wait_for()
    text, tokens = page.locator(".aw-why-text"), page.locator(".aw-why-token")
    query = max(query for query, key in pairs if key not in (2, query))
    key = next(key for at, key in pairs if at == query and key not in (2, query))
    tokens.nth(query).click(modifiers=["Shift"])
    tokens.nth(key).click()
    page.locator(".aw-why-title", has_text=trace.tokens[key]).wait_for()
    assert page.locator(".aw-why-token[data-query]").get_attribute("data-i") == str(query)
    assert page.locator(".aw-heatmap .aw-labs-top > .aw-lab-pin").inner_text() == trace.tokens[key]
    expected = aw.why(trace, query, key, layer=1, head=1)
    assert f"{expected.total:+.2f}".replace("-", "−") in page.locator(".aw-why-note").first.inner_text()
    text.focus()
    page.keyboard.press("ArrowRight")
    assert page.locator(".aw-why-token[data-key]").get_attribute("data-i") == str(key + 1)
    page.keyboard.press("Shift+ArrowLeft")
    assert page.locator(".aw-why-token[data-query]").get_attribute("data-i") == str(query - 1)


def test_a_pin_in_another_view_is_followed_and_what_the_page_lacks_is_said(page, induction):
    weights = aw.attention(induction).layer(1)[0]
    query, key = np.unravel_index(weights[1:, 1:].argmax(), weights[1:, 1:].shape)
    plot = page.locator(".aw-heatmap .aw-plot")
    box = plot.bounding_box()
    size = box["height"] / (len(weights) - 1)
    plot.click(position={"x": (key + 0.5) * size, "y": (query + 0.5) * size})
    settle(page)
    assert marked(page, "key") == [induction.tokens[key + 1]]
    assert rows(page, "offers")
    plot.click(position={"x": 0.5 * size, "y": 4.5 * size})  # not among the largest
    page.locator(".aw-why .aw-veil", has_text="No split of this score").wait_for()


def fits(page_of, why, theme):
    """A view of a result has no overlap, no cut word and no empty part, at four widths."""
    page = page_of(WhyView(why), viewport={"width": 528, "height": 900}, color_scheme=theme)
    page.locator(".aw-why-row").first.wait_for()
    for width in (200, 480, 760, 1200):
        page.set_viewport_size({"width": width + 48, "height": 900})
        settle(page)
        assert page.locator(".aw-why").bounding_box()["height"] == 560
        for check in (BLANK, CLIPPED, OVERLAPS):
            assert page.evaluate(check) == [], width


@pytest.mark.parametrize("family", ["GPT-2", "BERT", "T5"])
@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_at_any_width(page_of, family, theme):
    why = aw.why(FAMILIES[family].traced(), 6, 2, layer=1, head=1)
    fits(page_of, why, theme)


def test_a_page_offers_why_for_the_cells_that_it_holds(page_of, induction):
    heatmap = aw.Heatmap(induction, layer=1, head=0)
    heatmap.selection.pinned = (11, 6)
    args = {"stack": "self", "layer": 1, "head": 0, "query": 11, "key": 6}
    heatmap.requests.answer("below", args)
    page = page_of(heatmap)
    page.locator(".aw-why-said", has_text="which read “b”").wait_for()
    why = page.get_by_role("button", name="Why?")
    assert why.is_visible()
    plot = page.locator(".aw-heatmap .aw-plot")
    box = plot.bounding_box()
    size = box["height"] / (len(induction.tokens) - 1)
    plot.click(position={"x": 0.5 * size, "y": 4.5 * size})
    settle(page)
    assert not why.is_visible(), "this cell is not among the ten largest"
    heatmap.close()
    assert heatmap.inner == ()


def spot(page):
    """Return layer and head of the outlined head in the grid, or None."""
    return page.evaluate(
        """() => {
          const plot = document.querySelector(".aw-headgrid .aw-plot");
          const spot = plot.querySelector(".aw-spot:not(.aw-spot-selected)");
          if (!spot.checkVisibility()) return null;
          const [at, box] = [spot.getBoundingClientRect(), plot.getBoundingClientRect()];
          return [Math.round((at.y - box.y) / at.height), Math.round((at.x - box.x) / at.width)];
        }"""
    )


@pytest.mark.parametrize("view", [aw.HeadGrid, aw.Explorer])
def test_a_part_that_a_head_wrote_lights_it_in_the_grid(page_of, induction, view):
    page = page_of(WhyView(aw.why(induction, 11, 6, layer=1, head=0)), view(induction))
    row = page.locator(".aw-why-row", has_text="head 0.0")
    row.scroll_into_view_if_needed()
    assert spot(page) is None
    row.hover()
    settle(page)
    assert spot(page) == [0, 0]
    page.mouse.move(2, 2)
    settle(page)
    assert spot(page) is None
    row.focus()
    settle(page)
    assert spot(page) == [0, 0], "by keys, too"


def test_a_part_that_is_a_feature_lights_it_in_lists_of_features(page_of, monkeypatch):
    trace = FAMILIES["GPT-2"].traced()
    features = aw.sae_features(trace, sae(d_in=trace.model.config.n_embd, site=SITE))
    feature = features.ranked(1)[0].feature
    part = ShownWhy._part
    monkeypatch.setattr(ShownWhy, "_part", lambda *args: replace(part(*args), head=None, feature=feature))
    page = page_of(WhyView(aw.why(trace, 6, 2, layer=1, head=1)), aw.FeatureTable(features))
    page.locator(f".aw-feature-row[data-feature='{feature}']").wait_for()
    page.locator(".aw-why-row").first.hover()
    settle(page)
    assert page.locator("[data-previewed]").get_attribute("data-feature") == str(feature)
    page.locator(".aw-why-row").first.click()
    settle(page)
    assert page.locator(".aw-feature-row[aria-selected=true]").get_attribute("data-feature") == str(feature)
    page.mouse.move(2, 2)
    settle(page)
    assert page.locator("[data-previewed]").count() == 0


OPENS = (
    aw.Explorer,
    aw.Heatmap,
    aw.HeadGrid,
    aw.HeadView,
    aw.NeuronView,
    aw.TokenStrip,
    aw.views.RelevanceMap,
)


@pytest.mark.parametrize("view", OPENS)
def test_a_page_holds_what_was_open_below(page_of, induction, view):
    shown = view(induction, layer=1, head=0)
    shown.selection.pinned = (11, 6)
    args = {"stack": "self", "layer": 1, "head": 0, "query": 11, "key": 6}
    shown.requests.answer("below", args)
    [why] = shown.inner
    views = 3 - (view is aw.NeuronView)
    if why.options["below"]:
        why.requests.answer("below", args)
    page = page_of(shown)
    page.locator(".aw-why-said", has_text="which read “b”").wait_for()
    page.locator(".aw-neuron").wait_for()
    settle(page)
    assert page.locator(".aw-framed").count() == views
    said = page.locator(".aw-neuron > .aw-footer > .aw-readout").inner_text()
    assert "gives 1 of its attention to" in said
    assert page.get_by_role("button", name="Why?").count() == 1
    assert page.get_by_role("button", name="How?").count() == (view is not aw.NeuronView)
    shown.close()


def test_a_page_without_the_view_offers_no_why(page_of, induction):
    heatmap = aw.Heatmap(induction, layer=1, head=0)
    heatmap.selection.pinned = (11, 6)
    page = page_of(heatmap)
    page.locator(".aw-heatmap .aw-plot").wait_for()
    settle(page)
    assert page.get_by_role("button", name="Why?").count() == 0


OTHER = ["hgbachgba", "cbdhcbdh", "ebfgebf"]


@pytest.fixture
def compared(page_of):
    trace = aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")
    why = aw.why(trace, 11, 6, layer=1, head=0)
    why.in_other_texts(OTHER)
    page = page_of(WhyView(why, texts=OTHER))
    page.locator(".aw-why-row").first.wait_for()
    return page


def test_a_page_says_what_the_query_looks_for_in_other_texts(compared):
    assert sentence(compared) == "“b” looks for words such as a, d, f; “c” is one of them."
    assert "73.3 % of 15 tokens of other texts" in compared.locator(".aw-why-more").inner_text()
    [keys, queries] = compared.locator(".aw-why-others > div").all()
    assert keys.locator(".aw-why-head > b").inner_text() == "“b” would look at"
    assert queries.locator(".aw-why-head > b").inner_text() == "would look at “c”"
    rows = [" ".join(row.inner_text().split()) for row in keys.locator(".aw-why-other").all()]
    assert rows[0].endswith("… hgb a")
    assert rows[0].startswith("+")
    assert keys.locator(".aw-why-other b").first.inner_text() == "a"
    assert not compared.get_by_role("button", name="Compare with other texts").is_visible()
    copy = compared.locator(".aw-why-elsewhere").get_by_role("button", name="Copy comparison as Python")
    assert copy.is_enabled()
    compared.locator(".aw-why-token").nth(3).click()
    compared.locator(".aw-why-said", has_text="nothing special").or_(
        compared.locator(".aw-veil")
    ).first.wait_for()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_other_texts_fit_at_any_width(compared, theme):
    compared.emulate_media(color_scheme=theme)
    for width in (200, 480, 760, 1200):
        compared.set_viewport_size({"width": width + 48, "height": 900})
        settle(compared)
        for check in (BLANK, CLIPPED, OVERLAPS):
            assert compared.evaluate(check) == [], width


def test_other_texts_are_compared_on_request_with_progress(open_page):
    page = open_page()
    trace = aw.trace(*made("induction", letters="abcdefgh", length=16), "fadebcfadeb")
    view = WhyView(aw.why(trace, 11, 6, layer=1, head=0), texts=["abcdefgh", "hgfedcba"])
    view.stand_ready()  # with its first answer
    play(page, view, "works", cold=False)
    button = page.get_by_role("button", name="Compare with other texts")
    button.click()
    page.locator(".aw-why-offer", has_text="value zeroing: layers").wait_for()
    assert not button.is_visible()
    assert page.locator(".aw-why-offer").get_by_role("button", name="Cancel").is_visible()
    asked = page.evaluate("sent.filter(message => message.topic === 'in_other_texts')")
    assert [request["args"] for request in asked] == [
        {"stack": "self", "layer": 1, "head": 0, "query": 11, "key": 6}
    ]
    assert sentence(page).startswith("“b” asks with"), "the split stays meanwhile"
