"""What is evaluated: traces, and the explanations of each by name."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.evaluate.examples.method_specs import named
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import require_trace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class ExplainedInput:
    """One input with its explanations.

    Attributes:
        trace: The trace.
        values: What each explanation says of every element [element], by name.
        unit: The elements.
        stack: Whose they are.
    """

    trace: Trace
    values: Mapping[str, NDArray[np.float64]]
    unit: Unit
    stack: str


def explained(
    traces: Any, explanations: Any, target: Any, function: str, unit: str | None
) -> list[ExplainedInput]:
    """Return inputs with their explanations.

    Args:
        traces: A trace, or several.
        explanations: Attributions of the trace, or a list of them, one for each trace; a name in
            `aw.methods()`, a pair (name, options), or a function of a trace; or a mapping from names to any
            of these.
        target: What methods given by name explain.
        function: Who asks, for messages.
        unit: The unit to read all of them in; None: the one that they are in.

    Raises:
        TypeError: Where an explanation is none; a map says how to make it one.
        ValueError: Where one has several targets, is of another input, or units differ.
    """
    single = not isinstance(traces, Sequence)
    every = [traces] if single else list(traces)
    if not every:
        raise ValueError("traces is empty: give a trace, or several.")
    for trace in every:
        require_trace(trace, function)
    given = by_name(explanations)
    if not given:
        raise ValueError("explanations is empty: give at least one.")
    sources = {str(name): source_of(one, len(every), str(name), target) for name, one in given.items()}
    found = []
    for number, trace in enumerate(every):
        own: dict[str, NDArray[np.float64]] = {}
        elements: Unit | None = None
        stack = ""
        for name, source in sources.items():
            one = require_single(source(number, trace), name)
            one = one if unit is None else one.to(unit)
            side = stack_of_axis(one.axis, one.stack, trace, name, f"traces[{number}]")
            if elements is not None and (one.unit, side) != (elements.name, stack):
                raise ValueError(
                    f"explanation {name!r} is by {one.unit} of stack {side!r}, the first by {elements.name} "
                    f"of {stack!r}: pass unit='...' to read all of them in one."
                )
            elements, stack = one.source_unit, side
            own[name] = np.asarray(one.values, dtype=np.float64)
        if elements is None:
            continue
        found.append(ExplainedInput(trace, own, elements, stack))
    return found


def watched(inputs: Sequence[ExplainedInput]) -> Iterable[ExplainedInput]:
    """Return the inputs, under a progress bar where there are several."""
    return progress(inputs, "scoring") if len(inputs) > 1 else inputs


def is_constant(values: NDArray[np.float64]) -> bool:
    """Return whether several values are all equal, so that they rank nothing."""
    return len(values) > 1 and bool((values == values[0]).all())


def by_name(explanations: Any) -> Mapping[Any, Any]:
    """Return explanations, and what gives some, by the names that tables give them.

    A list of Attributions has one for every trace; a list of methods has several methods.
    """
    if isinstance(explanations, Mapping):
        return explanations
    several = isinstance(explanations, list) and not _is_list_of_results(explanations)
    return {result_name(one): one for one in (explanations if several else [explanations])}


def result_name(one: Any) -> str:
    """Return what an explanation, a list of them, or what gives one is called."""
    if isinstance(one, (Attributions, MixingMap)):
        return str(one.method)
    if _is_list_of_results(one):
        return str(one[0].method)
    return next(iter(named(one)))


def _is_list_of_results(one: Any) -> bool:
    return isinstance(one, list) and bool(one) and isinstance(one[0], (Attributions, MixingMap))


def source_of(
    one: Any, n: int, name: str, target: Any, *, finished: bool = True
) -> Callable[[int, Trace], Any]:
    """Return a function of a trace's number and the trace.

    Args:
        one: An explanation, a list of them, or what gives one.
        n: How many traces there are.
        name: What it is called, for messages.
        target: What methods given by name explain.
        finished: Whether an explanation that is there already will do.

    Raises:
        TypeError: Where it will not.
        ValueError: Where there are not as many as traces.
    """
    if not finished and (isinstance(one, (Attributions, MixingMap)) or _is_list_of_results(one)):
        raise TypeError(
            f"explanation {name!r} is finished, and is needed for other inputs too: give its method, by "
            "name, as (name, options), or as a function of a trace."
        )
    if isinstance(one, (Attributions, MixingMap)) or _is_list_of_results(one):
        several = list(one) if isinstance(one, list) else [one]
        if len(several) != n:
            raise ValueError(f"explanation {name!r} has {len(several)} for {n} traces: give one for each.")
        return lambda number, _: several[number]
    spec = (one, {}) if isinstance(one, str) else one
    if isinstance(spec, tuple):
        function = methods()[spec[0]].function
        if target is not None and "target" in inspect.signature(function).parameters:
            spec = (spec[0], {"target": target, **spec[1]})
    call = next(iter(named([spec]).values()))
    return lambda _, trace: call(trace)


def require_single(one: Any, name: str) -> Attributions:
    """Return an explanation of one target.

    Raises:
        TypeError: Where it is none; a map says how to make it one.
        ValueError: Where it has several targets.
    """
    if isinstance(one, MixingMap):
        raise TypeError(
            f"explanation {name!r} is a map: make a vector of it first, .to_attributions('row', query='cls') "
            "or another scheme, of one layer, .select(layer=-1)."
        )
    if not isinstance(one, Attributions):
        raise TypeError(f"explanation {name!r} is a {type(one).__name__}, not Attributions.")
    if len(one.shape) > 1:
        raise ValueError(
            f"explanation {name!r} is of several targets, {listed(one.targets)}: take one, .select(target)."
        )
    return one


def stack_of_axis(axis: TokenAxis, stack: str, trace: Trace, name: str, whose: str) -> str:
    """Return the stack whose tokens an explanation is about.

    Args:
        axis: What it is about.
        stack: The stack that it names.
        trace: The input.
        name: What the explanation is called, for messages.
        whose: What the trace is called, for messages.

    Raises:
        ValueError: Where it is of another input.
    """
    stack = stack if stack in trace.stacks else trace.default_stack
    if stack == "cross":
        # Sources of cross-attention are the encoder's tokens, unless its queries were asked about.
        query, key = trace.axes("cross")
        stack = "decoder" if axis.tokens == query.tokens and query.tokens != key.tokens else "encoder"
    tokens = trace.axes(stack)[0].tokens if stack in trace.stacks else ()
    if axis.tokens != tokens:
        raise ValueError(
            f"explanation {name!r} is of another input than {whose}: it has {len(axis)} tokens, "
            f"{listed(axis.tokens[:4])} ..., the trace has {len(tokens)}, {listed(tokens[:4])} ..."
        )
    return stack
