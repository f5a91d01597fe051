"""Running a user's function on small inputs and on a trace, and asking what was declared of it."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.user_methods.check_report import Beside, CheckReport, Failure, Result
from attnwidgets.explanations.user_methods.invariants import Invariant, Violation, differences
from attnwidgets.explanations.user_methods.small_inputs import SmallInput, shrunk, small_inputs

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.explanations.explanation import Explanation

_BUDGET_SECONDS = 5.0
"""How long small inputs may take together; what is left out is said."""

_KEEPS = "leaves the trace as it is"
_RETURNS = "returns an explanation"
_STOPS = "numbers that fit the trace, a MixingMap or Attributions are returned"


@dataclass
class Checking:
    """One check of one function.

    Args:
        name: The method's name.
        run: Takes a trace, returns its explanation.
        invariants: What was declared.
        tolerance: How far numbers may be off.
        beside: Name of the reference, or "".
        own_file: Where the user's function is written: its lines of a traceback are kept.
    """

    name: str
    run: Callable[[Any], Explanation]
    invariants: Sequence[Invariant]
    tolerance: float
    beside: str = ""
    own_file: str = ""
    last: Explanation | None = None
    needs_model: bool = False
    stopped: str = ""
    failed: dict[str, Failure] = field(default_factory=dict)
    _asked: dict[str, int] = field(default_factory=dict)
    _notes: list[str] = field(default_factory=list)
    _inputs: int = 0
    _compared: Beside | None = None
    _last_small: SmallInput | None = None

    def on_small_inputs(self) -> None:
        """Run it on small attentions, the smallest first, and keep the first failure of everything."""
        started = time.monotonic()
        everything = small_inputs()
        for number, small in enumerate(everything):
            self.on_small(small)
            if self.needs_model or self.stopped:
                break
            if time.monotonic() - started > _BUDGET_SECONDS:
                self._notes.append(
                    f"it takes long, so that {number + 1} of {len(everything)} small inputs were tried"
                )
                break
        if self._last_small is not None and self.last is not None:
            self.lay_beside(self.last, self._last_small.trace(), f"{self._last_small.words} (made up)")

    def on_trace(self, trace: Any, *, shrink: bool) -> None:
        """Run it on a real trace; where only that fails, look for the smallest part of it that does.

        Args:
            trace: The trace.
            shrink: Whether the function works on given attention, so that parts can be tried.
        """
        failed = set(self.failed)
        on = _spoken(trace)
        found = self._attempt(trace, on, None)
        if found is not None:
            self.last = found
            self._ask(found, trace, on, None)
            self.lay_beside(found, trace, on)
        for name in set(self.failed) - failed if shrink else ():
            self._shrink(name, trace)

    def on_result(self, found: Explanation, trace: Any) -> None:
        """Ask what was declared of a result that is there already."""
        self._inputs += 1
        self.last = found
        self._ask(found, trace, _spoken(trace), None)
        self.lay_beside(found, trace, _spoken(trace))

    def report(self) -> CheckReport:
        """Return what came of it so far."""
        results = [
            Result(name, words, self._inputs, self.failed[name])
            for name, words in ((self.stopped, _STOPS), (_KEEPS, "nothing is written into it"))
            if name in self.failed
        ]
        for invariant in self.invariants:
            asked = self._asked.get(invariant.name, 0)
            why = "" if asked else self._why_open(invariant)
            results.append(
                Result(invariant.name, invariant.words, asked, self.failed.get(invariant.name), why)
            )
        return CheckReport(self.name, tuple(results), self._inputs, self._compared, tuple(self._notes))

    def note(self, said: str) -> None:
        """Add what else there is to know."""
        self._notes.append(said)

    def _why_open(self, invariant: Invariant) -> str:
        if self.stopped:
            return "the function does not run"
        return invariant.unasked(small_inputs()[0].trace()) or "it has not run yet"

    def on_small(self, small: SmallInput) -> None:
        """Run it on one small input."""
        trace = small.trace()
        with contextlib.redirect_stdout(io.StringIO()):  # not every print of dozens of runs
            found = self._attempt(trace, small.words, small)
        if found is None:
            return
        self.last, self._last_small = found, small
        if not _as_given(trace, small):
            said = "it writes into the trace's attention: work on a copy (A = A.clone(), or A = A + ...)"
            self.failed.setdefault(_KEEPS, Failure(small.words, said, small))
        self._ask(found, small.trace(), small.words, small)

    def _attempt(self, trace: Any, on: str, small: SmallInput | None) -> Explanation | None:
        from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

        self._inputs += 1
        try:
            return self.run(trace)
        except UnsupportedModelError as error:
            if small is None:
                self._fail_to_run(error, on, small)
            else:
                self.needs_model = True
                self._inputs -= 1
        except Exception as error:  # noqa: BLE001 - whatever a student's function raises is what is reported
            self._fail_to_run(error, on, small)
        return None

    def _fail_to_run(self, error: Exception, on: str, small: SmallInput | None) -> None:
        lines = self._own_lines(error)
        name = f"raises {type(error).__name__}" if lines else _RETURNS
        said = f"{type(error).__name__}: {error}" if lines else str(error)
        if small is not None and any(word in said for word in ("NoneType", "model")):
            said += (
                " (given attention has no model; a function that needs one is registered with needs='model')"
            )
        self.stopped = name
        self.failed.setdefault(name, Failure(on, said, small, traceback=lines, error=error))

    def _own_lines(self, error: Exception) -> str:
        """Return the traceback from the user's first line on; "" where none of theirs is in it."""
        frames = traceback.extract_tb(error.__traceback__)
        own = [place for place, frame in enumerate(frames) if frame.filename == self.own_file]
        return "".join(traceback.format_list(frames[own[0] :])) if own else ""

    def _ask(self, found: Explanation, trace: Any, on: str, small: SmallInput | None) -> None:
        for invariant in self.invariants:
            if invariant.name in self.failed or invariant.unasked(trace):
                continue
            self._asked[invariant.name] = self._asked.get(invariant.name, 0) + 1
            violation = _asked(invariant, found, trace, self.tolerance)
            if violation is not None:
                self.failed[invariant.name] = Failure(on, violation.said, small, violation, _labels(found))

    def _shrink(self, name: str, trace: Any) -> None:
        stack = trace.default_stack
        if trace.axes(stack)[0] != trace.axes(stack)[1]:
            return

        def tried(small: SmallInput) -> Checking:
            again = Checking(self.name, self.run, self.invariants, self.tolerance, own_file=self.own_file)
            again.on_small(small)
            return again

        small = shrunk(trace, stack, lambda part: name in tried(part).failed)
        if small is not None:
            failure = tried(small).failed[name]
            on = f"{small.words} of {_spoken(trace)}"
            self.failed[name] = replace(failure, on=on)

    def lay_beside(self, found: Explanation, trace: Any, on: str) -> None:
        """Compare a result with the reference, layer by layer."""
        if not self.beside:
            return
        reference = methods()[self.beside]
        refused = reference.refusal(trace)
        try:
            rows = () if refused else tuple(differences(found, reference.function(trace)))
        except ValueError as error:
            rows, refused = (), str(error)
        self._compared = Beside(self.beside, on, rows, refused)


def _asked(invariant: Invariant, found: Explanation, trace: Any, tolerance: float) -> Violation | None:
    try:
        return invariant.check(found, trace, tolerance)
    except (ValueError, TypeError, IndexError) as error:
        return Violation(f"it cannot be asked of this result: {error}")


def _labels(found: Explanation) -> tuple[tuple[str, ...], ...]:
    """Return the labels of the last axes: queries and keys, or sources."""
    if isinstance(found, MixingMap):
        return found.query_labels, found.key_labels
    return (found.labels,) if isinstance(found, Attributions) else ()


def _as_given(trace: Any, small: SmallInput) -> bool:
    given = small.attention.astype(np.float32)
    return all(
        np.array_equal(trace.attention_layer(layer, "self").numpy(), given[layer])
        for layer in range(len(given))
    )


def _spoken(trace: Any) -> str:
    """Return a trace in words: its text, or its size."""
    n = len(trace.axes(trace.default_stack)[1])
    return f"{trace.text!r} ({n} tokens)" if trace.text else f"{n} tokens"
