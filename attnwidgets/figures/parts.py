"""The parts that figures consist of: maps, coloured text, bars, lines, tables and legends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection, PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch, Rectangle
from matplotlib.ticker import MaxNLocator

from attnwidgets.figures.drawing import ink_on
from attnwidgets.figures.labels import printable
from attnwidgets.figures.sheet import LINE, READING, SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

    Float = NDArray[np.floating]

_PAD = 0.05
_ROW = 0.16  # inches of a row that is not square
_LONGEST = 0.9  # inches of a turned name
_TALLEST = 8.0  # inches of a map on a page
_LEGIBLE = 0.105  # least cell side in inches beside which a label fits
_NUMBERED = 0.22  # least cell side for a number
_SLANTED = 0.16  # least cell side for slanted labels
_STEPS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)
_MOST_TOKENS = 1200


@dataclass(frozen=True)
class Map:
    """A matrix with its labels: rows at the left, columns on top.

    Attributes:
        values: [row, column]; NaN where there is no number.
        rows: Names of the rows.
        columns: Names of the columns.
        colours: Colour map.
        norm: Its range.
        outlines: Outlined cells, (row, column).
        axis_names: What rows and columns are; "" for nothing.
        apart: A bar at the end of every row, 0 to 1: the share that is not in the map.
        apart_name: What is there.
        row_at: Places of the row names, in cells; None: every row has one.
        column_at: Places of the column names.
        cell: Largest side of a cell in inches.
        numbers: Whether cells with room show their value.
        square: Whether cells are square; else every row is tall enough for its name.
    """

    values: Float
    rows: Sequence[str]
    columns: Sequence[str]
    colours: Colormap
    norm: Normalize
    outlines: Sequence[tuple[int, int]] = ()
    axis_names: tuple[str, str] = ("", "")
    apart: Sequence[float] = ()
    apart_name: str = ""
    row_at: Sequence[float] | None = None
    column_at: Sequence[float] | None = None
    cell: float = 0.26
    numbers: bool = False
    square: bool = True

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        place = self._layout(width)
        return place.top + self.values.shape[0] * place.high

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        place = self._layout(box.width)
        rows, columns = self.values.shape
        cells = type(box)(box.left + place.left, box.top + place.top, columns * place.side, rows * place.high)
        axes = pen.axes(cells, (-0.5, columns - 0.5), (rows - 0.5, -0.5))
        axes.set_axis_on()
        axes.set_facecolor(pen.theme.empty)
        axes.tick_params(left=False, bottom=False, labelleft=False, labelbottom=False)
        axes.spines[:].set(linewidth=0.5, color=pen.theme.line)
        if self.values.size:
            options: dict[str, Any] = {"interpolation": "nearest", "aspect": "auto"}
            axes.imshow(self.values, cmap=self.colours, norm=self.norm, **options)
        for row, column in self.outlines:
            frame: dict[str, Any] = {"fill": False, "edgecolor": pen.theme.accent, "clip_on": False}
            axes.add_patch(Rectangle((column - 0.5, row - 0.5), 1, 1, linewidth=1.2, **frame))
        self._names(pen, axes, place)
        if self.numbers and place.side >= _NUMBERED:
            self._numbers(pen, axes)
        if len(self.apart):
            self._apart(pen, axes, place)

    @property
    def _side_name(self) -> float:
        return LINE if self.axis_names[0] else 0.0

    def _layout(self, width: float) -> _Cells:
        rows, columns = self.values.shape
        longest = max((width_of(printable(name), SMALL) for name in self.rows), default=0.0)
        left = min(longest, 0.3 * width) + 2 * _PAD + self._side_name
        right = 0.55 if len(self.apart) else 0.02
        side = min(self.cell, (width - left - right) / max(1, columns))
        high = max(side, _ROW)
        if self.square:
            high = side = min(side, _TALLEST / max(1, rows))
        above = 2 * _PAD + (LINE if self.axis_names[1] else 0.0)
        names = max((width_of(printable(name), SMALL) for name in self.columns), default=0.0)
        names = min(names, _LONGEST)
        if not names:
            return _Cells(left, above, side, high, slanted=False)
        if self.column_at is not None or side < _LEGIBLE:
            return _Cells(left, above + LINE, side, high, slanted=False)
        slanted = side >= _SLANTED and left + columns * side + max(right, 0.71 * names) <= width
        return _Cells(left, above + (0.71 * names + 0.05 if slanted else names), side, high, slanted)

    def _names(self, pen: Pen, axes: Axes, place: _Cells) -> None:
        over, quiet = -0.5 - _PAD / place.high, pen.theme.quiet
        for at, name in _labelled(self.rows, self.row_at, place.high):
            words = fitting(printable(name), place.left - 2 * _PAD - self._side_name + 0.01, SMALL)
            pen.text(axes, -0.5 - _PAD / place.side, at, words, ha="right")
        turned: dict[str, Any] = {"rotation_mode": "anchor", "ha": "left"}
        turned["rotation"] = 45 if place.slanted else 90
        named = any(self.columns)
        for at, name in _labelled(self.columns, self.column_at, place.side) if named else ():
            if self.column_at is not None or place.side < _LEGIBLE:
                pen.text(axes, at, over, name, ha="center", va="bottom")
            else:
                words = fitting(printable(name), _LONGEST, SMALL)
                pen.text(axes, at + (0.1 if place.slanted else 0.0), over, words, **turned)
        row_name, column_name = self.axis_names
        if column_name:
            above = -0.5 - (place.top - LINE / 2) / place.high
            pen.text(axes, -0.5, above, column_name, color=quiet, limit=60)
        if row_name:
            at = -0.5 - (place.left - LINE / 2) / place.side
            middle = (len(self.values) - 1) / 2
            pen.text(axes, at, middle, row_name, color=quiet, ha="center", rotation=90, limit=60)

    def _numbers(self, pen: Pen, axes: Axes) -> None:
        for (row, column), value in np.ndenumerate(self.values):
            if np.isfinite(value):
                ink = ink_on(self.colours(self.norm(float(value))))
                pen.text(axes, column, row, f"{value:.2f}", color=ink, ha="center", size=SMALL - 0.5)

    def _apart(self, pen: Pen, axes: Axes, place: _Cells) -> None:
        start = self.values.shape[1] - 0.5 + 1.5 * _PAD / place.side
        for row, share in enumerate(self.apart):
            wide = 0.4 / place.side * float(np.clip(np.nan_to_num(share), 0, 1))
            bar: dict[str, Any] = {"color": pen.theme.apart, "linewidth": 0, "clip_on": False}
            axes.add_patch(Rectangle((start, row - 0.2), wide, 0.4, **bar))
        over = -0.5 - _PAD / place.high
        pen.text(axes, start, over, self.apart_name, color=pen.theme.quiet, va="bottom")


@dataclass(frozen=True)
class _Cells:
    """Where the cells of a map are, in inches: left and top edge, width and height of one; how names turn."""

    left: float
    top: float
    side: float
    high: float
    slanted: bool


def _labelled(names: Sequence[str], places: Sequence[float] | None, side: float) -> list[tuple[float, str]]:
    """Return the names that fit, with their places; of names that do not fit, round numbers."""
    if places is not None:
        return list(zip(places, names, strict=True))
    if side >= _LEGIBLE:
        return list(enumerate(names))
    step = next((step for step in _STEPS if step * side >= 3 * _LEGIBLE), _STEPS[-1])
    return [(place, str(place)) for place in range(0, len(names), step)]


@dataclass(frozen=True)
class Scale:
    """The legend of colours: from which number to which, and what they are.

    Attributes:
        colours: Colour map.
        norm: Its range.
        name: What the numbers are.
    """

    colours: Colormap
    norm: Normalize
    name: str = ""

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return LINE

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        low, high = float(self.norm.vmin or 0.0), float(self.norm.vmax or 0.0)
        ends = [f"{end:.2g}" for end in (low, high)]
        start = width_of(ends[0], SMALL) + _PAD
        axes = pen.axes(box)
        pen.text(axes, 0, LINE / 2, ends[0])
        ramp = type(box)(box.left + start, box.top + 0.03, 0.9, LINE - 0.06)
        inner = pen.axes(ramp, (0, 1), (0, 1))
        shades = np.linspace(low, high, 128)[None]
        inner.imshow(shades, cmap=self.colours, norm=self.norm, aspect="auto", extent=(0, 1, 0, 1))
        inner.add_patch(
            Rectangle((0, 0), 1, 1, fill=False, edgecolor=pen.theme.line, linewidth=0.8, clip_on=False)
        )
        pen.text(axes, start + 0.9 + _PAD, LINE / 2, ends[1])
        after = start + 0.9 + 3 * _PAD + width_of(ends[1], SMALL)
        words = fitting(printable(self.name, 120), box.width - after, SMALL)
        pen.text(axes, after, LINE / 2, words, color=pen.theme.quiet, limit=120)


@dataclass(frozen=True)
class Text:
    """A text coloured by numbers, once for each row of them.

    Attributes:
        values: [row, element]; NaN where there is no number.
        labels: The elements.
        colours: Colour map, for backgrounds of text.
        norm: Its range.
        names: Names of the rows.
        hatched: Elements that are hatched.
        outlined: Elements that are outlined.
    """

    values: Float
    labels: Sequence[str]
    colours: Colormap
    norm: Normalize
    names: Sequence[str] = ("",)
    hatched: Sequence[int] = ()
    outlined: Sequence[int] = ()

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._lines(width) * _TEXT_LINE + (_TEXT_LINE if self._left_out else 0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes = pen.axes(box)
        boxes, fills, lined, framed = [], [], [], []
        top = 0.0
        spots, count = self._spots(box.width)
        for name, row in zip(self.names, self.values, strict=True):
            if name:
                words = fitting(printable(name, 120), box.width, SMALL)
                pen.text(axes, 0, top + _TEXT_LINE / 2, words, color=pen.theme.quiet, limit=120)
                top += _TEXT_LINE
            for number, ((line, x, wide, label), value) in enumerate(zip(spots, row, strict=False)):
                known = bool(np.isfinite(value))
                fill = self.colours(self.norm(float(value))) if known else to_rgba(pen.theme.left_out)
                y = top + line * _TEXT_LINE
                patch = FancyBboxPatch(
                    (x, y + 0.01), wide, _TEXT_LINE - 0.02, boxstyle="round,pad=0,rounding_size=0.02"
                )
                boxes.append(patch)
                fills.append(fill)
                lined += [patch] if number in self.hatched else []
                framed += [patch] if number in self.outlined else []
                ink = ink_on(fill) if known else pen.theme.quiet
                pen.text(
                    axes,
                    x + wide / 2,
                    y + _TEXT_LINE / 2,
                    label,
                    color=ink,
                    ha="center",
                    size=READING,
                    limit=60,
                )
            top += count * _TEXT_LINE
        axes.add_collection(PatchCollection(boxes, facecolors=fills, linewidths=0))
        if lined:
            plain: dict[str, Any] = {"facecolors": "none", "edgecolors": "0.55", "linewidths": 0}
            axes.add_collection(PatchCollection(lined, hatch="/////", **plain))
        if framed:
            frame: dict[str, Any] = {"facecolors": "none", "edgecolors": pen.theme.accent, "linewidths": 1.2}
            axes.add_collection(PatchCollection(framed, **frame))
        if self._left_out:
            shown, whole = len(spots), len(self.labels)
            words = f"the first {shown:,} of {whole:,}"
            pen.text(axes, 0, top + _TEXT_LINE / 2, words, color=pen.theme.quiet, limit=60)

    @property
    def _most(self) -> int:
        return max(1, _MOST_TOKENS // max(1, len(self.values)))

    @property
    def _left_out(self) -> int:
        return max(0, len(self.labels) - self._most)

    def _lines(self, width: float) -> int:
        named = sum(bool(name) for name in self.names)
        return named + self._spots(width)[1] * len(self.values)

    def _spots(self, width: float) -> tuple[list[tuple[int, float, float, str]], int]:
        """Return line, place, width and label of every element, and the number of lines."""
        spots: list[tuple[int, float, float, str]] = []
        line, x = 0, 0.0
        for name in self.labels[: self._most]:
            label = fitting(printable(name) or "·", width - 0.08, READING)
            wide = width_of(label, READING) + 0.06
            if x and x + wide > width:
                line, x = line + 1, 0.0
            spots.append((line, x, wide, label))
            x += wide + 0.03
        return spots, line + 1


_TEXT_LINE = 0.2


@dataclass(frozen=True)
class Bar:
    """One bar, or one before and one after a change.

    Attributes:
        name: What it is of.
        value: Its length.
        before: The length before a change; None without one.
        quiet: Whether it is set apart.
        bold: Whether its name is what was chosen.
    """

    name: str
    value: float
    before: float | None = None
    quiet: bool = False
    bold: bool = False


@dataclass(frozen=True)
class Bars:
    """Named bars with their numbers.

    Attributes:
        bars: From top to bottom.
        top: The longest possible value; None: the largest one.
        form: How numbers are written.
        title: A line above them.
    """

    bars: Sequence[Bar]
    top: float | None = None
    form: str = "{:.2f}"
    title: str = ""

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return (len(self.bars) + bool(self.title)) * _BAR

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes, theme = pen.axes(box), pen.theme
        texts = [self._text(bar) for bar in self.bars]
        values = np.array([v for bar in self.bars for v in (bar.value, bar.before or 0.0)], dtype=float)
        finite = values[np.isfinite(values)]
        longest = self.top or float(np.max(np.abs(finite), initial=0.0)) or 1.0
        signed = bool((finite < 0).any())
        room = min(0.4 * box.width, max((width_of(printable(b.name), SMALL) for b in self.bars), default=0.0))
        right = max((width_of(text, SMALL) for text in texts), default=0.0)
        start, end = room + 2 * _PAD, box.width - right - 2 * _PAD
        zero = (start + end) / 2 if signed else start
        unit = (end - zero) / longest
        top = 0.0
        if self.title:
            words = fitting(printable(self.title, 120), box.width, SMALL, bold=True)
            pen.text(axes, 0, _BAR / 2, words, bold=True, limit=120)
            top = _BAR
        for number, (bar, text) in enumerate(zip(self.bars, texts, strict=True)):
            y = top + (number + 0.5) * _BAR
            name = fitting(printable(bar.name), room + 0.01, SMALL, bold=bar.bold)
            color = theme.quiet if bar.quiet else theme.ink
            pen.text(axes, start - _PAD, y, name, ha="right", color=color, bold=bar.bold)
            pen.text(axes, box.width, y, text, ha="right", color=color, limit=60)
            thick = 0.09 if bar.before is None else 0.05
            shift = 0.0 if bar.before is None else 0.028
            fill = theme.apart if bar.quiet else theme.amount
            if signed and not bar.quiet:
                fill = theme.speaks_for if bar.value >= 0 else theme.against
            drawn = [(bar.value, shift, fill)]
            drawn += [] if bar.before is None else [(bar.before, -shift, theme.apart)]
            for value, down, colour in drawn:
                if np.isfinite(value):
                    corner = (zero, y + down - thick / 2)
                    axes.add_patch(Rectangle(corner, value * unit, thick, color=colour, linewidth=0))
        if signed:
            axes.plot([zero, zero], [top, box.height], color=theme.line, linewidth=0.6)

    def _text(self, bar: Bar) -> str:
        numbers = [bar.value] if bar.before is None else [bar.before, bar.value]
        return " → ".join(map(self._number, numbers))

    def _number(self, value: float) -> str:
        if not np.isfinite(value):
            return "–"
        text = self.form.format(value)
        if float(text) or not value:
            return text
        least = self.form.format(0.0)[:-1] + "1"
        return f"< {least}" if value > 0 else f"> −{least}"


_BAR = 0.165


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: Its name in the legend.
        values: [place]; NaN is a gap.
        dashed: Whether it is something to compare with.
        low: Lower end of its interval; None without one.
        high: Upper end.
    """

    name: str
    values: Sequence[float] | Float
    dashed: bool = False
    low: Sequence[float] | Float | None = None
    high: Sequence[float] | Float | None = None


