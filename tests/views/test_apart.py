"""Special tokens stand apart: beside maps, outside their scale, with their share of every row."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.base.options import filtered, stands_apart
from attnwidgets.views.still.matrices import grid_sheet, matrix_map
from attnwidgets.views.wire.thumbnails import GAMMA, thumbnails


@pytest.fixture(scope="module")
def special(minilm_trace):
    return np.asarray(aw.attention(minilm_trace).key.units["token"].special, dtype=bool)


@pytest.mark.parametrize(
    ("given", "filters"),
    [
        ("apart", {}),
        (False, {"special": "show"}),
        (True, {"special": "hide"}),
        ("renormalise", {"special": "renormalise"}),
    ],
)
def test_special_tokens_stand_apart_unless_told_otherwise(minilm_trace, given, filters):
    assert aw.Heatmap(minilm_trace).options["filters"] == {}
    assert aw.Heatmap(minilm_trace, hide_special=given).options["filters"] == filters


def test_another_word_for_special_tokens_is_refused_with_those_there_are(minilm_trace):
    with pytest.raises(ValueError, match=r"'apart'.*False.*True.*'renormalise'"):
        aw.Heatmap(minilm_trace, hide_special="beside")


def test_what_stands_apart_keeps_its_values_and_other_filters_do_not_count_it():
    row = np.array([[0.6, 0.05, 0.15, 0.2]])
    special = np.array([True, False, False, False])
    np.testing.assert_array_equal(filtered(row, {}, special=special, shares=True), row)
    left = filtered(row, {"mass": 0.8}, special=special, shares=True)
    np.testing.assert_array_equal(left, [[0.6, np.nan, 0.15, 0.2]])
    left = filtered(row, {"least": 0.18}, special=special, shares=True)
    np.testing.assert_array_equal(left, [[0.6, np.nan, np.nan, 0.2]])
    alone = filtered(row, {"mass": 0.5}, special=np.ones(4, dtype=bool), shares=True)
    np.testing.assert_array_equal(alone, [[0.6, np.nan, np.nan, np.nan]])
    assert not stands_apart(np.ones(4, dtype=bool)).any()


def test_thumbnails_and_their_peaks_leave_special_tokens_out(minilm_trace, special):
    [source, *_] = aw.HeadGrid(minilm_trace).sources()
    sheet = thumbnails(source)
    count = int((~special).sum())
    assert (sheet.rows, sheet.cols) == (count, count)
    values = aw.attention(minilm_trace).layer(2)[:, ~special][:, :, ~special]
    np.testing.assert_allclose(sheet.scale[2], values.max(axis=(1, 2)), rtol=1e-5)
    codes = np.frombuffer(sheet.data, np.uint8).reshape(len(sheet.scale), -1, count, count)[2]
    decoded = (codes / 255) ** (1 / GAMMA) * values.max(axis=(1, 2), keepdims=True)
    np.testing.assert_allclose(decoded, values, atol=0.005)


def test_a_map_of_special_tokens_only_keeps_them(softmax):
    trace = aw.from_attentions(softmax((1, 1, 3, 3)), ["[CLS]", "[SEP]", "[SEP]"])
    [source, *_] = aw.HeadGrid(trace).sources()
    sheet = thumbnails(source)
    assert (sheet.rows, sheet.cols) == (3, 3)
    assert not any(side.any() for side in aw.Heatmap(trace).presentation.apart())


def test_a_figure_accounts_for_all_of_a_row(minilm_trace, special):
    view = aw.Heatmap(minilm_trace, layer=2, head=3)
    part, _ = matrix_map(view.presentation, LIGHT)
    values = aw.attention(minilm_trace).matrix(2, 3)[~special]
    np.testing.assert_allclose(part.values, values[:, ~special], rtol=1e-6)
    np.testing.assert_allclose(part.values.sum(axis=1) + part.apart, 1, atol=1e-4)
    assert part.apart_name == "share to [CLS] [SEP]"
    plain, _ = matrix_map(aw.Heatmap(minilm_trace, hide_special=False).presentation, LIGHT)
    assert plain.values.shape == (len(special), len(special))
    assert not len(plain.apart)


def test_thumbnails_follow_a_map_that_shows_special_tokens(minilm_trace, special):
    view = aw.HeadGrid(minilm_trace, hide_special=False)
    source = view.sources()[0]
    sheet = thumbnails(source, special=True)
    assert (sheet.rows, sheet.cols, sheet.special) == (len(special), len(special), True)
    values = aw.attention(minilm_trace).layer(2)
    np.testing.assert_allclose(sheet.scale[2], values.max(axis=(1, 2)), rtol=1e-5)
    apart, shown = (
        grid_sheet(item.presentation, LIGHT).parts[0].values for item in (aw.HeadGrid(minilm_trace), view)
    )
    assert apart.shape != shown.shape, "so does the figure"


def test_a_long_grid_opens_with_the_thumbnails_of_its_map(softmax):
    labels = ["[CLS]", *(f"t{i}" for i in range(78)), "[SEP]"]
    for how, is_special in (("apart", False), (False, True)):
        trace = aw.from_attentions(softmax((2, 3, 80, 80)), labels)
        view = aw.HeadGrid(trace, hide_special=how)
        opening = next(it for it in view.store.header["thumbs"] if it["source"] == view.sources()[0].id)
        assert (opening["special"], opening["rows"]) == (is_special, 64)
        source = view.sources()[0]
        request = {"kind": "thumbs", "id": 1, "source": source.id, "special": not is_special}
        meta, [data] = view.store.answer(request)
        assert (meta["special"], len(data)) == (not is_special, 2 * 3 * 64 * 64), "the others are on request"


def test_short_thumbnails_are_the_tiles_themselves(minilm_trace, special):
    view = aw.HeadGrid(minilm_trace, unit="token", units=["token"])
    [opening] = view.store.header["thumbs"]
    assert (opening["special"], opening["rows"]) == (True, len(special))
    layers, heads, length, _ = aw.attention(minilm_trace).shape
    assert len(view.store.eager) == layers * (heads + 2) * length**2, (
        "one byte a value, with mean and maximum"
    )
