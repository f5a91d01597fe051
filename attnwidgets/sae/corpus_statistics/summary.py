"""FeatureSummary: the statistics of a feature; and Slots, the best examples of every feature in a stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

BINS = 64
"""Number of histogram bins, from 0 to a power of two that no activation exceeds."""

INTERVALS = 8
"""Number of intervals of equal width over the same range; examples are drawn from each."""

NONE = -1
"""Marks a missing text, position or token id."""

_EMPTY = {"key": np.inf, "text": NONE, "place": NONE, "ids": NONE}


class Example(NamedTuple):
    """A token of the corpus on which a feature fires, in its context.

    Attributes:
        activation: Activation on the token.
        tokens: Display strings of the context: the token and those around it, within its text.
        activations: The feature's activations on the context.
        at: Index of the token in the context.
        ids: Token ids of the context.
        text: Index of the text in the corpus.
        place: Position of the token in the text, not counting special tokens.
    """

    activation: float
    tokens: tuple[str, ...]
    activations: tuple[float, ...]
    at: int
    ids: tuple[int, ...]
    text: int
    place: int


class Interval(NamedTuple):
    """Activations above `low` up to `high`: number of tokens, their share of all firings, and examples."""

    low: float
    high: float
    tokens: int
    share: float
    examples: tuple[Example, ...]


class Neighbour(NamedTuple):
    """A feature with a similar direction, and the cosine of the two."""

    feature: int
    cosine: float


class Companion(NamedTuple):
    """A co-occurring feature: share of this feature's tokens on which it fires, and Jaccard index."""

    feature: int
    share: float
    jaccard: float


class LogitEffect(NamedTuple):
    """Effect of a unit of a feature on a token's logit, without the division in the final norm."""

    token: str
    effect: float
    id: int


@dataclass(frozen=True)
class FeatureSummary:
    """The statistics of a feature.

    Args:
        feature: Number of the feature.
        name: The reader's name for it, or "".
        count: Number of tokens on which it fires.
        density: Share of tokens on which it fires, 0 to 1.
        maximum: Largest activation.
        mean: Mean activation over the tokens on which it fires.
        edges: Edges of the histogram's bins [bin + 1].
        histogram: Number of tokens in every bin; a bin includes its upper edge.
        top: Examples with the largest activations, largest first, each from a different window.
        intervals: Equal intervals of the activation range, largest first, without empty ones.
        promoted: Tokens whose logits it raises most, if the model has an unembedding.
        suppressed: Tokens whose logits it lowers most, if the model has an unembedding.
        neighbours: Features with the nearest directions.
        companions: Features that co-occur most often, by Jaccard index of their tokens.
    """

    feature: int
    name: str
    count: int
    density: float
    maximum: float
    mean: float
    edges: tuple[float, ...]
    histogram: tuple[int, ...]
    top: tuple[Example, ...]
    intervals: tuple[Interval, ...]
    promoted: tuple[LogitEffect, ...]
    suppressed: tuple[LogitEffect, ...]
    neighbours: tuple[Neighbour, ...]
    companions: tuple[Companion, ...]

    def __repr__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        contexts = "; ".join("".join(_mark(example)) for example in self.top[:3])
        return (
            f"<feature {self.feature}{name}: fires on {self.density:.3%} of tokens, up to "
            f"{self.maximum:.3g}; {contexts}>"
        )


def _mark(example: Example) -> list[str]:
    """Return an example's central token in brackets, with a few tokens on either side."""
    near = range(max(example.at - 3, 0), min(example.at + 3, len(example.tokens)))
    return [f"[{example.tokens[i]}]" if i == example.at else f" {example.tokens[i]} " for i in near]


