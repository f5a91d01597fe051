"""A column of sentences with arcs at its side."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from matplotlib.patches import PathPatch, Rectangle
from matplotlib.path import Path

from attnwidgets.figures.labels import printable
from attnwidgets.figures.parts.placing import PAD
from attnwidgets.figures.sheet import SMALL, fitting, width_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.colors import Colormap

    from attnwidgets.figures.sheet import Box, Pen

_ROW = 0.19  # inches of a sentence
_MOST = 60  # sentences of a figure
_PALEST, _FAINT = 0.3, 0.28
_ROOM = 0.2  # share of the width that arcs take
_LONGEST = 400  # characters
_WIDEST = 4.0  # points
_HALF = 1.2  # inches of a distance at which arcs reach half of their room


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
        for place in range(start, stop):
            y, is_chosen = middle(place), place == self.chosen
            words = fitting(
                printable(self.labels[place], _LONGEST) or "·", box.width - text_at - 4 * PAD, SMALL
            )
            pen.text(axes, room + numbered + PAD, y, self.numbers[place], color=theme.quiet, ha="right")
            pen.text(axes, text_at, y, words, limit=_LONGEST)
            if is_chosen:
                corner = (room + PAD / 2, y - _ROW / 2)
                frame = Rectangle(corner, box.width - room - PAD, _ROW, fill=False, linewidth=1.2)
                frame.set_edgecolor(theme.accent)
                axes.add_patch(frame)
        if stop - start < len(self.labels):
            words = f"sentences {self.numbers[start]} to {self.numbers[stop - 1]} of {len(self.labels):,}"
            pen.text(axes, text_at, (stop - start + 0.5) * _ROW, words, color=theme.quiet, limit=60)
