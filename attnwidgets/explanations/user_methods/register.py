"""aw.register: a user's own function of a trace as a method, checked, with its numbers as an explanation.

`register` wraps the function in a `UserMethod`, which labels its numbers (`as_explanation`), checks it on
small inputs and a trace (`checking.py`) and has the entry of the registry. A function that needs a model is
checked when it first runs.
"""

from __future__ import annotations

import functools
import inspect
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from attnwidgets._errors import require_choice, suggests_keywords
from attnwidgets._notebook import running_shell
from attnwidgets.explanations.registry.documentation import QUESTIONS, SPEEDS
from attnwidgets.explanations.registry.registry import Method, default_stack, methods, put, require_known
from attnwidgets.explanations.registry.requirements import Need, resolve_needs
from attnwidgets.explanations.registry.several_traces import are_several, for_each
from attnwidgets.explanations.results.arrays import Array, as_floats
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.explanations.user_methods.check_report import CheckReport, InvariantError
from attnwidgets.explanations.user_methods.checking import Checking
from attnwidgets.explanations.user_methods.invariants import Invariant, resolve_invariants, small_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.explanations.explanation import Explanation
    from attnwidgets.explanations.registry.documentation import Question, Speed

F = TypeVar("F", bound="Callable[..., Any]")

SHAPES = "[layer, head, query, key], [layer, query, key], [query, key] and [source]"
MAP, LAYERS, MATRIX, VECTOR = 4, 3, 2, 1


@suggests_keywords
def register(
    name: str,
    *,
    question: Question | None = None,
    gist: str = "",
    speed: Speed = "seconds",
    paper: str = "",
    needs: str | Need | tuple[str | Need, ...] = "attention",
    invariants: str | Sequence[str] = (),
    beside: str = "",
    trace: Any = None,
    tolerance: float = 1e-4,
    strict: bool = False,
) -> Callable[[F], F]:
    """Register your own function of a trace as a method: `@aw.register("mine")` above its `def`.

    It is then in `aw.methods()`, `aw.explain(trace, "mine")` (also for a list of traces) and the Explorer's
    menu. The function itself stays as it was. It takes a trace and any keyword options with defaults, and
    returns numbers (numpy, torch or lists) or a MixingMap or Attributions:

        [layer, head, query, key], [layer, query, key]    a map
        [query, key]                                      a map of the last layer
        [source]                                          attributions of the keys

    Its invariants are checked at once on about a hundred made-up attentions, the smallest first (one token,
    one layer, one head, up to three of each; some causal), and on `trace`, if any. The smallest input
    that fails is shown with the returned values: as a box in a notebook, as a warning elsewhere. The method
    is registered all the same, and menus mark it "fails: ...". A function that needs a model is checked when
    it first runs, or by `aw.check(name, trace)`.

    Args:
        name: Its name. A method of yours is replaced, so that a cell may run again; the package's are not.
        question: The question that it answers, under which menus list it: "Attention", "What goes into a
            token" (the default for a map), "For this prediction" (for attributions) or "By perturbing".
        gist: Its answer in a few words, for menus: "which words each head reads". By default the first
            sentence of its docstring.
        speed: About how long it takes: "instant", "seconds" or "minutes".
        paper: The publication to cite.
        needs: Required of a trace: "attention" (recorded or given), "model", "recorded model", "blocks",
            "logits", "next token"; menus disable it for others.
        invariants: Properties of the results: "rows_sum_to_one", "nonnegative", "causal" (checked on causal
            attention), "complete" or "sums_to_logit", "equals:rollout" (or any method, with its defaults).
        beside: A method to compare it with in the report: the largest difference in each layer, and where.
        trace: A real trace to check it on as well.
        tolerance: Tolerated numerical error.
        strict: Whether a failing check raises; the method is then not registered.

    Raises:
        ValueError: For the name of a method of the package; for an unknown question, speed, requirement,
            invariant or reference.
        TypeError: If it does not decorate a function that takes a trace.
        InvariantError: If a check fails and `strict` is on (a ValueError with a `.report`).

    Example:
        >>> @aw.register("doubled", invariants="rows_sum_to_one", strict=True)
        ... def doubled(trace):
        ...     return 2 * trace.attention_layer(0).mean(0)
        Traceback (most recent call last):
            ...
        attnwidgets.explanations.user_methods.check_report.InvariantError: doubled fails: rows_sum_to_one ...
    """
    if not isinstance(name, str) or not name:
        raise TypeError(f'name is {name!r}, not a string; write @aw.register("mine") above the function.')
    if question is not None:
        require_choice("question", question, QUESTIONS)
    require_choice("speed", speed, SPEEDS)
    entries = methods()
    if name in entries and not entries[name].by_user:
        raise ValueError(f"name {name!r} is the package's own method; choose another name.")
    resolved = resolve_invariants(invariants if isinstance(invariants, str) else tuple(invariants))
    if beside:
        beside = entries[beside].name
    requirements = resolve_needs(needs)

    def decorate(function: F) -> F:
        _require_function(function, name)
        registered = UserMethod(name, function, paper, requirements, resolved, beside, tolerance)
        registered.entry = replace(registered.entry, question=question, gist=gist, speed=speed)
        report = registered.check(trace)
        if strict and not report.passed:
            raise InvariantError(report) from report.error
        put(registered.entry)
        announce(report)
        return function

    return decorate


