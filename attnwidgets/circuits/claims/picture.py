"""Matplotlib figure of claims: the mean of a head with its interval, above those of its controls."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.drawing import FONTS, families, figure_of, heading, put
from attnwidgets.figures.labels import printable
from attnwidgets.figures.theme import LIGHT

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnwidgets.circuits.claims.report import ClaimReport

_LONGEST = 60  # characters of a claim


def claims_figure(report: ClaimReport, *, title: str | None) -> Figure:
    """Return a row for every claim and one for each group of its controls, claims from above."""
    rows = [(result, group) for result in report for group in ("", *result.heads)]
    figure = figure_of(None, 5.2, 0.26 * len(rows) + 1.1)
    axes = figure.subplots()
    accent, quiet = LIGHT.accent, LIGHT.apart
    labels = []
    for place, (result, group) in enumerate(rows):
        if group:
            means = [mean for _, _, mean in result.heads[group]]
            # Dots of equal height side by side, so that all of them are seen.
            offsets = np.linspace(-0.2, 0.2, len(means)) if len(means) > 1 else np.zeros(len(means))
            axes.plot(means, place + offsets, ".", color=quiet, markersize=4)
            labels.append(f"{len(means)} {group}")
            continue
        if np.isfinite(result.interval).all():
            axes.plot(result.interval, [place, place], color=accent, linewidth=2.5, solid_capstyle="round")
        axes.plot(result.mean, place, "o", color=accent, markersize=6)
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
