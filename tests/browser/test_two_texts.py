"""TwoTexts on a page: constant height, pins by pointer and keys, maps, words, hostile and long texts."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw

from .settling import settle

HOSTILE = ["<img src=x onerror=alert(1)>", "שלום", "\u202eabc", ""]


def given(tokens, seed=0):
    """A trace of tokens, with two layers and two heads."""
    numbers = np.exp(np.random.default_rng(seed).normal(0, 2, (2, 2, len(tokens), len(tokens))))
    return aw.from_attentions(numbers / numbers.sum(-1, keepdims=True), tokens)


@pytest.fixture(scope="module")
def films():
    model = aw.demo_model("classifier")
    return [aw.trace(*model, f"The film was {word}.") for word in ("good", "not good")]


def opened(open_page, path, view):
    page = open_page(view.to_html(path / "page.html").as_uri())
    page.locator(".aw-two-column").first.wait_for()
    return page


def plain(text):
    return text.replace("\u2068", "").replace("\u2069", "").replace("\u00a0", " ")


def readout(page):
    return plain(page.locator(".aw-two .aw-readout").inner_text())


def test_the_difference_is_framed_said_and_accounted_for(films, open_page, tmp_path):
    page = opened(open_page, tmp_path, aw.TwoTexts(films, methods=["lrp", "attention"], target=1, foil=0))
    differing = page.locator(".aw-two-column[data-differs]")
    assert differing.count() == 1
    assert differing.locator(".aw-two-label").all_inner_texts() == ["–", "not"]
    assert [token.inner_text() for token in page.locator(".aw-two-line .aw-tok[data-differs]").all()] == [
        "not"
    ]
    totals = page.locator(".aw-two-total").nth(3).locator("span").all_inner_texts()
    tokens, rest, total = (float(text.replace("−", "-")) for text in totals[-3:])
    assert tokens + rest == pytest.approx(total, abs=0.02)
    said = plain(page.locator(".aw-two-sentence").inner_text())
    assert "“not”, only in B, moves positive − negative by +5.66: +1.98 of it lies in tokens" in said
    assert "The larger part, +3.67, lies in no token." in said
    pressed = page.locator(".aw-two-chips > .aw-chip[aria-pressed=true] b").all_inner_texts()
    assert pressed == ["positive", "positive"]


def test_a_column_is_pinned_and_copied_and_the_height_stays(films, open_page, tmp_path):
    page = opened(open_page, tmp_path, aw.TwoTexts(films, methods=["lrp", "attention"], target=1, foil=0))
    root = page.locator(".aw-two")
    height = root.bounding_box()["height"]
    assert height <= 560
    copy = page.get_by_role("button", name="Copy as Python")
    assert copy.is_disabled()
    page.locator(".aw-two-column[data-differs]").click()
    assert "“not” (only in B) +1.798 · A has none · B −1.798" in readout(page)
    assert not copy.is_disabled()
    page.locator(".aw-two-scroll").press("ArrowRight")
    assert readout(page).startswith("“good” +0.2284")
    page.locator(".aw-two-scroll").press("p")
    assert readout(page).startswith("“not”")
    page.locator(".aw-two-scroll").press("Escape")
    assert copy.is_disabled()
    page.get_by_text("words", exact=True).click()
    assert root.bounding_box()["height"] == height
    page.set_viewport_size({"width": 760, "height": 700})
    assert root.bounding_box()["height"] == height


def test_rows_and_maps_of_attention(open_page, tmp_path):
    first, second = given(["He", "ran", "home"]), given(["She", "ran", "home"], seed=1)
    page = opened(open_page, tmp_path, aw.TwoTexts([first, second], names=["he", "she"], layer=1, head=0))
    page.locator(".aw-two-line .aw-tok", has_text="ran").first.click()
    weights = [trace.attention_layer(1)[0].numpy() for trace in (first, second)]
    moved = np.abs(weights[0][1] - weights[1][1]).sum() / 2
    said = plain(page.locator(".aw-two-sentence").inner_text())
    assert said.startswith(f"{100 * moved:.1f} % of what “ran” reads moves, most at ")
    page.get_by_text("maps", exact=True).click()
    plots = page.locator(".aw-two-plot")
    assert plots.count() == 3
    assert page.locator(".aw-two-keys").first.locator("span").count() == 3  # every column has its name
    box = plots.nth(2).bounding_box()
    page.mouse.click(box["x"] + box["width"] * 5 / 6, box["y"] + box["height"] / 6)
    difference = float(weights[0][0, 2] - weights[1][0, 2])
    assert f"{difference:+.4g}".replace("-", "−") in readout(page)
    assert f"he {float(f'{weights[0][0, 2]:.4g}'):g}" in readout(page)


def test_hostile_and_long_texts(open_page, tmp_path):
    page = opened(open_page, tmp_path, aw.TwoTexts([given(HOSTILE), given([*HOSTILE, "x"])]))
    assert page.locator(".aw-two img").count() == 0
    assert "<img" in page.locator(".aw-two-line").first.inner_text()
    long = [f"w{i}" for i in range(300)]
    page = opened(open_page, tmp_path, aw.TwoTexts([given(long), given([*long[:200], "new", *long[200:]])]))
    assert page.locator(".aw-two-column").count() < 60, "only columns in sight"
    differing = page.locator(".aw-two-column[data-differs]")
    assert differing.count() == 1, "which begins where they differ"
    for width in (480, 1500, 700):
        page.set_viewport_size({"width": width, "height": 900})
        settle(page)
        assert differing.count() == 1, f"which stays in sight at {width} px"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_predictions_that_do_not_fit_are_folded_not_scrolled(open_page, tmp_path, smollm2):
    model = smollm2
    traces = [aw.trace(*model, f"The capital of {country} is the city of") for country in ("France", "Italy")]
    page = opened(open_page, tmp_path, aw.TwoTexts(traces))
    page.set_viewport_size({"width": 760, "height": 900})
    row = page.locator(".aw-two-chips").first
    chips = row.locator(".aw-chip")
    more = row.get_by_role("button", name=re.compile(r"^\+ \d+$"))
    more.wait_for()
    # In a single look: the row folds again while its page takes its new width.
    shown, folded = row.evaluate(
        """row => [
            [...row.querySelectorAll(".aw-chip")].filter((chip) => chip.offsetWidth > 0).length,
            row.querySelector(".aw-fold").innerText,
        ]"""
    )
    assert 1 <= shown < chips.count()
    assert folded == f"+ {chips.count() - shown}"
    assert row.evaluate("row => row.scrollWidth <= row.clientWidth")
    more.click()
    assert all(chip.is_visible() for chip in chips.all())
    assert row.evaluate("row => row.scrollWidth <= row.clientWidth")


def test_a_narrow_view_shows_both_texts_from_their_first_word(films, open_page, tmp_path):
    page = opened(open_page, tmp_path, aw.TwoTexts(films, methods=["lrp"], target=1, foil=0))
    page.set_viewport_size({"width": 480, "height": 900})
    page.locator(".aw-two[data-narrow]").wait_for()
    lines = page.locator(".aw-two-line").all()
    assert all(line.evaluate("el => el.scrollWidth <= el.clientWidth") for line in lines)
    first, second = (line.bounding_box() for line in lines)
    assert second["y"] >= first["y"] + first["height"]
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