# Okabe and Ito's colours, which most colour-blind readers can tell apart; they are seen on both pages.
LINE_COLOURS = ("#2b84c6", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#9e6b4f", "#8a7fd1")
_DASHES = ((4, 2), (1, 1.5), (5, 1.5, 1, 1.5))


@dataclass(frozen=True)
class Lines:
    """A chart of lines, with its legend below.

    Attributes:
        lines: The lines.
        places: Numbers on the horizontal axis, or names.
        x_name: Name of the horizontal axis.
        y_name: Name of the vertical axis.
        marked: A place with a vertical line; None without one.
        tall: Height of the chart in inches, without its legend.
        from_zero: Whether the vertical axis holds zero.
    """

    lines: Sequence[Line]
    places: Sequence[Any]
    x_name: str = ""
    y_name: str = ""
    marked: float | None = None
    tall: float = 1.9
    from_zero: bool = True

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self.tall + self._room + self._legend(width)[1] * LINE

    @property
    def _numeric(self) -> bool:
        return all(isinstance(place, (int, float, np.number)) for place in self.places)

    @property
    def _room(self) -> float:
        """Height of the names below the chart."""
        names = [] if self._numeric else [printable(str(place)) for place in self.places]
        ticks = min(_LONGEST, max((width_of(name, SMALL) for name in names), default=LINE))
        return ticks + 0.08 + (LINE if self.x_name else 0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        theme = pen.theme
        left = 0.5
        place = type(box)(box.left + left, box.top + 0.06, box.width - left - 0.05, self.tall - 0.06)
        at = (
            np.asarray(self.places, dtype=float)
            if self._numeric
            else np.arange(len(self.places), dtype=float)
        )
        span = (float(at.min(initial=0.0)), float(at.max(initial=0.0))) if len(at) else (0.0, 1.0)
        if len(at):
            span = float(at.min()), float(at.max())
        space = 0.03 * (span[1] - span[0]) or 0.5
        ends = [np.asarray(part, dtype=float) for line in self.lines for part in _reach(line)]
        known = np.concatenate([part[np.isfinite(part)] for part in ends]) if ends else np.zeros(0)
        low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 1.0)
        if self.from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        high = high + (0.05 * (high - low) or 0.5)
        axes = pen.axes(place, (span[0] - space, span[1] + space), (low, high))
        axes.set_axis_on()
        axes.spines[["top", "right"]].set_visible(False)
        axes.spines[["left", "bottom"]].set(color=theme.quiet, linewidth=0.6)
        if self.marked is not None:
            axes.axvline(self.marked, color=theme.accent, linewidth=0.8)
        for number, line in enumerate(self.lines):
            look = self._look(number, theme)
            values = np.asarray(line.values, dtype=float)
            (drawn,) = axes.plot(at, values, **look, linewidth=1.3)
            drawn.set(marker="o" if len(at) <= 24 else "", markersize=2.5)  # noqa: PLR2004 - room
            if line.low is not None and line.high is not None:
                band = [np.asarray(end, dtype=float) for end in (line.low, line.high)]
                axes.fill_between(at, band[0], band[1], color=look["color"], alpha=0.15, linewidth=0)
        self._ticks(pen, axes, at)
        x = -left * 0.85 / place.width
        options: dict[str, Any] = {"transform": axes.transAxes, "color": theme.quiet, "limit": 60}
        if self.y_name:
            words = fitting(printable(self.y_name, 60), place.height, SMALL)
            pen.text(axes, x, 0.5, words, rotation=90, ha="center", **options)
        below = -(self._room - LINE / 2) / place.height
        if self.x_name:
            pen.text(axes, 0.5, below, self.x_name, ha="center", **options)
        legend, _ = self._legend(box.width)
        under = type(box)(box.left, box.top + self.tall + self._room, box.width, box.height)
        page = pen.axes(under)
        for number, (row, where, name) in enumerate(legend):
            y = (row + 0.5) * LINE
            page.plot([where, where + 0.2], [y, y], **self._look(number, theme), linewidth=1.3)
            pen.text(page, where + 0.25, y, name, limit=80)

    def _ticks(self, pen: Pen, axes: Axes, at: Float) -> None:
        axes.tick_params(
            labelsize=SMALL, length=2, width=0.6, color=pen.theme.quiet, labelcolor=pen.theme.ink
        )
        axes.yaxis.set_major_locator(MaxNLocator(nbins=5))
        if self._numeric:
            whole = all(float(value).is_integer() for value in at)
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=whole))
            return
        axes.set_xticks([])
        pad = -0.05 / self.tall
        for place, name in zip(at, self.places, strict=True):
            words = fitting(printable(str(name)), _LONGEST, SMALL)
            where = (place, pad)
            options: dict[str, Any] = {
                "transform": axes.get_xaxis_transform(),
                "rotation": 90,
                "ha": "center",
            }
            pen.text(axes, *where, words, **{**options, "va": "top"})

    def _look(self, number: int, theme: Any) -> dict[str, Any]:
        dashed = [place for place, line in enumerate(self.lines) if line.dashed]
        if number in dashed:
            return {"color": theme.quiet, "dashes": _DASHES[dashed.index(number) % len(_DASHES)]}
        place = number - sum(other < number for other in dashed)
        look: dict[str, Any] = {"color": LINE_COLOURS[place % len(LINE_COLOURS)]}
        return look | ({"dashes": _DASHES[0]} if place >= len(LINE_COLOURS) else {})

    def _legend(self, width: float) -> tuple[list[tuple[int, float, str]], int]:
        """Return line, place and name of every entry, and the number of lines."""
        entries: list[tuple[int, float, str]] = []
        row, x = 0, 0.0
        for line in self.lines:
            name = fitting(printable(line.name, 80), width - 0.35, SMALL)
            wide = 0.25 + width_of(name, SMALL) + 0.15
            if x and x + wide > width:
                row, x = row + 1, 0.0
            entries.append((row, x, name))
            x += wide
        return entries, (row + 1 if entries else 0)


