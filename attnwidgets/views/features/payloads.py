"""What views of SAE features send: one feature a message, a table as columns, a text's activations."""

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

    Answer = tuple[dict[str, Any], list[bytes]]

PAGE = 10_000
"""Bytes that the message about one feature may have; examples beyond it are left out, and counted."""
MOST = 256
"""Features of a token that are sent, the strongest."""
_CODES = 255


def page_of(stats: FeatureStats, feature: int) -> Answer:
    """Return everything that is known of a feature, in at most `PAGE` bytes.

    Returns:
        meta: feature, count, density, maximum, mean, top (end of the histogram), histogram, pieces (spellings
            of tokens), examples ([group, at, length, activation, text, place]; group -1: the strongest, else
            the number of an interval), intervals ([low, high, tokens, share]), promoted and suppressed
            ([token, effect]), near ([feature, cosine]), along ([feature, share, jaccard]), left (examples
            that are left out).
        buffers: For every token of every example, the number of its piece (uint16) and its activation as a
            share of the feature's maximum (uint8).

    Raises:
        IndexError: If the feature was not looked at.
    """
    found = stats.feature(feature)
    examples = _in_order(found)
    meta: dict[str, Any] = {
        "feature": found.feature,
        "count": found.count,
        "density": found.density,
        "maximum": found.maximum,
        "mean": found.mean,
        "top": found.edges[-1],
        "histogram": list(found.histogram),
        "intervals": [_rounded(part[:4]) for part in found.intervals],
        "promoted": [[one.token, _short(one.effect)] for one in found.promoted],
        "suppressed": [[one.token, _short(one.effect)] for one in found.suppressed],
        "near": [_rounded(one) for one in found.neighbours],
        "along": [_rounded(one) for one in found.companions],
    }
    kept = len(examples)
    while True:
        answer = _with_examples(meta, examples[:kept], len(examples) - kept, found.maximum)
        size = size_of(answer)
        if size <= PAGE or not kept:
            return answer
        kept = max(0, min(kept - 1, int(kept * PAGE / size)))


def size_of(answer: Answer) -> int:
    """Return the bytes of an answer as a message carries it."""
    meta, buffers = answer
    return len(json.dumps(meta, ensure_ascii=False).encode()) + sum(map(len, buffers))


def _in_order(found: FeatureSummary) -> list[tuple[int, Example]]:
    """Return examples with their group, first what says most: the strongest, and one of each interval."""
    drawn = [
        (place, group, example)
        for group, part in enumerate(found.intervals)
        for place, example in enumerate(part.examples)
    ]
    top = [(place // 3, -1, example) for place, example in enumerate(found.top)]
    return [(group, example) for _, group, example in sorted([*top, *drawn], key=lambda one: one[:2])]


def _with_examples(
    meta: dict[str, Any], examples: Sequence[tuple[int, Example]], left: int, maximum: float
) -> Answer:
    pieces: dict[str, int] = {}
    shown = sorted(examples, key=lambda one: (one[0], -one[1].activation))
    numbers = [pieces.setdefault(token, len(pieces)) for _, one in shown for token in one.tokens]
    shares = np.array([value for _, one in shown for value in one.activations], dtype=np.float64)
    codes = np.ceil(np.clip(shares / (maximum or 1), 0, 1) * _CODES)  # what fires at all is seen
    described = [
        [group, one.at, len(one.tokens), _short(one.activation), one.text, one.place] for group, one in shown
    ]
    told = meta | {"pieces": list(pieces), "examples": described, "left": left}
    return told, [np.array(numbers, dtype="<u2").tobytes(), codes.astype(np.uint8).tobytes()]


def columns_of(stats: FeatureStats) -> Answer:
    """Return one row a feature, as columns.

    Returns:
        meta: pieces, and tokens (how many were counted).
        buffers: features (int32), densities and maxima (float32), and the piece on which each fires most
            (int32; -1 for dead features).
    """
    tokens = stats.strongest_tokens()
    pieces: dict[str, int] = {}
    places = [pieces.setdefault(token, len(pieces)) if token is not None else -1 for token in tokens]
    features = np.asarray(stats.features)
    buffers = [
        features.astype("<i4").tobytes(),
        np.asarray(stats.density).astype("<f4").tobytes(),
        np.asarray(stats.maxima)[features].astype("<f4").tobytes(),
        np.array(places, dtype="<i4").tobytes(),
    ]
    return {"pieces": list(pieces), "tokens": stats.tokens}, buffers


def activations_of(activations: FeatureActivations, unit: str, always: Sequence[int] = ()) -> Answer:
    """Return which features fire on which elements: the strongest `MOST` of each, and those in `always`.

    Returns:
        meta: unit, and most (the largest number of features on one element; where that is above `MOST`, the
            others are left out, but for those in `always`).
        buffers: where the features of each element end (uint32), they (uint32), their activations (float32).
    """
    found = activations if unit == activations.unit else activations.to(unit)
    rows = [list(row) for row in found.rows(MOST)]
    for number in always:
        values = found.feature(number).values if number < found.d_sae else ()
        for row, value in zip(rows, values, strict=False):
            if value and all(one.feature != number for one in row):
                row.append(Fired(number, float(value)))
    ends = np.cumsum([len(row) for row in rows])
    fired = [one for row in rows for one in row]
    buffers = [
        ends.astype("<u4").tobytes(),
        np.array([one.feature for one in fired], dtype="<u4").tobytes(),
        np.array([one.activation for one in fired], dtype="<f4").tobytes(),
    ]
    return {"unit": found.unit, "most": int(found.l0.max(initial=0))}, buffers


def _short(value: float) -> float:
    """Return a number to four digits: what is printed."""
    return float(f"{value:.4g}")


def _rounded(values: Sequence[float]) -> list[float]:
    return [value if isinstance(value, int) else _short(value) for value in values]
