"""Handlers of a removal panel: the curves of an explanation, of random orders and of single removals."""

from __future__ import annotations

from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.axes import target_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.removal import ElementRemoval, Operator
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

OPENING_WORK = 5e10
"""Multiplications that opening a view may take in its cell; more work becomes a background job."""
_MOST_ANSWERS = 64
"""Answers in memory, so that showing an operator again, or writing a page, does not run the model."""


def removal_handlers(view: View, trace: Any) -> dict[str, Handler]:
    """Return the handlers of a view with a removal panel; none without a model that predicts something.

    A page holds the answers that were requested. See `Removals` for what the answers hold.

    Args:
        view: The view.
        trace: Trace returned by `aw.trace`, or None.
    """
    if trace is None or getattr(trace, "model", None) is None or not trace.answer.predicts:
        return {}
    return Removals(view, trace, None, draws=10, seed=0, includes_shown=False).handlers()


def resolve_operator(trace: Any, operator: Operator | None, target: Target, stack: str) -> Operator:
    """Return an operator; by default "mask", "blur", or the first that is possible.

    Raises:
        ValueError: The operator is unknown, or impossible here.
    """
    from attnwidgets.evaluate.removals.removal import refusals, require_operator

    reasons = refusals(trace, target, stack)
    usual: Operator = next(
        (name for name in ("mask", "blur", *reasons) if not reasons.get(name, "none")), "delete"
    )
    chosen = usual if operator is None else operator
    require_operator(trace, chosen, target, stack)
    return chosen


