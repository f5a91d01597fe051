"""The figure of a HeadView: heads as lines between two columns of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.collections import PatchCollection, PathCollection
from matplotlib.colors import to_rgba
from matplotlib.patches import Rectangle
from matplotlib.path import Path

from attnwidgets.figures.drawing import FONTS, families, figure_of, heading, ink_on, length_of, put
from attnwidgets.figures.labels import printable
from attnwidgets.figures.palettes import place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

# The twin of `js/src/views/heads/colours.ts`.
COLOURS = (
    "#0072b2", "#d55e00", "#701031", "#2f2a8b", "#a980ea", "#4ba27f", "#ae4077", "#7a5100",
    "#2f6750", "#6a3c70", "#788fba", "#5547ac", "#9a6e52", "#ea6d6c", "#660962", "#a07493",
)  # fmt: skip
BUDGET = 1000
ROWS = 80  # of more tokens, those around the selected one are drawn
_ROW = 0.2  # inches
_WIDTH = 7.2
_SIZE = 8.0
_FAINTEST = 0.03
_CURVE = (Path.MOVETO, Path.CURVE4, Path.CURVE4, Path.CURVE4)


def head_figure(
    values: NDArray[np.floating],
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    heads: Sequence[tuple[int, str]] = (),
    look: tuple[str, int] | None = None,
    title: str = "",
    signs: tuple[str, str] | None = None,
    scale: str = "sqrt",
    top: float = 1.0,
) -> Figure:
    """Return a figure of lines from queries (left) to keys (right).

    Args:
        values: [head, query, key]; NaN where there is no line.
        query_labels: Names of the rows.
        key_labels: Names of the columns.
        heads: Place in the layer (which gives the colour) and name of every head; empty: heads have no names.
        look: "query" or "key", and the token whose lines are drawn, with bars behind the other side's tokens;
            None: the strongest lines, up to `BUDGET`, and their share of the mass.
        title: Heading.
        signs: Colours of negative and positive values, instead of those of heads.
        scale: Scale of line strengths and bar heights: "linear", "sqrt" or "log".
        top: The value of the strongest line.
    """
    values, starts, cut = _cut(np.asarray(values, dtype=float), look)
    labels = [
        list(names)[start : start + count]
        for names, start, count in zip((query_labels, key_labels), starts, values.shape[1:], strict=True)
    ]
    if look is not None:
        look = (look[0], look[1] - starts[look[0] == "key"])
    edges, shown_words = _edges(values, look)
    rows = max(values.shape[1:])
    figure = figure_of(None, _WIDTH, rows * _ROW + 1.0)
    axes = figure.add_subplot()
    axes.set_xlim(0, _WIDTH)
    axes.set_ylim(rows + 0.2, -1.6 if len(heads) > 1 else -0.4)
    axes.set_axis_off()
    slots = 1.1 if len(values) == 1 else min(1.4, 0.1 * len(values))
    widest = [min(1.7, length_of([printable(label) for label in side], _SIZE)) + 0.12 for side in labels]
    left, right = slots + widest[0], _WIDTH - slots - widest[1]
    colours = [COLOURS[place % len(COLOURS)] for place, _ in heads] or [COLOURS[0]] * len(values)
    strength = place(np.abs(values) / (top or 1.0), scale)
    _lines(axes, values, strength, edges, (left, right), colours, signs)
    for side, x, align in ((0, left - 0.06, "right"), (1, right + 0.06, "left")):
        for i, label in enumerate(labels[side]):
            bold = look is not None and look == (("query", "key")[side], i)
            put(
                axes.text,
                x,
                i + 0.5,
                printable(label),
                ha=align,
                va="center",
                fontsize=_SIZE,
                family=families(FONTS),
                fontweight="bold" if bold else "normal",
            )
    if look is not None:
        start = _WIDTH - slots + 0.05 if look[0] == "query" else 0.0
        at = (slice(None), look[1]) if look[0] == "query" else (slice(None), slice(None), look[1])
        _bars(axes, values[at], strength[at], start, slots - 0.05, colours, signs)
    if len(heads) > 1:
        _chips(axes, heads, colours, signed=signs is not None)
    words = f"{title} ({cut})" if cut else title
    heading(axes, " · ".join(filter(None, (words, shown_words))))
    return figure


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


def _edges(values: NDArray[np.floating], look: tuple[str, int] | None) -> tuple[NDArray[np.intp], str]:
    """Return the lines drawn, [line, (head, query, key)], the weakest first, and their share in words."""
    sizes = np.nan_to_num(np.abs(values))
    if look is not None:
        at = (slice(None), look[1]) if look[0] == "query" else (slice(None), slice(None), look[1])
        of_token = np.zeros_like(sizes)
        of_token[at] = sizes[at]
        sizes = of_token
    order = np.argsort(sizes, axis=None, kind="stable")
    order = order[np.searchsorted(sizes.ravel()[order], 0, side="right") :]
    shown = order if look is not None else order[-BUDGET:]
    words = ""
    if look is None:
        total = sizes.sum()
        share = float(sizes.ravel()[shown].sum() / total) if total else 1.0
        count = int(np.isfinite(values).sum())
        words = f"{len(shown):,} of {count:,} edges, {share:.0%} of the mass"
    return np.stack(np.unravel_index(shown, values.shape), axis=-1), words


def _lines(
    axes: Axes,
    values: NDArray[np.floating],
    strengths: NDArray[np.floating],
    edges: NDArray[np.intp],
    ends: tuple[float, float],
    colours: Sequence[str],
    signs: tuple[str, str] | None,
) -> None:
    left, right = ends
    bend = 0.42 * (right - left)
    gap = min(0.08, 0.65 / max(1, len(values) - 1))
    paths, inks, widths = [], [], []
    for head, query, key in edges:
        strength = float(strengths[head, query, key])
        if strength < _FAINTEST:
            continue
        offset = (head - (len(values) - 1) / 2) * gap + 0.5
        start, end = query + offset, key + offset
        paths.append(Path([(left, start), (left + bend, start), (right - bend, end), (right, end)], _CURVE))
        colour = signs[values[head, query, key] > 0] if signs else colours[head]
        inks.append(to_rgba(colour, 0.08 + 0.82 * strength))
        widths.append(0.3 + 1.5 * strength)
    axes.add_collection(PathCollection(paths, facecolors="none", edgecolors=inks, linewidths=widths))


def _bars(
    axes: Axes,
    along: NDArray[np.floating],
    strengths: NDArray[np.floating],
    start: float,
    width: float,
    colours: Sequence[str],
    signs: tuple[str, str] | None,
) -> None:
    slot = width / len(along)
    boxes, inks = [], []
    for head, row in enumerate(along):
        for i, value in enumerate(row):
            if not np.isfinite(value):
                continue
            size = float(strengths[head, i])
            if len(along) == 1:
                boxes.append(Rectangle((start, i + 0.15), size * width, 0.7))
            else:
                boxes.append(Rectangle((start + head * slot, i + 0.92), slot * 0.8, -0.82 * size))
            inks.append(signs[value > 0] if signs else colours[head])
    axes.add_collection(PatchCollection(boxes, facecolors=inks, linewidths=0))


def _chips(axes: Axes, heads: Sequence[tuple[int, str]], colours: Sequence[str], *, signed: bool) -> None:
    width = min(0.26, (_WIDTH - 0.5) / len(heads))
    options: dict[str, Any] = {"va": "center", "fontsize": min(7.0, 26 * width), "family": families(FONTS)}
    put(axes.text, 0, -0.95, "heads", ha="left", **{**options, "fontsize": 7, "color": "0.35"})
    for i, ((_, name), colour) in enumerate(zip(heads, colours, strict=True)):
        fill = "0.85" if signed else colour
        axes.add_patch(Rectangle((0.45 + i * width, -1.4), width * 0.9, 0.9, facecolor=fill, linewidth=0))
        ink = ink_on(to_rgba(fill))
        put(axes.text, 0.45 + (i + 0.45) * width, -0.95, name, ha="center", color=ink, **options)
