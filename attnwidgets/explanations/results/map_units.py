"""Maps by coarser units: words, sentences, any spans."""

from __future__ import annotations

import dataclasses
import itertools
from abc import abstractmethod
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import listed
from attnwidgets.explanations.results.aggregation import (
    Groups,
    add_units,
    aggregate_map,
    keeps_order,
    new_unit,
    regroup,
    token_counts,
)
from attnwidgets.explanations.results.lazy_layers import LazyLayers
from attnwidgets.tracing.row_selection import blocks
from attnwidgets.tracing.text.units import Unit

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import TypeAlias

    from attnwidgets.explanations.results.aggregation import Spans
    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.explanations.results.lazy_layers import RowFunction
    from attnwidgets.explanations.results.mixing_map import MixingMap

    Given: TypeAlias = Unit | Spans


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
        """Return the map that `compute` derives from this one, layer by layer."""

    def available_units(self) -> tuple[str, ...]:
        """Return the units that `to` accepts: this map's own, and those in which its elements nest.

        A unit of only one axis (words of a transcript, frames of its sound) leaves the other as it is.
        """
        names = dict.fromkeys((*self.query.units, *self.key.units))
        return tuple(name for name in names if self._groups(name) is not None)

    def _units_named(self, name: str) -> tuple[Unit, Unit]:
        """Return the unit of each axis with a name; an axis without it keeps its elements under that name."""
        query = self.query.units.get(name) or dataclasses.replace(self.query_unit, name=name)
        return query, self.key.units.get(name) or dataclasses.replace(self.key_unit, name=name)

    def _groups(self, name: str) -> tuple[Groups, Groups] | None:
        query_unit, key_unit = self._units_named(name)
        query, key = regroup(self.query_unit, query_unit), regroup(self.key_unit, key_unit)
        return None if query is None or key is None else (query, key)

    def to(self, unit: str | Given | tuple[Given, Given]) -> MixingMap:
        """Return the map in a coarser unit: sum over the pieces of a key, mean over the pieces of a query.

        Going through words to sentences gives what going from tokens to sentences gives.

        Args:
            unit: A unit's name (see `available_units`); a Unit, or spans of tokens as pairs (start, end), the
                end not included, for both axes; or a tuple of two of these, for queries and keys.
                `.to([(0, 2), (2, 6)])` turns six tokens into two elements.

        Raises:
            TypeError: For spans that are not pairs of numbers.
            ValueError: If the unit is unknown, finer than this map's, or does not divide the tokens: one lies
                in no span or in several, or a span leaves the axis.

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
            causal=self.known("causal") if keeps_order(query.units[unit], key.units[unit]) else None,
        )

    def _with_units(self, unit: Given | tuple[Given, Given]) -> MixingMap:
        sides: Any = unit if _is_pair_of_sides(unit) else (unit, unit)
        query_unit = new_unit(sides[0], self.query, self.unit, "query")
        key_unit = new_unit(sides[1], self.key, self.unit, "key")
        query, key = add_units(self.query, self.key, (query_unit, key_unit))
        extended = self._derive(self.layer, "", rows=self.rows, query=query, key=key, keep=False)
        return extended.to(query_unit.name)


def _is_pair_of_sides(given: Any) -> bool:
    """Return whether a tuple holds one unit for queries and one for keys, rather than spans."""
    pair = isinstance(given, tuple) and len(given) == len(("query", "key"))
    return pair and all(
        isinstance(side, Unit) or (np.iterable(side) and np.ndim(next(iter(side), 0)) > 0) for side in given
    )
