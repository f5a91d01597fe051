"""The weights of a head in few bytes: the two factors of its scores, rounded as far as the weights allow.

Weights [query, key] are the softmax of products of queries and keys. From a few hundred tokens on, queries
and keys are much smaller than the weights, also when they are rounded so finely that no weight moves by more
than it does when it is rounded to a byte (`wire/thumbnails.py`).

An error e in a score moves the square root of a weight w by about e sqrt(w) (1 - w) / 2. So queries whose
weights are all small, and keys that nobody reads much, are rounded to larger steps: each to the largest with
which its weights stay within their limit, which is tried out, not estimated.

The twin of `js/src/host/scoreFactors.ts`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Floats = NDArray[np.floating]

TOP = 255.0
"""Largest code of a weight: codes are the square root of a weight in 255 steps."""

_LIMIT = 0.5 / TOP
"""Largest error of the root of a weight: that of rounding it to the nearest code."""

_FROM_KEYS = 0.7
"""Share of it that keys alone may cause, with exact queries."""

_MOST = 0.75 / TOP
"""Largest error with which factors are used at all: a row may miss its limit even with the finest step."""

_QUARTERS = 4
"""Steps are powers of two with exponents in quarters."""

_TRIED = 9
"""Steps that are tried for each query and each key: two octaves about the expected one."""

_OCTAVES = 10
"""How many times a step is halved if the expected one is too large."""

_REPAIRS = 4
"""How often keys of weights that exceed their limit are rounded more finely."""

_MOST_SPREAD = 8.0
"""How many times finer than others a query or a key is rounded before its step is chosen."""

_WIDEST = 24
"""Bits of a number that are written as they are, at most."""


def factors(query: Floats, key: Floats, weights: Floats, *, causal: bool) -> tuple[bytes, float] | None:
    """Return the rounded factors of a head's scores as bytes, and the largest error of its weights in codes.

    Args:
        query: Queries [query, dim], multiplied by the scaling of the scores.
        key: Keys [key, dim].
        weights: softmax(query @ key.T) [query, key], computed by the model.
        causal: Whether queries read no later keys.

    Returns:
        Bytes for `weights_of`, and the largest difference of 255 sqrt(weight); None if the products do not
        give these weights to within three quarters of a code.
    """
    later = _later(*weights.shape) if causal else None
    roots = np.sqrt(weights, dtype=np.float32)
    sensitivity = roots * (1 - weights) / 2
    # A term that all scores of a row share does not change its weights.
    left, right = query.astype(np.float64), key.astype(np.float64) - key.mean(axis=0, dtype=np.float64)
    row_scale: Floats = np.ones(len(left))
    column_scale: Floats = np.ones(len(right))
    for _ in range(2):
        rows, columns, spread = _balanced(left / row_scale[:, None], right / column_scale[:, None])
        by_columns = sensitivity * (column_scale * np.linalg.norm(columns / spread, axis=1))
        row_scale = _finer(by_columns.max(axis=1))
        by_rows = sensitivity * (row_scale * np.linalg.norm(rows / spread, axis=1))[:, None]
        column_scale = _finer(by_rows.max(axis=0))
    rows, columns, spread = _balanced(left / row_scale[:, None], right / column_scale[:, None])
    # Components that weigh more in the scores are rounded more finely.
    rows, columns, weighting = rows * spread, columns * spread, (1 / spread**2).astype(np.float32)

    def errors(some_rows: Floats, some_columns: Floats) -> Floats:
        scaled = (some_rows * weighting * row_scale[:, None]).astype(np.float32)
        moved = _roots(scaled @ (some_columns * column_scale[:, None]).T.astype(np.float32), later)
        moved -= roots
        return np.abs(moved, out=moved)

    if errors(rows, columns).max() > _LIMIT / 4:  # the model rounded its scores, or changed them
        return None
    column_steps = _largest_steps(columns, lambda trial: errors(rows, trial).max(axis=0), _FROM_KEYS * _LIMIT)
    for _ in range(_REPAIRS):
        used = _rounded(columns, column_steps[:, None])
        row_steps = _largest_steps(rows, _errors_of_rows(errors, used), _LIMIT)
        at_row, at_column = np.nonzero(errors(_rounded(rows, row_steps[:, None]), used) > _LIMIT)
        if not len(at_row):
            break
        # Keys were tried together, and their errors add up: also that of the key that takes most of a row.
        column_steps[np.union1d(at_column, weights[at_row].argmax(axis=1))] /= 2
    integers = [
        np.rint(values / steps[:, None]).astype(np.int64).T
        for values, steps in ((rows, row_steps), (columns, column_steps))
    ]
    exponents = [_exponents(row_steps * row_scale), _exponents(column_steps * column_scale)]
    data = weighting.astype("<f4").tobytes()
    data += np.concatenate(exponents).astype(np.int8).tobytes() + _rice_coded(integers)
    restored = weights_of(data, query.shape[1], *weights.shape, causal=causal)
    error = float(np.abs(np.sqrt(restored) - roots).max())
    return (data, error * TOP) if error <= _MOST else None


def _errors_of_rows(
    errors: Callable[[Floats, Floats], Floats], columns: Floats
) -> Callable[[Floats], Floats]:
    return lambda rows: np.asarray(errors(rows, columns).max(axis=1))


def weights_of(data: bytes, rank: int, n_queries: int, n_keys: int, *, causal: bool) -> NDArray[np.float32]:
    """Return the weights [query, key] that inflated bytes of `factors` stand for."""
    weighting = np.frombuffer(data, "<f4", rank)
    counts = n_queries, n_keys
    exponents = np.split(np.frombuffer(data, np.int8, sum(counts), 4 * rank), [n_queries])
    integers = _rice_decoded(data[4 * rank + sum(counts) :], rank, counts)
    queries, keys = (
        (numbers * np.exp2(exponent / _QUARTERS)).T.astype(np.float32)
        for numbers, exponent in zip(integers, exponents, strict=True)
    )
    scores = (queries * weighting) @ keys.T
    return np.square(_roots(scores, _later(n_queries, n_keys) if causal else None))


def _rice_coded(integers: Sequence[NDArray[np.int64]]) -> bytes:
    """Return integers [component, row] of several factors as bytes (Rice 1979).

    Signs become the lowest bits. Of every component a number of low bits, chosen for it, are written as they
    are; the rest of a number is written as as many zeros and a one. All the latter come first.
    """
    widths, rests, low_bits = [], [], []
    for numbers in integers:
        folded = (numbers << 1) ^ (numbers >> 63)
        lengths = [(folded >> width).sum(axis=1) + width * folded.shape[1] for width in range(_WIDEST)]
        chosen = np.argmin(lengths, axis=0)
        widths.append(chosen.astype(np.uint8))
        for component, width in zip(folded, chosen, strict=True):
            rests.append(component >> width)
            low_bits.append((component[:, None] >> np.arange(width) & 1).astype(np.uint8).ravel())
    ends = np.cumsum(np.concatenate(rests) + 1)
    ones = np.zeros(ends[-1], dtype=np.uint8)
    ones[ends - 1] = 1
    unary, low = (np.packbits(bits, bitorder="little").tobytes() for bits in (ones, np.concatenate(low_bits)))
    return np.concatenate(widths).tobytes() + len(unary).to_bytes(4, "little") + unary + low


def _rice_decoded(data: bytes, rank: int, counts: Sequence[int]) -> list[NDArray[np.int64]]:
    """Return the integers [component, row] of `_rice_coded`."""
    n_widths = rank * len(counts)
    start = n_widths + 4
    n_unary = int.from_bytes(data[n_widths:start], "little")
    ones, low = (
        np.unpackbits(np.frombuffer(part, np.uint8), bitorder="little")
        for part in (data[start : start + n_unary], data[start + n_unary :])
    )
    rests = np.diff(np.flatnonzero(ones), prepend=-1) - 1
    at, at_low, factors = 0, 0, []
    for number, count in enumerate(counts):
        folded = np.empty((rank, count), dtype=np.int64)
        for component, width in enumerate(data[number * rank : (number + 1) * rank]):
            bits = low[at_low : at_low + width * count].reshape(count, width).astype(np.int64)
            folded[component] = (rests[at : at + count] << width) + bits @ (1 << np.arange(width))
            at, at_low = at + count, at_low + width * count
        factors.append((folded >> 1) ^ -(folded & 1))
    return factors


def _later(n_queries: int, n_keys: int) -> NDArray[np.bool_]:
    """Return which keys [query, key] are later than their query."""
    return np.asarray(np.triu(np.ones((n_queries, n_keys), dtype=np.bool_), 1))


def _roots(scores: NDArray[np.float32], hidden: NDArray[np.bool_] | None) -> NDArray[np.float32]:
    """Return the roots of a softmax [query, key] of scores, which are overwritten; hidden keys have none."""
    if hidden is not None:
        scores[hidden] = -np.inf
    scores -= scores.max(axis=1, keepdims=True)
    scores *= 0.5
    np.exp(scores, out=scores)
    scores /= np.linalg.norm(scores, axis=1, keepdims=True)
    return scores


def _balanced(left: Floats, right: Floats) -> tuple[Floats, Floats, Floats]:
    """Return two factors with the same product, whose components are uncorrelated and as large on both sides.

    And, for every component, the square root of its size in the product, relative to their mean.
    """
    (q_left, r_left), (q_right, r_right) = np.linalg.qr(left), np.linalg.qr(right)
    turned_left, sizes, turned_right = np.linalg.svd(r_left @ r_right.T)
    roots = np.sqrt(sizes)
    spread = np.sqrt(np.maximum(sizes, 1e-6 * sizes[0]) / sizes.mean()) if sizes[0] else np.ones_like(sizes)
    return q_left @ turned_left * roots, q_right @ turned_right.T * roots, spread


def _finer(reach: Floats) -> Floats:
    """Return a scale for every row: the larger, the less its errors reach the weights."""
    relative = reach.max(initial=0) / np.maximum(reach, 1e-30)
    return np.exp2(_exponents(np.minimum(relative**0.7, _MOST_SPREAD)) / _QUARTERS)


def _exponents(steps: Floats) -> Floats:
    return np.asarray(np.rint(np.log2(steps) * _QUARTERS))


def _largest_steps(values: Floats, error_of: Callable[[Floats], Floats], limit: float) -> Floats:
    """Return for every row the largest step whose rounding keeps an error within a limit.

    Args:
        values: [row, component].
        error_of: Takes rounded values, returns the error of every row.
        limit: Largest error of a row.
    """
    at_first = 2.0**-6
    expected = at_first * limit / np.maximum(error_of(_rounded(values, at_first)), 1e-3 * limit)
    exponents = _exponents(expected) - _TRIED // 2
    steps = np.exp2(exponents / _QUARTERS)
    for _ in range(_OCTAVES):
        exceeds = error_of(_rounded(values, steps[:, None])) > limit
        if not exceeds.any():
            break
        exponents[exceeds] -= _QUARTERS
        steps = np.exp2(exponents / _QUARTERS)
    for more in range(1, _TRIED):
        larger = np.exp2((exponents + more) / _QUARTERS)
        fits = error_of(_rounded(values, larger[:, None])) <= limit
        steps[fits] = larger[fits]
    return steps


def _rounded(values: Floats, step: Floats | float) -> Floats:
    return np.asarray(np.rint(values / step) * step)
