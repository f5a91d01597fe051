"""Names with numbers: bars, outcomes in a line with their probabilities, and tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.figures.letters import SMALL, width_of
from attnwidgets.figures.sheet import PAD, ROW, fitting, flowed
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.figures.pens.pen import Box, Pen, Side

_CHIP = 0.25  # inches of a line
_LEAST = 0.1  # percent


@dataclass(frozen=True)
class Bar:
    """A bar, or a pair of bars before and after a change.

    Attributes:
        name: Its label.
        value: Its length.
        before: The length before a change; None without one.
        quiet: Whether it is set apart.
        bold: Whether it is the selected bar.
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
        top: The longest possible value; None: the largest of the bars.
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
        area, theme = pen.area(box), pen.theme
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
            area.write(0, ROW / 2, words, style="bold", limit=120)
            top = ROW
        for number, (bar, text) in enumerate(zip(self.bars, texts, strict=True)):
            y = top + (number + 0.5) * ROW
            name = fitting(names[number], room + 0.01, SMALL, bold=bar.bold)
            color = theme.quiet if bar.quiet else theme.ink
            style = "bold" if bar.bold else ""
            area.write(start - PAD, y, name, ha="right", color=color, style=style, limit=self.letters)
            area.write(box.width, y, text, ha="right", color=color, limit=60)
            thick = 0.09 if bar.before is None else 0.05
            shift = 0.0 if bar.before is None else 0.028
            fill = theme.apart if bar.quiet else theme.amount
            if signed and not bar.quiet:
                fill = theme.speaks_for if bar.value >= 0 else theme.against
            drawn = [(bar.value, shift, fill)]
            drawn += [] if bar.before is None else [(bar.before, -shift, theme.apart)]
            for value, down, colour in drawn:
                if np.isfinite(value):
                    area.rectangle(zero, y + down - thick / 2, value * unit, thick, fill=colour)
        if signed:
            area.rule(zero, top, zero, box.height, theme.line)

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
        chosen: Number of the chip that is explained; None without one.
    """

    chips: Sequence[tuple[str, float | None]]
    chosen: int | None = None

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._places(width)[1] * _CHIP

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        area, theme = pen.area(box), pen.theme
        for number, (line, x, wide, words) in enumerate(self._places(box.width)[0]):
            y = line * _CHIP + 0.02
            chosen = number == self.chosen
            edge = theme.accent if chosen else theme.line
            area.rectangle(x, y, wide, 0.2, edge=edge, line=0.8, rounded=0.03)
            share = float(np.clip(np.nan_to_num(self.chips[number][1] or 0.0), 0, 1))
            area.rectangle(x + 0.03, y + 0.17, (wide - 0.06) * share, 0.025, fill=theme.amount)
            area.write(x + 0.06, y + 0.09, words, style="bold" if chosen else "", limit=60)

    def _places(self, width: float) -> tuple[list[tuple[int, float, float, str]], int]:
        """Return line, left edge, width and words of every chip, and the number of lines."""
        words = [
            fitting(f"{printable(name)} {percent(share)}".rstrip(), width - 0.14, SMALL, bold=True)
            for name, share in self.chips
        ]
        wide = [width_of(text, SMALL, bold=True) + 0.12 for text in words]
        corners, lines = flowed(wide, width, gap=0.06)
        chips = zip(corners, wide, words, strict=True)
        return [(line, x, across, text) for (line, x), across, text in chips], lines


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
        area, theme = pen.area(box), pen.theme
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
                side: Side = "right" if is_number else "left"
                colour = theme.quiet if number == 0 else theme.ink
                style = "bold" if bold else ""
                area.write(at, y, shown, ha=side, color=colour, style=style, limit=60)
                x += wide
        area.rule(0, ROW, min(box.width, sum(widths)), ROW, theme.line)


def _written(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, (int, np.integer)):
        return f"{value:,}"
    if isinstance(value, (float, np.floating)):
        return f"{value:.3g}" if np.isfinite(value) else ("−∞" if value == -np.inf else "–")
    return str(value)
