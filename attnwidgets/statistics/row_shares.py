"""Rows of attention as shares: how much every query attends to every key, and which rows count.

`Roles` describes the elements of a map (special, word, sentence, position); `Rows` are some heads of a layer
as shares, with sums over the rows that count. `means` reads them in blocks of queries, so that a long text
needs the memory of a few rows.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.explanations.results.units import regroup
from attnwidgets.tracing.text.display import is_blank

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.tracing.text.units import TokenAxis

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Queries = Literal["all", "text"]
Targets = Callable[["Roles", int], list[int]]
Measure = Callable[["Rows"], "Sums"]

QUERIES: tuple[Queries, ...] = ("all", "text")
_CHUNK_BYTES = 64_000_000
"""Most bytes of shares in a chunk of heads."""
_BLOCK_BYTES = 2**23
"""Most bytes of values whose rows are processed together: they stay in a cache, and a call costs little."""
_WHOLE_LAYER = 2**22
"""Number of values up to which a layer is read as a whole, cached by its trace, and processed in float64."""
_NOT_NEGATIVE = -1e-6
_TINY = np.finfo(np.float64).tiny


class Roles:
    """Roles of a map's elements: special or text, sentence, position.

    Args:
        source: The map.
        queries: "all" or "text": whether rows of special elements count.
    """

    def __init__(self, source: MixingMap, queries: Queries = "all") -> None:
        require_choice("queries", queries, QUERIES)
        self.unit = source.unit
        self.queries, self.keys = (len(unit) for unit in (source.query_unit, source.key_unit))
        self.square = source.query is source.key or source.query == source.key
        self.causal = self.square and source.causal
        self.sink = source.sink
        self.labels = source.key_labels
        self.special: Bool = np.array(source.key_unit.special, dtype=bool)
        self.special_queries: Bool = np.array(source.query_unit.special, dtype=bool)
        self._axis: TokenAxis = source.key
        self._only_text = queries == "text"
        self._targets: dict[Targets, Bool] = {}

    @cached_property
    def seen(self) -> Bool:
        """Which keys every query can see [query, key]: those up to itself if the map is causal."""
        seen = np.ones((self.queries, self.keys), dtype=bool)
        return np.tril(seen) if self.causal else seen

    @cached_property
    def visible(self) -> NDArray[np.int64]:
        """Number of keys every query can see [query]: those up to itself if the map is causal."""
        if self.causal:
            return np.arange(1, self.queries + 1)
        return np.full(self.queries, self.keys)

    @cached_property
    def counted(self) -> Bool:
        """Rows that count [query]: not those that see a single key, whose share is always 1.

        If the map has a single key, all rows count.
        """
        rows = (self.visible > 1) | (self.keys == 1)
        return rows & ~self.special_queries if self._only_text else rows

    @cached_property
    def words(self) -> NDArray[np.int64] | None:
        """The word of every key [key]; None if these elements are not pieces of words."""
        return self._owner("word")

    def targets_of(self, targets: Targets) -> Bool:
        """Return the targets of all queries that a query can see [query, key].

        Args:
            targets: Takes the roles and a query, returns its keys.
        """
        if targets not in self._targets:
            mask = np.zeros((self.queries, self.keys), dtype=bool)
            for query in range(self.queries):
                mask[query, targets(self, query)] = True
            self._targets[targets] = np.tril(mask) if self.causal else mask
        return self._targets[targets]

    @cached_property
    def occurrences(self) -> dict[str, list[int]]:
        """The positions of every label, ascending; special elements are left out."""
        positions: dict[str, list[int]] = {label: [] for label in self.labels}
        for index, label in enumerate(self.labels):
            if not self.special[index]:
                positions[label].append(index)
        return positions

    @cached_property
    def punctuation(self) -> Bool:
        """Which keys are punctuation marks or symbols, without letters and digits, and not special [key]."""
        kinds = [{unicodedata.category(character)[0] for character in label} for label in self.labels]
        is_mark = np.array([bool(kind & {"P", "S"}) and not kind & {"L", "N"} for kind in kinds], dtype=bool)
        spaces = np.array([is_blank(label) for label in self.labels], dtype=bool)
        return is_mark & ~spaces & ~self.special

    @cached_property
    def rank(self) -> list[int]:
        """How often the label of every key occurred before it [key]; 0 for special elements."""
        result = [0] * self.keys
        for positions in self.occurrences.values():
            for before, position in enumerate(positions):
                result[position] = before
        return result

    @cached_property
    def sentences(self) -> NDArray[np.int64] | None:
        """The sentence of every key [key], -1 for special elements; None if it is unknown."""
        sentences = self._owner("sentence")
        return None if sentences is None else np.where(self.special, -1, sentences)

    @cached_property
    def texts(self) -> NDArray[np.int64]:
        """The text of every key, in a pair of texts [key]; -1 for special elements."""
        spans = self._axis.units[self.unit].spans
        texts = np.array([self._axis.segment[span[0]] if span else -1 for span in spans])
        return np.where(self.special, -1, texts)

    def _owner(self, name: str) -> NDArray[np.int64] | None:
        """Return the element of another unit that contains every key [key]; None without such a unit."""
        unit = self._axis.units.get(name)
        groups = None if unit is None else regroup(self._axis.units[self.unit], unit)
        if groups is None:
            return None
        owner = np.full(self.keys, -1)
        for number, group in enumerate(groups):
            owner[list(group)] = number
        return owner


Sums = tuple[Float, Float]
"""Totals and counts [head, ...] of some rows; they add over blocks of rows, and their quotient is a mean."""


@dataclass(frozen=True)
class Rows:
    """Some queries of the heads of a layer.

    Attributes:
        shares: Rows divided by their sums [head, query, key]; a row of zeros stays zero. With a sink they
            are not divided: the rest to 1 goes to the sink. Of a causal map, keys after the last of these
            queries may be left out.
        filled: Rows that are not zero, unlike that of a fully masked query [head, query]. With a sink all are
            True, as a row of zeros gives everything to the sink.
        roles: Roles of the elements.
        seen: Which keys every query of the layer is compared with [query, key]: those up to itself in a
            causal map, of these only some in a layer that has a window or chooses keys.
        queries: The queries, among those of the roles.
    """

    shares: NDArray[np.floating]
    filled: Bool
    roles: Roles
    seen: Bool
    queries: slice

    @cached_property
    def to_sink(self) -> Float:
        """Share of every row that goes to the sink [head, query]; zeros without a sink."""
        if not self.roles.sink:
            return np.zeros(self.filled.shape)
        rest: Float = (1.0 - self.shares.sum(axis=2, dtype=np.float64)).clip(0.0, 1.0)
        return rest

    def sums(self, values: NDArray[np.floating], where: Bool | None = None) -> Sums:
        """Return the sum over the rows that count, and their number [head].

        Args:
            values: A number for every row [head, query].
            where: Restrict the sum to these rows [query].
        """
        rows = self.filled & self.roles.counted[self.queries]
        rows = rows if where is None else rows & where
        return np.where(rows, values, 0.0).sum(axis=1, dtype=np.float64), rows.sum(axis=1, dtype=np.float64)

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """Position of every query among all of the map [query]."""
        return np.arange(self.queries.start, self.queries.stop)

    def mass(self, keys: NDArray[Any]) -> NDArray[np.floating]:
        """Return the share of every row that goes to some keys [head, query].

        Args:
            keys: The keys [key], or those of every query [query, key], as booleans or factors on the shares.
        """
        factors = keys[..., : self.shares.shape[2]].astype(self.shares.dtype)
        return self.shares @ factors if keys.ndim == 1 else np.einsum("hqk,qk->hq", self.shares, factors)

    def at(self, offset: int) -> NDArray[np.floating]:
        """Return the share of the key so many elements after the query [head, query]; 0 if none is there."""
        keys = self.positions + offset
        there = np.flatnonzero((keys >= 0) & (keys < self.shares.shape[2]))
        result = np.zeros(self.filled.shape, dtype=self.shares.dtype)
        result[:, there] = self.shares[:, there, keys[there]]
        return result

    def received(self, where: Bool | None = None, *, itself: bool = False) -> Sums:
        """Return the sum of the shares that go to every key, and how many queries see it [head, key].

        Args:
            where: Restrict the sum to these rows [query].
            itself: Whether a key's query counts; else only the other queries of a square map do.
        """
        rows = self.filled if where is None else self.filled & where
        # Keys that a query does not see have no share, so that a product of matrices sums those that count.
        counted = rows.astype(self.shares.dtype)
        totals = np.zeros((len(rows), self.roles.keys))
        totals[:, : self.shares.shape[2]] = (counted[:, None] @ self.shares)[:, 0]
        counts: Float = rows.astype(np.float64) @ self.seen.astype(np.float64)
        if not itself:
            own = self.queries
            totals[:, own] = np.maximum(totals[:, own] - self.at(0) * rows, 0.0)
            counts[:, own] -= rows & self.seen[:, own].diagonal()
        return totals, counts

    @cached_property
    def entropy(self) -> NDArray[np.floating]:
        """Entropy of every row, in nats: -sum_j a_ij ln a_ij, where 0 ln 0 is 0 [head, query].

        A sink counts as one more key.
        """
        # The smallest positive number stands for 0: its product with 0 is 0, and a `where` takes longer.
        logs = np.maximum(self.shares, np.finfo(self.shares.dtype).tiny)
        np.log(logs, out=logs)
        logs *= self.shares
        of_keys = logs.sum(axis=2)
        return 0.0 - of_keys - self.to_sink * np.log(np.maximum(self.to_sink, _TINY))


def divided(totals: Float, counts: NDArray[Any]) -> Float:
    """Return totals / counts; NaN where the count is 0."""
    return np.divide(totals, counts, out=np.full(totals.shape, math.nan), where=counts > 0)


def source_of(
    shown: Any, stack: str | None, layers: Any, unit: str | None, function: str
) -> tuple[MixingMap, str]:
    """Return the map to use, and the unit to read it in.

    Raises:
        TypeError: If `shown` is neither a trace nor a map.
        ValueError: If values are signed, the unit is not available, or `stack` differs from the map's.
    """
    if isinstance(shown, MixingMap):
        if stack is not None and stack != shown.stack:
            raise ValueError(f"stack is {stack!r}, but this map belongs to stack {shown.stack!r}.")
        source = shown if layers is None else shown.select(layer=layers)
    else:
        require_trace(shown, f"statistics.{function}")
        source = attention(shown, stack, layers=layers)
    if source.known("signed"):
        raise ValueError(
            f"{function} needs shares, but {source.title} has negative values, which are not a distribution "
            "over keys. Pass a map of attention or of another measure that is not signed."
        )
    unit = unit or source.unit
    source.to(unit)  # raises for an unknown unit; computes nothing
    return source, unit


def by_layer(source: MixingMap, unit: str, roles: Roles, desc: str) -> Iterator[tuple[int, Rows]]:
    """Yield (index of the layer, some queries of all its heads), layer by layer and block by block.

    Layers are not cached, and a long text's are never built.

    Args:
        source: The map; its layers are computed, with a progress bar.
        unit: The unit to read it in.
        roles: Roles of the elements in that unit.
        desc: Description of the progress bar.

    Raises:
        ValueError: If a value is negative.
    """
    dtype = np.float32 if _is_long(source) else np.float64
    for index, number in enumerate(progress(source.layers, desc=desc)):
        seen = seen_in(source, unit, roles, number)
        # A map of this layer alone: its aggregation to words is freed with it.
        of_layer = source.select(layer=number).to(unit)
        hides_later = roles.causal and of_layer.causal
        for queries, values in of_layer.blocks(number, limit=_BLOCK_BYTES):
            heads = values if source.heads is not None else values[None]
            read = heads[..., : queries.stop] if hides_later else heads
            yield index, rows_of(read, roles, f"layer {number}", seen, queries, dtype)


def means(source: MixingMap, unit: str, roles: Roles, desc: str, measures: Sequence[Measure]) -> list[Float]:
    """Return measures of every head [layer, head, ...]; NaN for heads that a layer does not have.

    Args:
        source: The map; without a head axis it counts as one head.
        unit: The unit to read it in.
        roles: Roles of the elements in that unit.
        desc: Description of the progress bar.
        measures: Functions of rows that return their sums.
    """
    heads = 1 if source.heads is None else len(source.heads)
    result: list[tuple[Float, Float]] = []
    for layer, rows in by_layer(source, unit, roles, desc):
        parts = [measure(rows) for measure in measures]
        if not result:
            shapes = [(len(source.layers), heads, *totals.shape[1:]) for totals, _ in parts]
            result = [(np.zeros(shape), np.zeros(shape)) for shape in shapes]
        for sums, part in zip(result, parts, strict=True):
            for total, added in zip(sums, part, strict=True):
                total[layer, : len(added)] += added
    return [divided(*sums) for sums in result]


def seen_in(source: MixingMap, unit: str, roles: Roles, layer: int) -> Bool:
    """Return which keys every query of a layer is compared with, as far as this is known [query, key]."""
    compared: Bool | None = source.compared(layer) if unit == source.unit else None
    return roles.seen if compared is None else compared


def values_by_layer(
    source: MixingMap, unit: str, roles: Roles, desc: str, queries: NDArray[np.intp] | None = None
) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
    """Yield (index of the layer, index of the first head, values [head, query, key]); see `by_layer`.

    `queries` are the rows to read; None: all.
    """
    rows = None if queries is None else queries.tolist()
    size = (roles.queries if rows is None else len(rows)) * roles.keys * np.dtype(np.float64).itemsize
    heads = max(1, _CHUNK_BYTES // max(size, 1))
    for index, number in enumerate(progress(source.layers, desc=desc)):
        if source.knows_rows and source.heads is not None and _is_long(source):
            # Read some heads at a time; the layer is never built.
            of_layer = source.heads[: len(source.rows(number, None, [0]))]
            for first in range(0, len(of_layer), heads):
                some = source.select(layer=number, head=of_layer[first : first + heads])
                yield index, first, some.to(unit).rows(number, queries=rows)
            continue
        # A map of this layer alone: its aggregation to words is freed with it.
        of_number = source.select(layer=number).to(unit)
        values = of_number.layer(number) if rows is None else of_number.rows(number, queries=rows)
        values = values if source.heads is not None else values[None]
        for first in range(0, len(values), heads):
            yield index, first, values[first : first + heads]


def _is_long(source: MixingMap) -> bool:
    return len(source.heads or ()) * len(source.query) * len(source.key) > _WHOLE_LAYER


def rows_of(
    values: Any, roles: Roles, name: str, seen: Bool, queries: slice | None = None, dtype: Any = np.float64
) -> Rows:
    """Return values [head, query, key] as rows of shares; `name` is for the message.

    `seen` are the keys with which all queries are compared [query, key], `queries` those of the values.

    Raises:
        ValueError: If a value is negative.
    """
    queries = queries or slice(0, roles.queries)
    shares = np.array(values, dtype=dtype)
    lowest = shares.min() if shares.size else 0.0
    if lowest < _NOT_NEGATIVE:
        raise ValueError(f"{name} has negative values (down to {lowest:.3g}): shares cannot be negative.")
    if lowest < 0:
        np.maximum(shares, 0.0, out=shares)
    if roles.sink:
        return Rows(shares, np.ones(shares.shape[:2], dtype=bool), roles, seen[queries], queries)
    totals = shares.sum(axis=2, keepdims=True)
    shares /= np.where(totals > 0, totals, 1.0)
    return Rows(shares, totals[:, :, 0] > 0, roles, seen[queries], queries)
