"""What a panel of removals asks: the curves of an explanation, beside chance and single removals."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.keys import asked_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from numpy.typing import NDArray

    from attnwidgets.evaluate.removals.removal import Operator, Removal
    from attnwidgets.explanations.targets.resolve import Target
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

OPENING_WORK = 5e10
"""Multiplications that opening a view may cost in its cell; what is more is a job beside it."""
_KEPT = 64
"""Answers that are remembered, so that looking at one again, or writing a page, runs nothing."""


def removal_topics(view: View, trace: Any) -> dict[str, Handler]:
    """Return the topics of a view that holds a removal panel; nothing where no model predicts.

    "removal" are the curves of the explanation that is looked at, "removal_baselines" those of chance and of
    single removals. A page holds those that were asked for.

    Args:
        view: The view that is asked.
        trace: What `aw.trace` returned, or None.
    """
    if trace is None or getattr(trace, "model", None) is None or not getattr(trace, "predictions_title", ""):
        return {}
    return Removals(view, trace, None, draws=10, seed=0, held=False).topics()


def usual_operator(trace: Any, target: Target, stack: str) -> Operator:
    """Return the operator that a view opens with: "mask" where it is possible, or the first that is."""
    from attnwidgets.evaluate.removals.removal import refusals

    reasons = refusals(trace, target, stack)
    return next((name for name in ("mask", *reasons) if not reasons[name]), "delete")


class Removals:
    """Answers what a removal panel asks, and remembers it.

    Args:
        view: Whose sources are asked about.
        trace: The input.
        target: What is read; None: what the selection, or the method looked at, is about.
        draws: Of random orders.
        seed: Of these.
        held: Whether a page holds what is shown; else only what was asked for.
    """

    def __init__(
        self, view: View, trace: Any, target: Target | None, *, draws: int, seed: int, held: bool
    ) -> None:
        self._view, self._trace, self._target = view, trace, target
        self._draws, self._seed, self._held = draws, seed, held
        self._known: dict[tuple[Any, ...], Answer] = {}
        self._asked: dict[str, dict[tuple[Any, ...], dict[str, Any]]] = {
            "removal": {},
            "removal_baselines": {},
        }

    def topics(self) -> dict[str, Handler]:
        """Return what can be asked."""
        return {
            "removal": Handler(
                self._steps,
                runs_model=True,
                for_page=lambda: self._for_page("removal"),
                at_once=lambda: self._opening("removal"),
            ),
            "removal_baselines": Handler(
                self._baselines,
                runs_model=True,
                for_page=lambda: self._for_page("removal_baselines"),
                at_once=lambda: self._opening("removal_baselines"),
            ),
        }

    def _steps(
        self,
        source: str,
        layer: int,
        head: int | str,
        row: int,
        target: int | None,
        operator: str | None,
    ) -> Answer:
        from attnwidgets.evaluate.removals.removal import refusals
        from attnwidgets.evaluate.removals.removal_curves import removal_steps

        args = {
            "source": source,
            "layer": layer,
            "head": head,
            "row": row,
            "target": target,
            "operator": operator,
        }

        def answer() -> Answer:
            found = self._source(source)
            removal = self._removal(found, target, operator)
            values = _values_of(found, layer, head, row)
            steps = removal_steps(removal, values)
            outcomes = sorted({int(index) for index in steps.decided[np.isfinite(steps.decided)]})
            meta = {
                "operator": removal.operator,
                "operators": [
                    list(item) for item in refusals(self._trace, removal.target, removal.stack).items()
                ],
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
            return meta, [
                _packed(steps.values),
                _packed(steps.decided),
                _packed(steps.certainty),
                _packed(np.nan_to_num(values)),
            ]

        return self._answer("removal", args, tuple(args.values()), answer)

    def _baselines(self, source: str, target: int | None, operator: str | None) -> Answer:
        from attnwidgets.evaluate.removals.removal_curves import removal_baselines

        found = self._source(source)
        removal = self._removal(found, target, operator)

        def answer() -> Answer:
            lines = removal_baselines(removal, draws=self._draws, seed=self._seed)
            # Where every step is undefined in some draw there is no mean: NaN, as in a scorecard.
            mean, low, high = lines.random.mean(axis=1), lines.random.min(axis=1), lines.random.max(axis=1)
            meta = {"steps": list(lines.ks), "draws": self._draws}
            return meta, [_packed(part) for part in (mean, low, high, lines.oracle)]

        # They do not depend on the explanation: another method finds them here.
        key = (removal.stack, removal.unit.name, removal.unit.spans, target, removal.operator)
        args = {"source": source, "target": target, "operator": operator}
        return self._answer("removal_baselines", args, key, answer)

    def _answer(
        self, topic: str, args: dict[str, Any], key: tuple[Any, ...], make: Callable[[], Answer]
    ) -> Answer:
        whole = (topic, *key)
        if whole not in self._known:
            self._known[whole] = make()
            while len(self._known) > _KEPT:
                del self._known[next(iter(self._known))]
        self._asked[topic][tuple(args.values())] = args
        return self._known[whole]

    def _source(self, name: str) -> Source:
        # Linked views may look at a method of another one.
        held: list[Source] = self._view.store.sources()
        found = next((source for source in held if source.id == name), None)
        if found is None:
            raise LookupError(f"this view shows no {name!r}; run the cell again.")
        return found

    def _removal(self, source: Source, target: int | None, operator: str | None) -> Removal:
        from attnwidgets.evaluate.removals.removal import Removal, require_operator
        from attnwidgets.explanations.targets.named import resolve_target

        explanation = source.explanation
        stack = stack_of(explanation, self._trace)
        wanted = self._target if target is None and self._target is not None else target
        read = resolve_target(self._trace, wanted, method="removal")
        chosen: Any = operator or usual_operator(self._trace, read, stack)
        require_operator(self._trace, chosen, read, stack)
        axis = explanation.axis if source.attributions else explanation.key
        return Removal(self._trace, axis.units[source.unit], stack, read, chosen)

    # -- pages ---------------------------------------------------------------------------------------

    def _opening(self, topic: str) -> Iterator[dict[str, Any]]:
        """Yield what is asked first, where a cell need not wait for it: baselines are many inputs."""
        from attnwidgets.tracing.pass_memory import pass_work

        tokens = len(self._trace.tokens) if self._held else 0
        inputs = tokens * (1 if topic == "removal" else 1 + self._draws)
        if self._held and inputs * pass_work(self._trace) <= OPENING_WORK:
            yield from islice(self._for_page(topic), 1)

    def _for_page(self, topic: str) -> Iterator[dict[str, Any]]:
        """Yield what is shown, in every unit, then what was asked for besides."""
        told = set()
        for args in [*(self._shown() if self._held else ()), *self._asked[topic].values()]:
            own = dict(args)
            if topic == "removal_baselines":
                own = {name: own[name] for name in ("source", "target", "operator")}
            if tuple(own.values()) not in told:
                told.add(tuple(own.values()))
                yield own

    def _shown(self) -> Iterator[dict[str, Any]]:
        """Yield what the browser asks of what is looked at; the twin of `questionOf`, removal/question.ts."""
        view, selection = self._view, self._view.selection
        options = view.options
        wanted = options["method"] or selection.method
        stack = options["stack"] or selection.stack
        offered = view.sources()
        held = [one for one in offered if one.method == wanted] or [
            one for one in offered if one.method == offered[0].method
        ]
        held = [source for source in held if source.stack == stack] or held
        for source in sorted(held, key=lambda one: one.unit != selection.unit):
            layer = min(source.layers, key=lambda number: abs(number - selection.layer))
            head = selection.head
            if source.heads is None:
                head = "-"
            elif head == "-":
                head = "mean"
            asked = asked_of(source.method).get("target", selection.target and selection.target.id)
            yield {
                "source": source.id,
                "layer": layer,
                "head": head,
                "row": self._row(source),
                "target": None if options["method"] else asked,
                "operator": options.get("operator"),
            }

    def _row(self, source: Source) -> int:
        pinned = self._view.selection.pinned
        known = pinned is not None and pinned.unit == source.unit and 0 <= pinned.query < source.shape[0]
        return int(pinned.query) if known else -1


def outcome_name(trace: Any, index: int) -> str:
    """Return the name of a class or token."""
    from attnwidgets.explanations.targets.resolve import CLASSES, class_names, spell

    if trace.logits is not None and trace.logits.dim() == CLASSES:
        return class_names(trace)[index]
    return spell(trace, index)


def _values_of(source: Source, layer: int, head: int | str, row: int) -> NDArray[np.float64]:
    """Return what is ranked [element]: one row, or of a map, where none is chosen, the mean over its rows.

    Raises:
        IndexError: There is no such layer, head or row.
    """
    if source.attributions:
        # As they are given: what a view draws leaves out what a target could not read.
        matrix = np.atleast_2d(source.explanation.to(source.unit).values)
    elif row >= 0 and not source.of_targets:
        return np.asarray(source.row(layer, head, row), dtype=np.float64)
    else:
        matrix = source.matrix(layer, head)
    rows = np.asarray(matrix, dtype=np.float64)
    if row >= len(rows):
        raise IndexError(f"row {row} is out of range: the rows are 0 to {len(rows) - 1}.")
    if row >= 0 or source.of_targets:
        return np.asarray(rows[max(0, row)])
    return np.asarray(rows.mean(axis=0))


def stack_of(explanation: Any, trace: Any) -> str:
    """Return the stack whose elements an explanation's columns are.

    Raises:
        ValueError: It is of another input.
    """
    from attnwidgets.evaluate.examples.explained_input import stack_of_axis

    axis = explanation.axis if hasattr(explanation, "axis") else explanation.key
    return stack_of_axis(axis, explanation.stack, trace, str(explanation.method), "the trace")


def _stand_in(trace: Any, operator: str) -> str:
    """Return the token that stands where one was removed, or ""."""
    from attnwidgets.evaluate.removals.removal import id_of
    from attnwidgets.explanations.targets.resolve import tokenizer_of

    number = id_of(trace, operator) if operator in {"mask", "pad"} else None
    if number is None:
        return ""
    return str(tokenizer_of(trace).convert_ids_to_tokens(number))


def _packed(values: NDArray[np.floating]) -> bytes:
    return np.ascontiguousarray(values, dtype="<f8").tobytes()
