"""Specs: interventions as linked views share them in JSON, checked and turned into interventions."""

from __future__ import annotations

import weakref
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.results.block_mixers import BlockMixers, HeadGroup, mixers_in
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.tracing.anatomy.blocks import ATTENTION
from attnwidgets.views.wire.axes import span

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from numpy.typing import NDArray

    from attnwidgets.intervene.preview import Changed
    from attnwidgets.statistics.free_attention import FreeAttention
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.tracing.trace import Trace

Spec = dict[str, Any]

KINDS = ("ablate", "row")
HOWS = ("zero", "mean")
ROWS = ("uniform", "one_hot", "free")
_KEYS = {
    "ablate": ("kind", "stack", "layer", "head", "how"),
    "row": ("kind", "stack", "layer", "head", "query", "to", "key", "amount"),
}
_MOST_CHANGES = 16  # lists of specs whose predictions stay in memory
_COPIES = 8  # of the input in a pass


@dataclass(frozen=True)
class Reach:
    """The layers, heads and tokens that specs of a trace may name.

    Args:
        heads: The heads by stack and layer, numbered as `aw.ablate_heads` does.
        tokens: Numbers of queries and keys, by stack.
        stack: The stack of specs that name none.
    """

    heads: Mapping[str, Mapping[int, BlockMixers]]
    tokens: Mapping[str, tuple[int, int]]
    stack: str

    @staticmethod
    def of(trace: Trace) -> Reach:
        """Return the reach of a trace."""
        return Reach(
            {name: _heads_of(trace, name) for name in trace.stacks},
            {name: (len(trace.axes(name)[0]), len(trace.axes(name)[1])) for name in trace.stacks},
            trace.default_stack,
        )


def _heads_of(trace: Trace, stack: str) -> dict[int, BlockMixers]:
    """Return the heads of the blocks of a stack that mix tokens."""
    mixers = mixers_in(trace, stack, attention=True)
    if not mixers:
        counts = {layer: trace.n_heads(stack, layer) for layer in trace.layers(stack)}
        return {layer: BlockMixers((HeadGroup(ATTENTION, count, 0),)) for layer, count in counts.items()}
    heads = {
        int(number): BlockMixers(tuple(HeadGroup(*group) for group in mixers[number])) for number in mixers
    }
    return {layer: of_block for layer, of_block in heads.items() if of_block.n_heads}


def checked_specs(given: Any, reach: Reach | None) -> tuple[Spec, ...]:
    """Return specs with defaults filled in and keys in a fixed order.

    Args:
        given: A list of dicts, as `Selection.interventions` takes it.
        reach: Layers, heads and tokens that specs may name; None: only their form is checked.

    Raises:
        TypeError: `given` is not a list of dicts, or a number is not an integer.
        ValueError: A kind, stack or key is unknown, or two specs change the same head or row.
        IndexError: The layer, head or token is out of range; the message names the range.
    """
    if isinstance(given, (str, bytes, dict)) or not hasattr(given, "__iter__"):
        raise TypeError(
            f"interventions={given!r} is not a list; give a list of dicts, such as "
            '[{"kind": "ablate", "layer": 3, "head": 1}].'
        )
    specs: list[Spec] = []
    for number, entry in enumerate(given):
        name = f"interventions[{number}]"
        spec = _checked_spec(name, entry, reach)
        if any(_address(spec) == _address(other) for other in specs):
            change = "ablates this head" if spec["kind"] == "ablate" else "sets this row"
            raise ValueError(f"{name}: another entry already {change}; change that one.")
        specs.append(spec)
    return tuple(specs)


def _address(spec: Spec) -> tuple[Any, ...]:
    """Return the head or row that a spec changes; a second spec of the same would hide the first."""
    return tuple(spec.get(key) for key in ("kind", "stack", "layer", "head", "query"))


