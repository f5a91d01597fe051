"""A layer as shares: what every query draws from every key, which rows count, and what the elements are."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnwidgets._errors import suggest
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.results.aggregation import regroup
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.tracing.text.units import TokenAxis

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Queries = Literal["all", "text"]

QUERIES: tuple[Queries, ...] = ("all", "text")
_CHUNK_BYTES = 64_000_000
"""Bytes of shares that are worked on at a time; heads beyond them wait."""
_WHOLE_LAYER = 2**22
"""Values of a layer up to which it is read whole, and kept by its trace."""
_NOT_NEGATIVE = -1e-6


class Roles:
    """What the elements of a map are: special or text, of which sentence, before or after each other.

    Args:
        source: The map.
        queries: "all" or "text": whether rows of special elements count.
    """

    def __init__(self, source: MixingMap, queries: Queries = "all") -> None:
        if queries not in QUERIES:
            near = suggest(str(queries), QUERIES)
            raise ValueError(f"queries {queries!r} is not one of {', '.join(map(repr, QUERIES))}.{near}")
        self.unit = source.unit
        self.queries, self.keys = (len(unit) for unit in (source.query_unit, source.key_unit))
        self.square = source.query is source.key or source.query == source.key
        self.causal = self.square and source.causal
        self.labels = source.key_labels
        self.special: Bool = np.array(source.key_unit.special, dtype=bool)
        self.special_queries: Bool = np.array(source.query_unit.special, dtype=bool)
        self._axis: TokenAxis = source.key
        self._only_text = queries == "text"

    @cached_property
    def visible(self) -> NDArray[np.int64]:
        """How many keys every query can see [query]: those up to itself where the map is causal."""
        if self.causal:
            return np.arange(1, self.queries + 1)
        return np.full(self.queries, self.keys)

    @cached_property
    def counted(self) -> Bool:
        """Which rows count [query]: not those that see one key only, whose share is 1 whatever the head does.

        Where a map has a single key, that one is all there is, and its rows count.
        """
        rows = (self.visible > 1) | (self.keys == 1)
        return rows & ~self.special_queries if self._only_text else rows

    @cached_property
    def distance(self) -> Float:
        """How far apart query and key are, in elements [query, key]."""
        places = np.arange(self.queries, dtype=np.float64)
        return np.abs(places[:, None] - np.arange(self.keys))

    @cached_property
    def sentences(self) -> NDArray[np.int64] | None:
        """The sentence of every key [key]; -1 for special elements; None where that cannot be said."""
        unit = self._axis.units.get("sentence")
        groups = None if unit is None else regroup(self._axis.units[self.unit], unit)
        if groups is None:
            return None
        found = np.full(self.keys, -1)
        for number, group in enumerate(groups):
            found[list(group)] = number
        return np.where(self.special, -1, found)

    @cached_property
    def texts(self) -> NDArray[np.int64]:
        """The text of a pair that every key is in [key]; -1 for special elements."""
        spans = self._axis.units[self.unit].spans
        found = np.array([self._axis.segment[span[0]] if span else -1 for span in spans])
        return np.where(self.special, -1, found)


@dataclass(frozen=True)
class Rows:
    """Some heads of one layer.

    Attributes:
        shares: [head, query, key] in float64, every row divided by its sum; a row of zeros stays zero.
        filled: Which rows hold anything [head, query]: a query that is masked altogether does not.
        roles: What the elements are.
    """

    shares: Float
    filled: Bool
    roles: Roles

    def mean(self, values: Float, where: Bool | None = None) -> Float:
        """Return the mean over the rows that count [head]; NaN for a head that has none.

        Args:
            values: One number for every row [head, query].
            where: Rows beyond which none counts [query].
        """
        counted = self.roles.counted if where is None else self.roles.counted & where
        rows = self.filled & counted
        totals = np.where(rows, values, 0.0).sum(axis=1)
        return divided(totals, rows.sum(axis=1))

    def mass(self, keys: Bool) -> Float:
        """Return the share of every row that goes to some keys [head, query].

        Args:
            keys: Which [key], or which for every query [query, key].
        """
        chosen = self.shares[:, :, keys] if keys.ndim == 1 else np.where(keys, self.shares, 0.0)
        return chosen.sum(axis=2)


def divided(totals: Float, counts: NDArray[np.integer]) -> Float:
    """Return totals / counts; NaN where nothing was counted."""
    return np.divide(totals, counts, out=np.full(totals.shape, math.nan), where=counts > 0)


def source_of(
    shown: Any, stack: str | None, layers: Any, unit: str | None, function: str
) -> tuple[MixingMap, str]:
    """Return the map that is meant, and the unit it is to be read in.

    Raises:
        TypeError: Where `shown` is neither a trace nor a map.
        ValueError: Where values are signed, the unit is not to be had, or a stack is asked of a map.
    """
    if isinstance(shown, MixingMap):
        if stack is not None and stack != shown.stack:
            raise ValueError(f"stack {stack!r} was asked for, and this map is of stack {shown.stack!r}.")
        source = shown if layers is None else shown.select(layer=layers)
    else:
        require_trace(shown, function)
        source = attention(shown, stack, layers=layers)
    if source.known("signed"):
        raise ValueError(
            f"{function} takes shares, and {source.title} has negative values: they have no distribution "
            "over keys. Give a map of attention or of another measure that is not signed."
        )
    wanted = unit or source.unit
    source.to(wanted)  # whether there is such a unit; nothing is computed
    return source, wanted


def by_layer(source: MixingMap, unit: str, roles: Roles, desc: str) -> Iterator[tuple[int, int, Rows]]:
    """Yield (layer's place, first head's place, some heads' rows): one layer at a time, none of them kept.

    Args:
        source: The map; what a layer of it needs is computed here, under a progress bar.
        unit: The unit that it is read in.
        roles: What the elements are, in that unit.
        desc: What is being done.

    Raises:
        ValueError: Where a value is negative.
    """
    size = roles.queries * roles.keys * np.dtype(np.float64).itemsize
    heads = max(1, _CHUNK_BYTES // max(size, 1))
    for place, number in enumerate(progress(source.layers, desc=desc)):
        if source.knows_rows and source.heads is not None and _is_long(source):
            # No layer is built: some heads at a time.
            there = source.heads[: len(source.rows(number, None, [0]))]
            for first in range(0, len(there), heads):
                some = source.select(layer=number, head=there[first : first + heads])
                yield place, first, rows_of(some.to(unit).rows(number), roles, f"layer {number}")
            continue
        # A map of one layer, thrown away after use: aggregating to words leaves nothing behind.
        values = source.select(layer=number).to(unit).layer(number)
        values = values if source.heads is not None else values[None]
        for first in range(0, len(values), heads):
            yield place, first, rows_of(values[first : first + heads], roles, f"layer {number}")


def _is_long(source: MixingMap) -> bool:
    return len(source.heads or ()) * len(source.query) * len(source.key) > _WHOLE_LAYER


def rows_of(values: Any, roles: Roles, what: str) -> Rows:
    """Return heads [head, query, key] as shares.

    Raises:
        ValueError: Where a value is negative.
    """
    shares = np.array(values, dtype=np.float64)
    if shares.size and shares.min() < _NOT_NEGATIVE:
        raise ValueError(
            f"{what} has negative values (down to {shares.min():.3g}): shares are never negative."
        )
    np.maximum(shares, 0.0, out=shares)
    totals = shares.sum(axis=2, keepdims=True)
    np.divide(shares, totals, out=shares, where=totals > 0)
    return Rows(shares, totals[:, :, 0] > 0, roles)
