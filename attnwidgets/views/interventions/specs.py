"""Specs: interventions as linked views share them, small and in JSON; checked, and made into real ones."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.views.base.accepts import is_trace
from attnwidgets.views.wire.axes import span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.intervene.prediction_change import Changed
    from attnwidgets.statistics.free_attention import FreeAttention
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

Spec = dict[str, Any]

KINDS = ("ablate", "row")
HOWS = ("zero", "mean")
ROWS = ("uniform", "one_hot", "free")
_TAKEN = {
    "ablate": ("kind", "stack", "layer", "head", "how"),
    "row": ("kind", "stack", "layer", "head", "query", "to", "key", "amount"),
}
_KEPT = 16  # lists of specs whose predictions are kept


@dataclass(frozen=True)
class Reach:
    """What the specs of a trace may name.

    Args:
        heads: How many heads every layer has, by stack.
        tokens: How many queries and keys there are, by stack.
        stack: The stack that is meant where none is named.
    """

    heads: Mapping[str, tuple[int, ...]]
    tokens: Mapping[str, tuple[int, int]]
    stack: str

    @staticmethod
    def of(trace: Trace) -> Reach:
        """Return that of a trace."""
        return Reach(
            {
                name: tuple(trace.n_heads(name, layer) for layer in range(trace.n_layers(name)))
                for name in trace.stacks
            },
            {name: (len(trace.axes(name)[0]), len(trace.axes(name)[1])) for name in trace.stacks},
            trace.default_stack,
        )


def checked(given: Any, reach: Reach | None) -> tuple[Spec, ...]:
    """Return specs with everything said that may be left out, in a fixed order.

    Args:
        given: A list of dicts, as `Selection.interventions` takes it.
        reach: What there is; None: only the form is checked.

    Raises:
        TypeError: It is no list of dicts, or a number is none.
        ValueError: An unknown kind, stack or key; the same head or row twice.
        IndexError: No such layer, head or token; the message names the range.
    """
    if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__iter__"):
        raise TypeError(
            f"interventions={given!r} is no list; give a list of dicts, such as "
            '[{"kind": "ablate", "layer": 3, "head": 1}].'
        )
    found: list[Spec] = []
    for number, one in enumerate(given):
        name = f"interventions[{number}]"
        spec = _checked(name, one, reach)
        if any(_place(spec) == _place(other) for other in found):
            what = "head is ablated" if spec["kind"] == "ablate" else "row is set"
            raise ValueError(f"{name}: this {what} by another of them already; change that one.")
        found.append(spec)
    return tuple(found)


def _place(spec: Spec) -> tuple[Any, ...]:
    """Return what a spec changes; of two for the same place one would be hidden by the other."""
    return tuple(spec.get(key) for key in ("kind", "stack", "layer", "head", "query"))


def _checked(name: str, given: Any, reach: Reach | None) -> Spec:
    if not hasattr(given, "keys"):
        raise TypeError(
            f"{name} is {given!r}, not a dict such as {{'kind': 'ablate', 'layer': 3, 'head': 1}}."
        )
    kind = _one_of(name, "kind", given.get("kind"), KINDS)
    for key in given:
        if key not in _TAKEN[kind]:
            raise ValueError(
                f"{name}: {key!r} is not one of {listed(_TAKEN[kind])}.{suggest(str(key), _TAKEN[kind])}"
            )
    stack = given.get("stack")
    if stack is None:
        stack = "self" if reach is None else reach.stack
    if reach is not None:
        _one_of(name, "stack", stack, reach.heads)
    heads = None if reach is None else reach.heads[stack]
    queries, keys = (None, None) if reach is None else reach.tokens[stack]
    layer = _number(name, "layer", given, None if heads is None else len(heads))
    head = _number(name, "head", given, None if heads is None else heads[layer])
    spec: Spec = {"kind": kind, "stack": str(stack), "layer": layer, "head": head}
    if kind == "ablate":
        return spec | {"how": _one_of(name, "how", given.get("how", "zero"), HOWS)}
    spec["query"] = _number(name, "query", given, queries)
    return spec | _checked_row(name, given, keys)


def _checked_row(name: str, given: Mapping[str, Any], keys: int | None) -> Spec:
    """Return what a row is set to."""
    row: Spec = {"to": _one_of(name, "to", given.get("to"), ROWS)}
    if (given.get("key") is not None) != (row["to"] == "one_hot"):
        raise ValueError(f"{name}: 'key' is the token that to='one_hot' reads, and of nothing else.")
    if given.get("amount") is not None and row["to"] != "free":
        raise ValueError(f"{name}: 'amount' is how far to='free' moves the row, and of nothing else.")
    if row["to"] == "one_hot":
        row["key"] = _number(name, "key", given, keys)
    if row["to"] == "free":
        row["amount"] = _share(name, given.get("amount", 1))
    return row


def _one_of(name: str, key: str, value: Any, known: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in known:
        raise ValueError(
            f"{name}: {key}={value!r} is not one of {listed(known)}.{suggest(str(value), known)}"
        )
    return value


def _number(name: str, key: str, given: Mapping[str, Any], count: int | None) -> int:
    value: Any = given.get(key)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {key}={value!r} is not a number counted from 0.")
    number = int(value.__index__())
    if number < 0 or (count is not None and number >= count):
        there = "0 or more" if count is None else span(tuple(range(count)))
        raise IndexError(f"{name}: {key}={number} is out of range: there is {there}.")
    return number


def _share(name: str, value: Any) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = float("nan")
    if not 0 <= share <= 1:
        raise ValueError(f"{name}: amount={value!r} is not 0 (the model's row) to 1 (all that can move).")
    return share


class Intervened:
    """A trace, and what interventions on it do.

    Args:
        trace: The trace, or None of a view that was given a map.
    """

    def __init__(self, trace: Trace | None) -> None:
        self.trace = trace
        self.reach = None if trace is None else Reach.of(trace)
        self._made: dict[tuple[Any, ...], Intervention] = {}
        self._free: dict[tuple[str, int, int, int], FreeAttention] = {}
        self._changed: dict[tuple[Any, ...], Changed] = {}

    @staticmethod
    def of(shown: Any) -> Intervened:
        """Return those of a trace, one for all of its views; of anything else, none can be pulled."""
        if not is_trace(shown):
            return Intervened(None)
        trace: Trace = shown
        found = _OF_TRACES.get(id(trace))
        if found is None or found.trace is not trace:
            found = _OF_TRACES[id(trace)] = Intervened(trace)
        return found

    def refusal(self) -> str:
        """Return why nothing can be pulled here, in words, or "". Runs no model."""
        trace = self.trace
        if trace is None:
            return "it needs a trace, and this view was given something made of one: give it the trace itself"
        if getattr(trace, "model", None) is None:
            return "it needs the model, and the numbers of this trace were given without one"
        from attnwidgets.tracing.attention_modules import sites
        from attnwidgets.tracing.interventions import require_same_interventions

        try:
            sites(trace)
            require_same_interventions(trace, "an intervention")
        except ValueError as error:
            return str(error)
        return ""

    def free(self, stack: str, layer: int, head: int, query: int) -> tuple[NDArray[np.float64], float]:
        """Return the row with which a head returns the same [key], and how much of it moved.

        Raises:
            ValueError, IndexError: There is no such row.
        """
        found = self._freed(stack, layer, head, query)
        return found.rows[layer, head, query], float(found.movable[0, 0, 0])

    def _freed(self, stack: str, layer: int, head: int, query: int) -> FreeAttention:
        from attnwidgets.statistics.free_attention import free_attention

        at = (stack, layer, head, query)
        if at not in self._free:
            self._free[at] = free_attention(self._required(), layer, head, query, stack=stack)
        return self._free[at]

    def interventions(self, specs: Sequence[Spec]) -> tuple[Intervention, ...]:
        """Return specs as interventions of the trace's model, not entered, in the same order.

        Raises:
            ValueError, IndexError: The trace has no model, or not what is named.
        """
        self._required()
        return tuple(self._intervention(spec) for spec in checked(specs, self.reach))

    def changed(self, specs: Sequence[Spec]) -> Changed:
        """Return what the model says with these active; one pass, from the first layer that is changed on."""
        from attnwidgets.intervene.prediction_change import changed

        real = self.interventions(specs)
        key = tuple(_key(spec) for spec in checked(specs, self.reach))
        if key not in self._changed:
            while len(self._changed) >= _KEPT:
                self._changed.pop(next(iter(self._changed)))
            self._changed[key] = changed(self._required(), *real)
        return self._changed[key]

    def _required(self) -> Trace:
        why = self.refusal()
        if why or self.trace is None:
            raise ValueError(f"an intervention cannot be made: {why}.")
        return self.trace

    def _intervention(self, spec: Spec) -> Intervention:
        key = _key(spec)
        if key not in self._made:
            self._made[key] = self._make(spec)
        return self._made[key]

    def _make(self, spec: Spec) -> Intervention:
        from attnwidgets.intervene.ablate_heads import ablate_heads
        from attnwidgets.intervene.edit_attention import edit_attention

        trace, stack = self._required(), spec["stack"]
        at = spec["layer"], spec["head"]
        if spec["kind"] == "ablate":
            mean = spec["how"] == "mean"
            return ablate_heads(trace, at, spec["how"], reference=trace if mean else None, stack=stack)
        query = spec["query"]
        if spec["to"] != "free":
            return edit_attention(trace, at, spec["to"], query=query, key=spec.get("key"), stack=stack)
        row = self._freed(stack, *at, query).row(*at, query, spec["amount"])
        matrix = np.zeros((query + 1, len(row)))
        matrix[query] = row
        made = edit_attention(trace, at, matrix, query=query, stack=stack)
        made.said = made.said.replace("set to a matrix", f"moved by {spec['amount']:g} of what is free")
        return made


def _key(spec: Spec) -> tuple[Any, ...]:
    return tuple(spec.items())


# As long as a view of the trace holds them.
_OF_TRACES: weakref.WeakValueDictionary[int, Intervened] = weakref.WeakValueDictionary()
