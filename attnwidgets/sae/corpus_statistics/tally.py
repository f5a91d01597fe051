"""Tally: counts, histograms and examples of every feature, from activations that stream by.

What is kept does not grow with the number of tokens, and does not depend on how they are cut into chunks, or
into parts that are counted elsewhere and merged: sums are exact, bins are powers of two wide, and which
examples are kept is decided by a hash of what the model read, the place in it and the feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, triu, vstack

from attnwidgets.sae.corpus_statistics import exact_sums
from attnwidgets.sae.corpus_statistics.top_examples import NONE, Slots, rank_in_group

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

BINS = 64
"""Bins of a histogram, from 0 to a power of two that no activation exceeds."""
INTERVALS = 8
"""Intervals of equal width over the same range, of each of which some examples are kept."""
_SILENT = -(2**15)  # the exponent of a feature that has not fired
_PAIRS = 2**25  # pairs of features that are counted at most
_FLUSH = 2**16  # tokens whose pairs are counted at once


@dataclass(frozen=True)
class Chunk:
    """Tokens in order, whole windows of them.

    Args:
        activations: [token, feature].
        ids: [token].
        counts: [token], whether it counts.
        window: [token], the number of its window, rising.
        text: [token], the number of its text.
        place: [token], its place in the text, special tokens not counted.
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
        features: How many.
        examples: Contexts with the largest activations that are kept of a feature, one of a window.
        per_interval: Contexts drawn at random of every interval of its activations, each with other tokens.
        before: Tokens of a context before the one it is about.
        after: Tokens after it.
        seed: Of the draws.

    Attributes:
        texts: How many texts were read; whoever adds chunks counts them.
        tokens: How many tokens counted.
    """

    def __init__(
        self, features: int, *, examples: int, per_interval: int, before: int, after: int, seed: int
    ) -> None:
        self.features = features
        self.before, self.after, self.seed = before, after, seed
        width = before + 1 + after
        self.texts = self.tokens = 0
        self.count = np.zeros(features, dtype=np.int64)
        self.sums = exact_sums.zeros(features)
        self.maxima = np.zeros(features, dtype=np.float32)
        self.exponent = np.full(features, _SILENT, dtype=np.int64)
        self.histogram = np.zeros((features, BINS), dtype=np.int64)
        self.top = Slots(features, examples, width)
        self.drawn = Slots(features * INTERVALS, per_interval, width, distinct=True)
        self.paired_tokens = 0
        self._pairs: Any = csr_array((features, features), dtype=np.int32)
        self._waiting: list[Any] = []

    def add(self, chunk: Chunk) -> None:
        """Take in a chunk."""
        rows, columns = np.nonzero(chunk.activations)
        inside = chunk.counts[rows]
        rows, columns = rows[inside], columns[inside]
        values = chunk.activations[rows, columns]
        counted = int(chunk.counts.sum())
        self._pair(rows, columns, len(chunk.ids), counted)
        self.tokens += counted
        if not len(rows):
            return
        order = np.lexsort((rows, -values, columns))
        rows, columns, values = rows[order], columns[order], values[order]
        firing, first = np.unique(columns, return_index=True)
        self.count += np.bincount(columns, minlength=self.features)
        exact_sums.add(self.sums, columns, values)
        self.maxima[firing] = np.maximum(self.maxima[firing], values[first])
        self._widen(firing, _exponents(values[first]))
        # Exact, since the range is a power of two; a bin holds its upper end, as the range does.
        place = np.ldexp(values.astype(np.float64) * BINS, -self.exponent[columns])
        bins = np.ceil(place).astype(np.int64) - 1
        flat = np.bincount(columns * BINS + bins, minlength=self.features * BINS)
        self.histogram += flat.reshape(self.features, BINS)
        self._keep(chunk, rows, columns, values, bins)

    def merge(self, other: Tally) -> None:
        """Take in what another tally with the same options counted on the texts that follow; it is used up.

        Whatever the texts were cut into, the result is that of one tally, but for pairs of features where
        more of them are met than are counted (see `pairs`).
        """
        fired = np.flatnonzero(other.count)
        self._widen(fired, other.exponent[fired])
        other._widen(fired, self.exponent[fired])
        self.count += other.count
        self.sums += other.sums
        exact_sums.carry(self.sums)
        self.maxima = np.maximum(self.maxima, other.maxima)
        self.histogram += other.histogram
        rows = (fired[:, None] * INTERVALS + np.arange(INTERVALS)).ravel()
        for own, theirs, where in ((self.top, other.top, fired), (self.drawn, other.drawn, rows)):
            numbers = theirs.fields["text"]
            numbers[numbers != NONE] += self.texts
            own.merge(theirs, where)
        if self.pairs().nnz <= _PAIRS:
            self._pairs = csr_array(self._pairs + other.pairs())
            self.paired_tokens += other.paired_tokens
        self.texts += other.texts
        self.tokens += other.tokens

    def _widen(self, firing: NDArray[np.int64], needed: NDArray[np.int64]) -> None:
        """Make ranges reach to 2^needed, and let bins and intervals run together."""
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
        """Keep contexts of the largest activations and of others; all are sorted by feature and value."""

        def contexts(of: NDArray[np.int64]) -> Any:
            return lambda chosen: self._contexts(
                chunk, rows[of[chosen]], columns[of[chosen]], values[of[chosen]]
            )

        windows = columns * (int(chunk.window[-1]) + 1) + chunk.window[rows]
        best = np.sort(np.unique(windows, return_index=True)[1])  # the largest of a window comes first
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

    # How often features fire together.

    def _pair(self, rows: NDArray[np.int64], columns: NDArray[np.int64], tokens: int, counted: int) -> None:
        if self._pairs.nnz > _PAIRS:
            return
        ones = np.ones(len(rows), dtype=np.int32)
        self._waiting.append(csr_array((ones, (rows, columns)), shape=(tokens, self.features)))
        self.paired_tokens += counted
        if sum(part.shape[0] for part in self._waiting) >= _FLUSH:
            self.pairs()

    def pairs(self) -> Any:
        """Return how often two features fire on one token, sparse [feature, feature].

        Counting stops where more than 2^25 pairs have been met; `paired_tokens` says how many tokens it saw.
        """
        if self._waiting:
            fired = vstack(self._waiting, format="csr")
            self._pairs = csr_array(self._pairs + fired.T @ fired)
            self._waiting = []
        return self._pairs

    # Files.

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that is kept, as arrays; of pairs, the half that says it all."""
        pairs = triu(self.pairs(), format="csr")
        found = {name: getattr(self, name) for name in _ARRAYS}
        found["numbers"] = np.array([self.texts, self.tokens, self.paired_tokens], dtype=np.int64)
        found |= {f"pairs.{name}": getattr(pairs, name) for name in _SPARSE}
        for name, slots in (("top", self.top), ("drawn", self.drawn)):
            found |= {f"{name}.{field}": array for field, array in slots.fields.items()}
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned.

        Raises:
            KeyError: Where something is missing.
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
    """Return of positive values the smallest n for which 2^n is not below them."""
    needed = np.frexp(values.astype(np.float64))[1].astype(np.int64)
    needed -= np.ldexp(1.0, needed - 1) == values  # a power of two is the end of its own range
    return needed


