"""Resolves the argument of a view into explanations, and lists the methods of its menu.

`content_of` turns a trace, a map, attributions or a list of these into a `Content`: the explanations from the
start, and an `Entry` for every method that is computed only when the reader chooses it. A method that cannot
explain the trace stays in the menu, with the reason.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.compare.items import target_rows
from attnwidgets.views.wire.axes import units_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from attnwidgets.explanations.registry.registry import Method

RECORDED = ("attention", "rollout")
"""Methods an Explorer has from the start: any recorded pass gives them without running the model."""

NEEDS_KERNEL = "needs a running kernel"
"""The refusal of every method that a page does not contain."""

_SHOWN = ("MixingMap", "Attributions")
_BEST = ("lrp", "integrated_gradients", "input_x_gradient")


@dataclass(frozen=True)
class Content:
    """The explanations and methods of a view, the same for every kind of argument.

    Attributes:
        explanations: MixingMaps and Attributions that the view has from the start, the main map first.
        trace: The trace that it was given; None if it was given explanations.
        menu: Methods that are computed when the reader chooses them.
        targetable: By name, the methods among `explanations` that can explain another target.
        trace_id: Id of the trace, by which views are linked.
        is_named: Whether methods were named or an explanation given. A page then holds all of them, and no
            other method of the menu.
        is_fixed: Whether the view keeps showing its map, whatever method linked views select.
    """

    explanations: tuple[Any, ...] = ()
    trace: Any = None
    menu: tuple[Entry, ...] = ()
    targetable: Mapping[str, Entry] = field(default_factory=dict)
    trace_id: str = ""
    is_named: bool = False
    is_fixed: bool = False

    @property
    def main(self) -> Any:
        """The explanation that the view opens with."""
        return self.explanations[0]


def content_of(
    view: str,
    shown: Any,
    methods: Sequence[str],
    units: Sequence[str] = (),
    *,
    many_methods: bool,
    with_layers: bool,
) -> Content:
    """Return the explanations and methods of a view.

    Args:
        view: The view's name, for errors.
        shown: A trace, a MixingMap, Attributions, a list of Attributions of the same text, or a list of maps
            of one trace by one method, each of another stack.
        methods: Names of the methods to offer; empty: the view's default.
        units: Units that it offers; an explanation must have each of them.
        many_methods: Whether the view offers a choice of methods.
        with_layers: Whether it shows the layers of attributions (`.map`) as well.

    Raises:
        TypeError: `shown` cannot be shown.
        ValueError: A method or a unit is unknown, or not supported for `shown`.
    """
    accepted = _accepted(view, shown, methods, many_methods=many_methods, with_layers=with_layers)
    _check_units(view, accepted.explanations, units)
    is_named = bool(methods) or not is_trace(shown)
    return replace(accepted, trace_id=str(accepted.main.trace_id), is_named=is_named)


def _accepted(
    view: str, shown: Any, methods: Sequence[str], *, many_methods: bool, with_layers: bool
) -> Content:
    if isinstance(shown, (list, tuple)) and shown:
        if all(is_trace(item) for item in shown):
            raise TypeError(f"{view}() shows one trace, and was given {len(shown)}: make a view of each.")
        if all(isinstance(item, Attributions) for item in shown):
            shown = target_rows(shown)
        elif _are_stacks_of_one(shown):
            if methods:
                raise ValueError(f"{view}() was given maps, and methods= chooses among those of a trace.")
            return Content(tuple(shown))
    if not is_trace(shown) and not isinstance(shown, (MixingMap, Attributions)):
        raise TypeError(
            f"{view}() shows a trace, a MixingMap or Attributions, not {type(shown).__name__}. "
            "aw.trace(model, tokenizer, text) or aw.from_attentions(attentions, tokens) makes a trace."
        )
    if methods and not many_methods:
        raise ValueError(f"{view}() shows one method; methods= is for Explorer().")
    if is_trace(shown):
        return _of_trace(shown, methods) if many_methods else Content(tuple(attention_of(shown)), shown)
    explanations = _of_explanation(view, shown, methods) if many_methods else [shown]
    if many_methods or with_layers:
        explanations = _with_layers(explanations)
    return Content(tuple(explanations), is_fixed=not many_methods)


def attention_of(trace: Any) -> list[Any]:
    """Return the attention of every stack of a trace, the default stack first.

    Of a stack in which blocks mix tokens without attention, how all its blocks mix them.
    """
    from attnwidgets.explanations.mixing.attention import attention
    from attnwidgets.explanations.mixing.mixing import mixing

    stacks = [trace.default_stack, *(name for name in trace.stacks if name != trace.default_stack)]
    table = getattr(trace, "stack_table", {})
    mixed = {name for name in stacks if name in table and table[name].mixing}
    return [mixing(trace, stack=name) if name in mixed else attention(trace, stack=name) for name in stacks]


def _are_stacks_of_one(shown: Sequence[Any]) -> bool:
    """Return whether these are maps of one trace by one method, each of another stack."""
    if not all(isinstance(item, MixingMap) for item in shown):
        return False
    same_method = len({(item.trace_id, item.method) for item in shown}) == 1
    return same_method and len({item.stack for item in shown}) == len(shown)


def _of_trace(trace: Any, names: Sequence[str]) -> Content:
    from attnwidgets.explanations.registry.registry import methods as registered

    table = registered()
    # A view opens with the first of the methods that are named.
    initial = [name for name in names if name in RECORDED or name == names[0]] or list(RECORDED)
    if not names and trace.is_signed(trace.default_stack):
        initial = ["attention"]  # signed rows may sum to zero and have no rollout: the menu says so
    explanations: list[Any] = []
    refusals: dict[str, str] = {}
    for name in initial:
        if name == "attention":
            explanations.extend(attention_of(trace))
            continue
        try:
            explanations.extend(_with_layers(Entry(table[name], trace).make()))
        except ValueError as error:
            if names:
                raise
            refusals[name] = str(error)  # too large, for example: the menu says so
    menu = entries_of(trace, names, [name for name in initial if name not in refusals])
    initial_entries = [Entry(table[item.method], trace) for item in explanations if item.method in table]
    return Content(
        tuple(explanations),
        trace,
        tuple(replace(entry, refusal=refusals.get(entry.name, entry.refusal)) for entry in menu),
        {entry.name: entry for entry in initial_entries if entry.takes_targets},
    )


def _of_explanation(view: str, shown: Any, names: Sequence[str]) -> list[Any]:
    from attnwidgets.explanations.mixing.rollout import rollout

    offered = [shown.method]
    is_square = isinstance(shown, MixingMap) and shown.query == shown.key
    if is_square and shown.method != "rollout" and (shown.stochastic or shown.sink):
        offered.append("rollout")
    for name in names:
        if name not in offered:
            raise ValueError(
                f"{view}(methods=...): {name!r} cannot be computed from a map of {shown.method}, which "
                f"offers {', '.join(map(repr, offered))}.{suggest(name, offered)} Give the trace for more."
            )
    return [shown if name == shown.method else rollout(shown) for name in names or offered]


def _with_layers(explanations: Sequence[Any]) -> list[Any]:
    """Return explanations, followed by the maps by layers of the attributions among them."""
    maps = [item.map for item in explanations if isinstance(item, Attributions)]
    return [*explanations, *(by_layer for by_layer in maps if by_layer is not None)]


def _check_units(view: str, explanations: Sequence[Any], units: Sequence[str]) -> None:
    """Check that the explanations can be read in each of some units.

    Raises:
        ValueError: The unit is unknown; the message lists the units.
    """
    available = list(dict.fromkeys(name for item in explanations for name in units_of(item)))
    for name in units:
        if name not in available:
            listed, near = ", ".join(map(repr, available)), suggest(name, available)
            raise ValueError(f"{view}(units=...): {name!r} is not one of {listed}.{near}")


@dataclass(frozen=True)
class Entry:
    """A method that can be chosen for a trace.

    Attributes:
        method: Its description in the registry.
        trace: The trace that it would explain.
        refusal: Why it cannot be chosen, or "".
    """

    method: Method
    trace: Any
    refusal: str = ""

    @property
    def name(self) -> str:
        """Name of the method."""
        return self.method.name

    @property
    def title(self) -> str:
        """Name of the method for readers."""
        return self.name.replace("_", " ")

    @property
    def takes_targets(self) -> bool:
        """Whether the method can explain a given target, also in contrast to a foil."""
        return {"target", "foil"} <= set(self.method.options)

    def describe(self, key: str) -> dict[str, Any]:
        """Return the Offer of wire.ts."""
        return {
            "method": key,
            "title": self.title,
            "summary": self.method.summary,
            "question": self.method.answers,
            "gist": self.method.reads,
            "cost": self.method.cost,
            "speed": self.method.speed,
            "refusal": self.refusal,
            "mark": str(getattr(self.method, "mark", "")),
            "targets": self.takes_targets,
        }

    def make(self, target: int | None = None, foil: int | None = None) -> list[Any]:
        """Return the method's explanation of every stack that it supports, the default stack first.

        Args:
            target: Class or token that is explained; None: the model's prediction.
            foil: Class or token that the target is contrasted with. Attributions then have three rows: the
                target, the foil, and the target rather than the foil.

        Raises:
            ValueError: It supports none; and whatever else the method raises.
        """
        results = [self._explain(stack, target, foil) for stack in _stacks(self.method, self.trace)]
        explanations = [result for result in results if not isinstance(result, ValueError)]
        if not explanations:
            raise results[0]
        return explanations

    def _explain(self, stack: str | None, target: int | None, foil: int | None) -> Any:
        """Return the explanation of a stack, or the ValueError that the method raises."""
        options: dict[str, Any] = {"stack": stack} if stack else {}
        if target is not None:
            options["target"] = target
        explain = self.method.function
        try:
            if foil is None:
                return explain(self.trace, **options)
            from attnwidgets.relevance.rules import shared_pass

            with shared_pass():
                contrast: Any = explain(self.trace, **options, foil=foil)
                if not isinstance(contrast, Attributions):
                    return contrast
                alone: list[Any] = [
                    explain(self.trace, **(options | {"target": item})) for item in (target, foil)
                ]
            return target_rows([*alone, contrast], title=contrast.title)
        except ValueError as error:  # the stack "cross", for example, leads from a sequence to another
            return error


def _stacks(method: Method, trace: Any) -> list[str | None]:
    """Return the stacks that a method is applied to: None is its default."""
    others = [name for name in trace.stacks if name != trace.default_stack]
    return [None, *(others if "stack" in method.options else [])]


def _refusal(method: Method, trace: Any) -> str:
    """Return "" if a method supports any stack of a trace, else why not the default stack."""
    if method.required:
        arguments = " and ".join(f"{name}=..." for name in method.required)
        return f"takes {arguments}: aw.{method.name}(trace, {arguments}) in a cell shows it"
    reasons = [method.refusal(trace, name) for name in _stacks(method, trace)]
    return reasons[0] if all(reasons) else ""


def entries_of(trace: Any, names: Sequence[str], initial: Sequence[str]) -> list[Entry]:
    """Return the entries of a menu by the question that they answer, those that can be chosen first in each.

    Args:
        trace: The trace that is explained.
        names: Names of methods; empty: every method whose result a view can show.
        initial: Names of methods that the view has from the start, which the menu leaves out.
    """
    from attnwidgets.explanations.registry.registry import in_menu_order

    entries = [Entry(method, trace, _refusal(method, trace)) for method in _offered(names, initial)]

    def order(entry: Entry) -> tuple[int, bool, int, str]:
        question, speed, name = in_menu_order(entry.method)
        return question, bool(entry.refusal), speed, name

    return sorted(entries, key=order)


def best_for_predictions(entries: Mapping[str, Entry]) -> str:
    """Return the key of the method that explains predictions; "" if no method takes a target.

    Methods that conserve the target come first, then integrated gradients, gradients and all others. A method
    with a warning comes last.

    Args:
        entries: Methods by key; those that refuse the trace, or take no target, are skipped.
    """

    def rank(key: str) -> tuple[bool, int]:
        method = entries[key].method
        position = _BEST.index(method.name) if method.name in _BEST else len(_BEST)
        return bool(getattr(method, "mark", "")), position

    able = [key for key, entry in entries.items() if entry.takes_targets and not entry.refusal]
    return min(able, key=rank, default="")


def outdated(entries: Sequence[Entry], initial: Sequence[str]) -> bool:
    """Return whether a menu of every method lacks a method that was registered or checked since."""
    now = {(method.name, method.function, method.mark) for method in _offered((), initial)}
    return now != {(entry.name, entry.method.function, entry.method.mark) for entry in entries}


def _offered(names: Sequence[str], initial: Sequence[str]) -> list[Method]:
    from attnwidgets.explanations.registry.registry import methods

    table = methods()
    listed = [table[name] for name in names] or list(table)
    return [method for method in listed if method.name not in initial and method.returns.startswith(_SHOWN)]
