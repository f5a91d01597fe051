"""Explanations of a text over the same elements, each read as a vector; several models by common words."""

from __future__ import annotations

from dataclasses import replace
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed, position
from attnwidgets.explanations.results.arrays import REDUCED, row
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.units import regroup
from attnwidgets.tracing.text.alignment import letters
from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.compare.items import row_axis
from attnwidgets.views.wire.axes import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.views.compare.items import Item

    Float = NDArray[np.float64]

SCHEMES = ("row", *REDUCED)
_SLACK = 1e-2  # that rounding may add to the sum of a row

SHARED = "shared word"
"""Name of the unit: the shortest stretches of text that end where a word ends in every model."""


class Compared:
    """Explanations of a text over the same elements.

    Args:
        items: The explanations.
        how: How a map becomes a vector: "row", or another scheme of `MixingMap.to_attributions`.
        query: The query whose row is read; None: the pinned query, else the last that is not special.

    Raises:
        ValueError: They explain different texts, or the scheme or the query does not fit.
    """

    def __init__(self, items: Sequence[Item], how: str, query: int | str | None) -> None:
        if how not in SCHEMES:
            raise ValueError(f"how={how!r} is not one of {listed(SCHEMES)}.{suggest(str(how), SCHEMES)}")
        explanations = [item.explanation for item in items]
        self.n_shared: int | None = None  # how many words models with different tokens share
        if not are_alike(explanations):
            explanations, self.n_shared = aligned(explanations, [item.name for item in items])
        self.items = tuple(
            replace(item, explanation=entry) for item, entry in zip(items, explanations, strict=True)
        )
        self.names = tuple(item.name for item in items)
        self.how = how
        self.unit: str = explanations[0].unit
        self.axis = axis_of(explanations[0], self.n_shared)
        self.maps = [item for item in self.items if isinstance(item.explanation, MixingMap)]
        several = [item.explanation.layers for item in self.maps if len(item.explanation.layers) > 1]
        self.layers = tuple(sorted({number for layers in several for number in layers}))
        self.on_demand = any(item.explanation.on_demand for item in self.maps)
        self._by_query = [item for item in self.maps if item.row is None]
        self.by_row = how == "row" and bool(self._by_query)
        self.query = self._query(query) if self.by_row else None
        square = all(_is_square(item.explanation) for item in self._by_query)
        self.follows = self.by_row and query is None and square
        self._in_unit: dict[tuple[int, str], Any] = {}

    def _query(self, query: int | str | None) -> int:
        """Return the query, counted in `unit`, whose row is read without a pin; -1 for the default."""
        if query is None:
            return -1
        if self.n_shared is None:
            first = self._by_query[0].explanation
            read = row(first, query, diagonal=True).read
            return int(np.argmax(read(np.eye(len(first.query_unit)))))
        labels = elements(self.items[0].explanation).labels[: self.n_shared]
        matches = [i for i, label in enumerate(labels) if query in {i, label, label.strip()}]
        if len(matches) != 1:
            raise ValueError(f"query={query!r} matches {len(matches)} of the shared words, {listed(labels)}.")
        return matches[0]

    def layer(self, named: int | None, selected: int) -> int:
        """Return a layer that is named, or else the nearest to the selected layer.

        Raises:
            IndexError: No map has the layer that is named.
        """
        layers = self.layers or (0,)
        return nearest(layers, selected) if named is None else layers[position(named, layers, "layer")]

    def index_of(self, name: int | str) -> int:
        """Return which item has a number or a name.

        Raises:
            ValueError: None has this name.
            IndexError: The number is out of range.
        """
        if not isinstance(name, str):
            return position(name, range(len(self.items)), "explanation")
        if name not in self.names:
            raise ValueError(f"{name!r} is not one of {listed(self.names)}.{suggest(name, self.names)}")
        return self.names.index(name)

    def units(self, only: Sequence[str] = ()) -> tuple[str, ...]:
        """Return the units that every item can be read in, that of the values first.

        Args:
            only: Names of units; empty: all.
        """
        available = [
            [self.unit] if self.n_shared else item.explanation.available_units() for item in self.items
        ]
        return tuple(
            name
            for name in dict.fromkeys((self.unit, *available[0]))
            if all(name in units for units in available) and (not only or name in only)
        )

    def reading(self, index: int, unit: str) -> Any:
        """Return an item's explanation in a unit."""
        key = (index, unit)
        if key not in self._in_unit:
            self._in_unit[key] = self.items[index].explanation.to(unit)
        return self._in_unit[key]

    def pinned(self, cell: Any) -> int | None:
        """Return the query of a pinned cell, counted in `unit`; None if rows do not follow it."""
        if cell is None or not self.follows or cell.unit != self.unit:
            return None
        return cell.query if 0 <= cell.query < len(self.axis.units[self.unit]) else None

    def query_in(self, query: int | None, unit: str) -> int | None:
        """Return a query; for None the query that is read without a pin, or None if no rows are read."""
        return self._default_query(unit) if query is None and self.by_row else query

    def _default_query(self, unit: str) -> int:
        """Return the named query, or the last content element: see `last_content`."""
        index = self.items.index(self._by_query[0])
        reading = self.reading(index, unit)
        if self.query is not None and self.query >= 0:
            groups = regroup(self.items[index].explanation.query_unit, reading.query_unit) or ()
            return next((index for index, group in enumerate(groups) if self.query in group), self.query)
        count = self.n_shared or len(reading.query_labels)
        return last_content(reading.query_labels[:count], reading.query_unit.special[:count])

    def vectors(self, layer: int, query: int | None, unit: str) -> list[Float]:
        """Return the value of every element for every item [item][element].

        Args:
            layer: Layer of a map with several; the nearest it has.
            query: Query whose row is read; None: the default query.
            unit: One of `units`.

        Raises:
            IndexError: The query is out of range.
        """
        resolved = self.query_in(query, unit)
        return [self._vector(index, layer, resolved, unit) for index in range(len(self.items))]

    def _vector(self, index: int, layer: int, query: int | None, unit: str) -> Float:
        reading = self.reading(index, unit)
        if isinstance(reading, Attributions):
            values = reading.values
        elif self.how == "row":
            matrix = reading.matrix(nearest(reading.layers, layer))
            values = matrix[self._row(index, query, len(matrix), unit)]
        else:
            values = reading.select(layer=nearest(reading.layers, layer)).to_attributions(self.how).values
        return np.asarray(values, dtype=np.float64)[: self.n_shared]

    def _row(self, index: int, query: int | None, n_rows: int, unit: str) -> int:
        """Return which row of an item's matrix is read."""
        target = self.items[index].row
        if target is not None:
            return target
        count = self.n_shared or n_rows
        if query is None or not 0 <= query < count:
            raise IndexError(f"query {query} is out of range: the {unit}s are 0 to {count - 1}.")
        return query

    def are_shares(self, index: int, values: Float) -> bool:
        """Return whether an item's values are shares of a row: a part of them may be rescaled."""
        if self.items[index] not in self._by_query or self.how != "row" or (values < 0).any():
            return False
        total = float(values.sum())  # of shared words, a part of the row
        return total <= 1 + _SLACK and (self.n_shared is not None or total >= 1 - _SLACK)

    def attributions(self, layer: int, query: int | None, unit: str) -> dict[str, Attributions]:
        """Return the vectors as attributions by name, as `aw.evaluate.agreement` takes them."""
        return {
            item.name: Attributions(values, axis=self.axis, unit=unit, method=item.explanation.method)
            for item, values in zip(self.items, self.vectors(layer, query, unit), strict=True)
        }

    def remarks(self, layer: int) -> list[str]:
        """Return the words next to each strip: its layer if it has several, and its note."""
        return [", ".join(filter(None, (_layer_words(item, layer), item.note))) for item in self.items]

    def main(self, title: str = "comparison") -> Any:
        """Return the explanation for the store, with a row for each item.

        It is a map by layers if any item has several, else attributions.

        Args:
            title: Its title.
        """
        first = self.items[0].explanation
        warnings = [item.explanation.warning for item in self.items if item.explanation.warning]
        common: dict[str, Any] = {
            "unit": self.unit,
            "method": "comparison",
            "stack": first.stack,
            "provenance": {
                **{name: first.provenance[name] for name in ("model", "text") if name in first.provenance},
                "title": title,
            },
            "trace_id": first.trace_id,
            "predictions": first.predictions,
            "warning": "; ".join(dict.fromkeys(warnings)),
        }
        if not self.layers:
            return Attributions(
                np.stack(self.vectors(0, None, self.unit)), axis=self.axis, target=self.names, **common
            )
        return MixingMap.lazy(
            lambda number: np.stack(self.vectors(number, None, self.unit)),
            query=row_axis(self.names, self.unit, self.axis.units),
            key=self.axis,
            layers=self.layers,
            causal=False,
            stochastic=False,
            signed=True,
            on_demand=self.on_demand,
            **common,
        )