def _identities(chunk: Chunk) -> NDArray[np.uint64]:
    """Return a hash of every token's window and of its place there [token]."""
    first = np.flatnonzero(np.diff(chunk.window, prepend=chunk.window[:1] - 1))
    sizes = np.diff(first, append=len(chunk.window))
    place = (np.arange(len(chunk.window)) - np.repeat(first, sizes)).astype(np.uint64)
    with np.errstate(over="ignore"):
        spread = place * np.uint64(_MULTIPLIERS[0])
        # The sum of hashes of tokens with their places is one of the window.
        windows = np.add.reduceat(
            _mixed(chunk.ids.astype(np.uint64) * np.uint64(_MULTIPLIERS[1]) + spread), first
        )
        found: NDArray[np.uint64] = np.repeat(windows, sizes) + spread
    return found


def _priority(identities: NDArray[np.uint64], features: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for every token and feature, which a seed makes others of."""
    with np.errstate(over="ignore"):
        x = _mixed(identities + np.uint64(seed)) + features.astype(np.uint64) * np.uint64(_MULTIPLIERS[1])
    return (_mixed(x) >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Return numbers whose bits all depend on all of the bits given (splitmix64)."""
    with np.errstate(over="ignore"):
        x = (x ^ (x >> np.uint64(30))) * np.uint64(_MULTIPLIERS[2])
        x = (x ^ (x >> np.uint64(27))) * np.uint64(_MULTIPLIERS[3])
    x ^= x >> np.uint64(31)
    return x
