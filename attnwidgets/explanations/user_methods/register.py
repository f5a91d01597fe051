"""aw.register: a user's own function of a trace as a method like any other, checked for what it declares."""

from __future__ import annotations

import functools
import inspect
import sys
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from attnwidgets._errors import refuse_unknown
from attnwidgets.explanations.registry.registry import Method, default_stack, methods, put, require_known
from attnwidgets.explanations.registry.requirements import Need, resolve_needs
from attnwidgets.explanations.registry.wrap_result import as_explanation
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace, resolve_stack
from attnwidgets.explanations.user_methods.check_report import CheckReport, InvariantError
from attnwidgets.explanations.user_methods.checking import Checking
from attnwidgets.explanations.user_methods.invariants import Invariant, resolve_invariants
from attnwidgets.explanations.user_methods.small_inputs import small_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.explanations.explanation import Explanation

F = TypeVar("F", bound="Callable[..., Any]")


def register(
    name: str,
    *,
    paper: str = "",
    needs: str | Need | tuple[str | Need, ...] = "attention",
    invariants: str | Sequence[str] = (),
    beside: str = "",
    trace: Any = None,
    tolerance: float = 1e-4,
    strict: bool = False,
    **unknown: object,
) -> Callable[[F], F]:
    """Register your own function of a trace as a method: `@aw.register("mine")` above its `def`.

    It then is in `aw.methods()`, `aw.explain(trace, "mine")` and the Explorer's menu. The function itself is
    left as it was. It takes a trace and any keyword options with defaults, and returns numbers (numpy, torch
    or lists) or a MixingMap or Attributions:

        [layer, head, query, key], [layer, query, key]    a map
        [query, key]                                      a map of one layer, numbered as the last
        [source]                                          attributions of the keys

    What it declares is checked at once on about a hundred made-up attentions, the smallest first (one token,
    one layer, one head, up to three of each; some causal), and on `trace` where one is given. The
    smallest input that fails is shown with what was returned: as a box in a notebook, as a warning
    elsewhere; the method is registered all the same, and menus mark it "fails: ...". A function that needs
    a model is checked when it first runs, or by `aw.check(name, trace)`.

    Args:
        name: Its name. One of yours is replaced, so that a cell may run again; the package's own are not.
        paper: What to cite.
        needs: What the trace must offer: "attention" (recorded or given), "model", "recorded model",
            "blocks", "logits", "next token"; menus grey it for others.
        invariants: What must hold: "rows_sum_to_one", "nonnegative", "causal" (asked of causal attention),
            "complete" or "sums_to_logit", "equals:rollout" (or any other method, with its defaults).
        beside: A method to lay it beside in the report: the largest difference in each layer, and where.
        trace: A real trace to check it on as well.
        tolerance: How far numbers may be off.
        strict: Whether a failing check raises; the method is then not registered.
        unknown: Refused, with the nearest keyword.

    Raises:
        ValueError: For a name of the package's own, an unknown requirement, invariant or reference.
        TypeError: Where it does not decorate a function that takes a trace.
        InvariantError: Where something fails and `strict` is on (a ValueError; `.report` has it).
    """
    taken = [word for word in inspect.signature(register).parameters if word != "unknown"]
    refuse_unknown("register", unknown, taken)
    if not isinstance(name, str) or not name:
        raise TypeError(f'name is {name!r}, not a string; write @aw.register("mine") above the function.')
    known = methods()
    if name in known and not known[name].by_user:
        raise ValueError(f"name {name!r} is the package's own method; choose another name.")
    resolved = resolve_invariants((invariants,) if isinstance(invariants, str) else tuple(invariants))
    if beside:
        beside = known[beside].name
    wanted = resolve_needs(needs)

    def decorate(function: F) -> F:
        _require_function(function, name)
        own = UserMethod(name, function, paper, wanted, resolved, beside, tolerance)
        report = own.check(trace)
        if strict and not report.passed:
            raise InvariantError(report) from report.error
        put(own.entry)
        announce(report)
        return function

    return decorate


def check(name: str, trace: Any = None) -> CheckReport:
    """Check a registered function of yours again, and return what came of it.

    Args:
        name: Its name.
        trace: A real trace to check it on as well; one that serves it where it needs a model.

    Raises:
        ValueError: Where there is no such method, it is the package's own, or the trace cannot serve it.
    """
    own = methods()[name].function
    if isinstance(own, UserMethod):
        report = own.check(trace)
        put(own.entry)
        return report
    yours = ", ".join(repr(method.name) for method in methods() if method.by_user) or "none yet"
    raise ValueError(f"{name!r} is the package's own method; aw.check is for those of aw.register ({yours}).")


