"""Matplotlib figures of concepts, influence and distilled models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.sheet import Sheet

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from attnwidgets.concepts.concept_scores import ConceptScores


def concept_figure(shown: ConceptScores, *, columns: int) -> Figure:
    """Return scores over layers, with the spread over runs and the band of random texts, and accuracies."""
    low, high = shown.band
    lines = [
        Line(name, shown.scores[row], False, *np.quantile(shown.by_run[row], [0.05, 0.95], axis=1))
        for row, name in enumerate(shown.concepts)
    ]
    lines.append(Line("random texts", shown.random.mean(1), True, low, high))
    parts = [Lines(lines, shown.layers, "layer", "share of examples raised")]
    known = [row for row in range(len(shown.concepts)) if not np.isnan(shown.accuracy[row]).all()]
    if known:
        fits = [Line(shown.concepts[row], shown.accuracy[row]) for row in known]
        parts.append(Lines(fits, shown.layers, "layer", "accuracy on held-out texts", tall=1.2))
    strong = [
        f"{name} at {', '.join(str(layer) for layer, on in zip(shown.layers, marks, strict=True) if on)}"
        for name, marks in zip(shown.concepts, shown.significant, strict=True)
        if marks.any()
    ]
    said = f"Significant (Holm, {shown.level:g}): {'; '.join(strong) or 'none'}."
    return Sheet(f"Concepts for {shown.target}", parts, "; ".join([said.removesuffix("."), *shown.notes])).figure(columns)
