"""Tally: counts, histograms and examples of every feature, from activations that stream by.

What is kept does not grow with the number of tokens, and does not depend on how they are cut into chunks:
bins are powers of two wide, and which examples are kept is decided by a hash of token and feature.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import csr_array, vstack

from attnwidgets.sae.statistics.slots import NONE, Slots, rank_in_group

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
        per_interval: Contexts drawn at random of every interval of its activations.
        before: Tokens of a context before the one it is about.
        after: Tokens after it.
        seed: Of the draws.
    """

    def __init__(
        self, features: int, *, examples: int, per_interval: int, before: int, after: int, seed: int
    ) -> None:
        self.features = features
        self.before, self.after, self.seed = before, after, seed
        width = before + 1 + after
        self.tokens = self.seen = 0
        self.count = np.zeros(features, dtype=np.int64)
        self.total = np.zeros(features)
        self.maxima = np.zeros(features, dtype=np.float32)
        self.exponent = np.full(features, _SILENT, dtype=np.int64)
        self.histogram = np.zeros((features, BINS), dtype=np.int64)
        self.top = Slots(features, examples, width)
        self.drawn = Slots(features * INTERVALS, per_interval, width)
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
        self.seen += len(chunk.ids)
        if not len(rows):
            return
        order = np.lexsort((rows, -values, columns))
        rows, columns, values = rows[order], columns[order], values[order]
        firing, first = np.unique(columns, return_index=True)
        self.count += np.bincount(columns, minlength=self.features)
        self.total += np.bincount(columns, weights=values, minlength=self.features)
        self.maxima[firing] = np.maximum(self.maxima[firing], values[first])
        self._widen(firing, values[first])
        # Exact, since the range is a power of two; a bin holds its upper end, as the range does.
        place = np.ldexp(values.astype(np.float64) * BINS, -self.exponent[columns])
        bins = np.ceil(place).astype(np.int64) - 1
        flat = np.bincount(columns * BINS + bins, minlength=self.features * BINS)
        self.histogram += flat.reshape(self.features, BINS)
        self._keep(chunk, rows, columns, values, bins, self.seen - len(chunk.ids))

    def _widen(self, firing: NDArray[np.int64], largest: NDArray[np.float32]) -> None:
        """Make the ranges of features large enough, and let bins and intervals run together."""
        needed = np.frexp(largest.astype(np.float64))[1].astype(np.int64)
        needed -= np.ldexp(1.0, needed - 1) == largest  # a power of two is the end of its own range
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
        first: int,
    ) -> None:
        """Keep contexts of the largest activations and of others; all are sorted by feature and value."""

        def contexts(of: NDArray[np.int64]) -> Any:
            return lambda chosen: self._contexts(
                chunk, rows[of[chosen]], columns[of[chosen]], values[of[chosen]]
            )

        windows = columns * (int(chunk.window[-1]) + 1) + chunk.window[rows]
        best = np.sort(np.unique(windows, return_index=True)[1])  # the largest of a window comes first
        best = best[rank_in_group(columns[best]) < self.top.size]
        self.top.insert(columns[best], -values[best].astype(np.float64), contexts(best))
        priority = _priority(first + rows, columns, self.seed)
        interval = columns * INTERVALS + bins // (BINS // INTERVALS)
        self.drawn.insert(interval, priority, contexts(np.arange(len(rows))))

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

    # Checkpoints.

    def state(self) -> dict[str, NDArray[Any]]:
        """Return everything that is kept, as arrays."""
        pairs = self.pairs()
        found = {name: getattr(self, name) for name in _ARRAYS}
        found["numbers"] = np.array([self.tokens, self.seen, self.paired_tokens], dtype=np.int64)
        found |= {"pairs.data": pairs.data, "pairs.indices": pairs.indices, "pairs.indptr": pairs.indptr}
        for name, slots in (("top", self.top), ("drawn", self.drawn)):
            found |= {f"{name}.{field}": array for field, array in slots.fields.items()}
        return found

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Go on from what `state` returned."""
        for name in _ARRAYS:
            setattr(self, name, np.array(state[name]))
        self.tokens, self.seen, self.paired_tokens = (int(number) for number in state["numbers"])
        parts = tuple(np.array(state[f"pairs.{name}"]) for name in ("data", "indices", "indptr"))
        self._pairs, self._waiting = csr_array(parts, shape=(self.features, self.features)), []
        for name, slots in (("top", self.top), ("drawn", self.drawn)):
            slots.fields = {field: np.array(state[f"{name}.{field}"]) for field in slots.fields}


_ARRAYS = ("count", "total", "maxima", "exponent", "histogram")


def _priority(tokens: NDArray[np.int64], features: NDArray[np.int64], seed: int) -> NDArray[np.float64]:
    """Return a number from 0 to 1 for every token and feature, which a seed makes others of (splitmix64)."""
    with np.errstate(over="ignore"):
        x = tokens.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        x += features.astype(np.uint64) * np.uint64(0xD1B54A32D192ED03) + np.uint64(seed)
        x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        x ^= x >> np.uint64(31)
    shares: NDArray[np.float64] = (x >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return shares
