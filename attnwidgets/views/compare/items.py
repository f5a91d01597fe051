"""Items of a comparison: traces with methods, or explanations; and attributions joined as rows.

A comparison takes traces, maps, attributions, or a mapping or list of these. `items_of` turns them into
strips (`Item`), each a vector over the elements of a text, and names them apart. `target_rows` joins
attributions of the same elements into one result, which a view draws on one scale.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import listed, pick
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.text.units import TokenAxis
from attnwidgets.views.wire.axes import target_labels

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

MOST = 24
"""Strips that a view can show."""

METHODS = ("attention", "rollout")


@dataclass(frozen=True)
class Item:
    """A strip or line: an explanation with a single head, or of a single target.

    Attributes:
        name: Its name.
        explanation: A MixingMap without a choice of heads, or Attributions of a single target.
        note: How its heads or targets were reduced, in words.
        row: The row of a map that is read, of a target; None: that of a query.
    """

    name: str
    explanation: Any
    note: str = ""
    row: int | None = None


def items_of(
    shown: Any,
    *,
    methods: Any = (),
    layers: Sequence[int] | None = None,
    heads: Sequence[int] | None = None,
    names: Sequence[str] | None = None,
) -> list[Item]:
    """Return the strips of a CompareView.

    Args:
        shown: A trace, an explanation, a list of either, or a mapping from names to explanations.
        methods: For traces: names in `aw.methods()`, pairs (name, options), functions of a trace.
        layers: A strip for each of these layers of every map.
        heads: A strip for each of these heads of every map; None: a strip for the mean over heads.
        names: Names of the strips.

    Raises:
        TypeError: Something is neither a trace nor an explanation.
        ValueError: There are fewer than two strips, more than `MOST`, or `names` does not fit.
    """
    items = [strip for item in _explained(shown, methods) for strip in _strips(item, layers, heads)]
    if not 2 <= len(items) <= MOST:  # noqa: PLR2004 - a comparison
        raise ValueError(
            f"CompareView() compares 2 to {MOST} explanations, and was given {len(items)}: "
            "name several methods=, layers= or heads=, or give a list."
        )
    return _named(items, names)


def layered_items(shown: Any, *, methods: Any = (), names: Sequence[str] | None = None) -> list[Item]:
    """Return the lines of a LayerProfile: maps, and the layers of attributions.

    Args:
        shown: As in `items_of`.
        methods: As in `items_of`.
        names: Names of the lines.

    Raises:
        TypeError: Something is neither a trace nor an explanation.
        ValueError: An explanation has no values for several layers, or `names` does not fit.
    """
    return _named([line for item in _explained(shown, methods) for line in _lines(item)], names)


def _explained(shown: Any, methods: Any) -> list[Item]:
    """Return the arguments as explanations: traces by their methods."""
    if isinstance(shown, dict):
        pairs = [(str(name), given) for name, given in shown.items()]
    else:
        several = list(shown) if isinstance(shown, (list, tuple)) else [shown]
        pairs = [("", given) for given in several]
        for index, given in enumerate(several):
            if not is_trace(given) and not isinstance(given, (MixingMap, Attributions)):
                argument = f"shown[{index}]" if len(several) > 1 else "shown"
                raise TypeError(
                    "CompareView() compares MixingMaps and Attributions, or methods of traces; "
                    f"{argument} is {type(given).__name__}."
                )
    several_traces = sum(is_trace(given) for _, given in pairs) > 1
    items = []
    for name, given in pairs:
        if isinstance(given, (MixingMap, Attributions)):
            items.append(Item(name or given.title, given))
        else:
            model = str(getattr(given, "model_id", "") or "").rsplit("/", 1)[-1]
            items += _by_method(given, methods, name or (model if several_traces else ""))
    return items


def _by_method(trace: Any, methods: Any, note: str) -> list[Item]:
    from attnwidgets.evaluate.examples.explained_input import functions_by_name

    # Rollout is undefined for signed weights; by default they are shown without it.
    default = METHODS[:1] if trace.is_signed() else METHODS
    return [
        Item(name.replace("_", " "), method(trace), note)
        for name, method in functions_by_name(methods or default).items()
    ]


def _lines(item: Item) -> list[Item]:
    """Return an explanation as a map of several layers; of attributions, a row of it for each target."""
    given = item.explanation
    targets = given.targets if isinstance(given, Attributions) else None
    by_layer = given.map if isinstance(given, Attributions) else given
    if not isinstance(by_layer, MixingMap) or len(by_layer.layers) < 2:  # noqa: PLR2004 - a line
        raise ValueError(f"{item.name!r} has no values for several layers, which a layer profile shows.")
    (line,) = _strips(replace(item, explanation=by_layer), None, None)
    if targets is None:
        return [line]
    if len(targets) == 1:
        return [replace(line, row=0)]
    return [replace(line, name=f"{line.name}: {target}", row=row) for row, target in enumerate(targets)]


def _strips(item: Item, layers: Sequence[int] | None, heads: Sequence[int] | None) -> list[Item]:
    """Return an explanation target by target, or layer by layer and head by head."""
    explanation = item.explanation
    if isinstance(explanation, Attributions):
        if len(explanation.shape) == 1:
            return [item]
        return [
            replace(item, name=f"{item.name}: {target}", explanation=explanation.select(row))
            for row, target in enumerate(explanation.targets)
        ]
    if not isinstance(explanation, MixingMap):
        raise TypeError(
            f"{item.name!r} is a {type(explanation).__name__}, neither a MixingMap nor Attributions."
        )
    strips = []
    for layer in [None] if layers is None else pick(layers, explanation.layers, "layer"):
        part = explanation if layer is None else explanation.select(layer=layer)
        address = "" if layer is None else f"layer {layer}"
        if part.heads is None:
            strips.append((address, part, ""))
        elif heads is None:
            note = f"head {part.heads[0]}" if len(part.heads) == 1 else "mean over heads"
            strips.append((address, part.mean("head"), note))
        else:
            for head in pick(heads, part.heads, "head"):
                address = f"head {head}" if layer is None else f"head {layer}.{head}"
                strips.append((address, part.select(head=head).mean("head"), ""))
    return [
        Item(", ".join(filter(None, (item.name, address))), part, ", ".join(filter(None, (item.note, note))))
        for address, part, note in strips
    ]


def _named(items: list[Item], names: Sequence[str] | None) -> list[Item]:
    """Return items with the given names, else with different names: by their notes, or else by number.

    Raises:
        ValueError: Names do not fit.
    """
    if names is not None:
        given = [str(name) for name in names]
        if len(given) != len(items):
            raise ValueError(f"names has {len(given)} entries for {len(items)} explanations.")
        if len(set(given)) < len(given):
            raise ValueError(f"names contains a name twice: {listed(given)}.")
        return [replace(item, name=name) for item, name in zip(items, given, strict=True)]
    item_names = [item.name for item in items]
    with_notes = [f"{item.name} ({item.note})" if item.note else item.name for item in items]
    if len(set(item_names)) < len(set(with_notes)) == len(items):
        return [replace(item, name=name, note="") for item, name in zip(items, with_notes, strict=True)]
    earlier = [item_names[:index].count(name) for index, name in enumerate(item_names)]
    return [
        replace(item, name=f"{item.name} ({count + 1})") if count else item
        for item, count in zip(items, earlier, strict=True)
    ]


def target_rows(shown: Sequence[Attributions], title: str = "") -> Attributions:
    """Return attributions of a text joined as rows, each named by its target; a view draws them on one scale.

    Args:
        shown: Attributions of the same elements in the same unit. With several methods, row names begin with
            the method's title.
        title: Heading; by default the method's.

    Raises:
        ValueError: They cover different elements.
    """
    from attnwidgets.explanations import Attributions

    first = shown[0]
    for other in shown[1:]:
        if other.unit != first.unit or other.labels != first.labels:
            raise ValueError(
                f"attributions can only be shown together over the same elements; {other.title!r} has "
                f"{len(other.labels)} {other.unit}s and {first.title!r} {len(first.labels)} {first.unit}s."
            )
    one_method = len({item.method for item in shown}) == 1
    labels = [
        label if one_method else f"{item.provenance.get('title') or item.method}: {label}"
        for item in shown
        for label in target_labels(item)
    ]
    residuals = [np.atleast_1d(item.residual) for item in shown if item.residual is not None]
    provenance = {name: value for name, value in shown[-1].provenance.items() if name != "parts"}
    title = title or (str(provenance.get("title") or first.method) if one_method else "several methods")
    return Attributions(
        np.concatenate([np.atleast_2d(item.values) for item in shown]),
        axis=first.axis,
        unit=first.unit,
        target=labels,
        reach=_reaches(shown),
        residual=np.concatenate(residuals).tolist() if len(residuals) == len(shown) else None,
        map=_layer_rows([item.map for item in shown], labels, title),
        method=first.method,
        stack=first.stack,
        provenance=provenance | {"title": title},
        trace_id=first.trace_id,
        warning="; ".join(dict.fromkeys(item.warning for item in shown if item.warning)),
        predictions=first.predictions,
    )


def row_axis(labels: Sequence[str], unit: str, units: Iterable[str]) -> TokenAxis:
    """Return the axis of rows that are not tokens; they are the same rows in every unit of the columns.

    Args:
        labels: Names of the rows.
        unit: Unit of the columns.
        units: Every unit that the columns can be read in.
    """
    axis = TokenAxis.plain(labels, name=unit)
    return dataclasses.replace(
        axis, units={name: dataclasses.replace(axis.units[unit], name=name) for name in units}
    )


def _reaches(shown: Sequence[Attributions]) -> list[int] | None:
    """Return how many tokens each row was read from; None if every row was read from all of them."""
    if all(item.reach is None for item in shown):
        return None
    return list(chain.from_iterable(item.reach or (len(item.axis),) * len(item.targets) for item in shown))


def _layer_rows(maps: Sequence[Any], labels: Sequence[str], title: str) -> Any:
    """Return the joined layers of attributions, a row for each target; None if they do not match."""
    if any(item is None for item in maps) or sum(len(item.query) for item in maps) != len(labels):
        return None
    first = maps[0]
    if any((item.layers, item.heads, item.key) != (first.layers, first.heads, first.key) for item in maps):
        return None
    from attnwidgets.explanations import MixingMap

    return MixingMap.lazy(
        lambda number: np.concatenate([item.layer(number) for item in maps], axis=-2),
        query=row_axis(labels, first.unit, first.query.units),
        key=first.key,
        layers=first.layers,
        heads=first.heads,
        unit=first.unit,
        causal=False,
        stochastic=False,
        signed=True,
        method=first.method,
        stack=first.stack,
        provenance={**first.provenance, "title": title},
        trace_id=first.trace_id,
    )
