"""Figures of head statistics: a panel of layers x heads per statistic."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from matplotlib.ticker import MaxNLocator

from attnwidgets.figures.drawing import colours_and_norm, figure_of, heading
from attnwidgets.figures.palettes import heat_map

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnwidgets.statistics.table import HeadStatistics

_COLUMNS = 3


def panels(stats: HeadStatistics, *, title: str | None = None) -> Figure:
    """Return a figure with a panel for every statistic; rows are layers, columns heads, scales differ.

    Args:
        stats: The statistics.
        title: Heading; by default that of the statistics.
    """
    columns = min(_COLUMNS, len(stats.names))
    rows = math.ceil(len(stats.names) / columns)
    figure = figure_of(None, 3.2 * columns + 0.4, 2.5 * rows + 0.6)
    grid = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in grid[len(stats.names) :]:
        axes.set_axis_off()
    colours, _ = colours_and_norm(heat_map("", signed=False), None)
    for axes, about in zip(grid, stats.statistics, strict=False):
        values = stats[about.name].reshape(len(stats.layers), -1)
        image = axes.imshow(values, aspect="auto", cmap=colours, interpolation="nearest")
        figure.colorbar(image, ax=axes, fraction=0.06, pad=0.02)
        axes.set_title(about.title, fontsize=9)
        heads = stats.heads or ("",)
        for axis, labels, name in ((axes.xaxis, heads, "head"), (axes.yaxis, stats.layers, "layer")):
            axis.set_label_text(name, fontsize=8)
            axis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
            axis.set_major_formatter(
                lambda tick, _, labels=labels: (
                    str(labels[int(tick)]) if tick == int(tick) and 0 <= tick < len(labels) else ""
                )
            )
            axis.set_tick_params(labelsize=7)
    heading(grid[0], title or stats.title)
    return figure