def _checked_spec(name: str, given: Any, reach: Reach | None) -> Spec:
    if not hasattr(given, "keys"):
        raise TypeError(
            f"{name} is {given!r}, not a dict such as {{'kind': 'ablate', 'layer': 3, 'head': 1}}."
        )
    kind = _checked_choice(name, "kind", given.get("kind"), KINDS)
    for key in given:
        if key not in _KEYS[kind]:
            raise ValueError(
                f"{name}: {key!r} is not one of {listed(_KEYS[kind])}.{suggest(str(key), _KEYS[kind])}"
            )
    stack = given.get("stack")
    if stack is None:
        stack = "self" if reach is None else reach.stack
    if reach is not None:
        _checked_choice(name, "stack", stack, reach.heads)
    heads = None if reach is None else reach.heads[stack]
    queries, keys = (None, None) if reach is None else reach.tokens[stack]
    layer = _number(name, "layer", given, None if heads is None else tuple(heads))
    mixers = None if heads is None else heads[layer]
    head = _number(name, "head", given, None if mixers is None else range(mixers.n_heads))
    spec: Spec = {"kind": kind, "stack": str(stack), "layer": layer, "head": head}
    attends = mixers is None or mixers.attends(head)
    if kind == "ablate":
        how = _checked_choice(name, "how", given.get("how", "zero"), HOWS)
        if mixers is not None and mixers.fixed(head):
            raise ValueError(
                f"{name}: {mixers.words(head)} of layer {layer} cannot be knocked out: {mixers.fixed(head)}."
            )
        if not attends and how != "zero":
            raise ValueError(
                f"{name}: how={how!r} is for heads of attention; use 'zero' for {_of(mixers, head)}."
            )
        return spec | {"how": how}
    if not attends:
        raise ValueError(f"{name}: a row of attention cannot be set for {_of(mixers, head)}.")
    spec["query"] = _number(name, "query", given, None if queries is None else range(queries))
    return spec | _checked_row(name, given, keys)


def _of(mixers: BlockMixers | None, head: int) -> str:
    return "" if mixers is None else f"{mixers.words(head)} ({mixers.kind(head)})"


def _checked_row(name: str, given: Mapping[str, Any], keys: int | None) -> Spec:
    """Return the new values of a row: the keys "to", "key" and "amount" of a spec."""
    row: Spec = {"to": _checked_choice(name, "to", given.get("to"), ROWS)}
    if (given.get("key") is not None) != (row["to"] == "one_hot"):
        raise ValueError(f"{name}: 'key', the token that is read, goes with to='one_hot', and only with it.")
    if given.get("amount") is not None and row["to"] != "free":
        raise ValueError(f"{name}: 'amount', how far the row moves, goes only with to='free'.")
    if row["to"] == "one_hot":
        row["key"] = _number(name, "key", given, None if keys is None else range(keys))
    if row["to"] == "free":
        row["amount"] = _share(name, given.get("amount", 1))
    return row


def _checked_choice(name: str, key: str, value: Any, choices: Iterable[str]) -> str:
    if not isinstance(value, str) or value not in choices:
        raise ValueError(
            f"{name}: {key}={value!r} is not one of {listed(choices)}.{suggest(str(value), choices)}"
        )
    return value


def _number(name: str, key: str, given: Mapping[str, Any], numbers: Sequence[int] | None) -> int:
    value: Any = given.get(key)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"{name}: {key}={value!r} is not a number counted from 0.")
    number = int(value.__index__())
    if number < 0 or (numbers is not None and number not in numbers):
        there = "0 or more" if numbers is None else span(tuple(numbers))
        raise IndexError(f"{name}: {key}={number} is out of range: it must be {there}.")
    return number


def _share(name: str, value: Any) -> float:
    try:
        share = float(value)
    except (TypeError, ValueError):
        share = float("nan")
    if not 0 <= share <= 1:
        raise ValueError(
            f"{name}: amount={value!r} is not from 0 (the model's row) to 1 (all that can move)."
        )
    return share


