"""Tally: counts, histograms, exact sums and examples of every feature, from a stream of activations.

The state does not grow with the number of tokens. It does not depend on how they are split into chunks or
into parts that are counted separately and merged: sums are exact, widths of bins are powers of two, and a
hash of the window, the position in it and the feature decides which examples are drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, triu, vstack

from attnwidgets.sae.corpus_statistics.summary import BINS, INTERVALS, NONE, Slots, rank_in_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

_SILENT = -(2**15)  # the exponent of a feature that has not fired
_PAIRS = 2**25  # most pairs of features counted
_FLUSH = 2**16  # tokens whose pairs are counted together

_LOWEST = 149  # float32 numbers are whole multiples of 2^-149
_MANTISSA = 24
_BITS = 32  # of a digit
DIGITS = 10
"""Digits of a sum in base 2^32: enough for 2^43 numbers below 2^128, the upper limit of float32."""


@dataclass(frozen=True)
class Chunk:
    """Tokens of whole windows, in order.

    Args:
        activations: Activations [token, feature].
        ids: Token ids [token].
        counts: Whether each token counts [token].
        window: Index of each token's window [token], ascending.
        text: Index of each token's text [token].
        place: Position of each token in its text, not counting special tokens [token].
    """

    activations: NDArray[np.float32]
    ids: NDArray[np.int64]
    counts: NDArray[np.bool_]
    window: NDArray[np.int64]
    text: NDArray[np.int64]
    place: NDArray[np.int64]


class Tally:
    """Statistics of features.

    Args:
        features: Number of features.
        examples: Number of a feature's contexts with its largest activations, at most one per window.
        per_interval: Number of contexts drawn at random from every interval of its activations, all distinct.
        before: Tokens of a context before its central token.
        after: Tokens of a context after its central token.
        seed: Seed of the random draws.

    Attributes:
        texts: Number of texts read; set by the caller.
        tokens: Number of tokens counted.
    """

    def __init__(
        self, features: int, *, examples: int, per_interval: int, before: int, after: int, seed: int
    ) -> None:
        self.features = features
        self.before, self.after, self.seed = before, after, seed
        width = before + 1 + after
        self.texts = self.tokens = 0
        self.count = np.zeros(features, dtype=np.int64)
        self.sums = zeros(features)
        self.maxima = np.zeros(features, dtype=np.float32)
        self.exponent = np.full(features, _SILENT, dtype=np.int64)
        self.histogram = np.zeros((features, BINS), dtype=np.int64)
        self.top = Slots(features, examples, width)
        self.drawn = Slots(features * INTERVALS, per_interval, width, distinct=True)
        self.paired_tokens = 0
        self._pairs: Any = csr_array((features, features), dtype=np.int32)
        self._waiting: list[Any] = []

    def add(self, chunk: Chunk) -> None:
        """Add a chunk."""
        rows, columns = np.nonzero(chunk.activations)
        counted = chunk.counts[rows]
        rows, columns = rows[counted], columns[counted]
        values = chunk.activations[rows, columns]
        tokens = int(chunk.counts.sum())
        self._pair(rows, columns, len(chunk.ids), tokens)
        self.tokens += tokens
        if not len(rows):
            return
        order = np.lexsort((rows, -values, columns))
        rows, columns, values = rows[order], columns[order], values[order]
        firing, first = np.unique(columns, return_index=True)
        self.count += np.bincount(columns, minlength=self.features)
        add(self.sums, columns, values)
        self.maxima[firing] = np.maximum(self.maxima[firing], values[first])
        self._widen(firing, _exponents(values[first]))
        # Exact, because the range is a power of two; a bin includes its upper edge, as the range does.
        scaled = np.ldexp(values.astype(np.float64) * BINS, -self.exponent[columns])
        bins = np.ceil(scaled).astype(np.int64) - 1
        flat = np.bincount(columns * BINS + bins, minlength=self.features * BINS)
        self.histogram += flat.reshape(self.features, BINS)
        self._keep(chunk, rows, columns, values, bins)

    def merge(self, other: Tally) -> None:
        """Add the counts of another tally with the same options on the texts that follow; `other` is used up.

        However the texts were split, the result is that of a single tally, except for pairs of features
        beyond the limit (see `pairs`).
        """
        fired = np.flatnonzero(other.count)
        self._widen(fired, other.exponent[fired])
        other._widen(fired, self.exponent[fired])
        self.count += other.count
        self.sums += other.sums
        carry(self.sums)
        self.maxima = np.maximum(self.maxima, other.maxima)
        self.histogram += other.histogram
        rows = (fired[:, None] * INTERVALS + np.arange(INTERVALS)).ravel()
        for ours, theirs, where in ((self.top, other.top, fired), (self.drawn, other.drawn, rows)):
            text_numbers = theirs.fields["text"]
            text_numbers[text_numbers != NONE] += self.texts
            ours.merge(theirs, where)
        if self.pairs().nnz <= _PAIRS:
            self._pairs = csr_array(self._pairs + other.pairs())
            self.paired_tokens += other.paired_tokens
        self.texts += other.texts
        self.tokens += other.tokens

    def _widen(self, firing: NDArray[np.int64], needed: NDArray[np.int64]) -> None:
        """Extend ranges to 2^needed, merging bins and intervals."""
        old = self.exponent[firing]
        steps = np.where(old == _SILENT, 0, np.maximum(needed - old, 0))
        for step in np.unique(steps[steps > 0]):
            which = firing[steps == step]
            together = min(2 ** int(min(step, 30)), BINS)
            merged = self.histogram[which].reshape(len(which), BINS // together, together).sum(-1)
            self.histogram[which] = 0
            self.histogram[which, : BINS // together] = merged
            self.drawn.coarsen(which, INTERVALS, together)
        self.exponent[firing] = np.maximum(old, needed)

    def _keep(
        self,
        chunk: Chunk,
        rows: NDArray[np.int64],
        columns: NDArray[np.int64],
        values: NDArray[np.float32],
        bins: NDArray[np.int64],
    ) -> None:
        """Keep contexts of the largest activations and random ones; input is sorted by feature and value."""

        def contexts(candidates: NDArray[np.int64]) -> Any:
            def payload(chosen: NDArray[np.int64]) -> Mapping[str, NDArray[Any]]:
                at = candidates[chosen]
                return self._contexts(chunk, rows[at], columns[at], values[at])

            return payload

        windows = columns * (int(chunk.window[-1]) + 1) + chunk.window[rows]
        best = np.sort(np.unique(windows, return_index=True)[1])  # the first of a window is its largest
        best = best[rank_in_group(columns[best]) < self.top.size]
        self.top.insert(columns[best], -values[best].astype(np.float64), rows[best], contexts(best))
        priority = _priority(_identities(chunk)[rows], columns, self.seed)
        interval = columns * INTERVALS + bins // (BINS // INTERVALS)
        self.drawn.insert(interval, priority, rows, contexts(np.arange(len(rows))))

    def _contexts(
        self, chunk: Chunk, rows: NDArray[np.int64], columns: NDArray[np.int64], values: NDArray[np.float32]
    ) -> Mapping[str, NDArray[Any]]:
        around = rows[:, None] + np.arange(-self.before, self.after + 1)
        at = np.clip(around, 0, len(chunk.ids) - 1)
        inside = (around == at) & (chunk.window[at] == chunk.window[rows][:, None])
        return {
            "value": values,
            "text": chunk.text[rows],
            "place": chunk.place[rows],
            "ids": np.where(inside, chunk.ids[at], NONE),
            "activations": np.where(inside, chunk.activations[at, columns[:, None]], 0),
        }

    # Co-occurrence of features.

    def _pair(self, rows: NDArray[np.int64], columns: NDArray[np.int64], tokens: int, counted: int) -> None:
        if self._pairs.nnz > _PAIRS:
            return
        ones = np.ones(len(rows), dtype=np.int32)
        self._waiting.append(csr_array((ones, (rows, columns)), shape=(tokens, self.features)))
        self.paired_tokens += counted
        if sum(part.shape[0] for part in self._waiting) >= _FLUSH:
            self.pairs()

    def pairs(self) -> Any:
        """Return the number of tokens on which two features fire, sparse [feature, feature].

        Counting stops once there are more than 2^25 pairs; `paired_tokens` is the number of tokens counted.
        """
        if self._waiting:
            fired = vstack(self._waiting, format="csr")
            self._pairs = csr_array(self._pairs + fired.T @ fired)
            self._waiting = []
        return self._pairs

    # Files.

    def state(self) -> dict[str, NDArray[Any]]:
        """Return the state as arrays; of the symmetric matrix of pairs only the upper half."""
        pairs = triu(self.pairs(), format="csr")
        state = {name: getattr(self, name) for name in _ARRAYS}
        state["numbers"] = np.array([self.texts, self.tokens, self.paired_tokens], dtype=np.int64)
        state |= {f"pairs.{name}": getattr(pairs, name) for name in _SPARSE}
        for name, slots in (("top", self.top), ("drawn", self.drawn)):
            state |= {f"{name}.{field}": array for field, array in slots.fields.items()}
        return state

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Restore a state returned by `state`.

        Raises:
            KeyError: If an array is missing.
        """
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))
        self.texts, self.tokens, self.paired_tokens = (int(number) for number in state["numbers"])
        half = csr_array(
            tuple(np.array(state[f"pairs.{name}"]) for name in _SPARSE), shape=(self.features, self.features)
        )
        self._pairs, self._waiting = csr_array(half + triu(half, 1).T), []
        for name, slots in (("top", self.top), ("drawn", self.drawn)):
            slots.fields = {field: np.array(state[f"{name}.{field}"]) for field in slots.fields}