def check(name: str, trace: Any = None) -> CheckReport:
    """Check a registered function of yours again, and return the report.

    Args:
        name: Its name.
        trace: A real trace to check it on as well; needed if the function needs a model.

    Returns:
        A `CheckReport`: text in a terminal, a box in a notebook.

    Raises:
        ValueError: If the method is unknown, it belongs to the package, or the trace does not meet its needs.

    Example:
        >>> aw.check("rollout")
        Traceback (most recent call last):
            ...
        ValueError: 'rollout' is the package's own method; aw.check is for methods of yours (...).
    """
    function = methods()[name].function
    if isinstance(function, UserMethod):
        report = function.check(trace)
        put(function.entry)
        return report
    yours = ", ".join(repr(method.name) for method in methods() if method.by_user) or "none yet"
    raise ValueError(f"{name!r} is the package's own method; aw.check is for methods of yours ({yours}).")


class UserMethod:
    """A user's function as a method, whose numbers get labels and provenance.

    Args:
        name: The method's name.
        function: Takes a trace and keyword options.
        paper: The publication to cite.
        needs: Requirements on the trace.
        invariants: The properties of its results.
        reference: Name of the reference, or "".
        tolerance: Tolerated numerical error.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        paper: str,
        needs: tuple[Need, ...],
        invariants: tuple[Invariant, ...],
        reference: str,
        tolerance: float,
    ) -> None:
        functools.update_wrapper(self, function)
        self._name = name
        self._paper = paper
        self._function = function
        self._invariants = invariants
        self._tolerance = tolerance
        self._unchecked = False  # until the first run on a trace
        self.entry = Method(
            name,
            self,
            paper=paper or "your own",
            needs="; ".join(need.words for need in needs),
            returns="MixingMap or Attributions",
            cost="what your function takes",
            requirements=(*needs, *self._stack_need()),
            by_user=True,
            beside=reference,
        )

    def _stack_need(self) -> tuple[Need, ...]:
        if "stack" in inspect.signature(self._function).parameters:
            return ()

        def refuse_other(trace: Any, stack: str) -> str:
            return "" if stack == default_stack(trace) else f"and this is stack {stack!r}"

        return (Need("default stack", "a keyword stack= for other stacks than the default", refuse_other),)

    def __call__(self, trace: Any, **options: Any) -> Any:
        """Return the function's labelled result, of several traces a list.

        The first result is checked if no check was possible before.
        """
        if are_several(trace):
            return for_each(self._name, lambda single: self(single, **options), trace)
        require_known(self._name, self._function, options)
        require_trace(trace, self._name)
        result = self._explain(trace, **options)
        if self._unchecked:
            self._unchecked = False
            checking = self._checking()
            checking.on_result(result, trace)
            announce(self._conclude(checking))
            put(self.entry)
        return result

    def check(self, trace: Any = None) -> CheckReport:
        """Run it on small inputs and on a trace, and return the report."""
        if trace is not None:
            require_trace(trace, "check")
            refusal = self.entry.refusal(trace)
            if refusal:
                raise ValueError(f"trace does not suit {self._name!r}, which {refusal}.")
        checking = self._checking()
        on_attention = not self.entry.refusal(small_inputs()[0].trace())
        if on_attention:
            checking.on_small_inputs()
        if checking.needs_model:
            on_attention = False
            requirements = (*resolve_needs("recorded model"), *self.entry.requirements)
            self.entry = replace(self.entry, requirements=requirements)
        if trace is not None:
            checking.on_trace(trace, shrink=on_attention)
        self._unchecked = not on_attention and trace is None
        if self._unchecked:
            checking.note(
                f"it needs a model: checked when it first runs, or by aw.check({self._name!r}, trace)"
            )
        return self._conclude(checking)

    def _checking(self) -> Checking:
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        file = "" if code is None else str(code.co_filename)
        return Checking(self._name, self._explain, self._invariants, self._tolerance, self.entry.beside, file)

    def _conclude(self, checking: Checking) -> CheckReport:
        report, last = checking.report(), checking.last
        returns = self.entry.returns if last is None else f"{last.kind} [{', '.join(last.axis_names)}]"
        self.entry = replace(self.entry, mark=report.mark, returns=returns)
        return report

    def _explain(self, trace: Any, **options: Any) -> Explanation:
        returned = self._function(trace, **options)
        stack = resolve_stack(trace, options.get("stack"))
        notes = [f"{self._name} {self.entry.mark}"] if self.entry.mark else []
        common = provenance_of(trace, stack, self._name, paper=self._paper, options=options, notes=notes)
        return as_explanation(returned, trace, stack, common)


def announce(report: CheckReport) -> None:
    """Show a report as a box in a notebook; elsewhere warn of failures."""
    if hasattr(running_shell(), "kernel"):
        from IPython.display import display

        display(report)
    elif not report.passed:
        warnings.warn(repr(report), UserWarning, stacklevel=3)


def _require_function(function: Any, name: str) -> None:
    if not callable(function):
        raise TypeError(f"@aw.register({name!r}) goes above a function, not a {type(function).__name__}.")
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters or parameters[0].kind is parameters[0].KEYWORD_ONLY:
        raise TypeError(f"the function of {name!r} takes nothing; its first argument is the trace.")
    needed = [
        p.name
        for p in parameters[1:]
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    if needed:
        raise TypeError(
            f"the function of {name!r} needs {', '.join(needed)} in addition to the trace; give a default, "
            f"as in def {name}(trace, {needed[0]}=...)."
        )


def as_explanation(returned: Any, trace: Any, stack: str, common: dict[str, Any]) -> Explanation:
    """Return a function's result as an explanation of its trace.

    Args:
        returned: Numbers (numpy, torch, lists; a list may have an array per layer) in one of `SHAPES`, or a
            MixingMap or Attributions. [query, key] is numbered as the last layer.
        trace: The explained trace.
        stack: Name of the stack.
        common: Result of `provenance_of` for the method.

    Raises:
        ValueError: For a shape that fits no axes (the message names those that do), NaN or infinity.
        TypeError: If the result is not numeric.
    """
    if isinstance(returned, (MixingMap, Attributions)):
        return _rename(returned, common)
    name = common["method"]
    if returned is None:
        raise TypeError(f"{name} returned None; is there a `return` at its end?")
    array = _numbers(returned, name)
    query, key = trace.axes(stack)
    all_layers, heads = trace.layers(stack), trace.n_heads(stack)
    layers = len(all_layers)
    unit = next(unit for unit in query.units if unit in key.units)
    matrix = (len(query), len(key))
    shapes = {MAP: (layers, heads, *matrix), LAYERS: (layers, *matrix), MATRIX: matrix, VECTOR: matrix[1:]}
    if array.shape != shapes.get(array.ndim):
        fitting = ", ".join(map(str, shapes.values()))
        raise ValueError(
            f"{name} returned shape {array.shape}; accepted shapes are {SHAPES}, here {fitting}."
            f"{_hint(array.shape, shapes)}"
        )
    if array.ndim == VECTOR:
        return Attributions(array, axis=key, unit=unit, **common)
    numbers = all_layers if array.ndim > MATRIX else all_layers[-1:]
    return MixingMap(array, query=query, key=key, layers=numbers, unit=unit, **common)


def _hint(shape: tuple[int, ...], shapes: dict[int, tuple[int, ...]]) -> str:
    if len(shape) != LAYERS or shape[1:] != shapes[MATRIX]:
        return ""
    layers, heads = shapes[MAP][:2]
    if shape[0] == heads:
        return " Its first axis looks like heads: reduce them, or return [layer, head, query, key]."
    return f" Its first axis has {shape[0]} entries, and there are {layers} layers."


def _numbers(returned: Any, name: str) -> Array:
    try:
        if isinstance(returned, (list, tuple)) and any(hasattr(part, "detach") for part in returned):
            return np.stack([as_floats(part) for part in returned])
        return as_floats(returned)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} returned a {type(returned).__name__} that is not a numeric array ({error}); "
            f"accepted are {SHAPES}, as numpy, torch or lists, a MixingMap or Attributions."
        ) from error


def _rename(result: MixingMap | Attributions, common: dict[str, Any]) -> Explanation:
    """Return an explanation under the method's name, with its former provenance as the source."""
    history = common["provenance"] | {"source": result.provenance, "steps": list(result.steps)}
    notes = [note for warning in (result.warning, common["warning"]) for note in warning.split("; ") if note]
    common |= {"provenance": history, "stack": result.stack, "warning": "; ".join(dict.fromkeys(notes))}
    if isinstance(result, Attributions):
        names = ("axis", "target", "foil", "residual", "reach", "map", "unit")
        return Attributions(result.values, **{name: getattr(result, name) for name in names}, **common)
    rows = result.rows if result.knows_rows else None
    return MixingMap.lazy(result.layer, row_fn=rows, keep=False, **(result.arguments() | common))
