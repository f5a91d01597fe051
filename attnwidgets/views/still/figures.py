"""Figures of views: the layer, head, pinned cell and filters that a view shows now, drawn by matplotlib."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from matplotlib.patches import Rectangle

from attnwidgets.explanations.results.pictures import head_grid
from attnwidgets.figures.drawing import put
from attnwidgets.figures.maps import heatmap, small_png, strip
from attnwidgets.figures.palettes import SCALE, heat_map, round_up, sign_colours
from attnwidgets.views.still.head_figure import head_figure
from attnwidgets.views.still.view_state import ViewState
from attnwidgets.views.wire.pooling import even, pool
from attnwidgets.views.wire.units import in_unit

if TYPE_CHECKING:
    from matplotlib.colors import Colormap
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from numpy.typing import NDArray

    from attnwidgets.views.base.view import View

_OVERVIEW_SIDE = 384  # cells along a side of the static picture of a long text
_NAMED = 3  # special tokens named beside a map
_STACKED = 3  # up to so many targets each have a strip; of more, one is chosen


def matrix_figure(view: View) -> Figure:
    """Return the matrix that a Heatmap shows, with its marks and the pinned cell outlined."""
    state = ViewState.of(view)
    source = state.source
    whole = source.matrix(state.layer, state.head)
    rows, columns = (np.flatnonzero(~side) for side in state.apart())
    matrix = state.filtered(whole)[np.ix_(rows, columns)]
    figure = heatmap(
        matrix,
        *([labels[i] for i in kept] for labels, kept in zip(state.labels, (rows, columns), strict=True)),
        title=state.title(state.head),
        signed=source.signed,
        value_name=_value_name(state),
        cmap=_palette(state),
        vmax=_top(state, matrix),
        scale=state.filters.get("scale") or SCALE,
    )
    axes = figure.axes[0]
    axes.set_facecolor("0.93")  # a masked or hidden cell is not a zero
    cells = [cell for cell in view.options["marks"] if isinstance(cell, (list, tuple))]
    if state.pinned and min(state.pinned) >= 0:
        cells.append(list(state.pinned))
    for query, key in cells:
        if query not in rows or key not in columns:
            continue
        corner = (np.searchsorted(columns, key) - 0.5, np.searchsorted(rows, query) - 0.5)
        axes.add_patch(Rectangle(corner, 1, 1, fill=False, edgecolor="#d81b60", linewidth=1.2))
    if len(columns) < whole.shape[1]:
        _bars(axes, state, whole[rows], columns)
    return figure


def _bars(axes: Axes, state: ViewState, whole: NDArray[np.floating], columns: NDArray[np.intp]) -> None:
    """Draw what special tokens hold of each row as a bar at its end, with a number if rows are no shares."""
    others = np.setdiff1d(np.arange(whole.shape[1]), columns)
    held = np.nan_to_num(whole[:, others]).sum(axis=1)
    is_shares = state.source.stochastic
    width = max(2.0, 0.15 * len(columns))
    longest = 1.0 if is_shares else _peak(held) or 1.0
    start = len(columns) - 0.25
    room = width + (0.0 if is_shares else 1.5)
    axes.add_patch(Rectangle((len(columns) - 0.5, -0.5), room + 0.75, len(whole), color="white", zorder=2))
    for row, value in enumerate(held):
        length = width * abs(float(value)) / longest
        axes.add_patch(Rectangle((start, row - 0.2), length, 0.4, color="#98a2ae", zorder=3))
        if not is_shares:
            axes.text(start + room, row, f"{value:.2g}", fontsize=6, ha="right", va="center", zorder=3)
    axes.set_xlim(-0.5, start + room + 0.5)
    names = list(dict.fromkeys(state.labels[1][i] for i in others))
    words = " ".join(names) if len(names) <= _NAMED else "special tokens"
    label = f"{'share to' if is_shares else 'in'} {words}"
    put(axes.text, start, -0.75, label, fontsize=6, rotation=90, ha="left", va="bottom")


def overview_png(view: View) -> bytes:
    """Return a small picture of the selected matrix, which may be too large to draw cell by cell."""
    state = ViewState.of(view)
    matrix, _ = state.source.overview(state.layer, state.head)
    sides = [min(_OVERVIEW_SIDE, size) for size in matrix.shape]
    labels = [
        [names[at] for at in even(len(names), side)] for names, side in zip(state.labels, sides, strict=True)
    ]
    pooled = pool(matrix, *sides)
    if state.source.causal and sides[0] == sides[1]:
        pooled = np.where(np.tri(sides[0], dtype=bool), pooled, np.nan)
    figure = heatmap(
        pooled,
        *labels,
        title=state.title(state.head),
        signed=state.source.signed,
        value_name=_value_name(state),
    )
    return small_png(figure)


def _value_name(state: ViewState) -> str:
    return "share of the row" if state.source.stochastic else state.source.title


def _palette(state: ViewState) -> Colormap:
    return heat_map(state.filters.get("palette", ""), signed=state.source.signed)


def _top(state: ViewState, matrix: NDArray[np.floating]) -> float:
    """Return the end of a heatmap's range as the browser chooses it: round, or the same for all maps."""
    source = state.source
    if state.filters.get("extent") == "all" and not source.on_demand:
        if source.stochastic:
            return 1.0
        rows, columns = (~side for side in state.apart())
        peaks = (_peak(source.layer(layer)[:, rows][:, :, columns]) for layer in source.layers)
        return round_up(max(peaks)) or 1.0
    return min(round_up(_peak(matrix)), 1.0 if source.stochastic else np.inf) or 1.0


