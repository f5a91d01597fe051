"""Maps and attributions by coarser units: tokens joined into words, sentences or any spans.

Clark et al. 2019 (What Does BERT Look At?, section 3): attention *to* a split word is the sum over its
pieces, attention *from* a split word is the mean over its pieces. Rows that sum to 1 still do.
For a word s of a pieces and a word t this is A[s, t] = 1/a * sum_i sum_j A[s_i, t_j].
Attributions add up: the attribution of a word is the sum over its pieces.
"""

from __future__ import annotations

import dataclasses
import itertools
from abc import abstractmethod
from dataclasses import dataclass, replace
from itertools import pairwise
from operator import index
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed
from attnwidgets.explanations.results.lazy_layers import LazyLayers
from attnwidgets.tracing.row_selection import blocks
from attnwidgets.tracing.text.display import joined
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.explanations.results.lazy_layers import RowFunction
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import TokenAxis

    Spans: TypeAlias = Sequence[tuple[int, int]]
    """Pairs (start, end) of tokens, the end not included."""
    Given: TypeAlias = Unit | Spans

Groups = tuple[tuple[int, ...], ...]
Float = NDArray[np.float64]
_SPAN_NAMES = ("span", "spans")


def new_unit(unit: Unit | Spans, axis: TokenAxis, present: str, side: str) -> Unit:
    """Return the unit that a user gave for an axis, checked.

    Args:
        unit: A Unit, or spans of tokens as pairs (start, end), the end not included.
        axis: The axis that it divides.
        present: Name of the axis' present unit.
        side: Name of the axis in errors.

    Raises:
        TypeError: For spans that are not pairs of numbers.
        ValueError: If a span is empty or leaves the tokens, a token lies in no span or in several, or the
            unit has the name of the present unit.
    """
    if not isinstance(unit, Unit):
        unit = _unit_of_spans(unit, axis, next(name for name in _SPAN_NAMES if name != present), side)
    check_partition(unit, len(axis), side)
    if unit.name == present:
        raise ValueError(f"unit {present!r} is the present unit; give the new Unit another name.")
    return unit


def _unit_of_spans(spans: Spans, axis: TokenAxis, name: str, side: str) -> Unit:
    if not np.iterable(spans):
        raise TypeError(
            f"unit {spans!r} is neither a unit's name nor a Unit nor a list of pairs (start, end)."
        )
    tokens = axis.units.get("token")
    special = tokens.special if tokens is not None else (False,) * len(axis)
    members = []
    for number, pair in enumerate(spans):
        try:
            start, end = map(index, pair)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"spans[{number}] is {pair!r}; a span is a pair (start, end) of token numbers, the end not "
                "included, as in .to([(0, 2), (2, 6)])."
            ) from error
        if not 0 <= start < end <= len(axis):
            raise ValueError(
                f"spans[{number}] is ({start}, {end}), and the {side} axis has tokens 0 to {len(axis) - 1}: "
                f"a span starts at 0 or later, ends at {len(axis)} or earlier, and holds a token."
            )
        members.append(tuple(range(start, end)))
    labels = tuple(joined([axis.tokens[i] for i in group], axis.tokens) for group in members)
    return Unit(name, labels, tuple(members), tuple(all(special[i] for i in group) for group in members))


def add_units(query: TokenAxis, key: TokenAxis, units: tuple[Unit, Unit]) -> tuple[TokenAxis, TokenAxis]:
    """Return two axes with a unit each, as the same object if axes and units are the same.

    Raises:
        ValueError: If the units have different names.
    """
    if units[0].name != units[1].name:
        raise ValueError(f"the units of a pair need one name, not {units[0].name!r} and {units[1].name!r}.")
    extended = [
        axis if axis.units.get(unit.name) == unit else replace(axis, units={**axis.units, unit.name: unit})
        for axis, unit in zip((query, key), units, strict=True)
    ]
    same = key is query and units[0] == units[1]
    return extended[0], extended[0] if same else extended[1]


