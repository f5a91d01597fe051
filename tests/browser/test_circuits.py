"""PatchView, LensView and ClaimView on a page: pointer, keys, linking, widths, and text that is hostile."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.circuits.patching import CheckedCell
from tests.circuits import made

from .checks import BLANK, CLIPPED, OVERLAPS

HOSTILE = [
    "<img src=x onerror=alert(1)>",
    "\u202eevil",
    "",
    "a\x00b",
    "␣" * 9,
    "עברית",
    "x" * 300,
    "</script>",
]


@pytest.fixture(scope="module")
def pair():
    return made.induction()


@pytest.fixture(scope="module")
def both(pair):
    return aw.circuits.patch(*pair, "c", foil="a", how="both")


@pytest.fixture(scope="module")
def large():
    """Both directions and an estimate, of 30 layers, 9 heads and 60 tokens."""
    rng = np.random.default_rng(0)
    tokens = [f"␣w{i}" for i in range(60)]
    raw = {site: rng.normal(0, 0.2, (30, 60)) for site in ("state", "attention", "mlp")}
    for values in raw.values():
        values[:, :5] = 0
    raw["head"] = rng.normal(0, 0.2, (30, 9))
    common = {
        "clean": 3.0,
        "corrupt": -3.0,
        "clean_tokens": tokens,
        "differs": [5],
        "target": "␣a",
        "foil": "␣b",
    }
    common["corrupt_tokens"] = [*tokens[:5], "␣other", *tokens[6:]]
    checked = [
        CheckedCell("head", 3, None, 1, 0.2, 0.1, "largest"),
        CheckedCell("head", 4, None, 2, 0, 0.1, "random"),
    ]
    results = [aw.results.Patching(raw, direction=way, **common) for way in ("denoise", "noise")]
    estimate = aw.results.Patching(raw, direction="denoise", estimate=True, checked=checked, **common)
    return [*results, estimate]


def hostile():
    raw = {"state": np.ones((2, len(HOSTILE))), "head": np.ones((2, 2))}
    return aw.results.Patching(
        raw, direction="denoise", clean=1.0, corrupt=0.0, clean_tokens=HOSTILE, corrupt_tokens=HOSTILE[::-1],
        differs=range(len(HOSTILE)), target=HOSTILE[0], foil=HOSTILE[1],
    )  # fmt: skip


def readout(page, view="patch"):
    return page.locator(f".aw-{view} > .aw-footer > .aw-readout").inner_text()


def at(plot, row, rows, column, columns):
    """Return the middle of a cell of a picture."""
    box = plot.bounding_box()
    return box["x"] + (column + 0.5) * box["width"] / columns, box["y"] + (row + 0.5) * box["height"] / rows


def plot_of(page, name):
    return page.locator(f".aw-patch-map[aria-label={name}] .aw-patch-plot")


@pytest.fixture
def page(both, pair, page_of):
    page = page_of(both.view(), aw.circuits.lens(pair[0], "c").view(), aw.Heatmap(pair[0]))
    plot_of(page, "heads").wait_for()
    return page


def test_it_opens_on_the_head_that_carries_the_answer_with_its_run(page):
    assert readout(page).startswith("head 1.0 1.0000 of the gap 20.00")
    before, after = page.locator(".aw-patch-box").all_inner_texts()
    assert before.split() == ["before", "a", "1.00", "e", "0.00", "<s>", "0.00"][: len(before.split())]
    assert after.split()[:3] == ["after", "c", "1.00"]
    assert page.locator(".aw-patch-item[aria-pressed=true]").inner_text().split() == ["1.0", "1.00", "1.00"]
    assert page.locator(".aw-patch-token[data-differs]").all_inner_texts() == ["c", "a"]
    assert page.locator(".aw-patch").bounding_box()["height"] <= 560


def test_a_click_moves_the_linked_views_and_several_are_named_together(page):
    heads, state = plot_of(page, "heads"), plot_of(page, "state")
    height = page.locator(".aw-patch").bounding_box()["height"]
    page.mouse.click(*at(state, 0, 2, 0, 6))
    assert readout(page).startswith("state 0 at \u2068“c”\u2069 1.0000")
    page.mouse.move(5, 5)
    assert "needs a running kernel" in page.locator(".aw-patch-box[data-after]").inner_text()
    assert page.locator(".aw-lens-token[data-chosen]").inner_text() == "c"
    assert page.locator(".aw-lens output").inner_text() == "layer 0 / 2"
    page.keyboard.down("Shift")
    page.mouse.click(*at(heads, 1, 2, 0, 2))
    page.keyboard.up("Shift")
    page.mouse.move(5, 5)
    assert readout(page).startswith("2 places together")
    assert page.locator(".aw-patch-about").inner_text() == "together, from c into a"
    start = at(state, 0, 2, 1, 6)
    page.mouse.move(*start)
    page.mouse.down()
    page.mouse.move(*at(state, 1, 2, 2, 6), steps=4)
    page.mouse.up()
    page.mouse.move(5, 5)
    assert readout(page).startswith("4 places together")
    assert page.locator(".aw-patch").bounding_box()["height"] == height


def test_a_claim_is_made_of_a_head_or_of_two_places(page):
    button = page.locator(".aw-patch").get_by_role("button", name="Claim", exact=True)
    assert button.is_enabled()
    button.click()
    told = page.locator(".aw-copy-told:visible .aw-copy-note")
    assert "head 1.0 moves changed to last" in told.inner_text()
    state = plot_of(page, "state")
    page.mouse.click(*at(state, 0, 2, 0, 6))
    assert button.is_disabled()
    page.keyboard.down("Shift")
    page.mouse.click(*at(state, 1, 2, 5, 6))
    page.keyboard.up("Shift")
    assert button.is_enabled()
    page.mouse.click(*at(state, 0, 2, 0, 6))
    assert button.is_disabled()


def test_keys_walk_through_a_map_and_escape_leaves_one(page):
    state = plot_of(page, "state")
    state.focus()
    page.keyboard.press("ArrowRight")
    assert readout(page).startswith("state 1 at \u2068“c”\u2069"), "the first key enters the map"
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowUp")
    assert readout(page).startswith("state 0 at \u2068“f”\u2069")
    page.keyboard.press("End")
    assert readout(page).startswith("state 1 at")
    page.locator(".aw-patch-item").nth(1).focus()
    page.keyboard.press("Enter")
    assert readout(page).startswith("head 1.0")


def test_directions_are_changed_and_the_estimate_shows_where_it_was_checked(large, page_of):
    page = page_of(aw.views.PatchView(large[0], others=large[1:]))
    plot_of(page, "heads").wait_for()
    assert page.locator(".aw-patch-over circle").count() == 0
    page.get_by_text("estimate", exact=True).click()
    assert page.locator(".aw-patch-over circle").count() == 2
    assert "2 places that were patched" in page.locator(".aw-patch-agreement").inner_text()
    assert page.locator(".aw-patch-item-heads").inner_text().split() == [
        "checked",
        "places",
        "estimate",
        "patched",
    ]
    assert "≈" in readout(page)
    page.get_by_text("noise", exact=True).first.click()
    assert page.locator(".aw-patch-about").inner_text() == "alone, from other into w5"


def test_a_lens_is_walked_through_and_says_what_it_reads(page):
    plot = page.locator(".aw-lens-plot")
    plot.focus()
    page.keyboard.press("End")
    assert readout(page, "lens").startswith("output, \u2068“b”\u2069 → \u2068“c”\u2069 0.9996")
    assert page.locator(".aw-lens-panel button", has_text="Patch this cell").is_disabled()
    page.keyboard.press("ArrowUp")
    page.keyboard.press("ArrowLeft")
    assert page.locator(".aw-lens-cell[data-chosen]").count() == 1
    assert page.locator(".aw-lens output").inner_text() == "layer 1 / 2"
    page.locator(".aw-lens-panel button", has_text="Patch this cell").click()
    assert "state 1 at \u2068“e”\u2069" in readout(page), "the view of patching follows"
    choice = page.locator(".aw-lens .aw-menu-button")
    choice.click()
    page.get_by_role("option", name="entropy").click()
    assert "entropy" in page.locator(".aw-lens-legend").inner_text()


def test_claims_are_chosen_and_open_as_code(pair, page_of):
    texts = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa"]
    said = ["head 1.0 is induction", "head 1.1 is induction"]
    report = aw.circuits.check_claims(pair[0].model, pair[0].tokenizer, said, texts)
    page = page_of(report.view())
    page.locator(".aw-claim-row").first.wait_for()
    first = page.locator(".aw-claim-verdict").inner_text()
    assert first == report.results[0].verdict
    page.locator(".aw-claim-chip").nth(1).click()
    assert page.locator(".aw-claim-sentence").inner_text() == said[1]
    assert page.locator(".aw-claim-verdict").inner_text() == report.results[1].verdict
    assert "0 of 3 texts clear the margin" in page.locator(".aw-claim-words").inner_text()
    page.locator(".aw-claim-row button").first.click()
    page.wait_for_function(
        "() => /Heatmap/.test(document.querySelector('.aw-claims .aw-readout').textContent)"
    )
    assert "layer=1, head=1" in readout(page, "claims")
    assert page.locator(".aw-claims").bounding_box()["height"] <= 560


@pytest.mark.parametrize("width", [480, 760, 1200])
def test_nothing_overlaps_or_is_cut_at_any_width(width, large, both, pair, page_of):
    views = [
        aw.views.PatchView(large[0], others=large[1:]),
        both.view(),
        aw.circuits.lens(pair[0], "c").view(),
    ]
    page = page_of(*views, viewport={"width": width + 48, "height": 900})
    page.locator(".aw-patch-plot canvas").first.wait_for()
    page.locator(".aw-lens-cell").first.wait_for()
    assert page.evaluate(OVERLAPS) == []
    assert page.evaluate(BLANK) == []
    cut = [words for words in page.evaluate(CLIPPED) if "patch-token" not in words]
    assert cut == []
    wide = "(roots) => roots.filter((el) => el.scrollWidth > el.clientWidth + 1).length"
    assert page.locator(".aw-root").evaluate_all(wide) == 0
    assert max(view.bounding_box()["height"] for view in page.locator(".aw-framed").all()) <= 560


def test_hostile_tokens_are_text(page_of, pair):
    page = page_of(hostile().view(), color_scheme="dark")
    page.locator(".aw-patch-plot").first.wait_for()
    assert page.locator(".aw-root img").count() == 0
    labels = page.locator(".aw-patch-token").all_inner_texts()
    assert labels[0].startswith("<img")
    assert "U+202E" in labels[1]
    assert "∅" in labels
    assert page.locator(".aw-patch").bounding_box()["height"] <= 560


def test_where_the_texts_differ_is_in_sight_beside_long_answers(page_of):
    clean = [*[f"␣word{i}" for i in range(12)], "∅", "␣Italy", "␣is"]
    raw = {"state": np.repeat([[0.0] * 12 + [1.0] * 3], 2, axis=0)}
    result = aw.results.Patching(
        raw, direction="denoise", clean=4.0, corrupt=-4.0, clean_tokens=clean,
        corrupt_tokens=[*clean[:12], "␣the", "␣Isle", "␣is"], differs=[12, 13],
        target="␣Rome", foil="␣Douglas",
    )  # fmt: skip
    page = page_of(result.view(), viewport={"width": 528, "height": 800})
    page.locator(".aw-patch-plot").first.wait_for()
    rows = page.locator(".aw-patch-texts").bounding_box()
    label = page.locator(".aw-patch-row").last.bounding_box()
    for token in page.locator(".aw-patch-token[data-differs]").all():
        box = token.bounding_box()
        assert box["x"] >= label["x"] + label["width"] - 1
        assert box["x"] + box["width"] <= rows["x"] + rows["width"] + 1


def test_without_a_gap_raw_numbers_are_shown_and_a_click_chooses(pair, open_page, tmp_path, screenshot):
    result = aw.circuits.patch(*pair, "d", foil="e")
    page = open_page(result.view().to_html(tmp_path / "page.html").as_uri())
    plot = page.locator(".aw-patch .aw-plot").first
    plot.wait_for()
    screenshot(page, "patch-no-gap.png", full_page=True)
    plot.click(position={"x": 5, "y": 5})
    assert "state 0" in readout(page)
