"""What a CompareView compares: explanations of one text, each read as one vector over the same elements."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.explanations.aggregation import regroup
from attnwidgets.explanations.attributions import Attributions
from attnwidgets.explanations.mixing_map import MixingMap
from attnwidgets.explanations.selecting import listed, pick
from attnwidgets.explanations.vectors import REDUCED, row
from attnwidgets.tracing.units import TokenAxis
from attnwidgets.views.aligned import aligned, are_alike, axis_of, elements
from attnwidgets.views.offer import is_explanation, is_trace
from attnwidgets.views.sources import is_attributions

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    Float = NDArray[np.float64]

SCHEMES = ("row", *REDUCED)
MOST = 24
"""So many strips a view takes."""
METHODS = ("attention", "rollout")


@dataclass(frozen=True)
class Item:
    """One strip: an explanation with one head, or of one target.

    Attributes:
        name: What it is called.
        explanation: A MixingMap without a choice of heads, or Attributions of one target.
        note: What was done to make it one, in words.
    """

    name: str
    explanation: Any
    note: str = ""


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
        self.by_row = how == "row" and bool(self.maps)
        self.query = self._query(query) if self.by_row else None
        square = all(_is_square(item.explanation) for item in self.maps)
        self.follows = self.by_row and query is None and square
        self._in_unit: dict[tuple[int, str], Any] = {}

    def _query(self, query: int | str | None) -> int:
        """Return the query whose row is read until another is pinned, counted in `unit`."""
        if query is None:
            return -1
        if self.alike:
            first = self.maps[0].explanation
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
        index = next(i for i, item in enumerate(self.items) if isinstance(item.explanation, MixingMap))
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
            count = len(kept or matrix)
            if query is None or not 0 <= query < count:
                raise IndexError(f"query {query} is out of range: the {unit}s are 0 to {count - 1}.")
            values = matrix[query if kept is None else kept[query]]
        else:
            one = found.select(layer=nearest(found.layers, layer))
            values = np.asarray(one.to_attributions(self.how).values, dtype=np.float64)
        return values if kept is None else values[kept]

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

    def main(self) -> Any:
        """Return what the store and a static picture show of it: rows are items, over layers where there are.

        A map by layers where any item has several, else attributions.
        """
        first = self.items[0].explanation
        names = [item.name for item in self.items]
        provenance = {
            **{name: value for name, value in dict(first.provenance).items() if name in {"model", "text"}},
            "title": "comparison",
        }
        warnings = [item.explanation.warning for item in self.items if item.explanation.warning]
        common: dict[str, Any] = {
            "unit": self.unit,
            "method": "comparison",
            "stream": first.stream,
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


def items_of(
    shown: Any,
    *,
    methods: Any = (),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> list[Item]:
    """Return the strips that are meant by what a CompareView was given.

    Args:
        shown: A trace, an explanation, a list of either, or a mapping from names to explanations.
        methods: For traces: names in `aw.methods()`, pairs (name, options), functions of a trace.
        layers: A strip for each of these layers of every map.
        heads: A strip for each of these heads of every map; otherwise the mean over heads.
        names: What the strips are called.

    Raises:
        TypeError: Something is neither a trace nor an explanation.
        ValueError: Fewer than two strips are left, more than `MOST`, or names do not fit.
    """
    pairs = _pairs(shown)
    several = sum(is_trace(given) for _, given in pairs) > 1
    found = [one for name, given in pairs for one in _explained(name, given, methods, several=several)]
    items = [part for item in found for part in _parts(item, layers, heads)]
    if not 2 <= len(items) <= MOST:  # noqa: PLR2004 - a comparison
        raise ValueError(
            f"CompareView() compares 2 to {MOST} explanations, and was given {len(items)}: "
            "name several methods=, layers= or heads=, or give a list."
        )
    if names is not None:
        called = [str(name) for name in names]
        if len(called) != len(items):
            raise ValueError(f"names has {len(called)} entries for {len(items)} strips.")
        if len(set(called)) < len(called):
            raise ValueError(f"names has one twice: {listed(called)}.")
        return [replace(item, name=name) for item, name in zip(items, called, strict=True)]
    return _distinct(items)


def _pairs(shown: Any) -> list[tuple[str, Any]]:
    if isinstance(shown, dict):
        return [(str(name), one) for name, one in shown.items()]
    several = list(shown) if isinstance(shown, (list, tuple)) else [shown]
    for place, one in enumerate(several):
        if not is_trace(one) and not isinstance(one, (MixingMap, Attributions)):
            what = f"shown[{place}]" if len(several) > 1 else "shown"
            raise TypeError(
                f"CompareView() compares MixingMaps and Attributions, or methods of traces; {what} is "
                f"{type(one).__name__}."
            )
    return [("", one) for one in several]


def _explained(name: str, given: Any, methods: Any, *, several: bool) -> list[Item]:
    if is_explanation(given):
        return [Item(name or given.title, given)]
    from attnwidgets.evaluate.maps import named

    model = str(getattr(given, "model_id", "") or "").rsplit("/", 1)[-1]
    about = name or (model if several else "")
    calls: dict[str, Callable[[Any], Any]] = named(methods or METHODS)
    return [Item(label.replace("_", " "), call(given), about) for label, call in calls.items()]


def _parts(item: Item, layers: Sequence[int] | None, heads: Sequence[int] | None) -> list[Item]:
    """Return an explanation target by target, or layer by layer and head by head."""
    found = item.explanation
    if isinstance(found, Attributions):
        if len(found.shape) == 1:
            return [item]
        return [
            replace(item, name=f"{item.name}: {target}", explanation=found.select(place))
            for place, target in enumerate(found.targets)
        ]
    if not isinstance(found, MixingMap):
        raise TypeError(f"{item.name!r} is a {type(found).__name__}, neither a MixingMap nor Attributions.")
    chosen = [None] if layers is None else list(pick(layers, found.layers, "layer"))
    parts = []
    for layer in chosen:
        one = found if layer is None else found.select(layer=layer)
        where = "" if layer is None else f"layer {layer}"
        if one.heads is None:
            parts.append((where, one, ""))
        elif heads is None:
            alone = len(one.heads) == 1
            parts.append((where, one.mean("head"), f"head {one.heads[0]}" if alone else "mean over heads"))
        else:
            for head in pick(heads, one.heads, "head"):
                address = f"head {head}" if layer is None else f"head {layer}.{head}"
                parts.append((address, one.select(head=head).mean("head"), ""))
    return [
        Item(", ".join(filter(None, (item.name, where))), one, ", ".join(filter(None, (item.note, note))))
        for where, one, note in parts
    ]


def _distinct(items: list[Item]) -> list[Item]:
    """Return items whose names differ: by their notes where that tells them apart, else by number."""
    names = [item.name for item in items]
    if len(set(names)) < len(names):
        with_notes = [f"{item.name} ({item.note})" if item.note else item.name for item in items]
        if len(set(with_notes)) == len(names):
            return [replace(item, name=name, note="") for item, name in zip(items, with_notes, strict=True)]
    seen: dict[str, int] = {}
    found = []
    for item in items:
        seen[item.name] = seen.get(item.name, 0) + 1
        number = seen[item.name]
        found.append(item if number == 1 else replace(item, name=f"{item.name} ({number})"))
    return found
