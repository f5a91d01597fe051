"""A text coloured by numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PatchCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import FancyBboxPatch

from attnwidgets.figures.drawing import ink_on
from attnwidgets.figures.labels import is_right_to_left, printable
from attnwidgets.figures.parts.placing import flowed
from attnwidgets.figures.sheet import READING, SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap, Normalize
    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

    Float = NDArray[np.floating]

_MOST_TOKENS = 1200
_LINE = 0.2  # inches


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