class Removals:
    """Answers the requests of a removal panel, and keeps the answers.

    - "removal" (source, layer, head, row, target, operator): the curves of an explanation. In meta: operator,
      operators [name, why it is impossible or ""], target, title, score ("probability" or "number"), stack,
      steps (how many elements are removed, or kept), order (elements, the first to go first), outcomes
      [number, name], standIn (the token instead of a removed element) and warning. Buffers, all float64: the
      remaining score of the target, the index of the predicted outcome and its probability, each [removed or
      kept, step], and the values of the explanation [element].
    - "removal_baselines" (source, target, operator): steps and draws. Buffers, all float64 and [removed or
      kept, step]: mean, minimum and maximum over random orders, and the order of single removals.

    Args:
        view: The view whose sources requests name.
        trace: The input.
        target: The target; None: that of the selection or of the selected method.
        draws: Number of random orders.
        seed: Seed of the random orders.
        includes_shown: Whether a page holds the shown curves; else only those that were requested.
    """

    def __init__(
        self, view: View, trace: Any, target: Target | None, *, draws: int, seed: int, includes_shown: bool
    ) -> None:
        self._view, self._trace, self._target = view, trace, target
        self._draws, self._seed, self._includes_shown = draws, seed, includes_shown
        self._answers: dict[tuple[Any, ...], Answer] = {}
        self._requested: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {
            "removal": {},
            "removal_baselines": {},
        }

    def handlers(self) -> dict[str, Handler]:
        """Return the handlers of both requests."""
        answers: dict[str, Callable[..., Answer]] = {
            "removal": self._steps,
            "removal_baselines": self._baselines,
        }
        return {
            name: Handler(
                answer,
                runs_model=True,
                for_page=partial(self._for_page, name),
                prefetched=partial(self._opening, name),
            )
            for name, answer in answers.items()
        }

    def left(self, k: int, *, kept: bool) -> float:
        """Return the remaining score of the prediction, as the view shows it; see `RemovalView.left`."""
        meta, buffers = self._steps(**next(self._shown()))
        steps = list(meta["steps"])
        if k not in steps:
            raise ValueError(f"k={k} is not one of the steps, {', '.join(map(str, steps))}.")
        return float(np.frombuffer(buffers[0], "<f8").reshape(2, -1)[int(kept), steps.index(k)])

    def _steps(self, **args: Any) -> Answer:
        return self._answer("removal", args, tuple(args.values()), lambda: self._curves(**args))

    def _curves(
        self, source: str, layer: int, head: int | str, row: int, target: int | None, operator: str | None
    ) -> Answer:
        from attnwidgets.evaluate.removals.protocol import removal_steps
        from attnwidgets.evaluate.removals.removal import refusals

        explained = self._source(source)
        removal = self._removal(explained, target, operator)
        values = _values_of(explained, layer, head, row)
        steps = removal_steps(removal, values)
        outcomes = sorted({int(index) for index in steps.decided[np.isfinite(steps.decided)]})
        reasons = refusals(self._trace, removal.target, removal.stack)
        meta = {
            "operator": removal.operator,
            "operators": [list(item) for item in reasons.items()],
            "target": removal.target.label,
            "title": removal.target.title,
            "score": steps.score,
            "stack": removal.stack,
            "steps": list(steps.ks),
            "order": steps.order.tolist(),
            "outcomes": [[index, outcome_name(self._trace, index)] for index in outcomes],
            "standIn": _stand_in(self._trace, removal.operator),
            "warning": "; ".join(filter(None, (self._trace.warning, removal.target.note))),
        }
        return meta, _packed(steps.values, steps.decided, steps.certainty, np.nan_to_num(values))

    def _baselines(self, source: str, target: int | None, operator: str | None) -> Answer:
        from attnwidgets.evaluate.removals.protocol import removal_baselines

        removal = self._removal(self._source(source), target, operator)

        def answer() -> Answer:
            lines = removal_baselines(removal, draws=self._draws, seed=self._seed)
            # A step that is undefined in some draw has no mean: NaN, as in a scorecard.
            mean, low, high = lines.random.mean(axis=1), lines.random.min(axis=1), lines.random.max(axis=1)
            meta = {"steps": list(lines.ks), "draws": self._draws}
            return meta, _packed(mean, low, high, lines.oracle)

        # Baselines do not depend on the explanation, so other methods reuse them.
        key = (removal.stack, removal.unit.name, removal.unit.spans, target, removal.operator)
        args = {"source": source, "target": target, "operator": operator}
        return self._answer("removal_baselines", args, key, answer)

    def _answer(
        self, name: str, args: dict[str, Any], key: tuple[Any, ...], make: Callable[[], Answer]
    ) -> Answer:
        """Return the answer of a key, computed on first use; note that it was requested."""
        key = (name, *key)
        if key not in self._answers:
            self._answers[key] = make()
            while len(self._answers) > _MOST_ANSWERS:
                del self._answers[next(iter(self._answers))]
        self._requested[name][tuple(args.values())] = args
        return self._answers[key]

    def _source(self, name: str) -> Source:
        # The method may be offered by a linked view only.
        source: Source | None = next((item for item in self._view.store.sources() if item.id == name), None)
        if source is None:
            raise LookupError(f"this view shows no {name!r}; run the cell again.")
        return source

    def _removal(self, source: Source, target: int | None, operator: Any) -> ElementRemoval:
        from attnwidgets.evaluate.removals.removal import ElementRemoval
        from attnwidgets.explanations.targets.named import resolve_target

        explanation = source.explanation
        stack = stack_of(explanation, self._trace)
        requested = self._target if target is None else target
        resolved = resolve_target(self._trace, requested, method="removal")
        chosen = resolve_operator(self._trace, operator, resolved, stack)
        axis = explanation.axis if source.attributions else explanation.key
        return ElementRemoval(self._trace, axis.units[source.unit], stack, resolved, chosen)

    # -- pages ---------------------------------------------------------------------------------------

    def _opening(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the first request, if a cell need not wait long for it: baselines are many inputs."""
        from attnwidgets.tracing.pass_memory import pass_work

        tokens = len(self._trace.tokens) if self._includes_shown else 0
        inputs = tokens * (1 if name == "removal" else 1 + self._draws)
        if self._includes_shown and inputs * pass_work(self._trace) <= OPENING_WORK:
            yield from islice(self._for_page(name), 1)

    def _for_page(self, name: str) -> Iterator[dict[str, Any]]:
        """Yield the requests for the shown explanation, in every unit, then the others that were made."""
        sent = set()
        for shown in [*(self._shown() if self._includes_shown else ()), *self._requested[name].values()]:
            names = ("source", "target", "operator") if name == "removal_baselines" else tuple(shown)
            args = {key: shown[key] for key in names}
            if tuple(args.values()) not in sent:
                sent.add(tuple(args.values()))
                yield args

    def _shown(self) -> Iterator[dict[str, Any]]:
        """Yield the browser's requests for its current state; the twin of `questionOf` in question.ts."""
        options, selection = self._view.options, self._view.selection
        offered = self._view.sources()
        method = options["method"] or selection.method
        if all(source.method != method for source in offered):
            method = offered[0].method
        sources = [source for source in offered if source.method == method]
        stack = options["stack"] or selection.stack
        sources = [source for source in sources if source.stack == stack] or sources
        for source in sorted(sources, key=lambda source: source.unit != selection.unit):
            head = selection.head
            if source.heads is None or head == "-":
                head = "-" if source.heads is None else "mean"
            target = target_of(source.method).get("target", selection.target and selection.target.id)
            yield {
                "source": source.id,
                "layer": min(source.layers, key=lambda number: abs(number - selection.layer)),
                "head": head,
                "row": self._row(source),
                "target": None if options["method"] else target,
                "operator": options.get("operator"),
            }

    def _row(self, source: Source) -> int:
        """Return the pinned row of a source, or -1."""
        pinned = self._view.selection.pinned
        is_pinned = pinned is not None and pinned.unit == source.unit and 0 <= pinned.query < source.shape[0]
        return int(pinned.query) if is_pinned else -1


def outcome_name(trace: Any, index: int) -> str:
    """Return the name of a class or token."""
    from attnwidgets.tracing.predictions import label_of

    return label_of(trace, index)


def _values_of(source: Source, layer: int, head: int | str, row: int) -> NDArray[np.float64]:
    """Return the values that rank elements [element]: a row; of a map without a chosen row, the mean row.

    Raises:
        IndexError: The layer, head or row is out of range.
    """
    if source.attributions:
        # As given: a view's matrix has NaN where a target could not read.
        matrix = np.atleast_2d(source.explanation.to(source.unit).values)
    elif row >= 0 and not source.of_targets:
        return np.asarray(source.row(layer, head, row), dtype=np.float64)
    else:
        matrix = source.matrix(layer, head)
    rows = np.asarray(matrix, dtype=np.float64)
    if row >= len(rows):
        raise IndexError(f"row {row} is out of range: the rows are 0 to {len(rows) - 1}.")
    values = rows[max(0, row)] if row >= 0 or source.of_targets else rows.mean(axis=0)
    return np.asarray(values)


def stack_of(explanation: Any, trace: Any) -> str:
    """Return the stack whose elements are an explanation's columns.

    Raises:
        ValueError: The explanation is of another input.
    """
    from attnwidgets.evaluate.examples.explained_input import stack_of_axis

    axis = explanation.axis if hasattr(explanation, "axis") else explanation.key
    return stack_of_axis(axis, explanation.stack, trace, str(explanation.method), "the trace")


def _stand_in(trace: Any, operator: str) -> str:
    """Return the token that replaces a removed token, or ""."""
    from attnwidgets.evaluate.removals.removal import id_of
    from attnwidgets.explanations.targets.resolve import tokenizer_of

    number = id_of(trace, operator) if operator in {"mask", "pad"} else None
    return "" if number is None else str(tokenizer_of(trace).convert_ids_to_tokens(number))


def _packed(*arrays: NDArray[np.floating]) -> list[bytes]:
    return [np.asarray(values, dtype="<f8").tobytes() for values in arrays]
