"""Matplotlib figures of explanations: heatmaps, grids of heads, strips of tokens, and small PNGs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets.explanations.results.atlas import atlas_of
from attnwidgets.explanations.results.description import axis_words
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.verbalise import SINK_NAME
from attnwidgets.figures.drawing import colour_scale, figure_of, heading, put
from attnwidgets.figures.maps import heatmap, small_png, strip
from attnwidgets.figures.palettes import SCALE

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from attnwidgets.explanations.explanation import Explanation

_FEW = 4  # up to so many thumbnails in a row are drawn large
_PNG_BUDGET = 2**23  # values that a PNG's grid may read (or compute)


def plot_map(
    shown: MixingMap,
    layer: int | None,
    head: int | Literal["mean", "max", "sum"] | None,
    query: int | None,
    *,
    title: str | None,
    cmap: str | Colormap | None,
    **style: Any,
) -> Figure:
    """Return a figure of a map; see `MixingMap.figure`. `style` holds `ax`, `vmin` and `vmax`."""
    if layer is None and (shown.heads is None or len(shown.layers) == 1):
        layer = shown.layers[-1]
    if head is None and shown.heads is not None and len(shown.heads) == 1:
        head = shown.heads[0]
    if layer is None or (head is None and shown.heads is not None):
        grid = shown.reduce("head", head) if isinstance(head, str) else shown.select(layer=layer, head=head)
        return head_grid(grid, title=title, cmap=cmap)
    matrix, allowed = shown.matrix(layer, head), shown.compared(layer)
    if allowed is not None:
        matrix = np.where(allowed, matrix, np.nan)  # no weights, rather than weights of zero
    has_sink = shown.sink and head not in ("max", "sum")
    sink = (1.0 - np.nansum(matrix, axis=1, dtype=np.float64)).clip(0.0, 1.0)
    title = f"{shown.title}, {_layer_and_head(shown, layer, head)}" if title is None else title
    if query is not None:
        labels = shown.query_labels
        if not -len(labels) <= query < len(labels):
            raise IndexError(f"query {query} is out of range: there are queries 0 to {len(labels) - 1}.")
        names = (labels[query],)
        title = f"{title} · {SINK_NAME} {sink[query]:.2g}" if has_sink else title
        return strip(matrix[[query]], shown.key_labels, names=names, title=title, cmap=cmap, **style)
    return heatmap(
        np.column_stack([sink.astype(matrix.dtype), matrix]) if has_sink else matrix,
        shown.query_labels,
        (SINK_NAME, *shown.key_labels) if has_sink else shown.key_labels,
        title=title,
        signed=shown.signed,
        value_name="share of the row" if shown.stochastic or has_sink else shown.method,
        names=axis_words(shown).labels,
        cmap=cmap,
        **style,
    )


def head_grid(
    shown: MixingMap, *, title: str | None = None, cmap: str | Colormap | None = None, scale: str = SCALE
) -> Figure:
    """Return a grid of thumbnails, a row for every layer and a column for every head; see `atlas_of`.

    Args:
        shown: A map.
        title: Heading; by default the map's.
        cmap: See `MixingMap.figure`.
        scale: Of colours: "linear", "sqrt" or "log".
    """
    atlas = atlas_of(shown)
    high, wide = len(atlas.rows), len(atlas.columns)
    inches = 0.62 if wide > _FEW else 1.1
    figure = figure_of(None, wide * inches + 0.9, high * inches * atlas.ratio + 0.9)
    axes = figure.add_subplot()
    colours, norm = colour_scale(
        atlas.values, signed=shown.signed, cmap=cmap, vmin=None, vmax=1.0, scale=scale
    )
    axes.imshow(atlas.values, cmap=colours, norm=norm, interpolation="nearest", aspect="equal")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    if shown.heads is None:
        axes.set_xticks([])
    else:
        axes.set_xticks(atlas.columns, [str(number) for number in shown.heads[:wide]])
        axes.set_xlabel("head", fontsize=8)
    axes.set_yticks(atlas.rows, [str(number) for number in shown.layers])
    axes.set_ylabel("layer", fontsize=8)
    axes.tick_params(length=0, labelsize=7)
    axes.set_facecolor("0.93")  # a masked cell or a gap is not a zero
    axes.spines[:].set_visible(False)
    put(axes.text, 0, -0.01, atlas.note, transform=axes.transAxes, va="top", fontsize=7, color="0.35")
    heading(axes, shown.title if title is None else title)
    return figure


def png(explanation: Explanation, *, dpi: int = 80) -> bytes:
    """Return the static picture that replaces a widget on GitHub and nbviewer: a small palette PNG.

    A map of many heads is drawn as a grid if that is cheap, else as the last layer's mean over heads.
    """
    if not isinstance(explanation, MixingMap) or math.prod(explanation.shape) <= _PNG_BUDGET:
        return small_png(explanation.figure(), dpi=dpi)
    head: Literal["mean"] | None = None if explanation.heads is None else "mean"
    return small_png(explanation.figure(explanation.layers[-1], head), dpi=dpi)


def _layer_and_head(shown: MixingMap, layer: int, head: int | str | None) -> str:
    names_layer = len(shown.layers) > 1 or layer != shown.layers[0] or shown.heads
    words = [f"layer {layer}"] if names_layer else []
    if head is not None:
        words.append(f"{head} over heads" if isinstance(head, str) else f"head {head}")
    return ", ".join(words) or f"layer {layer}"
