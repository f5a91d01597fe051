"""A picture with maps over it: by pointer and keys, linked with a Heatmap, in both themes, on a phone."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES, _model
from tests.vision import planted
from tests.vision.test_captions import traced as traced_captions

from .settling import settle

GRID = (4, 6)


@pytest.fixture(scope="module")
def trace():
    options = {"image_size": (32, 48), "patch_size": 8, "initializer_range": 0.3, "num_labels": 3}
    picture = torch.rand(3, 32, 48, generator=torch.Generator().manual_seed(3))
    return aw.trace(tiny.build(_model("ViT", "ForImageClassification", **options)), None, image=picture)


@pytest.fixture
def page(trace, page_of):
    return page_of(aw.ImageView(trace, layer=1, head=2))


def weights(trace, query):
    return trace.attention_layer(1)[2, query].numpy()


def patch(page, row, column):
    box = page.locator(".aw-image-plot").bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / GRID[1], box["y"] + (row + 0.5) * box["height"] / GRID[
        0
    ]


def plain(page, name):
    """The text of the element, without the marks that isolate directions."""
    settle(page)
    return page.locator(name).inner_text().replace("\u2068", "").replace("\u2069", "")


def said(page):
    return plain(page, ".aw-footer .aw-readout")


def query(page):
    return plain(page, ".aw-image-query")


def heat(page):
    """How opaque the map is over every patch, 0 to 255 [row, column]."""
    settle(page)
    data = page.locator(".aw-image-plot .aw-image-heat").evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    return np.array(data[3::4]).reshape(GRID)


def expected(row):
    share = row[1:] / row[1:].max()
    return np.round(255 * np.clip((share - 0.04) * 1.6, 0, 0.94)).reshape(GRID)


def test_every_pixel_of_the_map_is_the_value_of_its_patch(page, trace):
    assert np.abs(heat(page) - expected(weights(trace, 0))).max() <= 4  # a code is 1/255 of the range


def test_shares_beside_and_on_the_picture_are_one(page, trace):
    numbers = [float(text) for text in page.locator(".aw-image-number").all_inner_texts()]
    assert numbers[0] == pytest.approx(weights(trace, 0)[0], abs=6e-4)
    assert sum(numbers) == pytest.approx(1, abs=2e-3)


def test_the_strongest_patch_is_read_exactly(page, trace):
    row = weights(trace, 0)[1:]
    at = divmod(int(row.argmax()), GRID[1])
    assert f"[CLS] → patch {at[0]},{at[1]} {row.max():.4g} · px {8 * at[0]}–{8 * at[0] + 7}, " in said(page)
    assert "head 1.2" in said(page)


def test_a_click_shows_what_a_patch_reads_and_the_heatmap_its_row(trace, page_of):
    page = page_of(aw.ImageView(trace, layer=1, head=2), aw.Heatmap(trace, unit="patch"))
    page.mouse.click(*patch(page, 2, 3))
    index = 1 + 2 * GRID[1] + 3
    page.mouse.move(2, 2)
    assert np.abs(heat(page) - expected(weights(trace, index))).max() <= 4
    assert "patch 2,3 attends to" in query(page)
    heatmap = page.locator(".aw-heatmap")
    assert "2,3" in heatmap.locator(".aw-readout").inner_text()
    # The class token above the picture leads back.
    page.locator(".aw-image-chip", has_text="[CLS]").click()
    assert "[CLS] attends to" in query(page)
    page.locator(".aw-segment", has_text="into").click()
    column = trace.attention_layer(1)[2, 1:, 0].numpy()
    share = np.round(255 * np.clip((column / column.max() - 0.04) * 1.6, 0, 0.94)).reshape(GRID)
    assert np.abs(heat(page) - share).max() <= 4


def test_keys_read_patches_pin_pairs_and_change_layers(page, trace):
    plot = page.locator(".aw-image-plot")
    plot.focus()
    for key in [*["ArrowUp"] * GRID[0], *["ArrowLeft"] * GRID[1], "ArrowDown", "ArrowRight"]:
        page.keyboard.press(key)
    assert "patch 1,1 ≈" in said(page)
    page.keyboard.press(" ")
    assert said(page).endswith("pinned")
    page.keyboard.press("Enter")
    assert "patch 1,1 attends to" in query(page)
    page.keyboard.press("Shift+ArrowUp")
    assert "head 0.2" in said(page)
    page.keyboard.press("Escape")
    assert "[CLS] attends to" in query(page)
    assert "Arrow keys" in plot.get_attribute("aria-label")


def test_a_head_of_the_atlas_and_of_the_column_is_shown(page):
    box = page.locator(".aw-atlas-plot").bounding_box()
    page.mouse.click(box["x"] + 0.9 * box["width"], box["y"] + 0.2 * box["height"])
    page.mouse.move(2, 2)
    assert "head 0.3" in plain(page, ".aw-title")
    page.locator(".aw-image-line").nth(1).click()
    assert "head 0.1" in plain(page, ".aw-title")


def test_smoothing_is_named_and_an_outline_is_drawn(trace, page_of):
    page = page_of(aw.ImageView(trace, layer=1, head=2), viewport={"width": 1240, "height": 720})
    smoothed = page.locator(".aw-segment", has_text="smoothed")
    assert smoothed.evaluate("e => getComputedStyle(e, '::after').content") == '": 4 × 6 values"'
    heat_canvas = page.locator(".aw-image-plot .aw-image-heat")
    assert heat_canvas.evaluate("e => getComputedStyle(e).imageRendering") == "pixelated"
    smoothed.click()
    settle(page)
    assert heat_canvas.evaluate("e => getComputedStyle(e).imageRendering") == "auto"
    page.locator("select[aria-label=outline]").select_option("0.5")
    settle(page)
    path = page.locator(".aw-image-contour").get_attribute("d")
    row = weights(trace, 0)[1:]
    count = int(np.searchsorted(np.cumsum(np.sort(row)[::-1]), 0.5 * row.sum())) + 1
    assert 0 < path.count("M") <= 4 * count


def test_norms_stand_beside_the_picture_where_there_is_room(trace, page_of):
    page = page_of(aw.ImageView(trace, layer=1, head=2), viewport={"width": 1240, "height": 720})
    with torch.no_grad():
        states = trace.model(trace.inputs["pixel_values"], output_hidden_states=True).hidden_states
    norms = page.locator(".aw-image-norms")
    median = np.median(states[2][0, 1:].norm(dim=-1).numpy())
    assert f"after layer 1, median {median:.4g}" in norms.inner_text()
    assert norms.locator("rect").count() > 5


def test_registers_are_switched_on_in_the_norms(page_of):
    full = aw.trace(planted.models()[0], None, image=planted.picture())
    view = aw.ImageView(full, registers=[(planted.LAYER, planted.UNIT)], layer=3, head=0)
    norms = page_of(view, viewport={"width": 1240, "height": 720}).locator(".aw-image-norms")
    assert "outliers: patch" in norms.inner_text()
    norms.locator(".aw-segment", has_text="with test-time registers").click()
    norms.get_by_text("no outliers").wait_for()
    settle(norms.page)
    assert "[REG0]" in norms.inner_text()
    norms.locator(".aw-segment", has_text="as it is").click()
    norms.get_by_text("outliers: patch").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [480, 760, 1200])
def test_it_fits_one_screen_in_every_width(trace, page_of, screenshot, width, scheme):
    page = page_of(aw.ImageView(trace), viewport={"width": width, "height": 720}, color_scheme=scheme)
    screenshot(page, f"image-{width}-{scheme}.png")
    box = page.locator(".aw-root").bounding_box()
    assert box["height"] <= 560
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    plot, body = (page.locator(name).bounding_box() for name in (".aw-image-plot", ".aw-body"))
    assert plot["height"] > 150
    assert plot["y"] + plot["height"] <= body["y"] + body["height"]
    assert plot["x"] + plot["width"] <= body["x"] + body["width"]


def test_a_map_that_the_page_lacks_is_missed_in_words(trace, page_of):
    few = aw.ImageView(trace)
    page = page_of(few)
    page.locator(".aw-segment", has_text="into").click()
    page.mouse.click(*patch(page, 0, 0))  # who reads a patch is not in a page
    page.mouse.move(2, 2)
    settle(page)
    assert "No map of patch 0,0: not in this file" in page.locator(".aw-footer").inner_text()
    assert (
        page.locator(".aw-image-plot .aw-image-heat").evaluate("e => getComputedStyle(e).visibility")
        == "hidden"
    )


def test_words_of_a_text_around_a_picture_show_where_they_look(page_of):
    llava = PICTURES["LLaVA"]
    recorded = llava.trace_of(tiny.build(llava.make), llava.picture())
    page = page_of(aw.ImageView(recorded, unit="token", layer=0, head=0))
    words = page.locator(".aw-image-word")
    assert words.all_inner_texts() == [recorded.tokens[0], recorded.tokens[-1]]
    assert words.nth(1).get_attribute("aria-pressed") == "true"
    words.nth(0).click()
    assert f"“{recorded.tokens[0]}”" in query(page)


def test_an_explorer_of_a_picture_shows_it_in_one_screen(trace, page_of, screenshot):
    page = page_of(aw.Explorer(trace, layer=1, head=2), viewport={"width": 1240, "height": 720})
    screenshot(page, "explorer-image.png")
    assert page.locator(".aw-root").bounding_box()["height"] <= 560
    assert page.locator(".aw-heatmap, .aw-headgrid").count() == 0
    assert np.abs(heat(page) - expected(weights(trace, 0))).max() <= 4
    assert "Where does “[CLS]” look?" in plain(page, ".aw-answer")


def test_the_chosen_head_is_outlined_among_all_without_another_view_on_the_page(page):
    outline = page.locator(".aw-atlas .aw-spot-selected")
    assert outline.evaluate("el => getComputedStyle(el).boxShadow") not in ("", "none")
    column = page.locator(".aw-image-column")
    assert column.evaluate("el => el.scrollHeight - el.clientHeight") == 0


def test_the_answer_beside_a_map_of_caption_words_is_of_the_word_that_is_shown(page_of):
    recorded = traced_captions("CLIP")[1]
    explorer = aw.Explorer(recorded, methods=["attention", "caption_words"])
    explorer.selection.method = "caption_words"
    page = page_of(explorer)
    page.locator(".aw-image-word").first.wait_for()
    assert "cat" in query(page)
    assert plain(page, ".aw-answer-head >> nth=0").startswith("Where does “cat” look?")
    assert page.get_by_role("button", name="Knock out").count() == 0


def test_a_patch_shows_the_words_that_it_speaks_for_and_a_word_its_patches(page_of):
    recorded = traced_captions("CLIP")[1]
    result = aw.vision.caption_words(recorded)
    page = page_of(aw.ImageView(result))
    words = page.locator(".aw-image-word")
    assert words.all_inner_texts() == ["the", "unbelievable", "cat"]
    two = (2, 2)
    for row, column in ((0, 1), (1, 0)):  # patch by patch
        box = page.locator(".aw-image-plot").bounding_box()
        page.mouse.click(
            box["x"] + (column + 0.5) * box["width"] / two[1], box["y"] + (row + 0.5) * box["height"] / two[0]
        )
        page.mouse.move(2, 2)
        assert query(page) == f"patch {row},{column}"
        values = [float(word.get_attribute("title").split()[-1]) for word in words.all()]
        np.testing.assert_allclose(values, result.layer(0)[:, 1 + 2 * row + column], rtol=6e-3)
        spot = page.locator(".aw-image-query-spot").bounding_box()
        assert spot["x"] == pytest.approx(box["x"] + column * box["width"] / 2, abs=3)
        assert spot["width"] == pytest.approx(box["width"] / 2, abs=5)
    words.nth(1).click()
    settle(page)
    row = result.layer(0)[1, 1:]
    share = np.round(255 * np.clip((row / row.max() - 0.04) * 1.6, 0, 0.94)).reshape(two)
    data = page.locator(".aw-image-plot .aw-image-heat").evaluate(
        "c => [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data]"
    )
    assert np.abs(np.array(data[3::4]).reshape(two) - share).max() <= 4
