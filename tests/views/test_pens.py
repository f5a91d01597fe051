"""The picture of a display, drawn on pixels, shows the same as matplotlib's figure."""

from __future__ import annotations

import io
import itertools

import numpy as np
import pytest
from PIL import Image

import attnwidgets as aw
from attnwidgets.figures.drawing import pixels
from attnwidgets.figures.maps import small_png
from attnwidgets.figures.palettes import Span, heat_map
from attnwidgets.figures.parts.matrix import Map
from attnwidgets.figures.parts.numbers import Chips
from attnwidgets.figures.parts.text import Arc, Arcs, Text
from attnwidgets.figures.parts.ticks import tick_words, ticks
from attnwidgets.figures.pens.on_pixels import PixelArea
from attnwidgets.figures.sheet import Sheet, Words
from attnwidgets.figures.theme import LIGHT
from tests.views.every import every_view, make

DPI = 80
SEEN, WITH_NUMBER = 4, 12  # pixels of a cell's side


def read(png):
    return np.asarray(Image.open(io.BytesIO(png)).convert("RGB")).astype(int)


def texts_of(figure):
    """The texts of a figure and where matplotlib draws them, in pixels from the top left corner."""
    figure.set_dpi(DPI)
    figure.canvas.draw()
    written = [*figure.texts, *(text for axes in figure.axes for text in axes.texts)]
    tall = figure.bbox.height
    for text in written:
        if text.get_text().strip():
            box = text.get_window_extent()
            yield text.get_text(), (box.x0, tall - box.y1, box.x1, tall - box.y0)


@pytest.fixture
def drawn(monkeypatch):
    """The texts that a pen on pixels is asked to write, and the cells to colour, with their positions."""
    texts, cells = [], []
    write, colour = PixelArea._write, PixelArea.cells

    def writes(self, x, y, words, *rest):
        texts.append(words)
        return write(self, x, y, words, *rest)

    def colours(self, values, ramp, norm, extent=None):
        left, right, bottom, top = extent or (*self.across, *self.up)
        rows, columns = values.shape
        edges = *self.at(left, top), *self.at(right, bottom)
        side = min((edges[2] - edges[0]) / columns, (edges[3] - edges[1]) / rows)
        share, reach = (0.5, 0) if side < WITH_NUMBER else (0.25, 2)  # its middle may hold a number
        for row, column in np.ndindex(values.shape) if side >= SEEN else ():
            x = left + (column + share) * (right - left) / columns
            cells.append((*self.at(x, top + (row + share) * (bottom - top) / rows), reach))
        return colour(self, values, ramp, norm, extent)

    monkeypatch.setattr(PixelArea, "_write", writes)
    monkeypatch.setattr(PixelArea, "cells", colours)
    return texts, cells


@pytest.mark.parametrize("name", [name for name in every_view() if name != "LayerSlider"])
def test_both_pens_write_the_same_words_and_colour_the_same_cells(given, name, drawn):
    require_alike(make(name, given)._preview(LIGHT), drawn)


def test_both_pens_draw_what_few_views_show(drawn):
    numbers, colours, norm = np.random.default_rng(0).random((6, 6)), heat_map("", signed=False), Span(0, 1)
    names = [f"name{i}" for i in range(6)]
    sinks = {"sink": numbers[0].tolist(), "sink_name": "sink", "apart": numbers[1], "apart_name": "elsewhere"}
    arcs = [Arc(5, 0, 1.0, bold=True), Arc(4, 1, -0.6, bold=False)]
    parts = [
        Chips([("good", 0.7), ("bad", 0.3)], 0),
        Text(numbers[:1], names, colours, norm, hatched=[2], outlined=[3], apart=[0]),
        Map(numbers, names, names, colours, norm, **sinks, totals=numbers[2], outlines=[(2, 3)]),
        Arcs(names, list("012345"), arcs, heat_map("", signed=True), 5, signed=True),
    ]
    require_alike(Sheet("“title” — é", parts, "a note"), drawn)


def require_alike(sheet, drawn):
    picture = read(sheet.png(LIGHT, dpi=DPI))
    figure = sheet.figure(2, LIGHT)
    other = np.asarray(pixels(figure, DPI)).astype(int)
    assert picture.shape == other.shape
    texts, cells = drawn
    expected = list(texts_of(figure))
    assert sorted(text for text in texts if text.strip()) == sorted(text for text, _ in expected)
    for text, (left, top, right, bottom) in expected:
        box = picture[max(0, round(top) - 2) : round(bottom) + 2, max(0, round(left) - 2) : round(right) + 2]
        assert np.ptp(box.min(axis=-1)) > 30, text  # something is written there
    for x, y, reach in cells:
        part = (slice(int(y) - reach, int(y) + reach + 1), slice(int(x) - reach, int(x) + reach + 1))
        here, there = (np.median(image[part], axis=(0, 1)) for image in (picture, other))  # between hatches
        np.testing.assert_allclose(here, there, atol=6)


def test_a_cell_has_its_colour_on_white_paper(given):
    trace = given()
    picture = read(aw.Heatmap(trace, layer=0, head=0)._png())
    assert picture[0, 0].tolist() == [255, 255, 255]
    view = aw.Heatmap(trace, layer=0, head=0)
    values, top = aw.attention(trace).matrix(0, 0), view._still(LIGHT).parts[0].norm.vmax
    shown = {tuple(colour) for colour in picture.reshape(-1, 3)}
    for value in values.ravel():
        assert tuple(np.round(255 * heat_map("", signed=False)(value / top)[:3]).astype(int)) in shown


@pytest.mark.parametrize("words", ["日本語", "שלום", "ไทย", "नमस्ते"])
def test_words_that_the_font_cannot_show_are_drawn_by_matplotlib(words):
    part = Text(np.ones((1, 1)), [words], heat_map("", signed=False), lambda value: value)
    for sheet in (Sheet("a", [part]), Sheet(words, [Words("a")])):
        assert sheet.png() == small_png(sheet.figure())
    assert Sheet("a", [Words("é → “x” ✓ β")]).png() != small_png(Sheet("a", [Words("é → “x” ✓ β")]).figure())


def test_a_picture_is_the_same_in_every_run(given):
    assert len({aw.Explorer(given())._png() for _ in range(2)}) == 1


@pytest.mark.parametrize(
    ("low", "high"), [(0, 1), (-3.2, 5.1), (0, 0.00034), (1234, 98765), (-1e-3, -1e-4), (0, 5), (2, 2)]
)
@pytest.mark.parametrize("most", [2, 5, 8])
@pytest.mark.parametrize("whole", [False, True])
def test_ticks_are_round_even_and_inside(low, high, most, whole):
    positions = ticks(low, high, most, whole=whole)
    assert all(low - 1e-9 <= position <= high + 1e-9 for position in positions)
    assert len(positions) <= most + 1
    assert len(set(tick_words(positions))) == len(positions)
    steps = [second - first for first, second in itertools.pairwise(positions)]
    np.testing.assert_allclose(steps, steps[:1] * len(steps))
    assert not whole or all(float(position).is_integer() for position in positions)
    for position, words in zip(positions, tick_words(positions), strict=True):
        assert float(words.replace("−", "-")) == pytest.approx(position, rel=1e-2, abs=1e-12)
