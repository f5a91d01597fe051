"""Matplotlib figures of explanations: a heatmap, a grid of heads, a strip of tokens; and the PNG fallback."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.figures.drawing import colour_scale, figure_of, heading, put
from attnwidgets.figures.maps import heatmap, small_png, strip

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets.explanations.explanation import Explanation

_THUMBNAIL = 48
_FEW = 4  # so many thumbnails a row may be large
_PNG_BUDGET = 2**23  # values that the fallback may read (or compute) to draw its grid


def plot(
    explanation: Explanation,
    *,
    layer: int | None = None,
    head: int | Literal["mean", "max", "sum"] | None = None,
    query: int | None = None,
    target: int | str | None = None,
    ax: Axes | None = None,
    title: str | None = None,
    cmap: str | Colormap | None = None,
    vmin: float | None = None,
    vmax: float | None = None,
) -> Figure:
    """Return a figure of an explanation.

    A map becomes a heatmap where `layer` and `head` leave one matrix, else a grid of all that are left;
    with `query` one row of it becomes a strip of tokens. Attributions become a strip for every target.

    Args:
        explanation: A MixingMap or Attributions.
        layer: Original layer number. Without a head axis the last layer is the default.
        head: Original head number, or a reduction over heads.
        query: Row of the matrix to show as a strip.
        target: Number or label of one target of attributions.
        ax: Axes to draw a heatmap or strip into, instead of a new figure.
        title: Heading; by default the method and what was done to its numbers.
        cmap: Colour map; viridis, and for signed values a diverging one centred on zero.
        vmin: Value of the first colour; zero, and for signed values -vmax.
        vmax: Value of the last colour; by default the largest.

    Raises:
        IndexError: Where there is no such layer, head, query or target.
        TypeError: Where an explanation has no picture.
    """
    style: dict[str, Any] = {"cmap": cmap, "vmin": vmin, "vmax": vmax, "ax": ax}
    if isinstance(explanation, Attributions):
        chosen = explanation if target is None else explanation.select(target)
        return strip(
            np.where(chosen.beyond(), np.nan, np.atleast_2d(chosen.values)),
            chosen.labels,
            names=chosen.targets,
            title=title or chosen.title,
            signed=chosen.signed,
            **style,
        )
    if not isinstance(explanation, MixingMap):
        raise TypeError(f"there is no figure for {type(explanation).__name__}.")
    if layer is None and (explanation.heads is None or len(explanation.layers) == 1):
        layer = explanation.layers[-1]
    if head is None and explanation.heads is not None and len(explanation.heads) == 1:
        head = explanation.heads[0]
    if layer is None or (head is None and explanation.heads is not None):
        if isinstance(head, str):
            return head_grid(explanation.reduce("head", head), title=title, cmap=cmap)
        return head_grid(explanation.select(layer=layer, head=head), title=title, cmap=cmap)
    matrix = explanation.matrix(layer, head)
    place = _place(explanation, layer, head)
    named = f"{explanation.title}, {place}" if title is None else title
    if query is not None:
        labels = explanation.query_labels
        if not -len(labels) <= query < len(labels):
            raise IndexError(f"query {query} is out of range: there are queries 0 to {len(labels) - 1}.")
        return strip(matrix[[query]], explanation.key_labels, names=(labels[query],), title=named, **style)
    return heatmap(
        matrix,
        explanation.query_labels,
        explanation.key_labels,
        title=named,
        signed=explanation.signed,
        value_name="share of the row" if explanation.stochastic else explanation.method,
        **style,
    )


def head_grid(
    explanation: MixingMap,
    *,
    title: str | None = None,
    cmap: str | Colormap | None = None,
    scale: str = "sqrt",
    common: bool = False,
) -> Figure:
    """Return a grid of thumbnails, a row for every layer and a column for every head.

    Thumbnails are max-pooled and each is scaled to its own largest value, so that patterns show. What is
    masked, and where heads were pruned, is left empty.

    Args:
        explanation: A map.
        title: Heading; by default the map's.
        cmap: See `plot`.
        scale: Of colours: "linear", "sqrt" or "log".
        common: One scale for all thumbnails.
    """
    pooled = [_thumbnails(explanation.layer(number)) for number in explanation.layers]
    wide, high = max(len(layer) for layer in pooled), len(pooled)
    rows, columns = pooled[0].shape[-2:]
    gap = max(1, round(0.08 * max(rows, columns)))
    whole = max(float(np.abs(layer).max(initial=0.0)) for layer in pooled)
    masked = rows == columns and explanation.causal
    atlas = np.full((high * (rows + gap) - gap, wide * (columns + gap) - gap), np.nan)
    for y, layer in enumerate(pooled):
        for x, thumbnail in enumerate(layer):
            top, left = y * (rows + gap), x * (columns + gap)
            largest = (whole if common else np.abs(thumbnail).max()) or 1.0
            shown = np.where(np.tri(rows, dtype=bool), thumbnail, np.nan) if masked else thumbnail
            atlas[top : top + rows, left : left + columns] = shown / largest
    inches = 0.62 if wide > _FEW else 1.1
    figure = figure_of(None, wide * inches + 0.9, high * inches * rows / columns + 0.9)
    axes = figure.add_subplot()
    colours, norm = colour_scale(
        atlas, signed=explanation.signed, cmap=cmap, vmin=None, vmax=1.0, scale=scale
    )
    axes.imshow(atlas, cmap=colours, norm=norm, interpolation="nearest", aspect="equal")
    axes.xaxis.tick_top()
    axes.xaxis.set_label_position("top")
    if explanation.heads is None:
        axes.set_xticks([])
    else:
        axes.set_xticks(
            np.arange(wide) * (columns + gap) + columns / 2 - 0.5, [str(n) for n in explanation.heads[:wide]]
        )
        axes.set_xlabel("head", fontsize=8)
    axes.set_yticks(np.arange(high) * (rows + gap) + rows / 2 - 0.5, [str(n) for n in explanation.layers])
    axes.set_ylabel("layer", fontsize=8)
    axes.tick_params(length=0, labelsize=7)
    axes.set_frame_on(False)
    put(
        axes.text,
        0,
        -0.01,
        f"one scale for all, up to {whole:.2g}" if common else "each scaled to its largest value",
        transform=axes.transAxes,
        va="top",
        fontsize=7,
        color="0.35",
    )
    heading(axes, explanation.title if title is None else title)
    return figure


def png(explanation: Explanation, *, dpi: int = 80) -> bytes:
    """Return the static picture that stands in for a widget on GitHub and nbviewer: a small palette PNG.

    A map of many heads is drawn as its grid while that is cheap, else as the last layer's mean over heads.
    """
    options: dict[str, Any] = {}
    large = isinstance(explanation, MixingMap) and int(np.prod(explanation.shape)) > _PNG_BUDGET
    if large and isinstance(explanation, MixingMap):
        options = {"layer": explanation.layers[-1], "head": None if explanation.heads is None else "mean"}
    return small_png(plot(explanation, **options), dpi=dpi)


def _thumbnails(layer: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return [head, <=side, <=side]: the value of largest size in every block, so that no peak is lost."""
    array = layer if layer.ndim == len(("head", "query", "key")) else layer[None]
    for axis in (-2, -1):
        n = array.shape[axis]
        if n > _THUMBNAIL:
            starts = np.arange(_THUMBNAIL) * n // _THUMBNAIL
            high = np.maximum.reduceat(array, starts, axis=axis)
            low = np.minimum.reduceat(array, starts, axis=axis)
            array = np.where(np.abs(low) > np.abs(high), low, high)
    return array


def _place(explanation: MixingMap, layer: int, head: int | str | None) -> str:
    where = (
        [f"layer {layer}"]
        if len(explanation.layers) > 1 or layer != explanation.layers[0] or explanation.heads
        else []
    )
    if isinstance(head, str):
        where.append(f"{head} over heads")
    elif head is not None:
        where.append(f"head {head}")
    return ", ".join(where) or f"layer {layer}"