_ARRAYS = ("count", "sums", "maxima", "exponent", "histogram")
_SPARSE = ("data", "indices", "indptr")
STATE = (
    *(*_ARRAYS, "numbers", *(f"pairs.{name}" for name in _SPARSE)),
    *(f"{which}.{field}" for which in ("top", "drawn") for field in Slots(0, 1, 1).fields),
)
"""Names of the arrays of `Tally.state`."""

_MULTIPLIERS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB)


def _exponents(values: NDArray[np.float32]) -> NDArray[np.int64]:
    """Return for each positive value the smallest n with 2^n >= value."""
    needed = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    needed -= np.ldexp(1.0, needed - 1) == values  # a power of two belongs to the range it ends
    return needed


def _identities(chunk: Chunk) -> NDArray[np.uint64]:
    """Return a hash of every token's window and its position in the window [token]."""
    first = np.flatnonzero(np.diff(chunk.window, prepend=chunk.window[:1] - 1))
    sizes = np.diff(first, append=len(chunk.window))
    position = (np.arange(len(chunk.window)) - np.repeat(first, sizes)).astype(np.uint64)
    with np.errstate(over="ignore"):
        spread = position * np.uint64(_MULTIPLIERS[0])
        # The hash of a window is the sum of the hashes of its tokens and their positions.
        windows = np.add.reduceat(
            _mix(chunk.ids.astype(np.uint64) * np.uint64(_MULTIPLIERS[1]) + spread), first
        )
        identities: NDArray[np.uint64] = np.repeat(windows, sizes) + spread
    return identities