def _reach(line: Line) -> list[Any]:
    return [part for part in (line.values, line.low, line.high) if part is not None]


@dataclass(frozen=True)
class Table:
    """Rows of words and numbers, under the names of their columns.

    Attributes:
        columns: Names of the columns.
        rows: [row][column]; numbers are written to three digits.
        bold: Row that is selected; None without one.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    bold: int | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return (len(self.rows) + 1) * _BAR

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes, theme = pen.axes(box), pen.theme
        cells = [[printable(_written(value), 60) for value in row] for row in self.rows]
        numeric = [
            all(isinstance(row[i], (int, float, np.number)) for row in self.rows)
            for i in range(len(self.columns))
        ]
        lines = [[printable(name, 60) for name in self.columns], *cells]
        widths = [max(width_of(line[i], SMALL) for line in lines) + 0.16 for i in range(len(self.columns))]
        total = sum(widths)
        if total > box.width:
            # Numbers keep their room, words share the rest.
            fixed = sum(wide for wide, is_number in zip(widths, numeric, strict=True) if is_number)
            free = total - fixed
            by = max(0.05, (box.width - fixed) / free) if free and fixed < box.width else 0.0
            widths = [
                wide if is_number and by else wide * (by or box.width / total)
                for wide, is_number in zip(widths, numeric, strict=True)
            ]
        for number, line in enumerate(lines):
            y, x = (number + 0.5) * _BAR, 0.0
            for words, wide, is_number in zip(line, widths, numeric, strict=True):
                bold = number > 0 and number - 1 == self.bold
                shown = fitting(words, wide - 0.1, SMALL, bold=bold)
                at = x + wide - 0.1 if is_number else x
                side = "right" if is_number else "left"
                colour = theme.quiet if number == 0 else theme.ink
                pen.text(axes, at, y, shown, ha=side, color=colour, bold=bold, limit=60)
                x += wide
        axes.plot([0, min(box.width, sum(widths))], [_BAR, _BAR], color=theme.line, linewidth=0.6)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}" if np.isfinite(value) else ("−∞" if value == -np.inf else "–")
    return str(value)


@dataclass(frozen=True)
class Levels:
    """Tokens by levels, the first at the bottom, with lines from one level down to the next.

    Attributes:
        names: Names of the levels, from the bottom.
        labels: Names of the elements of every level.
        edges: (upper level, its element, the lower one's element, strength 0 to 1).
        dots: [level, element]: size of a dot, 0 to 1; None: all are small.
        followed: (level, element) that is followed; None without one.
    """

    names: Sequence[str]
    labels: Sequence[str]
    edges: Sequence[tuple[int, int, int, float]]
    dots: Float | None = None
    followed: tuple[int, int] | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return self._step * len(self.names) + self._names

    @property
    def _step(self) -> float:
        return float(np.clip(5.0 / max(1, len(self.names)), 0.22, 0.5))

    @property
    def _names(self) -> float:
        names = (width_of(printable(name), SMALL, bold=True) for name in self.labels)
        return min(_LONGEST, max(names, default=0.0)) + 0.1

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        left = max((width_of(printable(name), SMALL) for name in self.names), default=0.0) + 2 * _PAD
        side = (box.width - left) / max(1, len(self.labels))
        side = min(side, 0.5)
        axes = pen.axes(box)

        def place(level: int, element: int) -> tuple[float, float]:
            return left + (element + 0.5) * side, (len(self.names) - 0.5 - level) * self._step

        theme = pen.theme
        segments = [[place(level, upper), place(level - 1, lower)] for level, upper, lower, _ in self.edges]
        strengths = np.array([strength for *_, strength in self.edges], dtype=float)
        inks = [to_rgba(theme.amount, float(np.clip(0.12 + 0.8 * s, 0, 1))) for s in strengths]
        axes.add_collection(LineCollection(segments, colors=inks, linewidths=0.3 + 2.2 * strengths))
        for level, name in enumerate(self.names):
            pen.text(axes, left - 2 * _PAD, place(level, 0)[1], name, ha="right", color=theme.quiet)
            spots = np.array([place(level, element) for element in range(len(self.labels))])
            sizes = np.full(len(spots), 1.5) if self.dots is None else 14 * np.sqrt(self.dots[level])
            if len(spots):
                axes.scatter(
                    spots[:, 0], spots[:, 1], s=np.maximum(sizes, 0.3), color=theme.ink, linewidths=0
                )
        if self.followed is not None:
            x, y = place(*self.followed)
            axes.scatter([x], [y], s=36, facecolors="none", edgecolors=theme.accent, linewidths=1.2)
        for at, name in _labelled(self.labels, None, side):
            bold = self.followed is not None and self.followed[1] == at
            words = fitting(printable(name), self._names - 0.1, SMALL, bold=bold)
            options: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "top", "bold": bold}
            pen.text(axes, place(0, int(at))[0], len(self.names) * self._step, words, **options)


@dataclass(frozen=True)
class Chips:
    """Outcomes in a line, each with its probability, which its lower edge shows.

    Attributes:
        chips: Name and probability.
        chosen: Place of the one that is explained; None without one.
    """

    chips: Sequence[tuple[str, float]]
    chosen: int | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._places(width)[1] * _CHIP

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes, theme = pen.axes(box), pen.theme
        for number, (line, x, wide, words) in enumerate(self._places(box.width)[0]):
            y = line * _CHIP + 0.02
            chosen = number == self.chosen
            shape = "round,pad=0,rounding_size=0.03"
            edge = theme.accent if chosen else theme.line
            axes.add_patch(
                FancyBboxPatch(
                    (x, y), wide, 0.2, boxstyle=shape, facecolor="none", edgecolor=edge, linewidth=0.8
                )
            )
            share = float(np.clip(np.nan_to_num(self.chips[number][1]), 0, 1))
            axes.add_patch(
                Rectangle((x + 0.03, y + 0.17), (wide - 0.06) * share, 0.025, color=theme.amount, linewidth=0)
            )
            pen.text(axes, x + 0.06, y + 0.09, words, bold=chosen, limit=60)

    def _places(self, width: float) -> tuple[list[tuple[int, float, float, str]], int]:
        places: list[tuple[int, float, float, str]] = []
        line, x = 0, 0.0
        for name, share in self.chips:
            words = fitting(f"{printable(name)} {share:.2f}", width - 0.14, SMALL, bold=True)
            wide = width_of(words, SMALL, bold=True) + 0.12
            if x and x + wide > width:
                line, x = line + 1, 0.0
            places.append((line, x, wide, words))
            x += wide + 0.06
        return places, line + 1 if places else 0


_CHIP = 0.25