class UserMethod:
    """A user's function as a method: its numbers get labels and provenance.

    Args:
        name: The method's name.
        function: Takes a trace and keyword options.
        paper: What to cite.
        needs: What the trace must offer.
        invariants: What must hold.
        beside: Name of the reference, or "".
        tolerance: How far numbers may be off.
    """

    def __init__(
        self,
        name: str,
        function: Callable[..., Any],
        paper: str,
        needs: tuple[Need, ...],
        invariants: tuple[Invariant, ...],
        beside: str,
        tolerance: float,
    ) -> None:
        functools.update_wrapper(self, function)
        self._name = name
        self._paper = paper
        self._function = function
        self._invariants = invariants
        self._tolerance = tolerance
        self._awaited = False  # whether the first run on a trace is to be checked
        self.entry = Method(
            name,
            self,
            paper=paper or "your own",
            needs="; ".join(need.words for need in needs),
            returns="MixingMap or Attributions",
            cost="what your function takes",
            requirements=(*needs, *self._own_stack()),
            by_user=True,
            beside=beside,
        )

    def _own_stack(self) -> tuple[Need, ...]:
        if "stack" in inspect.signature(self._function).parameters:
            return ()

        def other(trace: Any, stack: str) -> str:
            return "" if stack == default_stack(trace) else f"and this is stack {stack!r}"

        return (Need("default stack", "a keyword stack= for other stacks than the default", other),)

    def __call__(self, trace: Any, **options: Any) -> Explanation:
        """Return what the function says of a trace, labelled; a first run that was awaited is checked."""
        require_known(self._name, self._function, options)
        require_trace(trace, self._name)
        found = self._explain(trace, **options)
        if self._awaited:
            self._awaited = False
            checking = self._checking()
            checking.on_result(found, trace)
            announce(self._conclude(checking))
            put(self.entry)
        return found

    def check(self, trace: Any = None) -> CheckReport:
        """Run it on small inputs and on a trace, and return what came of it."""
        if trace is not None:
            require_trace(trace, "check")
            refused = self.entry.refusal(trace)
            if refused:
                raise ValueError(f"trace cannot serve {self._name!r}, which {refused}.")
        checking = self._checking()
        given = not self.entry.refusal(small_inputs()[0].trace())
        if given:
            checking.on_small_inputs()
        if checking.needs_model:
            given = False
            self.entry = replace(
                self.entry, requirements=(*resolve_needs("recorded model"), *self.entry.requirements)
            )
        if trace is not None:
            checking.on_trace(trace, shrink=given)
        self._awaited = not given and trace is None
        if self._awaited:
            checking.note(
                f"it needs a model: checked when it first runs, or by aw.check({self._name!r}, trace)"
            )
        return self._conclude(checking)

    def _checking(self) -> Checking:
        code = getattr(inspect.unwrap(self._function), "__code__", None)
        own_file = "" if code is None else str(code.co_filename)
        return Checking(
            self._name, self._explain, self._invariants, self._tolerance, self.entry.beside, own_file
        )

    def _conclude(self, checking: Checking) -> CheckReport:
        report, last = checking.report(), checking.last
        returns = self.entry.returns if last is None else f"{last.kind} [{', '.join(last.axis_names)}]"
        self.entry = replace(self.entry, mark=report.mark, returns=returns)
        return report

    def _explain(self, trace: Any, **options: Any) -> Explanation:
        returned = self._function(trace, **options)
        stack = resolve_stack(trace, options.get("stack"))
        common = provenance_of(trace, stack, self._name, paper=self._paper, options=options)
        if self.entry.mark:
            notes = (common["warning"], f"{self._name} {self.entry.mark}")
            common["warning"] = "; ".join(note for note in notes if note)
        return as_explanation(returned, trace, stack, common)


def announce(report: CheckReport) -> None:
    """Show a report as a box where a notebook can show one; elsewhere warn of what fails."""
    module = sys.modules.get("IPython")
    shell = module.get_ipython() if module is not None and hasattr(module, "get_ipython") else None
    if shell is not None and hasattr(shell, "kernel"):
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
            f"the function of {name!r} needs {', '.join(needed)} beside the trace; give a default, as in "
            f"def {name}(trace, {needed[0]}=...)."
        )
