"""Figures of plain arrays by matplotlib: a heatmap of a matrix, a strip of tokens, and small PNGs.

Figures bypass pyplot: nothing is registered or shown twice, and no backend is chosen.
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.cm import ScalarMappable
from matplotlib.collections import PatchCollection
from matplotlib.patches import FancyBboxPatch
from PIL import Image

from attnwidgets.figures.drawing import (
    MONO,
    colour_scale,
    families,
    figure_of,
    font_size,
    heading,
    label_axis,
    length_of,
    pixels,
    put,
    side_of,
)
from attnwidgets.figures.palettes import LEFT_OUT, SCALE, ink_on
from attnwidgets.figures.theme import cells, is_right_to_left, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

_MAX_TOKENS = 1200  # a page of text, which takes matplotlib a second


def heatmap(
    matrix: NDArray[np.floating],
    query_labels: Sequence[str],
    key_labels: Sequence[str],
    *,
    title: str = "",
    signed: bool = False,
    value_name: str = "",
    names: tuple[str, str] = ("query (to)", "key (from)"),
    cmap: str | Colormap | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    scale: str = SCALE,
    ax: Axes | None = None,
) -> Figure:
    """Return a heatmap of a matrix [query, key]: queries left, keys on top, the colour bar on the right.

    NaN is grey.
    """
    rows, columns = matrix.shape
    size = font_size(max(rows, columns))
    figure = figure_of(
        ax,
        side_of(columns) + length_of(query_labels, size) + 1.3,
        side_of(rows) + length_of(key_labels, size) + 0.8,
    )
    axes = figure.add_subplot() if ax is None else ax
    colours, norm = colour_scale(matrix, signed=signed, cmap=cmap, vmin=vmin, vmax=vmax, scale=scale)
    image = axes.imshow(matrix, cmap=colours, norm=norm, interpolation="nearest", aspect="equal")
    axes.set_facecolor("0.93")  # a cell without a value is not a zero
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    label_axis(axes.set_xticks, key_labels, rotation=90)
    label_axis(axes.set_yticks, query_labels)
    axes.tick_params(length=0, labelsize=size)
    put(axes.set_xlabel, names[1], fontsize=8)
    put(axes.set_ylabel, names[0], fontsize=8)
    for spine in axes.spines.values():
        spine.set_linewidth(0.5)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.03)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, length=2)
    put(bar.ax.set_ylabel, value_name, fontsize=8)
    heading(axes, title, over_figure=ax is None)
    return figure


def strip(
    values: NDArray[np.floating],
    labels: Sequence[str],
    *,
    names: Sequence[str] = ("",),
    title: str = "",
    cmap: str | Colormap | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
    scale: str = SCALE,
    ax: Axes | None = None,
    signed: bool = False,
    hatched: Sequence[int] = (),
) -> Figure:
    """Return text highlighted by values [row, token], one paragraph per row; signed values diverge.

    NaN is grey; tokens whose number is in `hatched` are hatched. Of a very long text only the beginning is
    drawn, and the heading says so.
    """
    columns = 84
    if values.size > _MAX_TOKENS:
        shown_tokens = max(1, _MAX_TOKENS // len(values))
        title = f"{title} (the first {shown_tokens:,} of {len(labels):,})"
        values, labels = values[:, :shown_tokens], labels[:shown_tokens]
    size, line = 9.0, 1.75
    colours, norm = colour_scale(
        values, signed=signed or bool((values < 0).any()), cmap=cmap, vmin=vmin, vmax=vmax, scale=scale
    )
    shown = [printable(label) or "·" for label in labels]
    boxes: list[FancyBboxPatch] = []
    fills: list[Any] = []
    lined: list[FancyBboxPatch] = []
    texts: list[tuple[float, float, str, Any, str]] = []
    backwards = is_right_to_left(labels)
    y = 0.0
    for name, row in zip(names, values, strict=True):
        if name:
            texts.append((0.0, y, f"{printable(name, 60)}:", "0.35", "left"))
            y += line
        x = 0.0
        for number, (label, value) in enumerate(zip(shown, row, strict=True)):
            width = cells(label) + 0.8
            if x and x + width > columns:
                x, y = 0.0, y + line
            colour = colours(norm(value)) if np.isfinite(value) else LEFT_OUT
            left = columns - x - width if backwards else x
            box = FancyBboxPatch(
                (left, y - 0.62), width - 0.25, 1.24, boxstyle="round,pad=0,rounding_size=0.2"
            )
            boxes.append(box)
            fills.append(colour)
            lined += [box] if number in hatched else []
            texts.append((left + (width - 0.25) / 2, y, label, ink_on(colour), "center"))
            x += width
        y += line * 1.25
    cell = size * 0.602 / 72  # width of a column of the monospaced font, in inches
    figure = figure_of(ax, columns * cell + 1.3, max(y, 2.5) * cell * 1.7 + 0.7)
    axes = figure.add_subplot() if ax is None else ax
    axes.add_collection(PatchCollection(boxes, facecolors=fills, linewidths=0))
    if lined:
        options: dict[str, Any] = {"facecolors": "none", "edgecolors": "0.55", "linewidths": 0}
        axes.add_collection(PatchCollection(lined, hatch="/////", **options))
    fonts = families(MONO)
    for left, top, text, ink, side in texts:
        put(axes.text, left, top, text, color=ink, ha=side, va="center", fontsize=size, family=fonts)
    axes.set_xlim(-0.5, columns + 0.5)
    axes.set_ylim(max(y, 2.5) - line * 0.5, -line * 0.6)
    axes.set_axis_off()
    bar = figure.colorbar(ScalarMappable(norm, colours), ax=axes, shrink=0.9, pad=0.01, fraction=0.03)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, length=2)
    heading(axes, title, over_figure=ax is None)
    return figure


def small_png(figure: Figure, *, dpi: int = 80) -> bytes:
    """Return a figure as a small palette PNG."""
    target = io.BytesIO()
    pixels(figure, dpi).quantize(128, dither=Image.Dither.NONE).save(target, "PNG", optimize=True)
    return target.getvalue()
