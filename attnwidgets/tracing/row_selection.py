"""Which heads and queries of a layer are meant, and in which blocks a layer is gone through."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

Chosen = Iterable[int] | slice | None
"""Some positions of an axis: their numbers, a slice, or None for all."""

BLOCK_BYTES = 2**22
"""Bytes of attention weights that are gone through at a time."""

STEP = 16
"""Queries that are multiplied at least: kernels for fewer round differently from those for a whole layer."""

FEW = 64
"""Up to so many queries all are computed, since small matrices have kernels of their own."""


def positions(chosen: Chosen, count: int, what: str) -> list[int] | slice:
    """Return the positions that are meant; a slice goes forward and has both its ends.

    Raises:
        IndexError: Where one is out of range; the message names the range.
        TypeError: Where it is no integer.
    """
    if chosen is None:
        return slice(0, count)
    if isinstance(chosen, slice):
        start, stop, step = chosen.indices(count)
        return slice(start, max(start, stop)) if step == 1 else list(range(count))[chosen]
    if not isinstance(chosen, Iterable):
        raise TypeError(f"{what} must be a list of numbers or a slice, not {chosen!r}; one is [{chosen!r}]")
    found = []
    for number in chosen:
        at = operator.index(number)
        if not -count <= at < count:
            raise IndexError(f"{what} {at} is out of range: there are 0 to {count - 1}")
        found.append(at % count)
    return found


def to_compute(queries: list[int] | slice, count: int) -> tuple[list[int] | slice, list[int] | slice]:
    """Return the queries to compute so that the chosen ones have the bits they have in the whole layer.

    A product of one to three rows is rounded otherwise than the same rows of a large product (by about 1e-6
    of a weight), so that a few rows are computed `STEP` at a time.

    Args:
        queries: The chosen ones.
        count: How many there are.

    Returns:
        What is computed, and where the chosen ones then stand among it.
    """
    some = numbers(queries)
    number = len(some)
    if count <= FEW:
        return slice(0, count), queries
    if number >= FEW or not number:
        return queries, slice(0, number)
    return [*some, *[some[-1]] * (-number % STEP)], slice(0, number)


def numbers(chosen: list[int] | slice) -> Sequence[int]:
    """Return the positions one by one."""
    return range(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen


def blocks(count: int, row_bytes: int, limit: int = BLOCK_BYTES) -> Iterator[slice]:
    """Return `count` queries as blocks of about `limit` bytes.

    Blocks begin at multiples of `STEP`, and none is shorter but where there are no more queries: what is
    computed block by block then has the bits of what is computed at once.

    Args:
        count: How many queries there are.
        row_bytes: Bytes of one query's weights, over all heads that are looked at.
        limit: Bytes of a block; a block of `STEP` queries may be larger.
    """
    fitting = max(STEP, limit // max(1, row_bytes) // STEP * STEP)
    starts = range(0, max(1, count - STEP + 1), fitting)
    for start in starts:
        yield slice(start, count if start == starts[-1] else start + fitting)
