"""Answers about SAE features: a feature, a table as columns, or the activations on a text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.sae.feature_activations import Fired

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.sae.corpus_statistics.summary import Example, FeatureSummary
    from attnwidgets.sae.feature_activations import FeatureActivations
    from attnwidgets.views.wire.handlers import Answer

PAGE = 10_000
"""Bytes of the message about a feature; examples beyond that are left out, and counted."""
MOST = 256
"""Features of a token that are sent: the strongest."""
_CODES = 255


def page_of(stats: FeatureStats, feature: int) -> Answer:
    """Return the statistics and examples of a feature, in at most `PAGE` bytes.

    Returns:
        meta: feature, count, density, maximum, mean, top (end of the histogram), histogram, pieces (spellings
            of tokens), examples ([group, at, length, activation, text, place]; group -1: the strongest, else
            the number of an interval), intervals ([low, high, tokens, share]), promoted and suppressed
            ([token, effect]), near ([feature, cosine]), along ([feature, share, jaccard]), left (number of
            examples left out).
        buffers: For every token of every example, the number of its piece (uint16) and its activation as a
            share of the feature's maximum in steps of 1/255 (uint8).

    Raises:
        IndexError: The statistics do not cover the feature.
    """
    summary = stats.feature(feature)
    examples = _in_order(summary)
    meta: dict[str, Any] = {
        "feature": summary.feature,
        "count": summary.count,
        "density": summary.density,
        "maximum": summary.maximum,
        "mean": summary.mean,
        "top": summary.edges[-1],
        "histogram": list(summary.histogram),
        "intervals": [_rounded(interval[:4]) for interval in summary.intervals],
        "promoted": [[logit.token, _short(logit.effect)] for logit in summary.promoted],
        "suppressed": [[logit.token, _short(logit.effect)] for logit in summary.suppressed],
        "near": list(map(_rounded, summary.neighbours)),
        "along": list(map(_rounded, summary.companions)),
    }
    n_examples = len(examples)
    while True:
        answer = _with_examples(meta, examples[:n_examples], len(examples) - n_examples, summary.maximum)
        size = size_of(answer)
        if size <= PAGE or not n_examples:
            return answer
        n_examples = max(0, min(n_examples - 1, int(n_examples * PAGE / size)))


def size_of(answer: Answer) -> int:
    """Return how many bytes an answer takes in a message."""
    meta, buffers = answer
    return len(json.dumps(meta, ensure_ascii=False).encode()) + sum(map(len, buffers))


def _in_order(summary: FeatureSummary) -> list[tuple[int, Example]]:
    """Return examples with their group, in rounds: the next three strongest, then one from each interval."""
    drawn = [
        (index, group, example)
        for group, interval in enumerate(summary.intervals)
        for index, example in enumerate(interval.examples)
    ]
    top = [(index // 3, -1, example) for index, example in enumerate(summary.top)]
    return [(group, example) for _, group, example in sorted([*top, *drawn], key=lambda entry: entry[:2])]


def _with_examples(
    meta: dict[str, Any], examples: Sequence[tuple[int, Example]], left: int, maximum: float
) -> Answer:
    pieces: dict[str, int] = {}
    shown = sorted(examples, key=lambda entry: (entry[0], -entry[1].activation))
    numbers = [pieces.setdefault(token, len(pieces)) for _, example in shown for token in example.tokens]
    shares = np.array([value for _, example in shown for value in example.activations], dtype=np.float64)
    codes = np.ceil(np.clip(shares / (maximum or 1), 0, 1) * _CODES)  # rounded up: all that fires is visible
    described = [
        [group, example.at, len(example.tokens), _short(example.activation), example.text, example.place]
        for group, example in shown
    ]
    answer = meta | {"pieces": list(pieces), "examples": described, "left": left}
    return answer, [np.array(numbers, dtype="<u2").tobytes(), codes.astype(np.uint8).tobytes()]


def columns_of(stats: FeatureStats) -> Answer:
    """Return a table with a row for each feature, as columns.

    Returns:
        meta: pieces (spellings of tokens), and tokens (how many were counted).
        buffers: features (int32), densities and maxima (float32), and the number of the piece on which each
            fires most (int32; -1 for dead features).
    """
    tokens = stats.strongest_tokens()
    pieces: dict[str, int] = {}
    indices = [pieces.setdefault(token, len(pieces)) if token is not None else -1 for token in tokens]
    features = np.asarray(stats.features)
    buffers = [
        features.astype("<i4").tobytes(),
        np.asarray(stats.density).astype("<f4").tobytes(),
        np.asarray(stats.maxima)[features].astype("<f4").tobytes(),
        np.array(indices, dtype="<i4").tobytes(),
    ]
    return {"pieces": list(pieces), "tokens": stats.tokens}, buffers


def activations_of(activations: FeatureActivations, unit: str, always: Sequence[int] = ()) -> Answer:
    """Return which features fire on which elements: the `MOST` strongest of each, and those in `always`.

    Returns:
        meta: unit, and most (the largest number of features on an element; features weaker than the first
            `MOST` are left out, except those in `always`).
        buffers: where the features of each element end (uint32), the features (uint32), and their activations
            (float32).
    """
    in_unit = activations if unit == activations.unit else activations.to(unit)
    rows = [list(row) for row in in_unit.rows(MOST)]
    for number in always:
        values = in_unit.feature(number).values if number < in_unit.d_sae else ()
        for row, value in zip(rows, values, strict=False):
            if value and all(fired.feature != number for fired in row):
                row.append(Fired(number, float(value)))
    fired = [fired for row in rows for fired in row]
    buffers = [
        np.cumsum([len(row) for row in rows]).astype("<u4").tobytes(),
        np.array([item.feature for item in fired], dtype="<u4").tobytes(),
        np.array([item.activation for item in fired], dtype="<f4").tobytes(),
    ]
    return {"unit": in_unit.unit, "most": int(in_unit.l0.max(initial=0))}, buffers


def _short(value: float) -> float:
    """Return a number to four digits, as it is printed."""
    return float(f"{value:.4g}")


def _rounded(values: Sequence[float]) -> list[float]:
    return [value if isinstance(value, int) else _short(value) for value in values]
