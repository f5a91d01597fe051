"""A text coloured by numbers, and a column of sentences with arcs at its side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path

from attnwidgets.figures.drawing import ink_on
from attnwidgets.figures.sheet import PAD, READING, SMALL, fitting, flowed, width_of
from attnwidgets.figures.theme import is_right_to_left, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

    Float = NDArray[np.floating]

_MOST_TOKENS = 1200
_LINE = 0.2  # inches

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
    colours: Colormap
    norm: Normalize
    names: Sequence[str] = ("",)
    hatched: Sequence[int] = ()
    outlined: Sequence[int] = ()
    apart: Sequence[int] = ()

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._lines(width) * _LINE + (_LINE if self._left_out else 0.0)

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes = pen.axes(box)
        boxes, fills, lined, framed = [], [], [], []
        top = 0.0
        spots, count = self._spots(box.width)
        for name, row in zip(self.names, self.values, strict=True):
            if name:
                words = fitting(printable(name, 120), box.width, SMALL)
                pen.text(axes, 0, top + _LINE / 2, words, color=pen.theme.quiet, limit=120)
                top += _LINE
            for number, ((line, x, wide, label), value) in enumerate(zip(spots, row, strict=False)):
                known = bool(np.isfinite(value))
                fill = self.colours(self.norm(float(value))) if known else to_rgba(pen.theme.left_out)
                y = top + line * _LINE
                patch = FancyBboxPatch(
                    (x, y + 0.01), wide, _LINE - 0.02, boxstyle="round,pad=0,rounding_size=0.02"
                )
                is_apart = number in self.apart
                boxes.append(patch)
                fills.append(to_rgba("none") if is_apart else fill)
                lined += [patch] if number in self.hatched else []
                framed += [patch] if number in self.outlined else []
                ink = ink_on(fill) if known else pen.theme.quiet
                pen.text(
                    axes,
                    x + wide / 2,
                    y + _LINE / 2,
                    label,
                    color=ink,
                    ha="center",
                    size=READING,
                    limit=60,
                    style="italic" if is_apart else "normal",
                )
            top += count * _LINE
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
            pen.text(axes, 0, top + _LINE / 2, words, color=pen.theme.quiet, limit=60)

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
        labels = [
            fitting(printable(name) or "·", width - 0.08, READING) for name in self.labels[: self._most]
        ]
        wide = [width_of(label, READING) + 0.06 for label in labels]
        places, lines = flowed(wide, width, gap=0.03)
        spots = [
            (line, x, across, label) for (line, x), across, label in zip(places, wide, labels, strict=True)
        ]
        if is_right_to_left(self.labels):
            spots = [(line, width - x - across, across, label) for line, x, across, label in spots]
        return spots, max(1, lines)


@dataclass(frozen=True)
class Arc:
    """An arc from a sentence to the one that it depends on.

    Attributes:
        query: Place of the sentence that depends.
        key: Place of the one that it depends on.
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
    colours: Colormap
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
        axes, theme = pen.axes(box), pen.theme
        start, stop = self._window
        room = _ROOM * box.width
        numbered = max(width_of(number, SMALL) for number in self.numbers[start:stop])

        def middle(place: int) -> float:
            return (place - start + 0.5) * _ROW

        for arc in sorted(self.arcs, key=lambda one: (one.bold, abs(one.share))):
            if not (start <= arc.query < stop and start <= arc.key < stop):
                continue
            first, second = middle(arc.query), middle(arc.key)
            reach = 4 / 3 * (room - PAD) * (1 - 2 ** (-abs(first - second) / _HALF))
            left = max(-room / 4, room - reach)
            ends = [(room, first), (left, first), (left, second), (room, second)]
            path = Path(ends, [Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4])
            at = _PALEST + (1 - _PALEST) * abs(arc.share)
            ink = self.colours(0.5 + (at if arc.share > 0 else -at) / 2 if self.signed else at)
            width = 0.5 + (_WIDEST - 0.5) * abs(arc.share)
            faint = 1.0 if arc.bold else _FAINT
            axes.add_patch(PathPatch(path, fill=False, edgecolor=ink, linewidth=width, alpha=faint))
        text_at = room + numbered + 3 * PAD
        for index in range(start, stop):
            y, is_chosen = middle(index), index == self.chosen
            words = fitting(
                printable(self.labels[index], _LONGEST) or "·", box.width - text_at - 4 * PAD, SMALL
            )
            pen.text(axes, room + numbered + PAD, y, self.numbers[index], color=theme.quiet, ha="right")
            pen.text(axes, text_at, y, words, limit=_LONGEST)
            if is_chosen:
                corner = (room + PAD / 2, y - _ROW / 2)
                frame = Rectangle(corner, box.width - room - PAD, _ROW, fill=False, linewidth=1.2)
                frame.set_edgecolor(theme.accent)
                axes.add_patch(frame)
        if stop - start < len(self.labels):
            words = f"sentences {self.numbers[start]} to {self.numbers[stop - 1]} of {len(self.labels):,}"
            pen.text(axes, text_at, (stop - start + 0.5) * _ROW, words, color=theme.quiet, limit=60)