class Slots:
    """A table [row, slot] of the examples with the smallest keys of every row, in order.

    Of equal keys, the example from the earlier text and position comes first.

    Args:
        rows: Number of rows.
        size: Number of examples per row.
        width: Tokens of an example's context.
        distinct: Whether equal keys mean identical contexts, of which only the first is stored.
    """

    def __init__(self, rows: int, size: int, width: int, *, distinct: bool = False) -> None:
        self.size, self._distinct = size, distinct
        self.fields: dict[str, NDArray[Any]] = {
            "key": np.full((rows, size), np.inf),
            "value": np.zeros((rows, size), dtype=np.float32),
            "text": np.full((rows, size), NONE, dtype=np.int32),
            "place": np.full((rows, size), NONE, dtype=np.int32),
            "ids": np.full((rows, size, width), NONE, dtype=np.int32),
            "activations": np.zeros((rows, size, width), dtype=np.float32),
        }

    def insert(
        self,
        rows: NDArray[np.int64],
        keys: NDArray[np.float64],
        tokens: NDArray[np.int64],
        payload: Callable[[NDArray[np.int64]], Mapping[str, NDArray[Any]]],
    ) -> None:
        """Add candidates.

        Args:
            rows: Row of each candidate [candidate].
            keys: Key of each candidate [candidate].
            tokens: Index of each candidate's token [candidate], ascending in the order of the corpus.
            payload: Returns the other fields of some candidates, given their indices.
        """
        chosen = np.flatnonzero(keys < self.fields["key"][rows, -1])
        if not len(chosen):
            return
        chosen = chosen[np.lexsort((tokens[chosen], keys[chosen], rows[chosen]))]
        if self._distinct:
            repeated = (np.diff(rows[chosen]) == 0) & (np.diff(keys[chosen]) == 0)
            chosen = chosen[np.concatenate([[True], ~repeated])]
        rank = rank_in_group(rows[chosen])
        chosen, rank = chosen[rank < self.size], rank[rank < self.size]
        touched, at = np.unique(rows[chosen], return_inverse=True)
        values = {"key": keys[chosen], **payload(chosen)}
        new = {name: _empty(name, field, (len(touched), self.size)) for name, field in self.fields.items()}
        for name, field in new.items():
            field[at, rank] = values[name]
        self._put(touched, new)

    def merge(self, other: Slots, rows: NDArray[np.int64]) -> None:
        """Add the examples of some rows of another table of the same shape."""
        self._put(rows, {name: field[rows] for name, field in other.fields.items()})

    def coarsen(self, blocks: NDArray[np.int64], per_block: int, together: int) -> None:
        """Merge every `together` neighbouring rows of some blocks into a row; the last rows become empty.

        Args:
            blocks: Indices of the blocks.
            per_block: Rows per block.
            together: Number of rows merged into a row; a power of two.
        """
        together = min(together, per_block)
        merged_rows = per_block // together
        shaped = {name: field.reshape(-1, per_block, *field.shape[1:]) for name, field in self.fields.items()}
        joined = {
            name: field[blocks].reshape(len(blocks) * merged_rows, together * self.size, *field.shape[3:])
            for name, field in shaped.items()
        }
        for name, best in self._best(joined).items():
            new = _empty(name, best, (len(blocks), per_block, self.size))
            new[:, :merged_rows] = best.reshape(len(blocks), merged_rows, *best.shape[1:])
            shaped[name][blocks] = new

    def _put(self, rows: NDArray[np.int64], new: Mapping[str, NDArray[Any]]) -> None:
        joined = {
            name: np.concatenate([field[rows], new[name]], axis=1) for name, field in self.fields.items()
        }
        for name, best in self._best(joined).items():
            self.fields[name][rows] = best

    def _best(self, fields: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the best `size` examples of every row."""
        order = np.lexsort((fields["place"], fields["text"], fields["key"]), axis=1)
        repeated = np.zeros(order.shape, dtype=bool)
        if self._distinct:
            keys = _slots_in_order(fields["key"], order)
            repeated[:, 1:] = keys[:, 1:] == keys[:, :-1]
            last = np.argsort(repeated, axis=1, kind="stable")
            order, repeated = _slots_in_order(order, last), _slots_in_order(repeated, last)
        best = {name: _slots_in_order(field, order[:, : self.size]) for name, field in fields.items()}
        for name, field in best.items():
            field[repeated[:, : self.size]] = _EMPTY.get(name, 0)
        return best


def _empty(name: str, like: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return empty slots [*shape, ...] of a field."""
    return np.full((*shape, *like.shape[2:]), _EMPTY.get(name, 0), dtype=like.dtype)


def _slots_in_order(array: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return `array` [row, slot, ...] with its slots sorted by `order` [row, slot]."""
    return np.take_along_axis(array, order.reshape(*order.shape, *[1] * (array.ndim - 2)), axis=1)


def rank_in_group(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of every element within its group; `groups` is sorted."""
    first = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    sizes = np.diff(first, append=len(groups))
    return np.arange(len(groups)) - np.repeat(first, sizes)
