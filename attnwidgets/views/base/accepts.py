"""What a view may be given, and the explanations it offers for it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.views.base.menu import Entry, entries_of
from attnwidgets.views.wire.reader import is_attributions
from attnwidgets.views.wire.units import units_of

if TYPE_CHECKING:
    from collections.abc import Sequence

RECORDED = ("attention", "rollout")
"""Methods an Explorer has without their being chosen: what every recorded pass answers at once."""


def is_trace(shown: Any) -> bool:
    """Return whether something is a trace."""
    return hasattr(shown, "attention_layer") and hasattr(shown, "stacks")


def is_explanation(shown: Any) -> bool:
    """Return whether something is a MixingMap or Attributions."""
    return (
        hasattr(shown, "method")
        and hasattr(shown, "unit")
        and (hasattr(shown, "query") or hasattr(shown, "axis"))
    )


def attention_of(trace: Any) -> list[Any]:
    """Return the attention of every stack of a trace, the default one first."""
    from attnwidgets.explanations.mixing.attention import attention

    stacks = [trace.default_stack, *(name for name in trace.stacks if name != trace.default_stack)]
    return [attention(trace, stack=name) for name in stacks]


def offered(
    view: str, shown: Any, methods: Sequence[str], *, many: bool, layers: bool = False
) -> tuple[list[Any], list[Entry]]:
    """Return the explanations that a view has from the start, and the menu of those made when chosen.

    Args:
        view: The view's name, for errors.
        shown: A MixingMap, Attributions, or a trace.
        methods: Names of methods to offer; empty: the view's own choice.
        many: Whether the view offers a choice of methods.
        layers: Whether it shows what attributions say of every layer beside them.

    Raises:
        TypeError: `shown` is nothing that can be shown.
        ValueError: A method is unknown or not to be had from `shown`.
    """
    if isinstance(shown, (list, tuple)) and shown and all(is_trace(item) for item in shown):
        raise TypeError(f"{view}() shows one trace, and was given {len(shown)}: make a view of each.")
    if isinstance(shown, (list, tuple)) and _stacks_of_one(shown):
        if methods:
            raise ValueError(f"{view}() was given maps, and methods= chooses among those of a trace.")
        return list(shown), []
    if not is_trace(shown) and not is_explanation(shown):
        raise TypeError(
            f"{view}() shows a trace, a MixingMap or Attributions, not {type(shown).__name__}. "
            "aw.trace(model, tokenizer, text) or aw.from_attentions(attentions, tokens) makes one."
        )
    if not many:
        if methods:
            raise ValueError(f"{view}() shows one method; methods= is for Explorer().")
        found = [shown] if is_explanation(shown) else attention_of(shown)
        return _with_layers(found) if layers else found, []
    if is_explanation(shown):
        return _from_map(view, shown, methods), []
    return _from_trace(shown, methods)


def _stacks_of_one(shown: Sequence[Any]) -> bool:
    """Return whether these are maps of one trace by one method, each of another stack."""
    if not shown or not all(hasattr(item, "query") and hasattr(item, "stack") for item in shown):
        return False
    alike = {(item.trace_id, item.method) for item in shown}
    return len(alike) == 1 and len({item.stack for item in shown}) == len(shown)


def _from_trace(trace: Any, names: Sequence[str]) -> tuple[list[Any], list[Entry]]:
    from attnwidgets.explanations.registry.registry import methods as registered

    table = registered()
    found: list[Any] = []
    # A view opens with the first of the methods that are named.
    made = [name for name in names if name in RECORDED or name == names[0]] or list(RECORDED)
    if not names and trace.is_signed(trace.default_stack):
        made = ["attention"]  # rows that may sum to nothing cannot be rolled out: the menu says so
    refused: dict[str, str] = {}
    for name in made:
        if name == "attention":
            found.extend(attention_of(trace))
            continue
        try:
            found.extend(_with_layers(Entry(table[name], trace).make()))
        except ValueError as error:
            if names:
                raise
            refused[name] = str(error)  # there is no room for it: the menu says so
    entries = entries_of(trace, names, [name for name in made if name not in refused])
    return found, [replace(entry, refusal=refused.get(entry.name, entry.refusal)) for entry in entries]


def _with_layers(explanations: Sequence[Any]) -> list[Any]:
    """Return explanations, and what attributions among them say of every layer."""
    maps = [getattr(explanation, "map", None) for explanation in explanations if is_attributions(explanation)]
    return [*explanations, *(found for found in maps if found is not None)]


def askable(shown: Any, explanations: Sequence[Any]) -> dict[str, Entry]:
    """Return, by name, the methods among explanations of a trace that can be asked about other targets."""
    if not is_trace(shown):
        return {}
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    found = [Entry(table[item.method], shown) for item in explanations if item.method in table]
    return {entry.name: entry for entry in found if entry.takes_targets}


def _from_map(view: str, shown: Any, names: Sequence[str]) -> list[Any]:
    from attnwidgets.explanations.mixing.rollout import rollout

    offered = [shown.method]
    square = not is_attributions(shown) and shown.query == shown.key
    if square and shown.method != "rollout" and shown.stochastic:
        offered.append("rollout")
    for name in names:
        if name not in offered:
            raise ValueError(
                f"{view}(methods=...): {name!r} is not to be had from a map of {shown.method}, which offers "
                f"{', '.join(map(repr, offered))}.{suggest(name, offered)} Give the trace for more."
            )
    found = [shown if name == shown.method else rollout(shown) for name in names or offered]
    return _with_layers(found)


def check_units(view: str, explanations: Sequence[Any], units: Sequence[str]) -> None:
    """Refuse unit names that none of the explanations can be read in.

    Raises:
        ValueError: The message lists the units there are.
    """
    known = list(dict.fromkeys(name for item in explanations for name in units_of(item)))
    for name in units:
        if name not in known:
            listed, near = ", ".join(map(repr, known)), suggest(name, known)
            raise ValueError(f"{view}(units=...): {name!r} is not one of {listed}.{near}")