class TraceInterventions:
    """The interventions that specs describe for a trace, and their effects; both stay in memory.

    Args:
        trace: The trace; None for a view of something else: then no intervention is possible.
    """

    def __init__(self, trace: Trace | None) -> None:
        self.trace = trace
        self.reach = None if trace is None else Reach.of(trace)
        self._made: dict[tuple[Any, ...], Intervention] = {}
        self._free: dict[tuple[str, int, int, int], FreeAttention] = {}
        self._changed: dict[tuple[Any, ...], Changed] = {}
        self._expected: dict[tuple[Any, ...], Sequence[Spec]] = {}  # the group of each, by its key
        self._ahead: dict[tuple[Any, ...], Changed] = {}

    @staticmethod
    def of(shown: Any) -> TraceInterventions:
        """Return the interventions on a trace, shared by all of its views; none are possible on others."""
        if not is_trace(shown):
            return TraceInterventions(None)
        trace: Trace = shown
        shared = _OF_TRACES.get(id(trace))
        if shared is None or shared.trace is not trace:
            shared = _OF_TRACES[id(trace)] = TraceInterventions(trace)
        return shared

    def refusal(self) -> str:
        """Return why no intervention is possible, in words, or "". Runs no model."""
        trace = self.trace
        if trace is None:
            return "it needs a trace, but this view was given something made from one: give it the trace"
        if getattr(trace, "model", None) is None:
            return "it needs the model, but the numbers of this trace were given without one"
        from attnwidgets.intervene.block_heads import heads_of_blocks
        from attnwidgets.tracing.interventions import require_same_interventions

        try:
            heads_of_blocks(trace, None)
            require_same_interventions(trace, "an intervention")
        except ValueError as error:
            return str(error)
        return ""

    def trace_with_model(self) -> Trace:
        """Return the trace.

        Raises:
            ValueError: No intervention is possible; the message says why.
        """
        why = self.refusal()
        if why or self.trace is None:
            raise ValueError(f"no intervention is possible: {why}.")
        return self.trace

    def free(self, stack: str, layer: int, head: int, query: int) -> tuple[NDArray[np.float64], float]:
        """Return the row with which a head returns the same [key], and the share of it that moved.

        Raises:
            ValueError, IndexError: The row is out of range.
        """
        free = self._free_attention(stack, layer, head, query)
        return free.rows[layer, head, query], float(free.movable[0, 0, 0])

    def _free_attention(self, stack: str, layer: int, head: int, query: int) -> FreeAttention:
        from attnwidgets.statistics.free_attention import free_attention

        row = (stack, layer, head, query)
        if row not in self._free:
            self._free[row] = free_attention(self.trace_with_model(), layer, head, query, stack=stack)
        return self._free[row]

    def interventions(self, specs: Sequence[Spec]) -> tuple[Intervention, ...]:
        """Return specs as interventions on the trace's model, not entered, in the same order.

        Raises:
            ValueError, IndexError: The trace has no model, or lacks the layer, head or token of a spec.
        """
        self.trace_with_model()
        return tuple(self._intervention(spec) for spec in checked_specs(specs, self.reach))

    def changed(self, specs: Sequence[Spec]) -> Changed:
        """Return the predictions with these active; a pass of the model, from the first changed layer on."""
        from attnwidgets.intervene.preview import changed

        trace, interventions = self.trace_with_model(), self.interventions(specs)
        key = _key_of(checked_specs(specs, self.reach))
        if key not in self._changed:
            if key in self._expected:
                self._compute_together(self._expected[key])
            while len(self._changed) >= _MOST_CHANGES:
                self._changed.pop(next(iter(self._changed)))
            ahead = key in self._ahead
            self._changed[key] = self._ahead.pop(key) if ahead else changed(trace, *interventions)
        return self._changed[key]

    def expect(self, specs: Sequence[Spec]) -> None:
        """Let passes of the model compute several of these, each active alone, once the first is wanted."""
        self._ahead.clear()  # what an earlier page had no room for
        checked = [spec for given in specs for spec in checked_specs([given], self.reach)]
        for first in range(0, len(checked), _COPIES):
            group = checked[first : first + _COPIES]
            self._expected |= {_key_of([spec]): group for spec in group}

    def _compute_together(self, group: Sequence[Spec]) -> None:
        from attnwidgets.intervene.side_by_side import each_changed

        keys = [_key_of([spec]) for spec in group]
        for key in keys:
            self._expected.pop(key, None)
        with suppress(ValueError, IndexError):  # of one of them: alone, it says so itself
            each = each_changed(self.trace_with_model(), [self._intervention(spec) for spec in group])
            self._ahead |= dict(zip(keys, each, strict=True))

    def _intervention(self, spec: Spec) -> Intervention:
        key = tuple(spec.items())
        if key not in self._made:
            self._made[key] = self._make(spec)
        return self._made[key]

    def _make(self, spec: Spec) -> Intervention:
        from attnwidgets.intervene.edit_attention import edit_attention
        from attnwidgets.intervene.heads import ablate_heads

        trace, stack = self.trace_with_model(), spec["stack"]
        at = spec["layer"], spec["head"]
        if spec["kind"] == "ablate":
            reference = trace if spec["how"] == "mean" else None
            return ablate_heads(trace, at, spec["how"], reference=reference, stack=stack)
        query = spec["query"]
        if spec["to"] != "free":
            return edit_attention(trace, at, spec["to"], query=query, key=spec.get("key"), stack=stack)
        row = self._free_attention(stack, *at, query).row(*at, query, spec["amount"])
        matrix = np.zeros((query + 1, len(row)))
        matrix[query] = row
        edit = edit_attention(trace, at, matrix, query=query, stack=stack)
        edit.said = edit.said.replace("set to a matrix", f"moved by {spec['amount']:g} of what is free")
        return edit


def _key_of(specs: Sequence[Spec]) -> tuple[Any, ...]:
    """Return checked specs as a key of a dict."""
    return tuple(tuple(spec.items()) for spec in specs)


# An entry lives as long as a view of the trace holds it.
_OF_TRACES: weakref.WeakValueDictionary[int, TraceInterventions] = weakref.WeakValueDictionary()
