"""Matplotlib figures of circuits: layers x tokens, layers x heads, and claims with their intervals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.ticker import MaxNLocator

from attnwidgets.figures.drawing import (
    FONTS,
    colour_scale,
    families,
    figure_of,
    font_size,
    heading,
    label_axis,
    put,
)
from attnwidgets.figures.palettes import SCALE, ink_on
from attnwidgets.figures.theme import LIGHT, printable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from attnwidgets.circuits.claims.report import ClaimReport
    from attnwidgets.circuits.lens_result import Lens, Measure
    from attnwidgets.circuits.patching import Patching

_NAMES = {"state": "input of the block", "attention": "attention", "mlp": "MLP", "head": "heads"}
_MEASURES = {
    "probability": "probability of the answer",
    "rank": "rank of the answer",
    "entropy": "entropy (nats)",
    "kl": "KL(model || lens) (nats)",
}
_LAYER, _CELL = 0.14, 0.24  # inches
_WRITTEN_TOKENS, _WRITTEN_LAYERS = 20, 50  # of a lens whose cells have room for a token

_LONGEST = 60  # characters of a claim


def patching_figure(shown: Patching, sites: Sequence[str], *, title: str | None) -> Figure:
    """Return a panel for every site, all on a common scale centred on zero; layers from below."""
    shares = {site: np.asarray(shown.heads if site == "head" else shown.values[site]) for site in sites}
    layers = shown.shape[1]
    widths = [max(1.1, min(7.0, _CELL * values.shape[1])) for values in shares.values()]
    figure = figure_of(None, sum(widths) + 0.7 * len(widths) + 1.0, max(1.6, min(7.0, _LAYER * layers)) + 1.5)
    every = np.concatenate([values.reshape(-1) for values in shares.values()])
    colours, norm = colour_scale(every, signed=True, cmap=None, vmin=None, vmax=None, scale=SCALE)
    panels = figure.subplots(1, len(sites), squeeze=False, width_ratios=widths)[0]
    image: Any = None
    for axes, (site, values) in zip(panels, shares.items(), strict=True):
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
    bar = figure.colorbar(image, ax=panels, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=7, length=2)
    put(bar.ax.set_ylabel, "share of the difference", fontsize=8)
    heading(panels[0], title or shown.title)
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


def lens_figure(shown: Lens, colour: Measure, *, title: str | None) -> Figure:
    """Return layers x tokens, layers from below, with the most probable token in cells that have room."""
    values = getattr(shown, colour).astype(float)
    n_layers, n_tokens = values.shape
    width, height = max(2.4, min(12.0, 0.62 * n_tokens)), max(1.6, min(8.0, 0.17 * n_layers))
    figure = figure_of(None, width + 1.6, height + 1.3)
    axes = figure.subplots()
    colours, norm = colour_scale(values, signed=False, cmap=None, vmin=None, vmax=None, scale=SCALE)
    image = axes.imshow(
        values, cmap=colours, norm=norm, aspect="auto", interpolation="nearest", origin="lower"
    )
    layer_axis(axes)
    label_axis(axes.set_xticks, shown.tokens, rotation=90, fontsize=font_size(n_tokens))
    if n_tokens <= _WRITTEN_TOKENS and n_layers <= _WRITTEN_LAYERS:
        fonts = families(FONTS)
        for layer, row in enumerate(shown.top_tokens(1)):
            for token, (best,) in enumerate(row):
                ink = ink_on(colours(norm(values[layer, token])))
                options: dict[str, Any] = {"color": ink, "fontsize": 6, "family": fonts}
                put(axes.text, token, layer, printable(best.label, 8), ha="center", va="center", **options)
    bar = figure.colorbar(image, ax=axes, shrink=0.8, pad=0.02)
    bar.ax.tick_params(labelsize=7, length=2)
    put(bar.ax.set_ylabel, _MEASURES[colour], fontsize=8)
    heading(axes, title or shown.title)
    return figure


def claims_figure(report: ClaimReport, *, title: str | None) -> Figure:
    """Return a row for every claim and for each group of its controls, claims from above."""
    rows = [(result, group) for result in report for group in ("", *result.heads)]
    figure = figure_of(None, 5.2, 0.26 * len(rows) + 1.1)
    axes = figure.subplots()
    accent, quiet = LIGHT.accent, LIGHT.apart
    labels = []
    for index, (result, group) in enumerate(rows):
        if group:
            means = [mean for _, _, mean in result.heads[group]]
            # Dots of equal height side by side, so that all of them are seen.
            offsets = np.linspace(-0.2, 0.2, len(means)) if len(means) > 1 else np.zeros(len(means))
            axes.plot(means, index + offsets, ".", color=quiet, markersize=4)
            labels.append(f"{len(means)} {group}")
            continue
        if np.isfinite(result.interval).all():
            axes.plot(result.interval, [index, index], color=accent, linewidth=2.5, solid_capstyle="round")
        axes.plot(result.mean, index, "o", color=accent, markersize=6)
        labels.append(f"{result.claim}: {result.verdict}" if len(report) > 1 else result.claim)
    axes.axvline(0, color=quiet, linewidth=0.6)
    axes.axvline(report.margin, color=quiet, linewidth=0.8, linestyle=":")
    axes.set_ylim(len(rows) - 0.5, -0.5)
    shown = [printable(label, _LONGEST) for label in labels]
    axes.set_yticks(range(len(rows)), shown, parse_math=False, family=families(FONTS), fontsize=7)
    axes.tick_params(labelsize=7, length=2)
    units = list(dict.fromkeys(result.unit for result in report))
    put(axes.set_xlabel, f"{', '.join(units)} (margin {report.margin:g})", fontsize=8)
    heading(axes, title or report.title)
    return figure
