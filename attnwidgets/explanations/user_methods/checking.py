"""The check of a user's function: runs on small inputs and on a trace, tested for its invariants."""

from __future__ import annotations

import contextlib
import io
import time
import traceback
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.user_methods.check_report import (
    CheckReport,
    Failure,
    ReferenceComparison,
    Result,
)
from attnwidgets.explanations.user_methods.invariants import (
    Invariant,
    SmallInput,
    Violation,
    differences,
    shrink,
    small_inputs,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.explanations.explanation import Explanation

_BUDGET_SECONDS = 5.0
"""How long small inputs may take together; the report says if some are left out."""

_KEEPS = "leaves the trace as it is"
_RETURNS = "returns an explanation"
_STOPS = "numbers that fit the trace, a MixingMap or Attributions are returned"


@dataclass
class Checking:
    """A check of a function.

    Args:
        name: The method's name.
        run: Takes a trace, returns its explanation.
        invariants: The declared invariants.
        tolerance: Tolerated numerical error.
        reference: Name of the reference, or "".
        user_file: File of the user's function, whose lines of a traceback are reported.
    """

    name: str
    run: Callable[[Any], Explanation]
    invariants: Sequence[Invariant]
    tolerance: float
    reference: str = ""
    user_file: str = ""
    last: Explanation | None = None
    needs_model: bool = False
    stopped: str = ""
    failed: dict[str, Failure] = field(default_factory=dict)
    _checked: Counter[str] = field(default_factory=Counter)
    _notes: list[str] = field(default_factory=list)
    _inputs: int = 0
    _compared: ReferenceComparison | None = None
    _last_small: SmallInput | None = None

    def on_small_inputs(self) -> None:
        """Run it on small attentions, the smallest first, and keep the first failure of each invariant."""
        started = time.monotonic()
        inputs = small_inputs()
        for number, small in enumerate(inputs):
            self.on_small(small)
            if self.needs_model or self.stopped:
                break
            if time.monotonic() - started > _BUDGET_SECONDS:
                self._notes.append(f"it is slow: only {number + 1} of {len(inputs)} small inputs were tried")
                break
        if self._last_small is not None and self.last is not None:
            self.compare(self.last, self._last_small.trace(), f"{self._last_small.words} (made up)")

    def on_trace(self, trace: Any, *, shrink: bool) -> None:
        """Run it on a real trace; for checks that fail only there, find its smallest part that fails.

        Args:
            trace: The trace.
            shrink: Whether the function works on given attention, so that parts can be tried.
        """
        failed = set(self.failed)
        result = self._attempt(trace, _in_words(trace), None)
        if result is not None:
            self._examine(result, trace)
        for name in set(self.failed) - failed if shrink else ():
            self._shrink(name, trace)

    def on_result(self, result: Explanation, trace: Any) -> None:
        """Check a result that exists already."""
        self._inputs += 1
        self._examine(result, trace)

    def _examine(self, result: Explanation, trace: Any) -> None:
        self.last = result
        self._check(result, trace, _in_words(trace), None)
        self.compare(result, trace, _in_words(trace))

    def report(self) -> CheckReport:
        """Return the report so far."""
        results = [
            Result(name, words, self._inputs, self.failed[name])
            for name, words in ((self.stopped, _STOPS), (_KEEPS, "nothing is written into it"))
            if name in self.failed
        ]
        for invariant in self.invariants:
            count = self._checked.get(invariant.name, 0)
            why = "" if count else self._why_unchecked(invariant)
            failure = self.failed.get(invariant.name)
            results.append(Result(invariant.name, invariant.words, count, failure, why))
        return CheckReport(self.name, tuple(results), self._inputs, self._compared, tuple(self._notes))

    def note(self, remark: str) -> None:
        """Add a remark to the report."""
        self._notes.append(remark)

    def _why_unchecked(self, invariant: Invariant) -> str:
        if self.stopped:
            return "the function does not run"
        return invariant.unasked(small_inputs()[0].trace()) or "it has not run yet"

    def on_small(self, small: SmallInput) -> None:
        """Run it on a small input."""
        trace = small.trace()
        with contextlib.redirect_stdout(io.StringIO()):  # not every print of dozens of runs
            result = self._attempt(trace, small.words, small)
        if result is None:
            return
        self.last, self._last_small = result, small
        if not _is_unchanged(trace, small):
            message = "it writes into the trace's attention: work on a copy (A = A.clone(), or A = A + ...)"
            self.failed.setdefault(_KEEPS, Failure(small.words, message, small))
        self._check(result, small.trace(), small.words, small)

    def _attempt(self, trace: Any, on: str, small: SmallInput | None) -> Explanation | None:
        from attnwidgets.tracing.unsupported import UnsupportedModelError

        self._inputs += 1
        try:
            return self.run(trace)
        except UnsupportedModelError as error:
            if small is None:
                self._fail_to_run(error, on, small)
            else:
                self.needs_model = True
                self._inputs -= 1
        except Exception as error:  # noqa: BLE001 - any exception of a student's function is reported
            self._fail_to_run(error, on, small)
        return None

    def _fail_to_run(self, error: Exception, on: str, small: SmallInput | None) -> None:
        lines = self._user_lines(error)
        name = f"raises {type(error).__name__}" if lines else _RETURNS
        message = f"{type(error).__name__}: {error}" if lines else str(error)
        if small is not None and any(word in message for word in ("NoneType", "model")):
            message += (
                " (given attention has no model; a function that needs one is registered with needs='model')"
            )
        self.stopped = name
        self.failed.setdefault(name, Failure(on, message, small, traceback=lines, error=error))

    def _user_lines(self, error: Exception) -> str:
        """Return the traceback from the user's first line on; "" if it has none."""
        frames = traceback.extract_tb(error.__traceback__)
        user_frames = [number for number, frame in enumerate(frames) if frame.filename == self.user_file]
        return "".join(traceback.format_list(frames[user_frames[0] :])) if user_frames else ""

    def _check(self, result: Explanation, trace: Any, on: str, small: SmallInput | None) -> None:
        for invariant in self.invariants:
            if invariant.name in self.failed or invariant.unasked(trace):
                continue
            self._checked[invariant.name] += 1
            try:
                violation = invariant.check(result, trace, self.tolerance)
            except (ValueError, TypeError, IndexError) as error:
                violation = Violation(f"it cannot be checked on this result: {error}")
            if violation is not None:
                self.failed[invariant.name] = Failure(on, violation.said, small, violation, _labels(result))

    def _shrink(self, name: str, trace: Any) -> None:
        stack = trace.default_stack
        if trace.axes(stack)[0] != trace.axes(stack)[1]:
            return

        def tried(small: SmallInput) -> Checking:
            again = Checking(self.name, self.run, self.invariants, self.tolerance, user_file=self.user_file)
            again.on_small(small)
            return again

        small = shrink(trace, stack, lambda part: name in tried(part).failed)
        if small is not None:
            failure = tried(small).failed[name]
            self.failed[name] = replace(failure, on=f"{small.words} of {_in_words(trace)}")

    def compare(self, result: Explanation, trace: Any, on: str) -> None:
        """Compare a result with the reference, layer by layer."""
        if not self.reference:
            return
        method = methods()[self.reference]
        refusal = method.refusal(trace)
        try:
            rows = () if refusal else tuple(differences(result, method.function(trace)))
        except ValueError as error:
            rows, refusal = (), str(error)
        self._compared = ReferenceComparison(self.reference, on, rows, refusal)


def _labels(result: Explanation) -> tuple[tuple[str, ...], ...]:
    """Return the labels of the last axes: queries and keys, or sources."""
    if isinstance(result, MixingMap):
        return result.query_labels, result.key_labels
    return (result.labels,) if isinstance(result, Attributions) else ()


def _is_unchanged(trace: Any, small: SmallInput) -> bool:
    attention = small.attention.astype(np.float32)
    return all(
        np.array_equal(trace.attention_layer(number, "self"), layer) for number, layer in enumerate(attention)
    )


def _in_words(trace: Any) -> str:
    """Return a trace in words: its text, or its size."""
    n = len(trace.axes(trace.default_stack)[1])
    return f"{trace.text!r} ({n} tokens)" if trace.text else f"{n} tokens"