def check_partition(unit: Unit, n_tokens: int, side: str) -> None:
    """Raise ValueError unless each of `n_tokens` tokens lies in exactly one element of `unit`."""
    counts = [0] * n_tokens
    for span in unit.spans:
        for token in span:
            if not 0 <= token < n_tokens:
                raise ValueError(
                    f"unit {unit.name!r} names token {token}, "
                    f"but the {side} axis has tokens 0 to {n_tokens - 1}."
                )
            counts[token] += 1
    wrong = [token for token, count in enumerate(counts) if count != 1]
    if wrong:
        how = "no element" if counts[wrong[0]] == 0 else "several elements"
        raise ValueError(
            f"unit {unit.name!r} does not divide the {side} axis: token {wrong[0]} lies in {how}; "
            f"give every token of the {n_tokens} exactly one span."
        )


def regroup(fine: Unit, coarse: Unit) -> Groups | None:
    """Return the elements of `fine` in each element of `coarse`, or None if they do not nest.

    An element without tokens gets an empty group.
    """
    if fine.spans == coarse.spans:
        return tuple((element,) if span else () for element, span in enumerate(fine.spans))
    owner = {token: element for element, span in enumerate(coarse.spans) for token in span}
    groups: list[list[int]] = [[] for _ in coarse.spans]
    for element, span in enumerate(fine.spans):
        owners: set[Any] = {owner.get(token) for token in span}
        if None in owners or len(owners) > 1:
            return None
        for parent in owners:  # none, for an element without tokens
            groups[parent].append(element)
    return tuple(map(tuple, groups))


def token_counts(unit: Unit) -> tuple[int, ...]:
    """Return the number of tokens of every element: weights that make means of means exact."""
    return tuple(len(span) for span in unit.spans)


def sum_groups(values: NDArray[np.floating], groups: Groups, axis: int = -1) -> Float:
    """Sum `values` over groups of indices along `axis`; an empty group gives zero.

    A gather and a `np.add.reduceat` in float64: linear in the size of `values`, for any groups.
    """
    values = np.moveaxis(np.asarray(values, dtype=np.float64), axis, -1)
    order = [member for group in groups for member in group]
    if order != list(range(values.shape[-1])):
        values = np.take(values, order, axis=-1)  # ten times as fast as an index
    filled = [index for index, group in enumerate(groups) if group]
    starts = np.cumsum([0, *(len(groups[index]) for index in filled)])[:-1]
    sums: Float = np.zeros((*values.shape[:-1], 0))
    if filled:
        sums = np.add.reduceat(values, starts, axis=-1)
    if len(filled) < len(groups):
        # Only then: placing the sums takes longer than the sums themselves.
        placed = np.zeros((*values.shape[:-1], len(groups)))
        placed[..., filled] = sums
        sums = placed
    return np.moveaxis(sums, -1, axis)


def mean_groups(
    values: NDArray[np.floating], groups: Groups, weights: Sequence[float], axis: int = -1
) -> Float:
    """Average `values` over groups along `axis`, weighted by `weights` [index]; an empty group gives zero."""
    weight = np.asarray(weights, dtype=np.float64)
    shape = [1] * np.ndim(values)
    shape[axis] = -1
    totals = sum_groups(weight, groups)
    scale = np.divide(1.0, totals, out=np.zeros_like(totals), where=totals > 0)
    if np.all(weight == 1.0):  # the usual case, from tokens: no weighted copy
        return sum_groups(values, groups, axis) * scale.reshape(shape)
    return sum_groups(values * weight.reshape(shape), groups, axis) * scale.reshape(shape)


def aggregate_map(
    values: NDArray[np.floating], query_groups: Groups, query_weights: Sequence[float], key_groups: Groups
) -> Float:
    """Aggregate [..., query, key]: sum over pieces of a key, mean over pieces of a query (float64)."""
    return mean_groups(sum_groups(values, key_groups, -1), query_groups, query_weights, -2)


