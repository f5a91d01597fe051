"""A table of words and numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import ROW
from attnwidgets.figures.sheet import SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.figures.sheet import Box, Pen


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
        return (len(self.rows) + 1) * ROW

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
            y, x = (number + 0.5) * ROW, 0.0
            for words, wide, is_number in zip(line, widths, numeric, strict=True):
                bold = number > 0 and number - 1 == self.bold
                shown = fitting(words, wide - 0.1, SMALL, bold=bold)
                at = x + wide - 0.1 if is_number else x
                side = "right" if is_number else "left"
                colour = theme.quiet if number == 0 else theme.ink
                pen.text(axes, at, y, shown, ha=side, color=colour, bold=bold, limit=60)
                x += wide
        axes.plot([0, min(box.width, sum(widths))], [ROW, ROW], color=theme.line, linewidth=0.6)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}" if np.isfinite(value) else ("−∞" if value == -np.inf else "–")
    return str(value)
