"""Selections of a layer's heads and queries, and the blocks of queries in which it is processed."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence

Chosen = Iterable[int] | slice | None
"""Some positions of an axis: their numbers, a slice, or None for all."""

BLOCK_BYTES = 2**22
"""Bytes of attention weights that are processed at a time."""

STEP = 16
"""Smallest number of queries in a product: kernels for fewer round differently from those for a layer."""

FEW = 64
"""Up to this many queries, all are computed, since small matrices have separate kernels."""


def positions(chosen: Chosen, count: int, axis: str) -> list[int] | slice:
    """Return the selected positions; a returned slice goes forward and has both ends.

    Raises:
        IndexError: If a position is out of range; the message names the range.
        TypeError: If a position is not an integer.
    """
    if chosen is None:
        return slice(0, count)
    if isinstance(chosen, range) and chosen.step == 1 and 0 <= chosen.start < chosen.stop <= count:
        return slice(chosen.start, chosen.stop)
    if isinstance(chosen, slice):
        start, stop, step = chosen.indices(count)
        return slice(start, max(start, stop)) if step == 1 else list(range(count))[chosen]
    if not isinstance(chosen, Iterable):
        raise TypeError(f"{axis} must be a list of numbers or a slice, not {chosen!r}; one is [{chosen!r}]")
    indices = [operator.index(number) for number in chosen]
    for index in indices:
        if not -count <= index < count:
            raise IndexError(f"{axis} {index} is out of range: there are 0 to {count - 1}")
    return [index % count for index in indices]


def to_compute(queries: list[int] | slice, count: int) -> tuple[list[int] | slice, list[int] | slice]:
    """Return the queries to compute so that the chosen queries have the bits they have in the whole layer.

    A product of one to three rows is rounded differently from the same rows of a large product (by about
    1e-6 of a weight), so a few rows are computed `STEP` at a time.

    Args:
        queries: The chosen queries.
        count: Number of queries in the layer.

    Returns:
        The queries to compute, and the positions of the chosen queries among them.
    """
    chosen = numbers(queries)
    n_chosen = len(chosen)
    if count <= FEW:
        return slice(0, count), queries
    if n_chosen >= FEW or not n_chosen or (isinstance(queries, slice) and n_chosen % STEP == 0):
        return queries, slice(0, n_chosen)
    return [*chosen, *[chosen[-1]] * (-n_chosen % STEP)], slice(0, n_chosen)


def numbers(chosen: list[int] | slice) -> Sequence[int]:
    """Return the selected positions as a sequence."""
    return range(chosen.start, chosen.stop) if isinstance(chosen, slice) else chosen


def blocks(count: int, row_bytes: int, limit: int = BLOCK_BYTES) -> Iterator[slice]:
    """Return `count` queries as blocks of about `limit` bytes.

    Blocks begin at multiples of `STEP`, and none has fewer queries unless `count` is smaller, so that
    results computed block by block have the bits of those computed at once.

    Args:
        count: Number of queries.
        row_bytes: Bytes of one query's weights, over all selected heads.
        limit: Bytes of a block; a block of `STEP` queries may be larger.
    """
    fitting = max(STEP, limit // max(1, row_bytes) // STEP * STEP)
    starts = range(0, max(1, count - STEP + 1), fitting)
    for start in starts:
        yield slice(start, count if start == starts[-1] else start + fitting)
