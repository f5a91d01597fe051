"""Outcomes in a line, with their probabilities."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import FancyBboxPatch, Rectangle

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import flowed
from attnwidgets.figures.sheet import SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.figures.sheet import Box, Pen

_CHIP = 0.25  # inches of a line
_LEAST = 0.1  # percent


def percent(probability: float | None) -> str:
    """Return a probability in percent, never rounded to 0 or 100: the twin of `percent` in numbers.ts."""
    if probability is None:
        return ""
    if not np.isfinite(probability):
        return "–"
    share = 100 * probability
    if 0 < share < _LEAST:
        return f"< {_LEAST}\u00a0%"
    if probability < 1 and share > 100 - _LEAST:
        return f"> {100 - _LEAST}\u00a0%"
    return f"{share:.1f}\u00a0%"


@dataclass(frozen=True)
class Chips:
    """Outcomes in a line, each with its probability, which its lower edge shows.

    Attributes:
        chips: Name and probability; None for a number, which the name spells.
        chosen: Place of the one that is explained; None without one.
    """

    chips: Sequence[tuple[str, float | None]]
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
            share = float(np.clip(np.nan_to_num(self.chips[number][1] or 0.0), 0, 1))
            axes.add_patch(
                Rectangle((x + 0.03, y + 0.17), (wide - 0.06) * share, 0.025, color=theme.amount, linewidth=0)
            )
            pen.text(axes, x + 0.06, y + 0.09, words, bold=chosen, limit=60)

    def _places(self, width: float) -> tuple[list[tuple[int, float, float, str]], int]:
        """Return line, place, width and words of every chip, and the number of lines."""
        words = [
            fitting(f"{printable(name)} {percent(share)}".rstrip(), width - 0.14, SMALL, bold=True)
            for name, share in self.chips
        ]
        wide = [width_of(text, SMALL, bold=True) + 0.12 for text in words]
        places, lines = flowed(wide, width, gap=0.06)
        chips = zip(places, wide, words, strict=True)
        return [(line, x, across, text) for (line, x), across, text in chips], lines
