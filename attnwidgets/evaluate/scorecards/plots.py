"""Figures of scorecards: curves with their intervals, and the table of layers and methods."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from matplotlib import colormaps
from matplotlib.lines import Line2D
from matplotlib.ticker import MaxNLocator, PercentFormatter

from attnwidgets.evaluate.scorecards.table import order_of, row_is_baseline, scale_of
from attnwidgets.figures.drawing import (
    FONTS,
    colour_scale,
    families,
    figure_of,
    heading,
    label_axis,
    length_of,
    put,
)
from attnwidgets.figures.palettes import ink_on
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

    LineStyle = Literal["-", "--", ":", "-."]

# Okabe and Ito's colours, which most colour-blind readers can tell apart.
_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D31")
_STYLES: tuple[LineStyle, ...] = ("-", "--", ":", "-.")
_BASELINE = "0.45"
_NUMBERED = 16  # more columns than this have no room for numbers
_FAR = 1.5  # a baseline so many times as high as everything else would only flatten the curves
_SIZE = 7.0
_WRAPPED = 4  # panels that are too wide for a page in a single row


def lines(card: Scorecard, *, title: str | None = None) -> Figure:
    """Return a panel per metric: a line for every method with its interval, dashed for other groups.

    More than three panels go two in a row, so that a page shows them large enough to read. Other groups have
    no interval drawn. A baseline far above everything else is named at the top.

    Args:
        card: The scores.
        title: Heading; by default the title of the scores and the number of examples.
    """
    n = len(card.metrics)
    columns = n if n < _WRAPPED else 2
    rows = math.ceil(n / columns)
    figure = figure_of(None, 3.6 * columns + 1.9, 3.2 * rows)
    panels = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    for axes in panels[n:]:
        axes.remove()
    names = [name for name in dict.fromkeys(card.methods) if name not in card.baselines]
    groups = [group for group in dict.fromkeys(card.groups) if group] or [""]
    for metric, axes in enumerate(panels[:n]):
        _curves(card, metric, axes, names, groups)
    entries = [Line2D([], [], color=_colour(names, name)) for name in names]
    labels = [name.replace("_", " ") for name in names]
    if len(groups) > 1:
        entries += [Line2D([], [], color="0.2", linestyle=_style(groups, group)) for group in groups]
        labels += groups
    for index, name in enumerate(card.baselines):
        entries.append(Line2D([], [], color=_BASELINE, linestyle=_STYLES[1 + index % 3], linewidth=1))
        labels.append(name)
    legend = figure.legend(entries, [printable(label, 60) for label in labels], loc="outside right center")
    legend.set_frame_on(False)
    for text in legend.get_texts():
        text.set(fontsize=_SIZE, family=families(FONTS), parse_math=False)
    heading(panels[0], _title(card) if title is None else title)
    return figure


def _curves(card: Scorecard, metric: int, axes: Axes, names: list[str], groups: list[str]) -> None:
    low, high = card.interval
    numeric = all(isinstance(label, (int, float)) for label in card.x)
    positions = np.asarray(card.x, dtype=float) if numeric else np.arange(len(card.x))
    top = 0.0
    above = []
    for row in order_of(card):
        name = card.methods[row]
        mean = card.mean[metric, row]
        if row_is_baseline(card, row):
            if top and np.nanmin(mean) > _FAR * top:
                above.append(f"{name} {np.nanmean(mean):.2f}")
                continue
            style = _STYLES[1 + card.baselines.index(name) % 3]
            axes.plot(positions, mean, color=_BASELINE, linestyle=style, linewidth=1, zorder=1)
            continue
        colour, group = _colour(names, name), card.groups[row]
        first = group in ("", groups[0])
        marker = "o" if first and len(positions) <= _NUMBERED else ""
        style, width = _style(groups, group), 1.5 if first else 0.9
        (line,) = axes.plot(positions, mean, color=colour, linestyle=style, linewidth=width)
        line.set(marker=marker, markersize=3)
        if first:
            ends = (low[metric, row], high[metric, row])
            axes.fill_between(positions, *ends, color=colour, alpha=0.1, linewidth=0)
            top = max(top, float(np.nanmax(ends[1], initial=0.0)))
        top = max(top, float(np.nanmax(mean, initial=0.0)))
    put(axes.set_xlabel, printable(card.x_name), fontsize=8)
    put(axes.set_ylabel, printable(card.metrics[metric].replace("_", " ")), fontsize=8)
    if above:
        corner = {"transform": axes.transAxes, "ha": "right", "va": "top"}
        put(axes.text, 1, 1, f"{', '.join(above)} ↑", fontsize=_SIZE, color=_BASELINE, **corner)
    axes.set_ylim(bottom=min(0.0, float(np.nanmin(card.mean[metric], initial=0.0))))
    axes.tick_params(labelsize=_SIZE, length=2)
    if numeric:
        whole = all(isinstance(x, int) for x in card.x)
        axes.xaxis.set_major_locator(MaxNLocator(nbins=8, steps=[1, 2, 5, 10], integer=whole))
        if card.x_name == "share":
            axes.xaxis.set_major_formatter(PercentFormatter(1, decimals=0))
    else:
        label_axis(axes.set_xticks, [str(label) for label in card.x], rotation=90)
    axes.spines[["top", "right"]].set_visible(False)


def table(
    card: Scorecard,
    *,
    title: str | None = None,
    cmap: str | Colormap | None = None,
    vmax: float | None = None,
    numbers: bool | None = None,
) -> Figure:
    """Return a panel per metric: a row per method, a column per layer, as in Mohebbi et al. 2023.

    Args:
        card: The scores.
        title: Heading; by default the title of the scores and the number of examples.
        cmap: Colour map; by default paper to ink.
        vmax: Value of the last colour; by default the largest that a method reaches.
        numbers: Whether cells show their value; by default if there is room.
    """
    rows = order_of(card)
    labels = [card.row_name(row) for row in rows]
    numbers = len(card.x) <= _NUMBERED if numbers is None else numbers
    columns = [str(label) for label in card.x]
    words = not all(isinstance(label, (int, float)) for label in card.x)
    wide = len(columns) * (0.36 if numbers else 0.17) + 0.7
    left = length_of(labels, _SIZE) + 0.4
    above = length_of(columns, _SIZE) if words else 0.0
    n = len(card.metrics)
    figure = figure_of(None, left + n * (wide + 0.6), 0.24 * len(rows) + above + 1.2)
    panels = figure.subplots(1, n, squeeze=False, sharey=True)[0]
    baseline_from = sum(not row_is_baseline(card, row) for row in rows)
    for metric, axes in enumerate(panels):
        values = card.mean[metric][rows]
        top = scale_of(card, metric) if vmax is None else vmax
        colours, norm = colour_scale(values, signed=False, cmap=cmap, vmin=None, vmax=top)
        image = axes.imshow(values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest")
        axes.xaxis.tick_top()
        axes.xaxis.set_label_position("top")
        if words or numbers:
            label_axis(axes.set_xticks, columns, rotation=90 if words else 0)
        else:
            axes.xaxis.set_major_locator(MaxNLocator(nbins=8, integer=True))
        _mark(card, axes)
        if metric == 0:
            texts = [printable(label, 60) for label in labels]
            axes.set_yticks(range(len(rows)), texts, parse_math=False, family=families(FONTS))
        axes.tick_params(length=0, labelsize=_SIZE)
        put(axes.set_xlabel, f"{card.metrics[metric].replace('_', ' ')} by {card.x_name}", fontsize=8)
        axes.spines[:].set_linewidth(0.5)
        if 0 < baseline_from < len(rows):
            axes.axhline(baseline_from - 0.5, color="0.2", linewidth=0.8)
        if numbers:
            for (y, x), value in np.ndenumerate(values):
                text = "–" if np.isnan(value) else f"{value:.2f}"
                ink = "black" if np.isnan(value) else ink_on(colours(norm(value)))
                put(axes.text, x, y, text, ha="center", va="center", fontsize=_SIZE - 1, color=ink)
        else:
            bar = figure.colorbar(image, ax=axes, pad=0.02, fraction=0.04)
            bar.outline.set_linewidth(0.5)
            bar.ax.tick_params(labelsize=6, length=2)
    heading(panels[0], _title(card) if title is None else title)
    return figure


def _mark(card: Scorecard, axes: Axes) -> None:
    """Write every note below its column, and frame the column."""
    low = len(card.methods) - 0.5
    for x, note in enumerate(card.x_notes):
        if note:
            put(axes.text, x, low + 0.1, note, rotation=90, ha="center", va="top", fontsize=_SIZE)
            axes.plot(
                [x - 0.5, x - 0.5, x + 0.5, x + 0.5, x - 0.5], [-0.5, low, low, -0.5, -0.5], "k", lw=0.8
            )


def _title(card: Scorecard) -> str:
    return ", ".join(filter(None, [card.title, str(card.provenance.get("model") or ""), card.examples]))


def _colour(names: list[str], name: str) -> Any:
    position = names.index(name)
    return _COLOURS[position] if len(names) <= len(_COLOURS) else colormaps["turbo"](position / len(names))


def _style(groups: list[str], group: str) -> LineStyle:
    return _STYLES[groups.index(group) % len(_STYLES)]