def nearest(layers: Sequence[int], layer: int) -> int:
    """Return the layer nearest to a number."""
    return min(layers, key=lambda number: abs(number - layer))


def _layer_words(item: Item, layer: int) -> str:
    explanation = item.explanation
    if not isinstance(explanation, MixingMap) or len(explanation.layers) == 1:
        return ""
    return f"layer {nearest(explanation.layers, layer)}"


def _is_square(source: MixingMap) -> bool:
    return source.query_unit.spans == source.key_unit.spans and source.query_labels == source.key_labels


def elements(explanation: Any) -> Unit:
    """Return the elements that are compared: the sources of attributions, the keys of a map."""
    return explanation.source_unit if isinstance(explanation, Attributions) else explanation.key_unit


def are_alike(explanations: Sequence[Any]) -> bool:
    """Return whether all explanations are over the same elements."""
    first = explanations[0]
    return all(
        item.unit == first.unit and elements(item).labels == elements(first).labels for item in explanations
    )


def aligned(explanations: Sequence[Any], names: Sequence[str]) -> tuple[list[Any], int]:
    """Return explanations by the words that they share, which come first, and how many those are.

    Elements that are not words of the text (special tokens) follow them: models have different ones. Case,
    accents and spaces do not matter.

    Args:
        explanations: Explanations of the same text.
        names: Their names, for messages.

    Raises:
        ValueError: The texts differ; the message names the first words that do.
    """
    by_word = [item.to("word") if "word" in units_of(item) else item for item in explanations]
    texts = [_words(elements(item)) for item in by_word]
    whole = ["".join(text for text, _ in words) for words in texts]
    for name, spelled, words in zip(names[1:], whole[1:], texts[1:], strict=True):
        if spelled != whole[0]:
            raise ValueError(_difference(names[0], texts[0], name, words))
    if not whole[0]:
        raise ValueError(f"{names[0]!r} has no words to compare: only special tokens.")
    ends = sorted(set.intersection(*map(_ends, texts)))
    first_labels = elements(by_word[0]).labels
    labels = ["".join(first_labels[index] for index in group) for group in _grouped(texts[0], ends)]
    shared = [
        item.to(_shared_unit(elements(item), _grouped(words, ends), labels))
        for item, words in zip(by_word, texts, strict=True)
    ]
    return shared, len(ends)