def keeps_order(query: Unit, key: Unit) -> bool:
    """Whether a causal token map stays lower triangular in these units: spans follow each other."""
    filled = [span for span in query.spans if span]
    ordered = all(max(before) < min(after) for before, after in pairwise(filled))
    return ordered and query.spans == key.spans


@dataclass(frozen=True)
class Grid:
    """Rows and columns of a map in the unit in which it is computed.

    Args:
        query: The axis of the rows.
        key: The axis of the columns.
        name: The unit of both.
        causal: Whether no row draws from a later column.
    """

    query: TokenAxis
    key: TokenAxis
    name: str
    causal: bool

    @property
    def spans(self) -> tuple[tuple[int, ...], ...] | None:
        """The tokens of every column; None if each is a single token, in order."""
        spans = self.key.units[self.name].spans
        return None if _single(spans) else spans

    def rows(
        self, values: NDArray[np.floating], how: Literal["mean", "max"] = "mean"
    ) -> NDArray[np.floating]:
        """Return rows of tokens [..., token, column] as rows of the unit; a row without tokens is zero."""
        spans = self.query.units[self.name].spans
        if _single(spans):
            return values
        if how == "mean":
            return mean_groups(values, spans, [1.0] * values.shape[-2], axis=-2)
        rows = np.zeros((*values.shape[:-2], len(spans), values.shape[-1]))
        for row, span in enumerate(spans):
            if span:
                rows[..., row, :] = values[..., list(span), :].max(axis=-2)
        return rows


def _single(spans: tuple[tuple[int, ...], ...]) -> bool:
    return all(span == (token,) for token, span in enumerate(spans))


def unit_grid(trace: TraceLike, stack: str, unit: str | Unit | tuple[Unit, Unit] | None) -> Grid:
    """Return a stack's rows and columns in a unit; by default tokens.

    Raises:
        ValueError: If the unit is unknown or does not divide the tokens.
    """
    query, key = trace.axes(stack)
    if unit is None:
        name = next(iter(query.units))
    elif isinstance(unit, str):
        name = unit
        require_choice("unit", unit, [shared for shared in query.units if shared in key.units])
    else:
        pair = unit if isinstance(unit, tuple) else (unit, unit)
        check_partition(pair[0], len(query), "query")
        check_partition(pair[1], len(key), "key")
        query, key = add_units(query, key, pair)
        name = pair[0].name
    causal = trace.is_causal(stack) and keeps_order(query.units[name], key.units[name])
    return Grid(query, key, name, causal)


