"""Slots: the best few examples of every row, kept while they stream by."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

NONE = -1
"""Stands for a text, a place or a token id that is not there."""


class Slots:
    """A table [row, slot] of examples, in every row those with the smallest keys, in order.

    Args:
        rows: How many rows.
        size: How many examples a row keeps.
        width: Tokens of an example's context.
    """

    def __init__(self, rows: int, size: int, width: int) -> None:
        self.size = size
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
        payload: Callable[[NDArray[np.int64]], Mapping[str, NDArray[Any]]],
    ) -> None:
        """Take in candidates.

        Args:
            rows: [candidate].
            keys: [candidate].
            payload: Returns the other fields of chosen candidates, by their places in `rows`.
        """
        chosen = np.flatnonzero(keys < self.fields["key"][rows, -1])
        if not len(chosen):
            return
        chosen = chosen[np.lexsort((keys[chosen], rows[chosen]))]
        rank = rank_in_group(rows[chosen])
        chosen, rank = chosen[rank < self.size], rank[rank < self.size]
        touched, at = np.unique(rows[chosen], return_inverse=True)
        found = {"key": keys[chosen], **payload(chosen)}
        order = None
        for name, field in self.fields.items():
            new = np.zeros((len(touched), *field.shape[1:]), dtype=field.dtype)
            if name == "key":
                new[:] = np.inf
            new[at, rank] = found[name]
            both = np.concatenate([field[touched], new], axis=1)
            if order is None:  # the key comes first
                order = np.argsort(both, axis=1, kind="stable")[:, : self.size]
            field[touched] = taken(both, order)

    def coarsen(self, blocks: NDArray[np.int64], per_block: int, together: int) -> None:
        """Let rows of blocks run together, `together` neighbours into one; the last rows are empty then.

        Args:
            blocks: Which blocks of `per_block` rows.
            per_block: Rows of a block.
            together: How many rows become one; a power of two.
        """
        together = min(together, per_block)
        kept = per_block // together
        order = None
        for name, field in self.fields.items():
            shaped = field.reshape(-1, per_block, *field.shape[1:])
            old = shaped[blocks].reshape(len(blocks) * kept, together * self.size, *field.shape[2:])
            if order is None:
                order = np.argsort(old, axis=1, kind="stable")[:, : self.size]
            new = np.full((len(blocks), per_block, *field.shape[1:]), _EMPTY.get(name, 0), dtype=field.dtype)
            new[:, :kept] = taken(old, order).reshape(len(blocks), kept, *field.shape[1:])
            shaped[blocks] = new


_EMPTY = {"key": np.inf, "text": NONE, "place": NONE, "ids": NONE}


def taken(array: NDArray[Any], order: NDArray[np.int64]) -> NDArray[Any]:
    """Return `array` [row, slot, ...] with its slots in an order [row, slot]."""
    return np.take_along_axis(array, order.reshape(*order.shape, *[1] * (array.ndim - 2)), axis=1)


def rank_in_group(groups: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return for every element of sorted groups how many of its group stand before it."""
    first = np.flatnonzero(np.diff(groups, prepend=groups[:1] - 1))
    sizes = np.diff(first, append=len(groups))
    return np.arange(len(groups)) - np.repeat(first, sizes)
