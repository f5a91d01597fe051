"""Matplotlib figures of concepts, influence and distilled models."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.figures.parts.lines import Line, Lines
from attnwidgets.figures.parts.numbers import Bar, Bars
from attnwidgets.figures.sheet import Part, Sheet
from attnwidgets.figures.theme import printable

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.concepts.additive import Additive
    from attnwidgets.concepts.concept_scores import ConceptScores
    from attnwidgets.concepts.influence_result import Influence

_TITLE = 140  # letters of a text that heads a figure


def concept_sheet(shown: ConceptScores) -> Sheet:
    """Return scores over layers, with the spread over runs and the band of random texts, and accuracies."""
    low, high = shown.band
    lines = [_spread(name, shown.scores[row], shown.by_run[row]) for row, name in enumerate(shown.concepts)]
    lines.append(Line("random texts", shown.random.mean(1), dashed=True, low=low, high=high))
    parts = [Lines(lines, shown.layers, "layer", "share of examples raised")]
    accurate = [row for row in range(len(shown.concepts)) if not np.isnan(shown.accuracy[row]).all()]
    if accurate:
        fits = [Line(shown.concepts[row], shown.accuracy[row]) for row in accurate]
        parts.append(Lines(fits, shown.layers, "layer", "accuracy, held out", tall=1.2))
    strong = [
        f"{name} at {', '.join(str(layer) for layer, on in zip(shown.layers, marks, strict=True) if on)}"
        for name, marks in zip(shown.concepts, shown.significant, strict=True)
        if marks.any()
    ]
    significant = f"Significant (Holm, {shown.level:g}): {'; '.join(strong) or 'none'}."
    return Sheet(
        f"Concepts for {shown.target}", parts, "; ".join([significant.removesuffix("."), *shown.notes])
    )


def _spread(name: str, values: NDArray[np.floating], runs: NDArray[np.floating]) -> Line:
    """Return a line with the band of nine of ten runs [layer, run]."""
    low, high = np.quantile(runs, [0.05, 0.95], axis=1)
    return Line(name, values, low=low, high=high)


def influence_sheet(shown: Influence, test: int, *, k: int) -> Sheet:
    """Return bars of the most helpful and the most harmful training texts of a test."""
    sides = {"helped": shown.helpful(test, k), "harmed": shown.harmful(test, k)}
    top = max((abs(text.influence) for side in sides.values() for text in side), default=1.0)
    parts = [
        Bars(
            [Bar(f"{text.label}: {text.text}".removeprefix(": "), abs(text.influence)) for text in side],
            top=top,
            form="{:.3g}",
            title=word,
            letters=60,
        )
        for word, side in sides.items()
        if side
    ]
    label = shown.test_labels[test]
    notes = [*([f"label {label}"] if label else []), f"influence on the {shown.measure}, by {shown.of}"]
    return Sheet(printable(shown.tests[test], _TITLE), parts, "; ".join([*notes, *shown.notes]))


def additive_sheet(shown: Additive) -> Sheet:
    """Return shares of the variance, and the effects of the levels: bars, or a line for numbers."""
    ranked = sorted(shown.shares.items(), key=lambda item: -item[1])[:10]
    parts: list[Part] = [
        Bars(
            [Bar(name.replace(" x ", " × "), share) for name, share in ranked],
            1.0,
            "{:.3f}",
            "share of the variance",
        )
    ]
    top = max((float(np.abs(shape).max()) for shape in shown.shapes.values()), default=1.0)
    for name, shape in shown.shapes.items():
        levels = shown.slots[name]
        if name in shown.numeric:
            order = np.argsort(np.asarray(levels, dtype=float))
            line = Line("adds", shape[order])
            parts.append(Lines([line], [levels[at] for at in order], name, shown.target, tall=1.2))
        else:
            bars = [
                Bar(str(level) or "(nothing)", float(value))
                for level, value in zip(levels, shape, strict=True)
            ]
            parts.append(Bars(bars, top, "{:+.2f}", name))
    return Sheet(shown.summary, parts, "; ".join([f"{shown.target}, mean {shown.mean:+.2f}", *shown.notes]))