def axis_of(explanation: Any, count: int | None) -> TokenAxis:
    """Return the axis of an explanation, or that of its first elements; views link them by their tokens.

    Args:
        explanation: The explanation.
        count: How many elements; None: the axis as it is.
    """
    axis: TokenAxis = explanation.axis if isinstance(explanation, Attributions) else explanation.key
    if count is None:
        return axis
    unit = elements(explanation)
    chosen = Unit(unit.name, unit.labels[:count], unit.spans[:count], unit.special[:count])
    return TokenAxis(axis.tokens, {unit.name: chosen}, axis.segment, axis.boundary, axis.text)


def _words(unit: Unit) -> list[tuple[str, int]]:
    """Return the letters of every element that is not a special token, with its number."""
    return [
        (letters(label), index)
        for index, (label, special) in enumerate(zip(unit.labels, unit.special, strict=True))
        if not special
    ]


def _ends(words: Sequence[tuple[str, int]]) -> set[int]:
    """Return after how many letters a word ends."""
    return set(accumulate(len(text) for text, _ in words)) - {0}


def _shared_unit(unit: Unit, groups: Sequence[Sequence[int]], labels: Sequence[str]) -> Unit:
    """Return the shared words over the tokens of a model, followed by the elements outside of them.

    Args:
        unit: The elements of the model.
        groups: Numbers of the elements that make up each shared word.
        labels: Names of the shared words.
    """
    inside = {index for group in groups for index in group}
    others = [index for index in range(len(unit)) if index not in inside]
    spans = [tuple(token for index in group for token in unit.spans[index]) for group in groups]
    return Unit(
        SHARED,
        (*labels, *(unit.labels[other] for other in others)),
        (*spans, *(unit.spans[other] for other in others)),
        (*(False,) * len(groups), *(True,) * len(others)),
    )


def _grouped(words: Sequence[tuple[str, int]], ends: Sequence[int]) -> list[list[int]]:
    """Return the numbers of the words up to each shared end; a word without letters joins those before it."""
    groups: list[list[int]] = [[] for _ in ends]
    length, at = 0, 0
    for text, index in words:
        if text and length >= ends[at]:
            at += 1
        groups[at].append(index)
        length += len(text)
    return groups


def _difference(
    first: str, words: Sequence[tuple[str, int]], second: str, others: Sequence[tuple[str, int]]
) -> str:
    pairs = zip(words, others, strict=False)
    number = next((i for i, ((a, _), (b, _)) in enumerate(pairs) if a != b), min(len(words), len(others)))
    here, there = (
        repr(text[number][0]) if number < len(text) else "no further word" for text in (words, others)
    )
    return (
        f"{first!r} and {second!r} do not explain the same text: word {number} is {here} in the one, "
        f"{there} in the other. Explanations are compared over the same words."
    )
