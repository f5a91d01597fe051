"""What a CompareView compares: explanations of one text, each read as one vector over the same elements."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.results.aggregation import regroup
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.vectors import REDUCED, row
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.views.compare.aligned_words import aligned, are_alike, axis_of, elements
from attnwidgets.views.wire.reader import is_attributions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.compare.items import Item

    Float = NDArray[np.float64]

SCHEMES = ("row", *REDUCED)
_SLACK = 1e-2  # that rounding may add to the sum of a row


class Compared:
    """Explanations of one text over the same elements.

    Args:
        items: What is compared.
        how: How a map becomes a vector: "row", or another scheme of `MixingMap.to_attributions`.
        query: The query whose row is read; None: the pinned one, else the one of the prediction.

    Raises:
        ValueError: Where they are not of one text, or a scheme does not fit.
    """

    def __init__(self, items: Sequence[Item], how: str, query: int | str | None) -> None:
        if how not in SCHEMES:
            raise ValueError(f"how={how!r} is not one of {listed(SCHEMES)}.{suggest(str(how), SCHEMES)}")
        names = [item.name for item in items]
        given = [item.explanation for item in items]
        self.alike = are_alike(given)
        self.kept: list[list[int] | None] = [None] * len(given)
        if not self.alike:
            found, kept = aligned(given, names)
            given, self.kept = found, list(kept)
        self.items = tuple(replace(item, explanation=one) for item, one in zip(items, given, strict=True))
        self.how = how
        first = given[0]
        self.unit: str = first.unit
        kept_first = self.kept[0]
        if kept_first is None:
            self.axis: TokenAxis = first.axis if is_attributions(first) else first.key
        else:
            self.axis = axis_of(first, kept_first)
        self.maps = [item for item in self.items if isinstance(item.explanation, MixingMap)]
        layered = [item.explanation.layers for item in self.maps if len(item.explanation.layers) > 1]
        self.layers = tuple(sorted({number for layers in layered for number in layers}))
        self.on_demand = any(item.explanation.on_demand for item in self.maps)
        self._by_query = [item for item in self.maps if item.row is None]
        self.by_row = how == "row" and bool(self._by_query)
        self.query = self._query(query) if self.by_row else None
        square = all(_is_square(item.explanation) for item in self._by_query)
        self.follows = self.by_row and query is None and square
        self._in_unit: dict[tuple[int, str], Any] = {}

    def _query(self, query: int | str | None) -> int:
        """Return the query whose row is read until another is pinned, counted in `unit`."""
        if query is None:
            return -1
        if self.alike:
            first = self._by_query[0].explanation
            read = row(first, query, diagonal=True).read
            return int(np.argmax(read(np.eye(len(first.query_unit)))))
        labels = elements(self.items[0].explanation).labels[: len(self.kept[0] or ())]
        places = [i for i, label in enumerate(labels) if query in {i, label, label.strip()}]
        if len(places) != 1:
            raise ValueError(f"query={query!r} is {len(places)} of the shared words, {listed(labels)}.")
        return places[0]

    @property
    def n(self) -> int:
        """Number of elements, in `unit`."""
        return len(self.axis.units[self.unit])

    def units(self) -> tuple[str, ...]:
        """Return the units that every item can be read in, its own first."""
        if not self.alike:
            return (self.unit,)
        every = [item.explanation.available_units() for item in self.items]
        return tuple(
            name for name in dict.fromkeys((self.unit, *every[0])) if all(name in one for one in every)
        )

    def reading(self, index: int, unit: str) -> Any:
        """Return one item in a unit."""
        key = (index, unit)
        if key not in self._in_unit:
            self._in_unit[key] = self.items[index].explanation.to(unit)
        return self._in_unit[key]

    def default_query(self, unit: str) -> int:
        """Return the query whose row is read where none is pinned: where a model reads its prediction."""
        index = self.items.index(self._by_query[0])
        found = self.reading(index, unit)
        if self.query is not None and self.query >= 0:
            groups = regroup(self.items[index].explanation.query_unit, found.query_unit) or ()
            return next((place for place, group in enumerate(groups) if self.query in group), self.query)
        count = len(self.kept[index] or found.query_labels)
        causal = found.known("causal")
        return count - 1 if (found.causal if causal is None and not found.on_demand else causal) else 0

    def vectors(self, layer: int, query: int | None, unit: str) -> list[Float]:
        """Return what every item says of every element [item][element].

        Args:
            layer: Of a map with several; the nearest it has.
            query: Whose row is read; None: the default one.
            unit: One of `units`.

        Raises:
            IndexError: Where there is no such query.
        """
        place = self.default_query(unit) if query is None and self.by_row else query
        return [self._vector(index, layer, place, unit) for index in range(len(self.items))]

    def _vector(self, index: int, layer: int, query: int | None, unit: str) -> Float:
        found, kept = self.reading(index, unit), self.kept[index]
        if is_attributions(found):
            values = np.asarray(found.values, dtype=np.float64)
        elif self.how == "row":
            matrix = np.asarray(found.matrix(nearest(found.layers, layer)), dtype=np.float64)
            values = matrix[self._place(index, query, len(matrix), unit)]
        else:
            one = found.select(layer=nearest(found.layers, layer))
            values = np.asarray(one.to_attributions(self.how).values, dtype=np.float64)
        return values if kept is None else values[kept]

    def are_shares(self, index: int, values: Float) -> bool:
        """Return whether an item's values are shares of a row: what is left of them may be rescaled."""
        if self.items[index] not in self._by_query or self.how != "row" or (values < 0).any():
            return False
        total = float(values.sum())  # of shared words, a part of the row
        return total <= 1 + _SLACK and (self.kept[index] is not None or total >= 1 - _SLACK)

    def _place(self, index: int, query: int | None, n_rows: int, unit: str) -> int:
        """Return which row of an item's matrix is read."""
        row, kept = self.items[index].row, self.kept[index]
        if row is not None:
            return row
        count = n_rows if kept is None else len(kept)
        if query is None or not 0 <= query < count:
            raise IndexError(f"query {query} is out of range: the {unit}s are 0 to {count - 1}.")
        return query if kept is None else kept[query]

    def attributions(self, layer: int, query: int | None, unit: str) -> dict[str, Attributions]:
        """Return the same as attributions over one axis, by name: what `aw.agreement` takes."""
        axis = self.axis
        return {
            item.name: Attributions(values, axis=axis, unit=unit, method=item.explanation.method)
            for item, values in zip(self.items, self.vectors(layer, query, unit), strict=True)
        }

    def places(self, layer: int) -> list[str]:
        """Return for every item what its strip is of, in words: its layer where it has several, its note."""
        return [", ".join(filter(None, (_layer_words(item, layer), item.note))) for item in self.items]

    def main(self, title: str = "comparison") -> Any:
        """Return what the store and a static picture show of it: rows are items, over layers where there are.

        A map by layers where any item has several, else attributions.

        Args:
            title: What it is called.
        """
        first = self.items[0].explanation
        names = [item.name for item in self.items]
        provenance = {
            **{name: value for name, value in dict(first.provenance).items() if name in {"model", "text"}},
            "title": title,
        }
        warnings = [item.explanation.warning for item in self.items if item.explanation.warning]
        common: dict[str, Any] = {
            "unit": self.unit,
            "method": "comparison",
            "stack": first.stack,
            "provenance": provenance,
            "trace_id": first.trace_id,
            "predictions": first.predictions,
            "warning": "; ".join(dict.fromkeys(warnings)),
        }
        if not self.layers:
            return Attributions(
                np.stack(self.vectors(0, None, self.unit)), axis=self.axis, target=names, **common
            )
        query = TokenAxis.plain(names, name=self.unit)
        own = query.units[self.unit]
        units = {name: replace(own, name=name) for name in self.axis.units}
        return MixingMap.lazy(
            lambda number: np.stack(self.vectors(number, None, self.unit)),
            query=replace(query, units=units),
            key=self.axis,
            layers=self.layers,
            causal=False,
            stochastic=False,
            signed=True,
            on_demand=self.on_demand,
            **common,
        )


def nearest(layers: Sequence[int], layer: int) -> int:
    """Return the layer nearest to a wanted one."""
    return min(layers, key=lambda number: abs(number - layer))


def _layer_words(item: Item, layer: int) -> str:
    found = item.explanation
    if not isinstance(found, MixingMap) or len(found.layers) == 1:
        return ""
    return f"layer {nearest(found.layers, layer)}"


def _is_square(found: MixingMap) -> bool:
    return found.query_unit.spans == found.key_unit.spans and found.query_labels == found.key_labels
