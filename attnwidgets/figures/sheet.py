"""A sheet: parts of a figure below each other, one or two columns of a page wide, measured in inches."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from attnwidgets.figures.letters import READING, SMALL, width_of
from attnwidgets.figures.pens.pen import Box
from attnwidgets.figures.theme import LIGHT, Theme, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.figure import Figure

    from attnwidgets.figures.pens.pen import Pen

WIDTHS = {1: 3.3, 2: 6.9}
"""Width of a figure in inches, by the columns of a page that it takes."""

LINE = 0.15
"""Height of a line of small type in inches."""

_SURE = 0.95  # letters are a bit wider where they are drawn on whole pixels
_MARGIN = 0.08
_GAP = 0.12
_LONGEST = 900  # characters of a title or a note

PAD = 0.05
"""Space between a name and the element that it names."""

ROW = 0.165
"""Height of a row of a table or of bars."""

LONGEST = 0.9
"""Longest turned name."""

LEGIBLE = 0.105
"""Least side of a cell whose label is legible."""

_STEPS = (2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000)


class Part(Protocol):
    """Something that a figure consists of."""

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        ...

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        ...


@dataclass(frozen=True)
class Words:
    """A paragraph, wrapped.

    Attributes:
        text: The words.
        size: Size in points.
        quiet: Whether they are secondary.
        bold: Whether they are bold.
    """

    text: str
    size: float = SMALL
    quiet: bool = True
    bold: bool = False

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return len(self._lines(width)) * self._line

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        color = pen.theme.quiet if self.quiet else pen.theme.ink
        for number, line in enumerate(self._lines(box.width)):
            middle = box.top + (number + 0.5) * self._line
            style = "bold" if self.bold else ""
            pen.page.write(box.left, middle, line, size=self.size, color=color, style=style, limit=_LONGEST)

    @property
    def _line(self) -> float:
        return self.size * LINE / SMALL

    def _lines(self, width: float) -> list[str]:
        return wrapped(printable(self.text, _LONGEST), width, self.size, bold=self.bold)


@dataclass(frozen=True)
class Beside:
    """Two parts next to each other, or below each other where that is too narrow.

    Attributes:
        left: The first part.
        right: The second.
        share: Share of the width that the first takes.
        least: Width in inches from which they are next to each other.
    """

    left: Part
    right: Part
    share: float = 0.62
    least: float = 5.0

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return max(box.top + box.height for _, box in self._frames(Box(0, 0, width, 0)))

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        for part, frame in self._frames(box):
            part.draw(pen, frame)

    def _frames(self, box: Box) -> list[tuple[Part, Box]]:
        if box.width < self.least:
            return list(_stacked((self.left, self.right), box.left, box.top, box.width))
        first = box.width * self.share - _GAP
        rest = box.width - first - 2 * _GAP
        return [
            (self.left, Box(box.left, box.top, first, self.left.height(first))),
            (self.right, Box(box.left + first + 2 * _GAP, box.top, rest, self.right.height(rest))),
        ]


@dataclass(frozen=True)
class Stack:
    """Parts below each other, as one part."""

    parts: Sequence[Part]

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return max((box.top + box.height for _, box in _stacked(self.parts, 0, 0, width)), default=0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        for part, frame in _stacked(self.parts, box.left, box.top, box.width):
            part.draw(pen, frame)


@dataclass(frozen=True)
class Sheet:
    """The contents of a figure.

    Attributes:
        title: Its heading.
        parts: Its parts, from top to bottom.
        note: A caveat about its numbers, below them.
    """

    title: str
    parts: Sequence[Part] = field(default_factory=tuple)
    note: str = ""

    def figure(self, columns: int = 2, theme: Theme = LIGHT) -> Figure:
        """Return the sheet as a figure.

        Args:
            columns: How many columns of a page it takes, 1 or 2.
            theme: Its colours.

        Raises:
            ValueError: Another number of columns.
        """
        if columns not in WIDTHS:
            raise ValueError(f"columns={columns!r} is not 1 or 2, the columns of a page that a figure takes.")
        from matplotlib.backends.backend_agg import FigureCanvasAgg

        from attnwidgets.figures.drawing import PlainFigure, Quiet
        from attnwidgets.figures.pens.on_axes import AxesPen

        with Quiet():
            whole = self._whole(columns)
            figure = PlainFigure(figsize=_page_of(whole), facecolor=theme.page)
            FigureCanvasAgg(figure)
            self._parts.draw(AxesPen(figure, theme), whole)
        return figure

    def png(self, theme: Theme = LIGHT, *, dpi: int = 80) -> bytes:
        """Return the sheet as a small picture, two columns wide, of few colours.

        It is drawn without matplotlib, unless a text has letters that the picture's font lacks, or runs from
        right to left.
        """
        from attnwidgets.figures.pens.on_pixels import LettersMissing, PixelPen

        whole = self._whole(2)
        pen = PixelPen(*_page_of(whole), theme, dpi=dpi)
        try:
            self._parts.draw(pen, whole)
        except LettersMissing:
            from attnwidgets.figures.maps import small_png

            return small_png(self.figure(2, theme), dpi=dpi)
        return pen.canvas.png()

    @property
    def _parts(self) -> Stack:
        heading = [Words(self.title, READING, quiet=False, bold=True)] if self.title else []
        return Stack([*heading, *self.parts, *([Words(self.note)] if self.note else [])])

    def _whole(self, columns: int) -> Box:
        """Return where the parts are on a page."""
        width = WIDTHS[columns] - 2 * _MARGIN
        return Box(_MARGIN, _MARGIN, width, self._parts.height(width))


def _page_of(whole: Box) -> tuple[float, float]:
    """Return width and height of a page around its parts."""
    return whole.width + 2 * _MARGIN, whole.height + 2 * _MARGIN


def _stacked(parts: Sequence[Part], left: float, top: float, width: float) -> list[tuple[Part, Box]]:
    frames = []
    for part in parts:
        height = part.height(width)
        frames.append((part, Box(left, top, width, height)))
        top += height + _GAP
    return frames


def wrapped(text: str, width: float, size: float, *, bold: bool = False) -> list[str]:
    """Return text in lines that are at most so many inches wide; a longer word is broken."""
    lines: list[str] = []
    line = ""
    for word in text.split(" "):
        longer = f"{line} {word}" if line else word
        if width_of(longer, size, bold=bold) <= _SURE * width:
            line = longer
            continue
        lines += [line] if line else []
        while width_of(word, size, bold=bold) > width and len(word) > 1:
            length = len(fitting(word, width, size, bold=bold, mark=""))
            lines.append(word[: max(1, length)])
            word = word[max(1, length) :]  # noqa: PLW2901 - the rest of it
        line = word
    return [*lines, line]


def fitting(text: str, width: float, size: float, *, bold: bool = False, mark: str = "…") -> str:
    """Return as much of a text as is at most so many inches wide, with an ellipsis if it is cut."""
    if width_of(text, size, bold=bold) <= width:
        return text
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        fits = width_of(text[:middle] + mark, size, bold=bold) <= width
        low, high = (middle, high) if fits else (low, middle - 1)
    return text[:low] + mark


def labelled(names: Sequence[str], positions: Sequence[float] | None, side: float) -> list[tuple[float, str]]:
    """Return (position, name) of the names that fit; round numbers where names do not fit."""
    if positions is not None:
        return list(zip(positions, names, strict=True))
    if side >= LEGIBLE:
        return list(enumerate(names))
    step = next((step for step in _STEPS if step * side >= 3 * LEGIBLE), _STEPS[-1])
    return [(index, str(index)) for index in range(0, len(names), step)]


def flowed(wide: Sequence[float], width: float, *, gap: float = 0.0) -> tuple[list[tuple[int, float]], int]:
    """Return line and left edge of boxes of these widths, side by side in lines; and the number of lines."""
    corners: list[tuple[int, float]] = []
    line, x = 0, 0.0
    for across in wide:
        if x and x + across > width:
            line, x = line + 1, 0.0
        corners.append((line, x))
        x += across + gap
    return corners, line + 1 if corners else 0
