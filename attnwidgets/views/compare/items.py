"""What is compared, as it is given: traces with methods, explanations, layers, heads, targets."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import listed, pick
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.views.base.accepts import is_explanation, is_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
        row: Of a map, the one row that is ever read (a target's); None: a query's.
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
    return called(items, names)


def layered_items(shown: Any, *, methods: Any = (), names: Sequence[str] | None = None) -> list[Item]:
    """Return what has something to say of several layers: maps, and what attributions say of every layer.

    Args:
        shown: As `items_of` takes it.
        methods: The same.
        names: What they are called.

    Raises:
        TypeError, ValueError: Something is no explanation, or says nothing of several layers.
    """
    pairs = _pairs(shown)
    several = sum(is_trace(given) for _, given in pairs) > 1
    found = [one for name, given in pairs for one in _explained(name, given, methods, several=several)]
    return called([part for item in found for part in _by_layer(item)], names)


def _by_layer(item: Item) -> list[Item]:
    given = item.explanation
    targets = given.targets if isinstance(given, Attributions) else None
    found = given.map if isinstance(given, Attributions) else given
    if not isinstance(found, MixingMap) or len(found.layers) < 2:  # noqa: PLR2004 - a line
        raise ValueError(f"{item.name!r} says nothing of several layers: a profile is of those that do.")
    (part,) = _parts(replace(item, explanation=found), None, None)
    if targets is None:
        return [part]
    if len(targets) == 1:
        return [replace(part, row=0)]
    return [replace(part, name=f"{part.name}: {target}", row=row) for row, target in enumerate(targets)]


def called(items: list[Item], names: Sequence[str] | None) -> list[Item]:
    """Return items by the names given, or by their own, told apart.

    Raises:
        ValueError: Names do not fit.
    """
    if names is not None:
        given = [str(name) for name in names]
        if len(given) != len(items):
            raise ValueError(f"names has {len(given)} entries for {len(items)} explanations.")
        if len(set(given)) < len(given):
            raise ValueError(f"names has one twice: {listed(given)}.")
        return [replace(item, name=name) for item, name in zip(items, given, strict=True)]
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
    from attnwidgets.evaluate.examples.method_specs import functions_by_name

    model = str(getattr(given, "model_id", "") or "").rsplit("/", 1)[-1]
    about = name or (model if several else "")
    # Of signed weights there is no rollout; a reader who named no method is shown those that there are.
    usual = METHODS[:1] if given.is_signed() else METHODS
    calls: dict[str, Callable[[Any], Any]] = functions_by_name(methods or usual)
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
