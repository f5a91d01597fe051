"""A matrix as a map of colours, and their legend."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.letters import SMALL, width_of
from attnwidgets.figures.palettes import ink_on
from attnwidgets.figures.sheet import LEGIBLE, LINE, LONGEST, PAD, fitting, labelled
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Area, Box, Colours, Pen, Range

    Float = NDArray[np.floating]

_NAME = 0.16  # inches of a row that is not square
_TALLEST = 8.0  # inches of a map on a page
_NUMBERED = 0.22  # least cell side for a number
_TOTAL = 0.45  # inches of the sum of a row
_SINK_GAP = 0.03  # inches between the column of a sink and the others
_SHADES = 128  # of a legend
_SLANTED = 0.16  # least cell side for slanted labels


@dataclass(frozen=True)
class Map:
    """A matrix with its labels: rows at the left, columns on top.

    Attributes:
        values: [row, column]; NaN for missing numbers.
        rows: Names of the rows.
        columns: Names of the columns.
        colours: Colour map.
        norm: Its range.
        outlines: Outlined cells, (row, column).
        axis_names: Names of both axes, rows first; "" for none.
        apart: A bar at the end of every row, 0 to 1: the share that is not in the map.
        apart_name: Name of that share.
        sink: A hatched column before the first, 0 to 1: the share of a row that goes to no column; or empty.
        sink_name: Its name.
        sink_norm: Its range; None: that of the map.
        totals: The sum of every row, written at its end; none: nothing.
        row_at: Positions of the row names, in cells; None: every row is named.
        column_at: Positions of the column names.
        cell: Largest side of a cell in inches.
        numbers: Whether cells with room show their value.
        square: Whether cells are square; else every row is tall enough for its name.
        tall: Height of a row in inches, of cells that are not square; None: as tall as they are wide.
        looks: Colours and range of each row, instead of those of the map; none: all rows look alike.
        texts: [row][column], written into cells with room for it; none: nothing.
    """

    values: Float
    rows: Sequence[str]
    columns: Sequence[str]
    colours: Colours
    norm: Range
    outlines: Sequence[tuple[int, int]] = ()
    axis_names: tuple[str, str] = ("", "")
    apart: Sequence[float] = ()
    apart_name: str = ""
    sink: Sequence[float] = ()
    sink_name: str = ""
    sink_norm: Range | None = None
    totals: Sequence[float] = ()
    row_at: Sequence[float] | None = None
    column_at: Sequence[float] | None = None
    cell: float = 0.26
    numbers: bool = False
    square: bool = True
    tall: float | None = None
    looks: Sequence[tuple[Colours, Range]] = ()
    texts: Sequence[Sequence[str]] = ()

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        grid = self._layout(width)
        return grid.top + self.values.shape[0] * grid.high

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        grid = self._layout(box.width)
        rows, columns = self.values.shape
        cells = type(box)(box.left + grid.left, box.top + grid.top, columns * grid.side, rows * grid.high)
        area = pen.area(cells, (-0.5, columns - 0.5), (rows - 0.5, -0.5))
        area.rectangle(-0.5, -0.5, columns, rows, fill=pen.theme.empty)
        if self.values.size:
            self._cells(area)
        area.rectangle(-0.5, -0.5, columns, rows, edge=pen.theme.line, line=0.5)
        for row, column in self.outlines:
            area.rectangle(column - 0.5, row - 0.5, 1, 1, edge=pen.theme.accent, line=1.2)
        self._names(area, grid)
        if self.numbers and grid.side >= _NUMBERED:
            self._numbers(area)
        if self.texts and grid.side >= _NUMBERED:
            self._texts(area, grid.side)
        if len(self.apart):
            self._apart(area, grid, box.width)
        if len(self.sink):
            self._sink(pen, box, grid)
        if len(self.totals):
            self._totals(area, grid)

    @property
    def _beside(self) -> float:
        # Beside a column of sums the name is a line.
        names = [self.apart_name] if len(self.totals) else self.apart_name.split()
        words = names if len(self.apart) else []
        return max([0.55 if len(self.apart) else 0.02, *(2 * PAD + _wide(word) for word in words)])

    @property
    def _side_name(self) -> float:
        return LINE if self.axis_names[0] else 0.0

    def _layout(self, width: float) -> _Grid:
        rows, columns = self.values.shape
        longest = max((width_of(printable(name), SMALL) for name in self.rows), default=0.0)
        left = min(longest, 0.3 * width) + 2 * PAD + self._side_name
        right = self._beside + (_TOTAL if len(self.totals) else 0.0)
        has_sink = bool(len(self.sink))
        side = min(self.cell, (width - left - right - _SINK_GAP * has_sink) / max(1, columns + has_sink))
        high = max(side, _NAME) if self.tall is None else self.tall
        if self.square:
            high = side = min(side, _TALLEST / max(1, rows))
        left += (side + _SINK_GAP) * has_sink
        above = 2 * PAD + (LINE if self.axis_names[1] else 0.0)
        columns_named = [*self.columns, *[self.sink_name] * has_sink]
        names = max((width_of(printable(name), SMALL) for name in columns_named), default=0.0)
        names = min(names, LONGEST)
        if not names:
            return _Grid(left, above, side, high, slanted=False)
        if self.column_at is not None or side < LEGIBLE:
            return _Grid(left, above + LINE, side, high, slanted=False)
        slanted = side >= _SLANTED and left + columns * side + max(right, 0.71 * names) <= width
        return _Grid(left, above + (0.71 * names + 0.05 if slanted else names), side, high, slanted)

    def _names(self, area: Area, grid: _Grid) -> None:
        over, quiet = -0.5 - PAD / grid.high, area.theme.quiet
        before = grid.side + _SINK_GAP if len(self.sink) else 0.0
        for at, name in labelled(self.rows, self.row_at, grid.high):
            room = grid.left - before - 2 * PAD - self._side_name + 0.01
            words = fitting(printable(name), room, SMALL)
            area.write(-0.5 - (PAD + before) / grid.side, at, words, ha="right")
        named = any(self.columns)
        for at, name in labelled(self.columns, self.column_at, grid.side) if named else ():
            if self.column_at is not None or grid.side < LEGIBLE:
                area.write(at, over, name, ha="center", va="bottom")
            else:
                _turned(area, at, over, fitting(printable(name), LONGEST, SMALL), grid)
        row_name, column_name = self.axis_names
        if column_name:
            above = -0.5 - (grid.top - LINE / 2) / grid.high
            area.write(-0.5, above, column_name, color=quiet, limit=60)
        if row_name:
            at = -0.5 - (grid.left - LINE / 2) / grid.side
            middle = (len(self.values) - 1) / 2
            area.write(at, middle, row_name, color=quiet, ha="center", turn=90, limit=60)

    def _cells(self, area: Area) -> None:
        if not self.looks:
            area.cells(self.values, self.colours, self.norm)
        for row, (colours, norm) in enumerate(self.looks):
            extent = (-0.5, self.values.shape[1] - 0.5, row + 0.5, row - 0.5)
            area.cells(self.values[row : row + 1], colours, norm, extent)

    def _totals(self, area: Area, grid: _Grid) -> None:
        end = self.values.shape[1] - 0.5 + (self._beside + _TOTAL) / grid.side
        above = -0.5 - PAD / grid.high
        area.write(end, above, "total", ha="right", va="bottom", color=area.theme.quiet)
        for row, total in enumerate(self.totals):
            area.write(end, row, f"{total:.2f}".replace("-", "−"), ha="right")

    def _sink(self, pen: Pen, box: Box, grid: _Grid) -> None:
        count, left = len(self.sink), box.left + grid.left - grid.side - _SINK_GAP
        column = type(box)(left, box.top + grid.top, grid.side, count * grid.high)
        area = pen.area(column, (-0.5, 0.5), (count - 0.5, -0.5))
        shares = np.asarray(self.sink, dtype=float)[:, None]
        area.cells(shares, self.colours, self.sink_norm or self.norm)
        area.rectangle(-0.5, -0.5, 1, count, edge=pen.theme.apart, hatch="\\")
        area.rectangle(-0.5, -0.5, 1, count, edge=pen.theme.line, line=0.5)
        over, words = -0.5 - PAD / grid.high, fitting(self.sink_name, LONGEST, SMALL)
        if grid.side < LEGIBLE:
            area.write(0.5, over, words, ha="right", va="bottom")
        else:
            _turned(area, 0, over, words, grid)

    def _texts(self, area: Area, side: float) -> None:
        for row, column in np.ndindex(self.values.shape):
            words = fitting(printable(self.texts[row][column]), side - 0.02, SMALL)
            color = ink_on(self.colours(self.norm(self.values[row, column])))
            area.write(column, row, words, color=color, ha="center")

    def _numbers(self, area: Area) -> None:
        for (row, column), value in np.ndenumerate(self.values):
            if np.isfinite(value):
                colours, norm = self.looks[row] if self.looks else (self.colours, self.norm)
                ink = ink_on(colours(norm(float(value))))
                area.write(column, row, f"{value:.2f}", color=ink, ha="center", size=SMALL - 0.5)

    def _apart(self, area: Area, grid: _Grid, width: float) -> None:
        start = self.values.shape[1] - 0.5 + 1.5 * PAD / grid.side
        shares = np.clip(np.nan_to_num(np.asarray(self.apart, dtype=float)), 0, 1)
        for row, wide in enumerate((0.4 / grid.side * shares).tolist()):
            area.rectangle(start, row - 0.2, wide, 0.4, fill=area.theme.apart)
        room = width - grid.left - self.values.shape[1] * grid.side - 2 * PAD
        room = min(room, self._beside) if len(self.totals) else room
        for line, words in enumerate(reversed(_lines(self.apart_name, room))):
            over = -0.5 - (PAD + line * LINE) / grid.high
            area.write(start, over, words, color=area.theme.quiet, va="bottom")


def _turned(area: Area, at: float, over: float, words: str, grid: _Grid) -> None:
    """Write the name of a column, upright or slanted."""
    if grid.slanted:
        area.write(at + 0.1, over, words, turn=45)
    else:
        area.write(at, over, words, turn=90, ha="center", va="bottom")


def _wide(words: str) -> float:
    return width_of(printable(words), SMALL)


def _lines(words: str, width: float) -> list[str]:
    """Return words in lines of at most a width in inches; a longer word has its line to itself."""
    lines: list[str] = []
    for word in words.split():
        if lines and _wide(f"{lines[-1]} {word}") <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


@dataclass(frozen=True)
class _Grid:
    """The grid of cells, in inches: left and top edge, width and height of a cell; whether names slant."""

    left: float
    top: float
    side: float
    high: float
    slanted: bool


@dataclass(frozen=True)
class Scale:
    """The legend of colours: its range of numbers, and their name.

    Attributes:
        colours: Colour map.
        norm: Its range.
        name: Name of the numbers.
    """

    colours: Colours
    norm: Range
    name: str = ""

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return LINE

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        low, high = float(self.norm.vmin or 0.0), float(self.norm.vmax or 0.0)
        ends = [f"{end:.2g}" for end in (low, high)]
        start = width_of(ends[0], SMALL) + PAD
        area = pen.area(box)
        area.write(0, LINE / 2, ends[0])
        extent = (start, start + 0.9, LINE - 0.03, 0.03)
        area.cells(np.linspace(low, high, _SHADES)[None], self.colours, self.norm, extent)
        area.rectangle(start, 0.03, 0.9, LINE - 0.06, edge=pen.theme.line, line=0.8)
        area.write(start + 0.9 + PAD, LINE / 2, ends[1])
        after = start + 0.9 + 3 * PAD + width_of(ends[1], SMALL)
        words = fitting(printable(self.name, 120), box.width - after, SMALL)
        area.write(after, LINE / 2, words, color=pen.theme.quiet, limit=120)
