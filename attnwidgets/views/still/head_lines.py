"""The part of a figure that a HeadView shows: heads as lines between two columns of tokens."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.letters import SMALL, width_of
from attnwidgets.figures.palettes import channels_of, ink_on, place
from attnwidgets.figures.sheet import LINE, fitting
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.figures.pens.pen import Area, Box, Pen, Side

# The twin of `js/src/views/heads/colours.ts`.
COLOURS = (
    "#0072b2", "#d55e00", "#701031", "#2f2a8b", "#a980ea", "#4ba27f", "#ae4077", "#7a5100",
    "#2f6750", "#6a3c70", "#788fba", "#5547ac", "#9a6e52", "#ea6d6c", "#660962", "#a07493",
)  # fmt: skip
# The twins of `LINES` and `FROM` in js/src/views/heads/numbers.ts.
LINES, FROM = 3, 0.05
_SOFT = 0.4  # opacity of lines that are not of the selected token
ROWS = 80  # of more tokens, those around the selected one are drawn
_ROW = 0.17  # inches
_CHIP = 0.2
_FAINTEST = 0.03


@dataclass(frozen=True)
class HeadLines:
    """Lines from queries (left) to keys (right).

    Attributes:
        values: [head, query, key]; NaN without a line.
        query_labels: Names of the rows.
        key_labels: Names of the columns.
        heads: Index in the layer (which gives the colour) and name of every head; empty: heads have no names.
        look: "query" or "key", and the token all of whose lines are drawn, with bars behind the other side's
            tokens; None: only the `LINES` strongest lines of every query.
        unit: Unit of rows and columns: "token".
        colour: Colour of a single head.
        apart: Share of every query for special tokens that stand apart [query]; empty: there are none.
        signs: Colours of negative and positive values, instead of those of heads.
        scale: Scale of line strengths and bar heights: "linear", "sqrt" or "log".
        top: The value of the strongest line.
    """

    values: NDArray[np.floating]
    query_labels: Sequence[str]
    key_labels: Sequence[str]
    heads: Sequence[tuple[int, str]] = ()
    look: tuple[str, int] | None = None
    unit: str = "token"
    colour: str = COLOURS[0]
    apart: Sequence[float] = ()
    signs: tuple[str, str] | None = None
    scale: str = "sqrt"
    top: float = 1.0

    def height(self, width: float) -> float:
        """Return its height at a width, both in inches."""
        return self._chips(width) * _CHIP + LINE + max(self._part[0].shape[1:], default=0) * _ROW

    @cached_property
    def _part(self) -> tuple[NDArray[np.floating], tuple[int, int], str]:
        """The part around the selected token that fits on a page: values, first query and key, words."""
        return _cut(np.asarray(self.values, dtype=float), self.look)

    def _chips(self, width: float) -> int:
        """Return the number of lines that the names of the heads take."""
        if len(self.heads) <= 1:
            return 0
        return -(-len(self.heads) // max(1, int((width - 0.4) / _CHIP_WIDTH)))

    def draw(self, pen: Pen, box: Box) -> None:
        """Draw it."""
        values, starts, cut = self._part
        sides = (self.query_labels, self.key_labels)
        labels = [
            [printable(name) for name in list(names)[start : start + count]]
            for names, start, count in zip(sides, starts, values.shape[1:], strict=True)
        ]
        look = self.look and (self.look[0], self.look[1] - starts[self.look[0] == "key"])
        edges = strongest(values, FROM * (self.top or 1.0))
        is_looked = np.zeros(len(edges), dtype=bool)
        shown_words = f"three strongest per {self.unit}"
        if look is not None:
            side = 1 if look[0] == "query" else 2
            every = np.argwhere(np.nan_to_num(np.abs(values)) > 0)
            edges = np.concatenate([edges[edges[:, side] != look[1]], every[every[:, side] == look[1]]])
            is_looked = edges[:, side] == look[1]
            shown_words += f"; all of “{labels[side - 1][look[1]]}”"
        above = self._chips(box.width) * _CHIP + LINE
        place_of = type(box)(box.left, box.top + above, box.width, box.height - above)
        area = pen.area(place_of)
        slots = min(0.16 * box.width, 0.9 if len(values) == 1 else 0.12 * len(values))
        room = [0.0 if look is None or look[0] == side else slots for side in ("query", "key")]
        shares = list(self.apart[starts[0] : starts[0] + values.shape[1]]) if room[0] == 0 else []
        if shares:
            room[0] = slots
        widest = [
            min(0.24 * box.width, max((width_of(name, SMALL, bold=True) for name in side), default=0.0))
            for side in labels
        ]
        left, right = room[0] + widest[0] + 0.1, box.width - room[1] - widest[1] - 0.1
        colours = [self.colour]
        if len(self.heads) > 1:
            colours = [COLOURS[number % len(COLOURS)] for number, _ in self.heads]
        strength = place(np.abs(values) / (self.top or 1.0), self.scale)
        _lines(area, values, strength, edges, is_looked, (left, right), colours, self.signs)
        for i, share in enumerate(shares):
            wide = min(1.0, abs(share) / (self.top or 1.0)) * (slots - 0.05)
            area.rectangle(0, (i + 0.15) * _ROW, wide, 0.7 * _ROW, fill=pen.theme.apart)
        columns: tuple[tuple[int, float, Side], ...]
        columns = ((0, left - 0.05, "right"), (1, right + 0.05, "left"))
        for side, x, align in columns:
            for i, label in enumerate(labels[side]):
                bold = look is not None and look == (("query", "key")[side], i)
                words = fitting(label, widest[side] + 0.01, SMALL, bold=bold)
                area.write(x, (i + 0.5) * _ROW, words, ha=align, style="bold" if bold else "")
        if look is not None:
            start = box.width - slots + 0.05 if look[0] == "query" else 0.0
            at = (slice(None), look[1]) if look[0] == "query" else (slice(None), slice(None), look[1])
            _bars(area, values[at], strength[at], start, slots - 0.05, colours, self.signs)
        page = pen.area(type(box)(box.left, box.top, box.width, above))
        if len(self.heads) > 1:
            self._draw_chips(page, colours, box.width)
        words = " · ".join(filter(None, (cut, shown_words)))
        page.write(0, above - LINE / 2, words, color=pen.theme.quiet, limit=120)

    def _draw_chips(self, page: Area, colours: Sequence[str], width: float) -> None:
        page.write(0, _CHIP / 2, "heads", color=page.theme.quiet)
        in_line = max(1, int((width - 0.4) / _CHIP_WIDTH))
        for i, ((_, name), colour) in enumerate(zip(self.heads, colours, strict=True)):
            fill = page.theme.line if self.signs else colour
            x, y = 0.4 + i % in_line * _CHIP_WIDTH, i // in_line * _CHIP
            page.rectangle(x, y + 0.02, _CHIP_WIDTH - 0.03, _CHIP - 0.05, fill=fill)
            ink = ink_on(channels_of(fill))
            page.write(x + (_CHIP_WIDTH - 0.03) / 2, y + _CHIP / 2, name, ha="center", color=ink)


_CHIP_WIDTH = 0.24


def _cut(
    values: NDArray[np.floating], look: tuple[str, int] | None
) -> tuple[NDArray[np.floating], tuple[int, int], str]:
    """Return the part around the selected token that fits on a page: values, first query and key, words."""
    starts = [0, 0]
    for side in (0, 1):
        count = values.shape[side + 1]
        if count > ROWS and look is not None:
            starts[side] = int(np.clip(min(look[1], count) - ROWS // 2, 0, count - ROWS))
    long = max(values.shape[1:])
    part = values[:, starts[0] : starts[0] + ROWS, starts[1] : starts[1] + ROWS]
    first = starts[int(np.argmax(values.shape[1:]))]
    words = f"{first:,} to {first + ROWS - 1:,} of {long:,}" if long > ROWS else ""
    return part, (starts[0], starts[1]), words


def strongest(values: NDArray[np.floating], least: float) -> NDArray[np.intp]:
    """Return the strongest lines of every query, [line, (head, query, key)], the weakest first.

    The twin of `strongestOfEach` in js/src/views/heads/pairs.ts.

    Args:
        values: [head, query, key].
        least: The smallest size of a line.
    """
    heads, queries, keys = values.shape
    sizes = np.nan_to_num(np.abs(values)).transpose(1, 0, 2).reshape(queries, heads * keys)
    order = np.argsort(-sizes, axis=1, kind="stable")[:, :LINES]
    ranked = np.take_along_axis(sizes, order, axis=1)
    query, rank = np.nonzero((ranked > 0) & (ranked >= least * (1 - 1e-6)))
    head, key = np.divmod(order[query, rank], max(keys, 1))
    lines = np.stack([head, query, key], axis=-1)
    return lines[np.argsort(ranked[query, rank], kind="stable")]


def _lines(
    area: Area,
    values: NDArray[np.floating],
    strengths: NDArray[np.floating],
    edges: NDArray[np.intp],
    is_looked: NDArray[np.bool_],
    ends: tuple[float, float],
    colours: Sequence[str],
    signs: tuple[str, str] | None,
) -> None:
    left, right = ends
    bend = 0.42 * (right - left)
    gap = min(0.08, 0.65 / max(1, len(values) - 1))
    paths, inks, widths = [], [], []
    for (head, query, key), full in zip(edges, is_looked, strict=True):
        strength = float(strengths[head, query, key])
        if strength < _FAINTEST:
            continue
        offset = (head - (len(values) - 1) / 2) * gap + 0.5
        start, end = (query + offset) * _ROW, (key + offset) * _ROW
        paths.append([(left, start), (left + bend, start), (right - bend, end), (right, end)])
        colour = signs[values[head, query, key] > 0] if signs else colours[head]
        inks.append((*channels_of(colour), (1.0 if full else _SOFT) * (0.08 + 0.82 * strength)))
        widths.append(0.3 + 1.5 * strength)
    if paths:
        area.curves(np.array(paths), inks, widths)


def _bars(
    area: Area,
    along: NDArray[np.floating],
    strengths: NDArray[np.floating],
    start: float,
    width: float,
    colours: Sequence[str],
    signs: tuple[str, str] | None,
) -> None:
    slot = width / len(along)
    for head, row in enumerate(along):
        for i, value in enumerate(row):
            if not np.isfinite(value):
                continue
            size, ink = float(strengths[head, i]), signs[value > 0] if signs else colours[head]
            if len(along) == 1:
                area.rectangle(start, (i + 0.15) * _ROW, size * width, 0.7 * _ROW, fill=ink)
            else:
                x = start + head * slot
                area.rectangle(x, (i + 0.92) * _ROW, slot * 0.8, -0.82 * size * _ROW, fill=ink)
