"""Tokens by levels, with lines between them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import LineCollection
from matplotlib.colors import to_rgba

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import LONGEST, PAD, labelled
from attnwidgets.figures.sheet import SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.sheet import Box, Pen

    Float = NDArray[np.floating]


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
        axes = pen.axes(box)

        def place(level: int, element: int) -> tuple[float, float]:
            return left + (element + 0.5) * side, (len(self.names) - 0.5 - level) * self._step

        theme = pen.theme
        segments = [[place(level, upper), place(level - 1, lower)] for level, upper, lower, _ in self.edges]
        strengths = np.array([strength for *_, strength in self.edges], dtype=float)
        inks = [to_rgba(theme.amount, float(np.clip(0.12 + 0.8 * s, 0, 1))) for s in strengths]
        axes.add_collection(LineCollection(segments, colors=inks, linewidths=0.3 + 2.2 * strengths))
        for level, name in enumerate(self.names):
            pen.text(axes, left - 2 * PAD, place(level, 0)[1], name, ha="right", color=theme.quiet)
            spots = np.array([place(level, element) for element in range(len(self.labels))])
            sizes = np.full(len(spots), 1.5) if self.dots is None else 14 * np.sqrt(self.dots[level])
            if len(spots):
                axes.scatter(
                    spots[:, 0], spots[:, 1], s=np.maximum(sizes, 0.3), color=theme.ink, linewidths=0
                )
        if self.followed is not None:
            x, y = place(*self.followed)
            axes.scatter([x], [y], s=36, facecolors="none", edgecolors=theme.accent, linewidths=1.2)
        for at, name in labelled(self.labels, None, side):
            bold = self.followed is not None and self.followed[1] == at
            words = fitting(printable(name), self._names - 0.1, SMALL, bold=bold)
            options: dict[str, Any] = {"rotation": 90, "ha": "center", "va": "top", "bold": bold}
            pen.text(axes, place(0, int(at))[0], len(self.names) * self._step, words, **options)