def _peak(values: NDArray[np.floating]) -> float:
    return float(np.max(np.abs(values), initial=0.0, where=np.isfinite(values)))


def grid_figure(view: View) -> Figure:
    """Return the thumbnails that a HeadGrid shows, of the layers computed so far."""
    state = ViewState.of(view)
    source = state.source
    explanation = in_unit(source.explanation, source.unit) or source.explanation
    if source.on_demand:
        explanation = explanation.select(layer=list(source.ready))
    return head_grid(
        explanation,
        title=view.options["title"] or source.title,
        cmap=_palette(state),
        scale=state.filters.get("scale") or SCALE,
        common=state.filters.get("extent") == "all",
    )


def strip_figure(view: View) -> Figure:
    """Return the text that a TokenStrip shows: targets, the pinned row, or what each element receives."""
    state = ViewState.of(view)
    source, filters = state.source, state.filters
    queries, keys = state.labels
    row = state.pinned[0] if state.pinned else -1
    row = row if row < len(queries) else -1
    names, about, top = [""], "", 0.0
    if source.of_targets:
        rows = list(range(len(queries)) if len(queries) <= _STACKED else [max(row, 0)])
        values = state.filtered(source.matrix(state.layer, state.head))[rows]
        names = [queries[i] for i in rows]
    elif row < 0:
        values = state.received()[None]
        about = f": what each {source.unit} receives, mean over queries"
    else:
        values = state.filtered(source.row(state.layer, state.head, row)[None], masked=False)
        names = [queries[row]]
        # A value has one colour in the text and in the map.
        matrix, _ = source.overview(state.layer, state.head)
        top = _top(state, matrix if source.coarse else state.filtered(matrix))
    all_alike = filters.get("extent") == "all" and source.stochastic
    top = 1.0 if all_alike else top or _peak(values) or 1.0
    ranks = view.options.get("ranks") or {}
    hatched = []
    if ranks and ranks["unit"] == source.unit:
        hatched = [i for i, unsettled in enumerate(ranks["unsettled"]) if unsettled]
        about += f", hatched where the ranking does not survive {ranks['versions']} defensible choices"
    return strip(
        values,
        keys,
        names=names,
        title=state.title(state.head, about),
        hatched=hatched,
        signed=source.signed,
        cmap=_palette(state),
        scale=filters.get("scale") or SCALE,
        vmin=-top if source.signed else 0.0,
        vmax=top,
    )


def lines_figure(view: View) -> Figure:
    """Return the lines that a HeadView shows between queries and keys."""
    state = ViewState.of(view)
    source = state.source
    values = source.layer(state.layer)
    chosen = view.options.get("heads")
    heads: list[tuple[int, str]] = []
    if source.heads is not None:
        numbers = source.heads[: len(values)]
        places = [i for i, number in enumerate(numbers) if chosen is None or number in chosen]
        values = values[places]
        heads = [(place, str(numbers[place] + view.options["indexBase"])) for place in places]
    lines = np.stack([state.filtered(matrix) for matrix in values]) if len(values) else values.astype(float)
    between = view.options.get("between") or "all"
    if between != "all":
        for side, (axis, text) in enumerate(zip(source.axes(), between.split("-"), strict=True)):
            others = (np.asarray(axis["segment"]) > 0) != (text == "B")
            lines[(slice(None), others) if side == 0 else (slice(None), slice(None), others)] = np.nan
    look, about = None, ""
    if state.pinned:
        look = ("query", state.pinned[0]) if state.pinned[0] >= 0 else ("key", state.pinned[1])
        label = state.labels[look[0] == "key"][look[1]]
        about = f": what {label!r} reads" if look[0] == "query" else f": who reads {label!r}"
    return head_figure(
        lines,
        *state.labels,
        heads=heads,
        look=look,
        title=state.title(about=about),
        signs=sign_colours(state.filters.get("palette", "")) if source.signed else None,
        scale=state.filters.get("scale") or "sqrt",
        # As strong as they would be with nothing left out.
        top=1.0 if source.stochastic else _peak(values) or 1.0,
    )
