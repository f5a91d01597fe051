"""Slots: the best few examples of every row, kept while they stream by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

NONE = -1
"""Stands for a text, a place or a token id that is not there."""


_EMPTY = {"key": np.inf, "text": NONE, "place": NONE, "ids": NONE}


class Slots:
    """A table [row, slot] of examples, in every row those with the smallest keys, in order.

    Of equal keys the example of the earlier text, and of the earlier place in it, comes first.

    Args:
        rows: How many rows.
        size: How many examples a row keeps.
        width: Tokens of an example's context.
        distinct: Whether equal keys mean one and the same context, of which only the first is kept.
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
        """Take in candidates.

        Args:
            rows: [candidate].
            keys: [candidate].
            tokens: [candidate], rising in the order of the corpus.
            payload: Returns the other fields of chosen candidates, by their places in `rows`.
        """
        chosen = np.flatnonzero(keys < self.fields["key"][rows, -1])
        if not len(chosen):
            return
        chosen = chosen[np.lexsort((tokens[chosen], keys[chosen], rows[chosen]))]
        if self._distinct:
            again = (np.diff(rows[chosen]) == 0) & (np.diff(keys[chosen]) == 0)
            chosen = chosen[np.concatenate([[True], ~again])]
        rank = rank_in_group(rows[chosen])
        chosen, rank = chosen[rank < self.size], rank[rank < self.size]
        touched, at = np.unique(rows[chosen], return_inverse=True)
        found = {"key": keys[chosen], **payload(chosen)}
        new = {name: _empty(name, field, (len(touched), self.size)) for name, field in self.fields.items()}
        for name, field in new.items():
            field[at, rank] = found[name]
        self._put(touched, new)

    def merge(self, other: Slots, rows: NDArray[np.int64]) -> None:
        """Take in what another table of the same shape keeps in some rows."""
        self._put(rows, {name: field[rows] for name, field in other.fields.items()})

    def coarsen(self, blocks: NDArray[np.int64], per_block: int, together: int) -> None:
        """Let rows of blocks run together, `together` neighbours into one; the last rows are empty then.

        Args:
            blocks: Which blocks of `per_block` rows.
            per_block: Rows of a block.
            together: How many rows become one; a power of two.
        """
        together = min(together, per_block)
        kept = per_block // together
        shaped = {name: field.reshape(-1, per_block, *field.shape[1:]) for name, field in self.fields.items()}
        joined = {
            name: field[blocks].reshape(len(blocks) * kept, together * self.size, *field.shape[3:])
            for name, field in shaped.items()
        }
        for name, best in self._best(joined).items():
            new = _empty(name, best, (len(blocks), per_block, self.size))
            new[:, :kept] = best.reshape(len(blocks), kept, *best.shape[1:])
            shaped[name][blocks] = new

    def _put(self, rows: NDArray[np.int64], new: Mapping[str, NDArray[Any]]) -> None:
        both = {name: np.concatenate([field[rows], new[name]], axis=1) for name, field in self.fields.items()}
        for name, best in self._best(both).items():
            self.fields[name][rows] = best

    def _best(self, fields: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Return the first `size` of the examples in every row."""
        order = np.lexsort((fields["place"], fields["text"], fields["key"]), axis=1)
        again = np.zeros(order.shape, dtype=bool)
        if self._distinct:
            keys = taken(fields["key"], order)
            again[:, 1:] = keys[:, 1:] == keys[:, :-1]
            last = np.argsort(again, axis=1, kind="stable")
            order, again = taken(order, last), taken(again, last)
        found = {name: taken(field, order[:, : self.size]) for name, field in fields.items()}
        for name, field in found.items():
            field[again[:, : self.size]] = _EMPTY.get(name, 0)
        return found


def _empty(name: str, like: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    """Return slots [*shape, ...] of a field that hold nothing."""
    return np.full((*shape, *like.shape[2:]), _EMPTY.get(name, 0), dtype=like.dtype)


def taken(array: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return `array` [row, slot, ...] with its slots in an order [row, slot]."""
    return np.take_along_axis(array, order.reshape(*order.shape, *[1] * (array.ndim - 2)), axis=1)


def rank_in_group(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for every element of sorted groups how many of its group stand before it."""
    first = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    sizes = np.diff(first, append=len(groups))
    return np.arange(len(groups)) - np.repeat(first, sizes)
