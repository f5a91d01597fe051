"""Results of circuits as the browser takes them: the twins of patch/patching.ts and lens/lens.ts."""

from __future__ import annotations

from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.circuits.lens_result import Lens
    from attnwidgets.circuits.patching import Patching
    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.views.wire.handlers import Answer

NAMED = 3
"""Outcomes that are listed before and after."""


def outcomes_of(predictions: Iterable[Prediction], most: int = NAMED) -> list[list[Any]]:
    """Return the first outcomes, each with its probability; numbers of a regression have none."""
    return [[one.label, one.probability] for one in list(predictions)[:most] if isfinite(one.probability)]


def patching_answer(patching: Patching) -> Answer:
    """Return a patching: labels and both runs, and of every site what patching adds to the target.

    In meta: direction, estimate, sites, layers, clean and corrupt (the target in both runs), gap (null if the
    runs do not differ), cleanTokens, corruptTokens, differs, first (tokens before it are the same in both
    runs), target, foil, checked (rows of site, layer, token, head, estimate, exact), agreement, warning, and
    predicted: the first outcomes of the clean run, and of the corrupt one where it is known.

    Buffers: float32 m(patched) - m(base) [layer, token] of each site, of heads [layer, head].
    """
    pair = patching.pair
    corrupt = None if pair is None else outcomes_of(pair.corrupt.predictions(NAMED))
    meta = {
        "direction": patching.direction,
        "estimate": patching.estimate,
        "sites": list(patching.sites),
        "layers": patching.shape[1],
        "clean": patching.clean,
        "corrupt": patching.corrupt,
        "gap": _number(patching.gap),
        "cleanTokens": list(patching.clean_tokens),
        "corruptTokens": list(patching.corrupt_tokens),
        "differs": list(patching.differs),
        "first": first_changed(patching),
        "target": patching.target,
        "foil": patching.foil,
        "checked": [list(cell)[:-1] for cell in patching.checked],
        "agreement": _number(patching.agreement),
        "warning": patching.warning,
        "predicted": [outcomes_of(patching.predictions.items), corrupt],
    }
    return meta, [np.asarray(raw).astype("<f4").tobytes() for raw in patching.raw.values()]


def first_changed(patching: Patching) -> int:
    """Return the position before which no place carries anything, because both runs are the same there."""
    first = patching.differs[0] if patching.differs else 0
    before = [raw[:, :first] for site, raw in patching.raw.items() if site != "head"]
    return 0 if any(np.nan_to_num(raw).any() for raw in before) else first


def lens_answer(lens: Lens) -> Answer:
    """Return a lens: its tokens, its answer, the names of all top tokens, and its numbers.

    In meta: answer, tokens, layers (rows of states, one less than the rows), labels (distinct names), k,
    title, warning. Buffers: float32 probability, entropy and kl, int32 rank, each [row, token]; int32 index
    of the name and int32 id, and float32 probability, each [row, token, k].
    """
    top = lens.top_tokens()
    k = len(top[0][0]) if top and top[0] else 0
    flat = [token for row in top for cell in row for token in cell]
    labels = list(dict.fromkeys(token.label for token in flat))
    places = {label: place for place, label in enumerate(labels)}
    meta = {
        "answer": lens.answer,
        "tokens": list(lens.tokens),
        "layers": lens.shape[0] - 1,
        "labels": labels,
        "k": k,
        "title": lens.title,
        "warning": lens.warning,
        "predicted": outcomes_of(lens.predictions.items),
    }
    whole = [places[token.label] for token in flat], [token.id for token in flat]
    return meta, [
        *(getattr(lens, name).astype("<f4").tobytes() for name in ("probability", "entropy", "kl")),
        lens.rank.astype("<i4").tobytes(),
        *(np.array(numbers, dtype="<i4").tobytes() for numbers in whole),
        np.array([token.probability for token in flat], dtype="<f4").tobytes(),
    ]


def _number(value: float) -> float | None:
    return None if np.isnan(value) else float(value)