def _priority(identities: NDArray[np.uint64], features: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return a pseudo-random number from 0 to 1 for every token and feature, determined by the seed."""
    with np.errstate(over="ignore"):
        x = _mix(identities + np.uint64(seed)) + features.astype(np.uint64) * np.uint64(_MULTIPLIERS[1])
    return (_mix(x) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mix(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return hashed numbers (splitmix64): every bit depends on all bits of the input."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MULTIPLIERS[2])
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MULTIPLIERS[3])
    x ^= x >> np.uint64(31)
    return x


def zeros(rows: int) -> NDArray[np.int64]:
    """Return empty sums [row, digit], lowest digit first."""
    return np.zeros((rows, DIGITS), dtype=np.int64)


def add(sums: NDArray[np.int64], rows: NDArray[np.int64], values: NDArray[np.float32]) -> None:
    """Add values to the sums of their rows, fewer than 2^20 per row and call.

    Args:
        sums: Sums [row, digit]; changed in place.
        rows: Row of each value [value].
        values: Finite values [value].
    """
    doubles = values.astype(np.float64)
    exponents = np.maximum(np.frexp(doubles)[1].astype(np.int64) - _MANTISSA, -_LOWEST)
    digits, shifts = np.divmod(exponents + _LOWEST, _BITS)
    whole = np.ldexp(doubles, -exponents).astype(np.int64) << shifts
    for digit, part in ((digits, whole & (2**_BITS - 1)), (digits + 1, whole >> _BITS)):
        # The parts are integers and their sums stay below 2^53, so float64 adds them exactly.
        carried = np.bincount(rows * DIGITS + digit, weights=part, minlength=sums.size)
        sums += carried.astype(np.int64).reshape(sums.shape)
    carry(sums)


def carry(sums: NDArray[np.int64]) -> None:
    """Bring every digit except the highest below 2^32, in place, so that equal sums have equal digits."""
    for digit in range(DIGITS - 1):
        sums[:, digit + 1] += sums[:, digit] >> _BITS
        sums[:, digit] &= 2**_BITS - 1


def to_floats(sums: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return the sums [row] in float64, rounded once."""
    integers = (sum(digit << (_BITS * i) for i, digit in enumerate(digits)) for digits in sums.tolist())
    return np.array([integer / 2**_LOWEST for integer in integers], dtype=np.float64)
