"""A key that was not compared has no weight, rather than a weight of zero, wherever a map is read."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest
from matplotlib.text import Text

import attnwidgets as aw
from attnwidgets.explanations.results.pictures import atlas_of
from attnwidgets.figures.sheet import Words
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.still.matrices import grid_sheet, layers_sheet, lines_sheet, strip_sheet
from tests.views.windowed import COUNT, WORDS, windowed

SINK = "no token (sink)"
SOURCE = "attention/token/self"


def floats(data):
    return np.frombuffer(data, dtype="<f4")


def texts(sheet):
    return [part.text for part in sheet.parts if isinstance(part, Words)]


def shown_at(view, row):
    view.selection.pinned = (row, 1)
    return view.presentation


def test_rows_that_the_browser_requests_have_no_number_there():
    shown, window = windowed()
    view = aw.HeadView(shown, layer=0, head=1)
    values = shown.layer(0)
    request = {"kind": "row", "id": 1, "source": SOURCE, "layer": 0, "head": 1, "row": 5}
    _, (data,) = view.store.answer(request)
    np.testing.assert_array_equal(floats(data), np.where(window[5], values[1, 5], np.nan))
    for side, index, line in (("query", 4, window[4]), ("key", 1, window[:, 1])):
        cell = {"source": SOURCE, "layer": 0, "side": side, "index": index}
        _, (data,) = view.requests.answer("token", cell)
        given = values[:, index] if side == "query" else values[:, :, index]
        np.testing.assert_array_equal(floats(data).reshape(2, COUNT), np.where(line, given, np.nan))
    _, (data,) = view.requests.answer("pair", {"source": SOURCE, "query": 5, "key": 1})
    pair = floats(data).reshape(2, 2)
    assert np.isnan(pair[0]).all()
    np.testing.assert_array_equal(pair[1], shown.layer(1)[:, 5, 1])


@pytest.mark.parametrize("sink", [True, False])
def test_a_table_has_an_empty_cell_there_and_a_column_of_the_sink(sink):
    shown, window = windowed(sink=sink)
    args = {"method": "attention", "stack": "self", "unit": "token", "layer": 0, "head": 1}
    answer, _ = aw.Heatmap(shown).requests.answer("csv", args)
    head, *rows = csv.reader(io.StringIO(answer["text"]))
    assert head == ["", *WORDS, *[SINK] * sink]
    for row, (name, *cells) in enumerate(rows):
        assert name == WORDS[row]
        assert [cell != "" for cell in cells[:COUNT]] == window[row].tolist()
        assert sum(float(cell) for cell in cells if cell) == pytest.approx(1, abs=1e-6)
    assert float(rows[3][3]) == 0  # a weight of 1


def test_a_table_of_a_map_says_which_values_were_compared():
    shown, window = windowed()
    rows = shown.to_rows()
    assert [row["compared"] for row in rows[: COUNT**2]] == window.ravel().tolist()
    causal = [row["compared"] for row in rows if row["layer"] == 1 and row["head"] == 0]
    assert causal == np.tri(COUNT, dtype=bool).ravel().tolist()
    assert not any(row["value"] for row in rows if not row["compared"])
    # All keys, or all but later keys, need no such column.
    assert "compared" not in shown.select(layer=1).to_rows()[0]
    assert "compared" not in shown.to([(0, 3), (3, COUNT)]).to_rows()[0]


def test_figures_of_a_map_are_empty_there_and_have_a_column_of_the_sink():
    shown, window = windowed()
    axes = shown.figure(layer=0, head=1).axes[0]
    drawn = np.ma.filled(axes.images[0].get_array(), np.nan)
    np.testing.assert_array_equal(np.isfinite(drawn[:, 1:]), window)
    np.testing.assert_allclose(np.nansum(drawn, axis=1), 1, atol=1e-6)
    assert [tick.get_text() for tick in axes.get_xticklabels()] == [SINK, *WORDS]
    strip = shown.figure(layer=0, head=1, query=5)
    assert any(f"{SINK} 0.6" in text.get_text() for text in strip.findobj(Text))
    # Without a sink there is no such column.
    plain = windowed(sink=False)[0].figure(layer=0, head=1).axes[0]
    assert [tick.get_text() for tick in plain.get_xticklabels()] == WORDS
    atlas = atlas_of(shown)
    first = atlas.values[:COUNT, :COUNT]
    np.testing.assert_array_equal(np.isfinite(first), window)


def test_figures_of_views_tell_it_of_the_row():
    shown, window = windowed()
    facts = f"{SINK} = 0.6 · reads 3 of 6 keys"
    strip = strip_sheet(shown_at(aw.TokenStrip(shown, layer=0, head=1), 5), LIGHT)
    np.testing.assert_array_equal(np.isfinite(strip.parts[0].values[0]), window[5])
    assert texts(strip) == [f"{facts}; grey: not compared"]
    lines = lines_sheet(shown_at(aw.HeadView(shown, layer=0, head=1), 5), LIGHT)
    np.testing.assert_array_equal(np.isfinite(lines.parts[0].values[0]), window)
    assert texts(lines) == [facts]
    layers = layers_sheet(shown_at(aw.Heatmap(shown, layer=0, head=1), 5), LIGHT).parts[-2].values
    np.testing.assert_array_equal(np.isfinite(layers), [window[5], np.ones(COUNT, dtype=bool)])
    grid = grid_sheet(aw.HeadGrid(shown).presentation, LIGHT).parts[0].values
    assert np.isfinite(grid[:COUNT, :COUNT]).sum() == window.sum()


def test_what_a_key_receives_is_a_mean_over_all_queries():
    shown, _ = windowed(sink=False)
    view = aw.TokenStrip(shown, layer=0, head=1)
    view.selection.opening = None
    np.testing.assert_allclose(view.presentation.received(), shown.layer(0)[1].mean(axis=0), atol=1e-7)