class ReadByUnits(LazyLayers):
    """Layers whose rows and columns can be aggregated: a MixingMap in any unit."""

    @property
    @abstractmethod
    def map(self) -> MixingMap:
        """This map."""

    @abstractmethod
    def _derive(
        self,
        compute: Callable[[int], Any],
        step: str,
        *,
        rows: RowFunction | None = None,
        by_layer: bool = True,
        **changes: Any,
    ) -> MixingMap:
        """Return the map that `compute` derives from this map, layer by layer."""

    def available_units(self) -> tuple[str, ...]:
        """Return the units that `to` accepts: the map's unit, and those in which its elements nest.

        A unit of a single axis (words of a transcript, frames of its sound) leaves the other as it is.
        """
        names = dict.fromkeys((*self.query.units, *self.key.units))
        return tuple(name for name in names if self._groups(name) is not None)

    def _units_named(self, name: str) -> tuple[Unit, Unit]:
        """Return the unit of each axis with a name; an axis without it keeps its elements under that name."""
        query = self.query.units.get(name) or dataclasses.replace(self.query_unit, name=name)
        return query, self.key.units.get(name) or dataclasses.replace(self.key_unit, name=name)

    def _groups(self, name: str) -> tuple[Groups, Groups] | None:
        query_unit, key_unit = self._units_named(name)
        query = regroup(self.query_unit, query_unit)
        is_same = self.query_unit.spans == self.key_unit.spans and query_unit.spans == key_unit.spans
        key = query if is_same else regroup(self.key_unit, key_unit)
        return None if query is None or key is None else (query, key)

    def to(self, unit: str | Given | tuple[Given, Given]) -> MixingMap:
        """Return the map in a coarser unit: sum over the pieces of a key, mean over the pieces of a query.

        Sentences from words are the same as sentences from tokens.

        Args:
            unit: A unit's name (see `available_units`); a Unit, or spans of tokens as pairs (start, end), the
                end not included, for both axes; or a tuple of two of these, for queries and keys.
                `.to([(0, 2), (2, 6)])` turns six tokens into two elements.

        Raises:
            TypeError: For spans that are not pairs of numbers.
            ValueError: If the unit is unknown, finer than this map's, or does not divide the tokens: a token
                lies in no span or in several, or a span leaves the axis.

        Source: Clark et al. 2019, section 3.
        """
        if not isinstance(unit, str):
            return self._with_units(unit)
        if unit == self.unit:
            return self.map
        if unit not in self.query.units and unit not in self.key.units:
            require_choice("unit", unit, self.available_units())
        groups = self._groups(unit)
        if groups is None:
            raise ValueError(
                f"a map by {self.unit} cannot be read by {unit}: one {self.unit} lies in several {unit}s. "
                f"It can be read by {listed(self.available_units())}; start from the method's own map."
            )
        weights = token_counts(self.query_unit)
        query_unit, key_unit = self._units_named(unit)
        query, key = add_units(self.query, self.key, (query_unit, key_unit))

        def rows(number: int, heads: Sequence[int] | None, queries: Sequence[int]) -> Array:
            """Return coarse rows, computed from their pieces a block at a time."""
            members = [groups[0][query] for query in queries]
            pieces = sum(map(len, members)) / max(1, len(members))
            coarse = []
            for part in blocks(len(members), int(pieces * self._row_bytes(heads))):
                fine = [piece for group in members[part] for piece in group]
                count = itertools.count()
                local = tuple(tuple(next(count) for _ in group) for group in members[part])
                values = self.rows(number, heads, fine)
                coarse.append(aggregate_map(values, local, [weights[piece] for piece in fine], groups[1]))
            return np.concatenate(coarse, axis=-2)

        def whole(number: int) -> Array:
            if self._large:
                return rows(number, None, range(len(groups[0])))
            return aggregate_map(self.layer(number), groups[0], weights, groups[1])

        return self._derive(
            whole,
            f"by {unit} (sum over key pieces, mean over query pieces)",
            rows=rows,
            unit=unit,
            query=query,
            key=key,
            readable=None,  # of tokens
            causal=self.known("causal") if keeps_order(query.units[unit], key.units[unit]) else None,
        )

    def _with_units(self, unit: Given | tuple[Given, Given]) -> MixingMap:
        sides: Any = unit if _is_pair_of_sides(unit) else (unit, unit)
        query_unit = new_unit(sides[0], self.query, self.unit, "query")
        key_unit = new_unit(sides[1], self.key, self.unit, "key")
        query, key = add_units(self.query, self.key, (query_unit, key_unit))
        extended = self._derive(self.layer, "", rows=self.rows, query=query, key=key, keep=False)
        return extended.to(query_unit.name)


def _is_pair_of_sides(unit: Any) -> bool:
    """Return whether `unit` is a pair of units, for queries and for keys, rather than spans."""
    pair = isinstance(unit, tuple) and len(unit) == len(("query", "key"))
    return pair and all(
        isinstance(side, Unit) or (np.iterable(side) and np.ndim(next(iter(side), 0)) > 0) for side in unit
    )
