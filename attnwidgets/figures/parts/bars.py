"""Named bars with their numbers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import PAD, ROW
from attnwidgets.figures.sheet import SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.figures.sheet import Box, Pen


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
        letters: Number of letters after which names are cut.
    """

    bars: Sequence[Bar]
    top: float | None = None
    form: str = "{:.2f}"
    title: str = ""
    letters: int = 24

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        del width
        return (len(self.bars) + bool(self.title)) * ROW

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        axes, theme = pen.axes(box), pen.theme
        texts = [self._text(bar) for bar in self.bars]
        values = np.array([v for bar in self.bars for v in (bar.value, bar.before or 0.0)], dtype=float)
        finite = values[np.isfinite(values)]
        longest = self.top or float(np.max(np.abs(finite), initial=0.0)) or 1.0
        signed = bool((finite < 0).any())
        names = [printable(bar.name, self.letters) for bar in self.bars]
        room = min(0.4 * box.width, max((width_of(name, SMALL) for name in names), default=0.0))
        right = max((width_of(text, SMALL) for text in texts), default=0.0)
        # Drawn on whole pixels, letters are a bit wider than measured.
        start, end = 1.05 * room + 2 * PAD, box.width - right - 2 * PAD
        zero = (start + end) / 2 if signed else start
        unit = (end - zero) / longest
        top = 0.0
        if self.title:
            words = fitting(printable(self.title, 120), box.width, SMALL, bold=True)
            pen.text(axes, 0, ROW / 2, words, bold=True, limit=120)
            top = ROW
        for number, (bar, text) in enumerate(zip(self.bars, texts, strict=True)):
            y = top + (number + 0.5) * ROW
            name = fitting(names[number], room + 0.01, SMALL, bold=bar.bold)
            color = theme.quiet if bar.quiet else theme.ink
            pen.text(axes, start - PAD, y, name, ha="right", color=color, bold=bar.bold, limit=self.letters)
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
