"""Maps on the page: special tokens stand apart, long texts have a window, and nothing is too tall."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import opening

TEXT = "the cat sat on the mat"
LONG = f"{TEXT} and then it went out of the house to look at birds " * 4


@pytest.fixture
def map_page(page_of):
    def opened(view, width=760):
        page = page_of(view, viewport={"width": width, "height": 900})
        page.locator(".aw-plot[aria-busy=false]").first.wait_for()
        return page

    return opened


def softmax(shape):
    raw = np.exp(np.random.default_rng(3).normal(size=shape)).astype(np.float32)
    return raw / raw.sum(axis=-1, keepdims=True)


def point(page, part, row, col, rows, cols):
    """Point at a cell of a picture of rows x cols; return the readout."""
    box = page.locator(part).bounding_box()
    page.mouse.move(
        box["x"] + (col + 0.5) * box["width"] / cols, box["y"] + (row + 0.5) * box["height"] / rows
    )
    return page.locator(".aw-readout").inner_text()


def number(words):
    return float(re.search(r"[≈=] ([\d.e-]+)", words).group(1))


def left_labels(page):
    return page.locator(".aw-labs-left > .aw-lab:not(.aw-lab-over)").all_inner_texts()


def test_the_cells_and_the_bar_of_a_row_account_for_all_of_it_and_one_click_brings_all_cells(
    minilm, map_page
):
    trace = aw.trace(*minilm, TEXT)
    page = map_page(aw.Heatmap(trace, layer=2, head=1))
    assert left_labels(page) == TEXT.split()
    values = aw.attention(trace).matrix(2, 1)
    for row in (0, 3):
        cells = [number(point(page, ".aw-plot", row, col, 6, 6)) for col in range(6)]
        np.testing.assert_allclose(cells, values[row + 1, 1:-1], atol=0.01)
        words = point(page, ".aw-shares", row, 0, 6, 1)
        assert "[CLS] [SEP]" in words
        assert number(words) == pytest.approx(values[row + 1, [0, -1]].sum(), abs=0.01)
        assert sum(cells) + number(words) == pytest.approx(1, abs=0.03)
    page.get_by_role("button", name="share to [CLS] [SEP]").click()
    assert left_labels(page) == ["[CLS]", *TEXT.split(), "[SEP]"]
    assert not page.locator(".aw-shares").is_visible()
    assert number(point(page, ".aw-plot", 1, 0, 8, 8)) == pytest.approx(values[1, 0], abs=0.01)


def test_a_pin_keeps_its_place_in_the_whole_text_and_shows_on_the_bar(minilm, map_page):
    view = aw.Heatmap(aw.trace(*minilm, TEXT), layer=2, head=1)
    view.selection.pinned = (3, 0)
    page = map_page(view)
    assert page.locator(".aw-labs-left > .aw-lab-pin").inner_text() == "sat"
    assert page.locator(".aw-shares > .aw-band-pin").is_visible()
    assert not page.locator(".aw-pin").is_visible()
    assert "“sat”" in (said := page.locator(".aw-readout").inner_text())
    assert "“[CLS]”" in said


def test_maps_without_special_tokens_have_no_bars(map_page):
    page = map_page(aw.Heatmap(aw.from_attentions(softmax((1, 1, 4, 4)), list("abcd"))))
    assert left_labels(page) == list("abcd")
    assert not page.locator(".aw-apart").is_visible()


def test_a_long_text_shows_a_window_that_moves_and_says_what_it_leaves_out(map_page):
    names = [f"t{i}" for i in range(200)]
    page = map_page(aw.Heatmap(aw.from_attentions(softmax((1, 1, 200, 200)), names)))
    shown = left_labels(page)
    assert shown == names[-len(shown) :]  # around the query of the first picture, the last token
    earlier = page.get_by_role("button", name="↑")
    assert earlier.inner_text() == f"↑ {200 - len(shown)} earlier"
    height = page.locator(".aw-root").bounding_box()["height"]
    earlier.click()
    first = 202 - 2 * len(shown)
    assert left_labels(page)[0] == names[first]
    assert page.get_by_role("button", name="↓").inner_text() == f"↓ {len(shown) - 2} later"
    # The readout names elements of the whole text.
    said = point(page, ".aw-plot", 0, 0, len(shown), 1)
    assert f"“{names[first]}”" in said
    page.get_by_role("button", name="whole map").click()
    assert {"t0", "t190"} <= set(left_labels(page))
    page.get_by_role("button", name="part of it").click()
    assert len(left_labels(page)) == len(shown)
    assert page.locator(".aw-root").bounding_box()["height"] == height


def test_the_window_opens_around_the_pin(map_page):
    view = aw.Heatmap(aw.from_attentions(softmax((1, 1, 200, 200)), [f"t{i}" for i in range(200)]))
    view.selection.pinned = (120, 60)
    page = map_page(view)
    assert "t120" in left_labels(page)
    assert page.locator(".aw-labs-top > .aw-lab-pin").inner_text() == "t60"
    assert page.locator(".aw-pin").is_visible()


@pytest.mark.parametrize("width", [480, 760, 1200])
@pytest.mark.parametrize("length", [5, 14, 64])
def test_a_lone_map_is_at_most_560_px_tall_and_stays_as_tall(minilm, map_page, width, length):
    text = " ".join(LONG.split()[: length - 2])
    page = map_page(aw.Heatmap(aw.trace(*minilm, text), layer=2, head=1), width)
    root = page.locator(".aw-root")
    height = root.bounding_box()["height"]
    assert height <= 560
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    nodes = page.evaluate("document.querySelectorAll('*').length")
    page.locator(".aw-plot").hover(position={"x": 20, "y": 20})
    page.locator(".aw-plot").hover(position={"x": 60, "y": 40})
    assert page.evaluate("document.querySelectorAll('*').length") == nodes
    page.locator(".aw-plot").click(position={"x": 60, "y": 40})
    assert root.bounding_box()["height"] == height


@pytest.mark.parametrize("width", [200, 760])
def test_odd_maps_stay_inside_their_view(map_page, width):
    values = softmax((1, 1, 3, 3))
    values[0, 0, 1] = 0
    labels = ["x" * 500, "a", "b"]
    page = map_page(aw.Heatmap(aw.from_attentions(values, labels)), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".aw-root").bounding_box()["height"] <= 620
    wide = aw.from_attentions(
        softmax((1, 1, 1, 1000)), query_tokens=["q"], key_tokens=[f"k{i}" for i in range(1000)]
    )
    page = map_page(aw.Heatmap(wide), width)
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.locator(".aw-plot").bounding_box()["height"] <= 44


@pytest.mark.parametrize("kind", [aw.Heatmap, aw.Explorer])
def test_a_head_chosen_from_some_queries_says_so(map_page, monkeypatch, kind):
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 100)
    view = kind(aw.from_attentions(softmax((2, 2, 80, 80)), [f"t{i}" for i in range(80)]))
    page = map_page(view)
    said = page.locator(".aw-heatmap .aw-opens > *", has_text="chosen from 64 of 80 queries")
    said.wait_for()
    assert said.is_visible()
    page.locator(".aw-heatmap .aw-plot").press("ArrowLeft" if view.selection.head else "ArrowRight")
    said.wait_for(state="hidden")  # another head was not


def test_a_map_keeps_within_the_height_that_it_is_given(page_of):
    numbers = np.random.default_rng(0).dirichlet(np.ones(14), (1, 1, 14)).astype("float32")
    trace = aw.from_attentions(numbers, [f"token{i}" for i in range(14)])
    page = page_of(aw.Heatmap(trace, height=300), viewport={"width": 760, "height": 700})
    page.locator(".aw-plot[aria-busy=false]").wait_for()
    footer, plot = (page.locator(part).bounding_box() for part in (".aw-footer", ".aw-plot"))
    assert plot["y"] + plot["height"] <= footer["y"]
    assert page.locator(".aw-heatmap").bounding_box()["height"] == 300


WORDS = TEXT.split()
SINK = "no token (sink)"


def with_sink(count=6, window=None):
    """A map of rows that leave 0.1, 0.2, ... to a sink; with a window a row is compared with so many keys."""
    words = (WORDS * count)[:count]
    compared = np.tri(count, dtype=bool) & ~np.tri(count, k=-(window or count), dtype=bool)
    rest = 0.1 + 0.1 * (np.arange(count) % 6)
    weights = np.where(compared, softmax((2, count, count)), 0)
    weights *= ((1 - rest) / weights.sum(axis=-1))[..., None]
    # A compared weight that is zero.
    weights[:, 3, 2] = 0
    axis = aw.attention(aw.from_attentions(weights[None], words)).query
    shown = aw.results.MixingMap.lazy(
        lambda _: weights.astype(np.float32),
        query=axis,
        layers=(0,),
        heads=range(2),
        sink=True,
        causal=True,
        readable=(lambda _: compared) if window else None,
        method="attention",
    )
    return aw.Heatmap(shown, head=1), 1 - weights[1].sum(axis=-1), compared


def test_the_sink_is_the_column_before_the_first_token_and_a_row_sums_to_one(map_page):
    view, rest, _ = with_sink()
    page = map_page(view, 1200)
    name = page.locator(".aw-sink-name .aw-lab:not(.aw-lab-over)")
    assert name.inner_text() == SINK
    sink, plot = (page.locator(part).bounding_box() for part in (".aw-sink", ".aw-plot"))
    assert sink["x"] + sink["width"] <= plot["x"]
    assert (sink["y"], sink["height"]) == (plot["y"], plot["height"])
    assert not page.locator(".aw-shares").is_visible()
    for row in (0, 4):
        cells = [number(point(page, ".aw-plot", row, col, 6, 6)) for col in range(row + 1)]
        words = point(page, ".aw-sink", row, 0, 6, 1)
        assert f"→ {SINK} = " in words
        assert number(words) == pytest.approx(rest[row], abs=1e-3)
        assert sum(cells) + number(words) == pytest.approx(1, abs=0.03)
    assert f"{SINK}: 0 to 1" in page.locator(".aw-scale").inner_text()
    # The list of the largest values names it last, however large it is.
    assert page.locator(".aw-bar-line:visible .aw-bar-name").all_inner_texts()[-1] == SINK


def test_a_cell_of_the_sink_is_pinned_by_a_click_and_reached_by_keys(map_page):
    view, rest, _ = with_sink()
    page = map_page(view)
    before = [page.locator(part).bounding_box() for part in (".aw-sink", ".aw-plot")]
    point(page, ".aw-sink", 2, 0, 6, 1)
    page.mouse.down()
    page.mouse.up()
    pin = page.locator(".aw-sink-pin")
    assert pin.is_visible()
    assert [page.locator(part).bounding_box() for part in (".aw-sink", ".aw-plot")] == before
    page.mouse.move(1, 1)
    assert number(page.locator(".aw-readout").inner_text().split(SINK)[1]) == pytest.approx(rest[2], abs=1e-3)
    plot = page.locator(".aw-plot")
    plot.focus()
    page.keyboard.press("Shift+ArrowRight")  # the first token
    assert not pin.is_visible()
    words = page.locator(".aw-readout").inner_text()
    assert words.index(WORDS[2]) < words.index("→") < words.index(WORDS[0])
    page.keyboard.press("Shift+ArrowLeft")
    page.keyboard.press("Shift+ArrowLeft")  # nothing stands before the sink
    page.keyboard.press("Shift+ArrowDown")
    assert pin.is_visible()
    words = page.locator(".aw-readout").inner_text()
    assert WORDS[3] in words
    assert number(words.split(SINK)[1]) == pytest.approx(rest[3], abs=1e-3)
    page.keyboard.press("Enter")
    assert not pin.is_visible()


@pytest.mark.parametrize("width", [480, 1200])
def test_the_sink_stays_in_view_when_the_window_of_a_long_text_moves(map_page, width):
    page = map_page(with_sink(120)[0], width)
    sink = page.locator(".aw-sink")
    before = sink.bounding_box()
    page.locator(".aw-plot").focus()
    page.keyboard.press("Shift+PageUp")
    page.keyboard.press("Shift+PageUp")
    assert sink.bounding_box() == before
    assert SINK in point(page, ".aw-sink", 0, 0, 15, 1)
    right = page.locator(".aw-plot").bounding_box()
    assert right["x"] + right["width"] <= width
    page.get_by_role("button", name="whole map").click()
    assert sink.bounding_box()["height"] == page.locator(".aw-plot").bounding_box()["height"]


def pixel(page, row, col, count):
    """The colour [r, g, b, opacity] of a cell of the map."""
    return page.evaluate(
        """([row, col, count]) => {
            const map = document.querySelector(".aw-cells");
            const [x, y] = [(col + 0.5) * map.width / count, (row + 0.5) * map.height / count];
            return [...map.getContext("2d").getImageData(x, y, 1, 1).data];
        }""",
        [row, col, count],
    )


@pytest.mark.parametrize("window", [None, 3])
def test_a_key_that_was_not_compared_is_not_a_weight_of_zero(map_page, window):
    view, _, compared = with_sink(window=window)
    page = map_page(view)
    for row in range(6):
        for col in range(6):
            assert (pixel(page, row, col, 6)[3] > 0) == compared[row, col], (row, col)
    assert "→" in (zero := point(page, ".aw-plot", 3, 2, 6, 6))
    assert "not compared" not in zero
    words = point(page, ".aw-plot", 5, 1, 6, 6)
    legend = page.locator(".aw-scale").inner_text()
    assert ("not compared" in words) == ("reads 3 of 6 keys" in words) == bool(window)
    assert ("not compared" in legend) == bool(window)
    still = view.presentation.filtered(view.sources()[0].matrix(0, 1))
    assert (np.isfinite(still) == compared).all()
