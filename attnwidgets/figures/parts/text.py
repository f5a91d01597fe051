"""A text coloured by numbers, and a column of sentences with arcs at its side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.letters import READING, SMALL, width_of
from attnwidgets.figures.palettes import inks_on
from attnwidgets.figures.sheet import PAD, fitting, flowed
from attnwidgets.figures.theme import is_right_to_left, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Box, Colours, Pen, Range

    Float = NDArray[np.floating]

_MOST_TOKENS = 1200
_LINE = 0.2  # inches
_ROUND = 0.02  # of corners
_HATCHED = "#8c8c8c"

_ROW = 0.19  # inches of a sentence
_MOST = 60  # sentences of a figure
_PALEST, _FAINT = 0.3, 0.28
_ROOM = 0.2  # share of the width that arcs take
_LONGEST = 400  # characters
_WIDEST = 4.0  # points
_HALF = 1.2  # inches of a distance at which arcs reach half of their room


@dataclass(frozen=True)
class Text:
    """A text coloured by numbers, once for each row of them.

    Attributes:
        values: [row, element]; NaN for missing numbers.
        labels: The elements.
        colours: Colour map, for backgrounds of text.
        norm: Its range.
        names: Names of the rows.
        hatched: Elements that are hatched.
        outlined: Elements that are outlined.
        apart: Special tokens that stand apart: in quiet italics, without a background.
    """

    values: Float
    labels: Sequence[str]
    colours: Colours
    norm: Range
    names: Sequence[str] = ("",)
    hatched: Sequence[int] = ()
    outlined: Sequence[int] = ()
    apart: Sequence[int] = ()

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._lines(width) * _LINE + (_LINE if self._left_out else 0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        area, theme = pen.area(box), pen.theme
        top = 0.0
        spots, count = self._spots(box.width)
        hatched, outlined, apart = set(self.hatched), set(self.outlined), set(self.apart)
        for name, row in zip(self.names, self.values, strict=True):
            if name:
                words = fitting(printable(name, 120), box.width, SMALL)
                area.write(0, top + _LINE / 2, words, color=theme.quiet, limit=120)
                top += _LINE
            framed = []
            fills = np.asarray(self.colours(self.norm(np.nan_to_num(row[: len(spots)]))))
            inks = inks_on(fills)
            for number, ((line, x, wide, label), value) in enumerate(zip(spots, row, strict=False)):
                is_finite = bool(np.isfinite(value))
                fill = fills[number] if is_finite else theme.left_out
                y = top + line * _LINE
                if number not in apart:
                    area.rectangle(x, y + 0.01, wide, _LINE - 0.02, fill=fill, rounded=_ROUND)
                if number in hatched:
                    area.rectangle(x, y + 0.01, wide, _LINE - 0.02, edge=_HATCHED, hatch="/", rounded=_ROUND)
                framed += [(x, y + 0.01, wide, _LINE - 0.02)] if number in outlined else []
                ink = inks[number] if is_finite else theme.quiet
                style = "italic" if number in apart else ""
                area.write(
                    x + wide / 2, y + _LINE / 2, label,
                    color=ink, ha="center", size=READING, limit=60, style=style,
                )  # fmt: skip
            for frame in framed:
                area.rectangle(*frame, edge=theme.accent, line=1.2, rounded=_ROUND)
            top += count * _LINE
        if self._left_out:
            shown, whole = len(spots), len(self.labels)
            area.write(0, top + _LINE / 2, f"the first {shown:,} of {whole:,}", color=theme.quiet, limit=60)

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
        """Return line, left edge, width and label of every element, and the number of lines."""
        labels = [
            fitting(printable(name) or "·", width - 0.08, READING) for name in self.labels[: self._most]
        ]
        wide = [width_of(label, READING) + 0.06 for label in labels]
        corners, lines = flowed(wide, width, gap=0.03)
        spots = [
            (line, x, across, label) for (line, x), across, label in zip(corners, wide, labels, strict=True)
        ]
        if is_right_to_left(self.labels):
            spots = [(line, width - x - across, across, label) for line, x, across, label in spots]
        return spots, max(1, lines)


@dataclass(frozen=True)
class Arc:
    """An arc from a sentence to another that it depends on.

    Attributes:
        query: Place of the sentence that depends.
        key: Number of the sentence that it depends on.
        share: Its value, as a part of the largest, -1 to 1.
        bold: Whether it stands out.
    """

    query: int
    key: int
    share: float
    bold: bool


@dataclass(frozen=True)
class Arcs:
    """A column of sentences, one line each, with arcs at the left.

    Attributes:
        labels: The sentences.
        numbers: Their numbers.
        arcs: The arcs.
        colours: Colour map; of signed values, zero is in its middle.
        chosen: Place of the sentence that is framed.
        signed: Whether values have a sign.
    """

    labels: Sequence[str]
    numbers: Sequence[str]
    arcs: Sequence[Arc]
    colours: Colours
    chosen: int
    signed: bool = False

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        start, stop = self._window
        return (stop - start + (stop - start < len(self.labels))) * _ROW

    @property
    def _window(self) -> tuple[int, int]:
        """The sentences that are drawn, [start, stop): of many, those up to the chosen one and after it."""
        count = len(self.labels)
        start = max(0, min(count - _MOST, self.chosen - _MOST // 2))
        return start, min(count, start + _MOST)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        area, theme = pen.area(box), pen.theme
        start, stop = self._window
        room = _ROOM * box.width
        numbered = max(width_of(number, SMALL) for number in self.numbers[start:stop])

        def middle(sentence: int) -> float:
            return (sentence - start + 0.5) * _ROW

        paths, inks, widths = [], [], []
        for arc in sorted(self.arcs, key=lambda arc: (arc.bold, abs(arc.share))):
            if not (start <= arc.query < stop and start <= arc.key < stop):
                continue
            first, second = middle(arc.query), middle(arc.key)
            reach = 4 / 3 * (room - PAD) * (1 - 2 ** (-abs(first - second) / _HALF))
            left = max(-room / 4, room - reach)
            paths.append([(room, first), (left, first), (left, second), (room, second)])
            at = _PALEST + (1 - _PALEST) * abs(arc.share)
            ink = self.colours(0.5 + (at if arc.share > 0 else -at) / 2 if self.signed else at)
            inks.append((*(float(channel) for channel in ink[:3]), 1.0 if arc.bold else _FAINT))
            widths.append(0.5 + (_WIDEST - 0.5) * abs(arc.share))
        if paths:
            area.curves(np.array(paths), inks, widths)
        text_at = room + numbered + 3 * PAD
        for index in range(start, stop):
            y, is_chosen = middle(index), index == self.chosen
            words = fitting(
                printable(self.labels[index], _LONGEST) or "·", box.width - text_at - 4 * PAD, SMALL
            )
            area.write(room + numbered + PAD, y, self.numbers[index], color=theme.quiet, ha="right")
            area.write(text_at, y, words, limit=_LONGEST)
            if is_chosen:
                wide = box.width - room - PAD
                area.rectangle(room + PAD / 2, y - _ROW / 2, wide, _ROW, edge=theme.accent, line=1.2)
        if stop - start < len(self.labels):
            words = f"sentences {self.numbers[start]} to {self.numbers[stop - 1]} of {len(self.labels):,}"
            area.write(text_at, (stop - start + 0.5) * _ROW, words, color=theme.quiet, limit=60)
