"""WhyView by features on a page: its rows, the menu of parts, a feature that is chosen, and widths."""

from __future__ import annotations

import pytest

import attnwidgets as aw
from attnwidgets.views.circuits.why_view import WhyView
from tests.sae import made

from .test_why import fits, readout, rows, sentence

TEXT = "the animal did not cross the street because it was too tired ."


@pytest.fixture(scope="module")
def why():
    model, tokenizer = aw.demo_model("encoder")
    sae = made.fitted(model, tokenizer, "blocks.2.hook_resid_post", rank=12)
    sae.metadata["exclude_special_tokens"] = True
    stats = aw.feature_stats(model, tokenizer, sae, [TEXT, "the dog was tired .", "a cat and a street ."])
    return aw.why(aw.trace(model, tokenizer, TEXT), "it", "animal", layer=3, head=1, by=sae, stats=stats)


def test_features_have_rows_and_what_they_do_not_describe_is_grey(page_of, why):
    view = WhyView(why)
    shown = view.shown()
    page = page_of(view, aw.FeatureStrip(aw.sae_features(why.cell.trace, why.sae)))
    page.locator(".aw-why-row").first.wait_for()
    assert sentence(page) == "".join(piece for piece, _ in shown.said())
    names = [row.name for row in shown.rows("offers")]
    texts = rows(page, "offers")
    assert all(name in text for name, text in zip(names, texts, strict=True))
    assert "not described (error)" in texts[-1]
    kinds = (
        page.locator(".aw-why-rows")
        .nth(1)
        .locator(".aw-why-row")
        .evaluate_all(
            "all => all.map(e => [e.dataset.kind, getComputedStyle(e.querySelector('i')).backgroundColor])"
        )
    )
    grey = {colour for kind, colour in kinds if kind != "part"}
    assert len(grey) == 1
    assert grey.isdisjoint(colour for kind, colour in kinds if kind == "part")
    assert not page.locator(".aw-why-groups").is_visible(), "a score by feature has no grid of components"
    assert "rather than the other words" in readout(page)
    assert "describe" in page.locator(".aw-why-note").first.inner_text()


def test_a_feature_is_chosen_in_views_of_features(page_of, why):
    view = WhyView(why)
    features = [row.feature for row in view.shown().rows("offers") if row.feature is not None]
    strip = aw.FeatureStrip(aw.sae_features(why.cell.trace, why.sae), feature=features[0])
    page = page_of(view, strip)
    page.locator(".aw-why-row").first.wait_for()
    chosen = page.locator(".aw-feature-tab [aria-selected=true]")
    assert f"{features[0]}" in chosen.inner_text()
    page.locator(".aw-why-rows").nth(1).locator(".aw-why-row").nth(1).click()
    page.locator(".aw-feature-tab [aria-selected=true]", has_text=f"{features[1]}").wait_for()


def test_words_components_and_features_are_a_menu(page_of, why):
    page = page_of(WhyView(why))
    page.locator(".aw-why-row").first.wait_for()
    assert page.locator(".aw-why .aw-segment").all_inner_texts() == ["words", "components", "features"]
    page.locator(".aw-why .aw-segment", has_text="components").click()
    page.locator(".aw-why-row", has_text="MLP 2").first.wait_for()
    assert page.locator(".aw-why-groups").is_visible()
    page.locator(".aw-why .aw-segment", has_text="words").click()
    page.locator(".aw-why-row", has_text="animal").first.wait_for()
    page.locator(".aw-why .aw-segment", has_text="features").click()
    page.locator(".aw-why-row", has_text="not described (error)").first.wait_for()
    assert not page.locator(".aw-why-groups").is_visible()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_it_fits_at_any_width(page_of, why, theme):
    fits(page_of, why, theme)
