"""A chart of lines, with its legend; and tokens by levels, with lines between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.letters import SMALL, width_of
from attnwidgets.figures.palettes import channels_of
from attnwidgets.figures.parts.ticks import tick_words, ticks
from attnwidgets.figures.sheet import LINE, LONGEST, PAD, fitting, flowed, labelled
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Area, Box, Pen

    Float = NDArray[np.floating]


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Attributes:
        name: Its name in the legend.
        values: [position]; NaN is a gap.
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
_WIDE, _DOT = 1.3, 2.5  # points, of lines and of dots
_DOTTED = 24  # points of a line, up to which each has a dot
_BAND = 0.15  # opacity
_TICK, _BESIDE = 0.028, 0.03  # inches of a tick, and from it to its number
_DASHES = ((4, 2), (1, 1.5), (5, 1.5, 1, 1.5))


@dataclass(frozen=True)
class Lines:
    """A chart of lines, with its legend below.

    Attributes:
        lines: The lines.
        places: Numbers on the horizontal axis, or names.
        x_name: Name of the horizontal axis.
        y_name: Name of the vertical axis.
        marked: A position with a vertical line; None without one.
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
        return all(isinstance(position, (int, float, np.number)) for position in self.places)

    @property
    def _room(self) -> float:
        """Height of the names below the chart."""
        names = [] if self._numeric else [printable(str(position)) for position in self.places]
        ticks = min(LONGEST, max((width_of(name, SMALL) for name in names), default=LINE))
        return ticks + 0.08 + (LINE if self.x_name else 0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        theme = pen.theme
        left = 0.5
        frame = type(box)(box.left + left, box.top + 0.06, box.width - left - 0.05, self.tall - 0.06)
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
        finite = np.concatenate([part[np.isfinite(part)] for part in ends]) if ends else np.zeros(0)
        low, high = (float(finite.min()), float(finite.max())) if finite.size else (0.0, 1.0)
        if self.from_zero:
            low, high = min(low, 0.0), max(high, 0.0)
        high = high + (0.05 * (high - low) or 0.5)
        area = pen.area(frame, (span[0] - space, span[1] + space), (low, high))
        (start, end), (bottom, top) = area.across, area.up
        area.rule(start, bottom, start, top, theme.quiet)
        area.rule(start, bottom, end, bottom, theme.quiet)
        if self.marked is not None:
            area.rule(self.marked, bottom, self.marked, top, theme.accent, 0.8)
        for number, line in enumerate(self.lines):
            look = self._look(number, theme)
            if line.low is not None and line.high is not None:
                band = [np.asarray(end, dtype=float) for end in (line.low, line.high)]
                area.band(at, band[0], band[1], look["color"], _BAND)
            dots = _DOT if len(at) <= _DOTTED else 0.0
            area.plot(at, np.asarray(line.values, dtype=float), **look, line=_WIDE, dots=dots)
        self._ticks(area, at)
        inch = (end - start) / frame.width
        options: dict[str, Any] = {"color": theme.quiet, "limit": 60, "ha": "center"}
        if self.y_name:
            words = fitting(printable(self.y_name, 60), frame.height, SMALL)
            area.write(start - 0.85 * left * inch, (bottom + top) / 2, words, turn=90, **options)
        below = bottom - (self._room - LINE / 2) * (top - bottom) / frame.height
        if self.x_name:
            area.write((start + end) / 2, below, self.x_name, **options)
        legend, _ = self._legend(box.width)
        under = type(box)(box.left, box.top + self.tall + self._room, box.width, box.height)
        page = pen.area(under)
        for number, (row, where, name) in enumerate(legend):
            y = (row + 0.5) * LINE
            across, down = np.array([where, where + 0.2]), np.array([y, y])
            page.plot(across, down, line=_WIDE, **self._look(number, theme))
            page.write(where + 0.25, y, name, limit=80)

    def _ticks(self, area: Area, at: Float) -> None:
        (start, end), (bottom, top) = area.across, area.up
        across, up = (end - start) / area.box.width, (top - bottom) / area.box.height  # of an inch
        quiet = area.theme.quiet
        heights = ticks(bottom, top, 5)
        for height, words in zip(heights, tick_words(heights), strict=True):
            area.rule(start - _TICK * across, height, start, height, quiet)
            area.write(start - (_TICK + _BESIDE) * across, height, words, ha="right")
        if self._numeric:
            whole = all(float(value).is_integer() for value in at)
            numbers = ticks(start, end, 8, whole=whole)
            for number, words in zip(numbers, tick_words(numbers), strict=True):
                area.rule(number, bottom - _TICK * up, number, bottom, quiet)
                area.write(number, bottom - (_TICK + _BESIDE) * up, words, ha="center", va="top")
            return
        for x, name in zip(at, self.places, strict=True):
            words = fitting(printable(str(name)), LONGEST, SMALL)
            area.write(x, bottom - PAD * up, words, turn=90, ha="center", va="top")

    def _look(self, number: int, theme: Any) -> dict[str, Any]:
        dashed = [position for position, line in enumerate(self.lines) if line.dashed]
        if number in dashed:
            return {"color": theme.quiet, "dashes": _DASHES[dashed.index(number) % len(_DASHES)]}
        index = number - sum(line < number for line in dashed)
        look: dict[str, Any] = {"color": LINE_COLOURS[index % len(LINE_COLOURS)]}
        return look | ({"dashes": _DASHES[0]} if index >= len(LINE_COLOURS) else {})

    def _legend(self, width: float) -> tuple[list[tuple[int, float, str]], int]:
        """Return line, left edge and name of every entry, and the number of lines."""
        names = [fitting(printable(line.name, 80), width - 0.35, SMALL) for line in self.lines]
        corners, rows = flowed([0.25 + width_of(name, SMALL) + 0.15 for name in names], width)
        return [(row, x, name) for (row, x), name in zip(corners, names, strict=True)], rows


def _reach(line: Line) -> list[Any]:
    return [part for part in (line.values, line.low, line.high) if part is not None]


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
        return min(LONGEST, max(names, default=0.0)) + 0.1

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        left = max((width_of(printable(name), SMALL) for name in self.names), default=0.0) + 2 * PAD
        side = (box.width - left) / max(1, len(self.labels))
        side = min(side, 0.5)
        area = pen.area(box)

        def position(level: int, element: int) -> tuple[float, float]:
            return left + (element + 0.5) * side, (len(self.names) - 0.5 - level) * self._step

        theme = pen.theme
        segments = [
            [position(level, upper), position(level - 1, lower)] for level, upper, lower, _ in self.edges
        ]
        strengths = np.array([strength for *_, strength in self.edges], dtype=float)
        if segments:
            ink = channels_of(theme.amount)
            inks = [(*ink, opacity) for opacity in np.clip(0.12 + 0.8 * strengths, 0, 1).tolist()]
            area.curves(np.array(segments), inks, (0.3 + 2.2 * strengths).tolist())
        for level, name in enumerate(self.names):
            area.write(left - 2 * PAD, position(level, 0)[1], name, ha="right", color=theme.quiet)
            spots = np.array([position(level, element) for element in range(len(self.labels))])
            sizes = np.full(len(spots), 1.5) if self.dots is None else 14 * np.sqrt(self.dots[level])
            if len(spots):
                area.discs(spots, np.maximum(sizes, 0.3), fill=theme.ink)
        if self.followed is not None:
            area.discs(np.array([position(*self.followed)]), np.array([36.0]), edge=theme.accent, line=1.2)
        for at, name in labelled(self.labels, None, side):
            bold = self.followed is not None and self.followed[1] == at
            words = fitting(printable(name), self._names - 0.1, SMALL, bold=bold)
            x, y = position(0, int(at))[0], len(self.names) * self._step
            area.write(x, y, words, turn=90, ha="center", va="top", style="bold" if bold else "")
