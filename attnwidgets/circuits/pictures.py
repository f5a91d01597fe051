"""Matplotlib figures of circuits: layers x tokens, and layers x heads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from attnwidgets.figures.drawing import colour_scale, figure_of, font_size, heading, label_axis, put
from attnwidgets.figures.palettes import SCALE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnwidgets.circuits.patching import Patching

_NAMES = {"state": "input of the block", "attention": "attention", "mlp": "MLP", "head": "heads"}
_LAYER, _CELL = 0.14, 0.24  # inches


def patching_figure(shown: Patching, sites: Sequence[str], *, title: str | None) -> Figure:
    """Return a panel for every site, all on one scale centred on zero; layers from below."""
    shares = {site: np.asarray(shown.heads if site == "head" else shown.values[site]) for site in sites}
    layers = shown.shape[1]
    widths = [max(1.1, min(7.0, _CELL * values.shape[1])) for values in shares.values()]
    figure = figure_of(None, sum(widths) + 0.7 * len(widths) + 1.0, max(1.6, min(7.0, _LAYER * layers)) + 1.5)
    every = np.concatenate([values.reshape(-1) for values in shares.values()])
    colours, norm = colour_scale(every, signed=True, cmap=None, vmin=None, vmax=None, scale=SCALE)
    places = figure.subplots(1, len(sites), squeeze=False, width_ratios=widths)[0]
    image: Any = None
    for axes, (site, values) in zip(places, shares.items(), strict=True):
        image = axes.imshow(
            values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest", origin="lower"
        )
        put(axes.set_title, _NAMES[site], fontsize=8)
        layer_axis(axes)
        if site == "head":
            axes.xaxis.set_major_locator(MaxNLocator(nbins=9, integer=True))
            axes.set_xlabel("head", fontsize=8)
        else:
            label_axis(axes.set_xticks, token_labels(shown), rotation=90, fontsize=font_size(values.shape[1]))
    bar = figure.colorbar(image, ax=places, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=7, length=2)
    put(bar.ax.set_ylabel, "share of the difference", fontsize=8)
    heading(places[0], title or shown.title)
    return figure


def layer_axis(axes: Axes) -> None:
    """Number the layers on the left of a panel."""
    axes.yaxis.set_major_locator(MaxNLocator(nbins=8, integer=True, min_n_ticks=1))
    axes.tick_params(labelsize=7, length=2)
    axes.set_ylabel("layer", fontsize=8)


def token_labels(shown: Patching) -> list[str]:
    """Return the tokens; where the texts differ, both."""
    pairs = zip(shown.clean_tokens, shown.corrupt_tokens, strict=True)
    return [clean if clean == corrupt else f"{clean} / {corrupt}" for clean, corrupt in pairs]
