"""Inputs of an evaluation: traces with their explanations by name, and methods as evaluations take them.

`explained` pairs every trace with the vectors of its explanations, which are given, computed by methods, or
both, and checks that all are over the same elements. `labelled` gives methods the names of tables; a method
is a name, a pair (name, options) or a function of a trace, so that it can travel to other processes.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import listed
from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import elements_of, require_trace, reruns_of
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.explanations.targets.resolve import class_names
from attnwidgets.tracing.predictions import MOST

if TYPE_CHECKING:
    from collections.abc import Iterable, Sized

    from attnwidgets.evaluate.arrays import Float
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace

    Spec = str | tuple[str, Mapping[str, Any]] | Callable[[Any], Any]
    Specs = Spec | Sequence[Spec] | Mapping[str, Spec]

_MATRICES = 3  # dimensions of [layer, query, key]


def labelled(specs: Specs) -> dict[str, Spec]:
    """Return methods by the names that tables give them; they can travel to workers.

    Args:
        specs: A method or several: a name in `aw.methods()`, a pair (name, options), a function of a trace;
            or a mapping from labels to any of these.

    Raises:
        ValueError: If a method is unknown, there is none, or two share a name.
        TypeError: If an item is not a method.
    """
    if isinstance(specs, Mapping):
        pairs = [(str(label) or name_of(spec), spec) for label, spec in specs.items()]
    else:
        single = isinstance(specs, str) or callable(specs) or _is_pair(specs)
        several: Any = [specs] if single else specs
        pairs = [(name_of(spec), spec) for spec in several]
    by_label: dict[str, Spec] = {}
    for name, spec in pairs:
        name_of(spec)
        if name in by_label:
            raise ValueError(
                f"methods has {name!r} twice; give a mapping from labels to methods to tell them apart."
            )
        by_label[name] = spec
    if not by_label:
        raise ValueError("methods is empty; name at least one of aw.methods().")
    return by_label


def functions_by_name(specs: Specs) -> dict[str, Callable[[Any], Any]]:
    """Return functions of a trace by the names that tables give them; for the forms, see `labelled`."""
    return {name: function_of(spec) for name, spec in labelled(specs).items()}


def name_of(spec: Any) -> str:
    """Return the name of a method with its options, as in tables.

    Raises:
        ValueError: If the method is unknown.
        TypeError: If it is not a method.
    """
    if isinstance(spec, str):
        spec = (spec, {})
    if _is_pair(spec):
        name, options = spec
        methods()[name]
        settings = ", ".join(_option_text(key, value) for key, value in options.items())
        return f"{name} ({settings})" if settings else str(name)
    if callable(spec):
        return str(getattr(spec, "__name__", type(spec).__name__))
    raise TypeError(f"methods takes names, (name, options) and functions of a trace, not {spec!r}.")


def function_of(spec: Any) -> Callable[[Any], Any]:
    """Return a method as a function of a trace."""
    if callable(spec):
        return spec
    name, options = (spec, {}) if isinstance(spec, str) else spec
    method = methods()[name]
    return lambda trace: method.function(trace, **options)


def _is_pair(spec: Any) -> bool:
    return (
        isinstance(spec, tuple)
        and len(spec) == len(("name", "options"))
        and isinstance(spec[0], str)
        and isinstance(spec[1], Mapping)
    )


def _option_text(key: str, value: Any) -> str:
    if value is True:
        return key.replace("_", " ")
    return value if isinstance(value, str) else f"{key} {value}"


def rows_of(result: Any, rows: Sequence[int], n: int, name: str) -> dict[int, Float]:
    """Return some rows [row, key] of every layer of a method's result, over tokens, averaged over heads.

    Args:
        result: A MixingMap by tokens, or an array [layer, query, key].
        rows: Indices of the rows.
        n: Number of tokens.
        name: The method, for messages.

    Raises:
        TypeError: If the result is not a map.
        ValueError: If it is not over these tokens.
    """
    if not isinstance(result, MixingMap):
        try:
            array = np.asarray(
                result.detach().cpu() if hasattr(result, "detach") else result, dtype=np.float64
            )
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"method {name!r} returned {type(result).__name__}, not a MixingMap [layer, query, key]."
            ) from error
        if array.ndim != _MATRICES or array.shape[1:] != (n, n):
            raise ValueError(
                f"method {name!r} returned shape {array.shape}, not [layer, {n} queries, {n} keys]."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"method {name!r} returned values that are NaN or infinite.")
        return {layer: matrix[list(rows)] for layer, matrix in enumerate(array)}
    if result.shape[-2:] != (n, n) or len(result.query) != n or len(result.key) != n:
        raise ValueError(
            f"method {name!r} returned a map of {result.shape[-2]} by {result.shape[-1]} {result.unit}s; "
            f"targets and cues need one of {n} by {n} tokens."
        )
    by_layer = {}
    for number in result.layers:
        chosen = np.asarray(result.rows(number, None, rows), dtype=np.float64)
        by_layer[number] = chosen if result.heads is None else chosen.mean(axis=0)
    return by_layer


@dataclass(frozen=True)
class ExplainedInput:
    """An input with its explanations.

    Attributes:
        trace: The trace.
        values: The values of each explanation [element], by name.
        unit: The elements.
        stack: The stack they belong to.
        explained: The label of each explanation's target; "" without.
    """

    trace: Trace
    values: Mapping[str, Float]
    unit: Unit
    stack: str
    explained: tuple[str, ...] = ()

    def target(self, function: str) -> Target:
        """Return the target of the explanations; if they name none, the model's prediction.

        Raises:
            ValueError: If they are of several targets, or their label does not determine the target.
        """
        return target_of(self.trace, self.explained, function)


def target_of(trace: Trace, explained_labels: Iterable[str], function: str) -> Target:
    """Return the target of explanations by their labels; the model's prediction if they name none.

    Raises:
        ValueError: If they are of several targets, or their label does not determine the target.
    """
    labels = list(dict.fromkeys(label for label in explained_labels if label))
    if not labels:
        return resolve_target(trace, None, method=function)
    named = f"the explanation{'s are' if len(labels) > 1 else ' is'} of {listed(labels)}"
    if len(labels) > 1:
        raise ValueError(f"{function} scores one target, and {named}: pass target=...")
    every = (resolve_target(trace, outcome.id, method=function) for outcome in trace.predictions(MOST))
    # Labels distinguish outcomes of the same name, so that the first is the only such target.
    predicted = next((target for target in every if target.label == labels[0]), None)
    is_class = class_names(trace).count(labels[0]) == 1
    if predicted is None and not is_class:
        raise ValueError(
            f"{function} scores a target, and {named}, a label that does not determine one: pass target=..., "
            "as the method was given it."
        )
    return resolve_target(trace, labels[0], method=function) if predicted is None else predicted


def target_label(explanation: Any) -> str:
    """Return the label of an explanation's target; "" without.

    Vectors of a map are labelled by their layers; their provenance names the target of the map. A token in an
    earlier row than the next token's is identified by the tokens that it depends on.
    """
    label = explanation.provenance.get("target", getattr(explanation, "target", None))
    if not isinstance(label, str):
        return ""
    reach: Any = getattr(explanation, "reach", None)
    is_whole = reach is None or reach == (len(explanation.axis),)
    return label if is_whole else f"{label} at {reach[0] - 1}"


def as_list(values: Any) -> list[Any]:
    """Return a list or tuple as a list; any other value as a list of length 1."""
    return list(values) if isinstance(values, (list, tuple)) else [values]


def require_one_each(name: str, values: Sized, traces: Sized) -> None:
    """Raise ValueError unless the numbers of values and traces are equal."""
    if len(values) != len(traces):
        raise ValueError(f"{name} has {len(values)} for {len(traces)} traces: give one for each.")


def explained(
    traces: Any, explanations: Any, target: Any, function: str, unit: str | None
) -> list[ExplainedInput]:
    """Return inputs with their explanations.

    Args:
        traces: A trace, or several.
        explanations: Attributions of the trace, or a list of them, as long as the traces; a name in
            `aw.methods()`, a pair (name, options), or a function of a trace; or a mapping from names to any
            of these.
        target: The target that methods given by name explain.
        function: Name of the calling function, for messages.
        unit: The unit to read all of them in; None for their present unit.

    Raises:
        TypeError: If an explanation is a map (the message says how to make a vector of it), or not an
            explanation.
        ValueError: If an explanation has several targets or belongs to another input, or units differ.
    """
    traces = list(traces) if isinstance(traces, Sequence) else [traces]
    if not traces:
        raise ValueError("traces is empty: give one or several.")
    for trace in traces:
        require_trace(trace, f"evaluate.{function}")
    methods_by_name = {str(name): method for name, method in by_name(explanations).items()}
    if not methods_by_name:
        raise ValueError("explanations is empty: give at least one.")
    sources = {name: source_of(method, len(traces), name, target) for name, method in methods_by_name.items()}
    inputs = []
    for number, trace in enumerate(traces):
        singles = {}
        for name, source in sources.items():
            single = require_single(source(number, trace), name)
            singles[name] = single if unit is None else single.to(unit)
        if unit is None and {single.unit for single in singles.values()} == {"token", "patch"}:
            # In a picture, tokens and patches may be the same elements under two names.
            singles = {name: _by_patch(single) for name, single in singles.items()}
        stacks = {
            name: stack_of_axis(single.axis, single.stack, trace, name, f"traces[{number}]")
            for name, single in singles.items()
        }
        first = next(iter(singles))
        for name, single in singles.items():
            if (single.unit, stacks[name]) != (singles[first].unit, stacks[first]):
                raise ValueError(
                    f"explanation {name!r} is by {single.unit} of stack {stacks[name]!r}, the first by "
                    f"{singles[first].unit} of {stacks[first]!r}: pass unit='...' to read all of them in one."
                )
        values = {name: np.asarray(single.values, dtype=np.float64) for name, single in singles.items()}
        labels = tuple(map(target_label, singles.values()))
        inputs.append(ExplainedInput(trace, values, singles[first].source_unit, stacks[first], labels))
    return inputs


def _by_patch(single: Attributions) -> Attributions:
    """Return an explanation by token in the unit "patch", if tokens and patches are the same elements."""
    patches, tokens = (single.axis.units.get(name) for name in ("patch", "token"))
    same = patches is not None and tokens is not None and patches.spans == tokens.spans
    return single.to("patch") if same and single.unit == "token" else single


def watched(inputs: Sequence[ExplainedInput]) -> Iterable[ExplainedInput]:
    """Return the inputs, under a progress bar if there are several."""
    return progress(inputs, "scoring") if len(inputs) > 1 else inputs


def is_constant(values: Float) -> bool:
    """Return whether several values are all equal, so that they rank nothing."""
    return len(values) > 1 and bool((values == values[0]).all())


def by_name(explanations: Any) -> Mapping[Any, Any]:
    """Return explanations, or methods that compute them, by the names that tables give them.

    A list of Attributions is a single method's, one for each trace; a list of methods holds several methods.
    """
    if isinstance(explanations, Mapping):
        return explanations
    several = isinstance(explanations, list) and not _is_finished(explanations)
    return {result_name(method): method for method in (explanations if several else [explanations])}


def result_name(explanation: Any) -> str:
    """Return the name of an explanation, of a list of them, or of a method."""
    if _is_finished(explanation):
        return str(as_list(explanation)[0].method)
    return name_of(explanation)


def _is_finished(explanation: Any) -> bool:
    """Return whether a value is an explanation, or a list of them, and not a method."""
    first = explanation[0] if isinstance(explanation, list) and explanation else explanation
    return isinstance(first, (Attributions, MixingMap))


def source_of(
    explanation: Any, n: int, name: str, target: Any, *, finished: bool = True
) -> Callable[[int, Trace], Any]:
    """Return a function of a trace's number and the trace, which returns an explanation.

    Args:
        explanation: An explanation, a list of them, or a method.
        n: Number of traces.
        name: Its name, for messages.
        target: The target that methods given by name explain.
        finished: Whether computed explanations are accepted.

    Raises:
        TypeError: If computed explanations are not accepted.
        ValueError: If their number is not that of the traces.
    """
    if _is_finished(explanation):
        if not finished:
            raise TypeError(
                f"explanation {name!r} is finished, and is needed for other inputs too: give its method, by "
                "name, as (name, options), or as a function of a trace."
            )
        results = as_list(explanation)
        if len(results) != n:
            raise ValueError(f"explanation {name!r} has {len(results)} for {n} traces: give one for each.")
        return lambda number, _: results[number]
    spec = (explanation, {}) if isinstance(explanation, str) else explanation
    name_of(spec)
    if isinstance(spec, tuple):
        function = methods()[spec[0]].function
        if target is not None and "target" in inspect.signature(function).parameters:
            spec = (spec[0], {"target": target, **spec[1]})
    call = function_of(spec)
    return lambda _, trace: call(trace)


def require_single(explanation: Any, name: str) -> Attributions:
    """Return an explanation of a single target.

    Raises:
        TypeError: If it is a map (the message says how to make a vector of it), or no explanation.
        ValueError: If it has several targets.
    """
    if isinstance(explanation, MixingMap):
        raise TypeError(
            f"explanation {name!r} is a map: make a vector of it first, .to_attributions('row', query='cls') "
            "or another scheme, of one layer, .select(layer=-1)."
        )
    if not isinstance(explanation, Attributions):
        raise TypeError(f"explanation {name!r} is a {type(explanation).__name__}, not Attributions.")
    if len(explanation.shape) > 1:
        raise ValueError(
            f"explanation {name!r} has several targets, {listed(explanation.targets)}: use one, "
            ".select(target)."
        )
    return explanation


def stack_of_axis(axis: TokenAxis, stack: str, trace: Trace, name: str, whose: str) -> str:
    """Return the stack whose tokens an explanation is about.

    Args:
        axis: The axis of its elements.
        stack: The stack that it names.
        trace: The input.
        name: Name of the explanation, for messages.
        whose: Name of the trace, for messages.

    Raises:
        ValueError: If the explanation belongs to another input.
    """
    stack = stack if stack in trace.stacks else trace.default_stack
    if reruns_of(trace) is None and stack == "cross":
        # Cross-attention reads the encoder's tokens; only its queries are the decoder's.
        query, key = trace.axes("cross")
        stack = "decoder" if axis.tokens == query.tokens and query.tokens != key.tokens else "encoder"
    tokens = elements_of(trace, stack).tokens if stack in trace.stacks else ()
    if axis.tokens != tokens:
        raise ValueError(
            f"explanation {name!r} is of another input than {whose}: it has {len(axis)} tokens, "
            f"{listed(axis.tokens[:4])} ..., the trace has {len(tokens)}, {listed(tokens[:4])} ..."
        )
    return stack
