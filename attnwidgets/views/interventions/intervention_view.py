"""The view that knocks heads out and edits rows of attention, with handlers that other views share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.expressions import outcome_code
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.opening import last_content
from attnwidgets.views.base.view import View
from attnwidgets.views.interventions.specs import TraceInterventions, checked_specs
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch
    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.link import Link
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.interventions.specs import Spec
    from attnwidgets.views.wire.handlers import Answer

PAGE_WORK = 5e10
"""Multiplications that writing a page may spend on predictions that nobody requested."""

_MOST = 10  # outcomes before, and the same number after
_SEARCHED = 100  # outcomes among which an outcome is looked up
_MOST_HEADS = 32
_LONGEST_LIST = 32
_STOPS = (0.25, 0.5, 0.75, 1)

# CSS pixels around the outcomes, and of an outcome; of more, the first are shown.
_FRAME_TALL, _OUTCOME_TALL, _MOST_OUTCOMES = 384, 22, 8


class Intervening(View):
    """A view that shows or changes the active interventions on its trace."""

    _intervened: TraceInterventions

    def _join(self, start: Mapping[str, Any]) -> Link:
        self._intervened = TraceInterventions.of(self.content.trace)
        link = super()._join(start)
        if self._intervened.reach is not None:
            link.selection.reach = self._intervened.reach
        return link

    def interventions(self) -> tuple[Intervention, ...]:
        """Return the interventions active in this view and its linked views, for `trace.rerun`.

        They are not entered, and apply in the order of the list::

            trace.rerun(*explorer.interventions())

        Raises:
            ValueError: The view has no trace, or the trace no model.
        """
        return self._intervened.interventions(self.selection.interventions)

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"outcome": self._outcome_paths, "changed": self._changed_paths}

    def _outcome_paths(self, id: int) -> Iterator[Path]:  # noqa: A002 - as in Prediction
        """Yield the paths to the probability of an outcome as recorded."""
        if self.content.trace is not None:
            listed = self.content.trace.predictions(_SEARCHED)
            index = next((index for index, item in enumerate(listed) if item.id == id), None)
            if index is not None:
                yield self.content.trace, outcome_code(index)
                yield self, f".trace{outcome_code(index)}"

    def _changed_paths(self, interventions: Any, id: int) -> Iterator[Path]:  # noqa: A002 - as in Prediction
        """Yield the paths to the probability of an outcome with these interventions active."""
        after = self._intervened.changed(interventions).after
        index = int((after > after[id]).sum())
        if self.content.trace is not None and index < _SEARCHED:
            code = outcome_code(index)
            yield self.content.trace, ".rerun(*", self, f".interventions()){code}"
            yield self, ".trace.rerun(*", self, f".interventions()){code}"

    def _intervention_handlers(self, *, rows: bool = True) -> dict[str, Handler]:
        """Return the handlers of requests about interventions.

        - "interventions" (no arguments): refusal, why no intervention is possible, or "".
        - "changed" (interventions, target): the predictions with these active: the fields of `Changed`, count
          of outcomes, and rows [number, label, before, after] of the most probable outcomes
          before and after, and of the target.
        - "own_row" (stack, layer, head, query): a row of attention as recorded; labels of query and keys,
          buffer weights [key] (float32).
        - "free_row" (stack, layer, head, query): another row with which the head returns the same (see
          `aw.statistics.free_attention`); movable, the share that moved; buffer weights [key] (float32).

        Args:
            rows: Whether to answer "own_row" and "free_row".
        """
        handlers = {
            "interventions": Handler(lambda: ({"refusal": self._intervened.refusal()}, [])),
            "changed": Handler(
                self._changed, runs_model=True, for_page=self._changes_for_page, prefetched=self._active
            ),
        }
        if rows:
            handlers |= {
                "own_row": Handler(self._own_row, for_page=self._rows_for_page),
                "free_row": Handler(self._free_row, runs_model=True, for_page=self._free_for_page),
            }
        return handlers

    # -- answers -----------------------------------------------------------------------------------

    def _changed(self, interventions: Any, target: int | None = None) -> Answer:
        change = self._intervened.changed(interventions)
        trace = self._intervened.trace_with_model()
        outcomes = sorted(
            {*_largest(change.before), *_largest(change.after), *([] if target is None else [int(target)])},
            key=lambda i: (change.kind != "score") * -max(float(change.before[i]), float(change.after[i])),
        )
        return {
            "kind": change.kind,
            "title": change.title,
            "count": len(change.before),
            "distance": _finite(change.distance),
            "likeness": _finite(change.likeness),
            "rows": [
                [i, change.label(trace, i), float(change.before[i]), float(change.after[i])] for i in outcomes
            ],
        }, []

    def _own_row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        trace = self._intervened.trace
        if trace is None:
            raise ValueError(f"this view has no rows of attention: {self._intervened.refusal()}.")
        row = {"stack": stack, "layer": layer, "head": head, "query": query}
        checked_specs([{"kind": "row", **row, "to": "uniform"}], self._intervened.reach)
        weights = np.asarray(trace.attention_rows(layer, [head], [query], stack)[0, 0])
        queries, keys = (axis.units["token"] for axis in trace.axes(stack))
        return {"query": queries.labels[query], "keys": list(keys.labels)}, [_packed(weights)]

    def _free_row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        row, movable = self._intervened.free(str(stack), int(layer), int(head), int(query))
        return {"movable": movable}, [_packed(row)]

    # -- answers of a page -------------------------------------------------------------------------

    def _active(self) -> Iterator[dict[str, Any]]:
        """Yield the request about the active interventions, if there are any."""
        if self.selection.interventions:
            yield {"interventions": [dict(spec) for spec in self.selection.interventions]}

    def _changes_for_page(self) -> Iterator[dict[str, Any]]:
        """Yield every list that undo leads through, every head of the layer alone, and a row's edits."""
        active = [dict(spec) for spec in self.selection.interventions]
        for count in range(len(active), max(0, len(active) - _LONGEST_LIST), -1):
            yield {"interventions": active[:count]}
        room, pass_work = PAGE_WORK, self._pass_work()
        alone: list[Spec] = []
        for spec in self._single_specs():
            room -= pass_work
            if room < 0:
                break
            if [spec] != active[:1]:
                alone.append(spec)
        self._intervened.expect(alone)
        for spec in alone:
            yield {"interventions": [spec]}

    def _pass_work(self) -> float:
        """Return about how many multiplications a pass of the model takes."""
        trace = self._intervened.trace
        if trace is None or trace.model is None:
            return float("inf")
        from attnwidgets.tracing.pass_memory import pass_work

        return pass_work(trace)

    def _single_specs(self) -> Iterator[Spec]:
        """Yield interventions that a reader may try alone: each head of the layer, edits of a row."""
        rows = self._opening_rows()
        for row in rows:
            at = {key: row[key] for key in ("stack", "layer", "head")}
            yield {"kind": "ablate", **at, "how": "zero"}
        if rows and self._attends(rows[0]):
            edit = {"kind": "row", **rows[0]}
            yield edit | {"to": "uniform"}
            key = self._pinned("key")
            if key is not None:
                yield edit | {"to": "one_hot", "key": key}
            for amount in _STOPS:
                yield edit | {"to": "free", "amount": amount}

    def _rows_for_page(self) -> Iterator[dict[str, Any]]:
        specs = [spec for spec in self.selection.interventions if spec["kind"] == "row"]
        opening = [row for row in self._opening_rows() if self._attends(row)]
        return self._distinct_rows([*map(_row_of, specs), *opening])

    def _free_for_page(self) -> Iterator[dict[str, Any]]:
        specs = [spec for spec in self.selection.interventions if spec.get("to") == "free"]
        opening = [row for row in self._opening_rows()[:1] if self._attends(row)]
        if opening and self._pass_work() > PAGE_WORK:
            opening = []
        return self._distinct_rows([*map(_row_of, specs), *opening])

    def _distinct_rows(self, rows: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        """Yield each row once, if the view shows attention: an assignment's page must not hold its answer."""
        if any(source.method == "attention" for source in self.sources()):
            yield from {str(row): row for row in rows}.values()

    def _attends(self, row: Mapping[str, Any]) -> bool:
        """Return whether a row is of a head that attends."""
        reach = self._intervened.reach
        return reach is not None and reach.heads[row["stack"]][row["layer"]].attends(row["head"])

    def _opening_rows(self) -> list[dict[str, Any]]:
        """Return the row that a page opens with, then the same row of other heads, nearest first.

        Each is stack, layer, head and query (a token). There are none if no intervention is possible, nor of
        heads that cannot be ablated.
        """
        reach, selection = self._intervened.reach, self.selection
        if reach is None or self._intervened.refusal():
            return []
        stack = selection.stack if selection.stack in reach.heads else reach.stack
        layer = min(reach.heads[stack], key=lambda number: abs(number - selection.layer))
        mixers = reach.heads[stack][layer]
        head = min(selection.head if isinstance(selection.head, int) else 0, mixers.n_heads - 1)
        pinned = self._pinned("query")
        query = self._opening_query(stack) if pinned is None else pinned
        heads = (number for number in range(mixers.n_heads) if not mixers.fixed(number))
        nearest = sorted(heads, key=lambda number: abs(number - head))[:_MOST_HEADS]
        return [{"stack": stack, "layer": layer, "head": number, "query": query} for number in nearest]

    def _opening_query(self, stack: str) -> int:
        """Return the token whose row is shown while none is pinned; the twin is in row.ts."""
        trace = self._intervened.trace
        tokens = None if trace is None else trace.axes(stack)[0].units.get("token")
        if tokens is not None:
            return last_content(tokens.labels, tokens.special)
        reach = self._intervened.reach
        return 0 if reach is None else reach.tokens[stack][0] - 1

    def _pinned(self, side: str) -> int | None:
        """Return the first token of the pinned query or key; None without a pin."""
        cell, trace = self.selection.pinned, self._intervened.trace
        if cell is None or trace is None:
            return None
        stack = self.selection.stack if self.selection.stack in trace.stacks else trace.default_stack
        unit = trace.axes(stack)[side == "key"].units.get(cell.unit)
        element = getattr(cell, side)
        if unit is None or not 0 <= element < len(unit):
            return None
        return unit.spans[element][0]


def _row_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("stack", "layer", "head", "query")}


def _largest(values: torch.Tensor) -> list[int]:
    """Return the numbers of the largest values; the first of equal ones comes first."""
    least = values.topk(min(_MOST, len(values))).values[-1:]
    among = (~(values < least)).nonzero()[:, 0]  # a vocabulary is not sorted for ten of its tokens
    return among[values[among].argsort(descending=True, stable=True)][:_MOST].tolist()


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _packed(values: Any) -> bytes:
    return np.asarray(values, dtype="<f4").tobytes()


class InterventionView(Intervening):
    """Knock heads out or edit a row of attention, and see how the prediction changes.

    The list of active interventions belongs to the shared selection (`view.selection.interventions`); a cross
    removes an entry, and `view.interventions()` hands the list to `trace.rerun`. Next to it stand the
    predictions before any change and after it, with the total variation distance of the two; for a model
    that predicts nothing, how far its states moved. When the list changes, the model runs once, from the
    first changed layer on, but never while a cell runs.

    The row of attention that is shown (of the pinned token, or of the last token, in the selected layer and
    head) can be made uniform, put on the pinned key alone, or moved as far as the head's output stays the
    same (`aw.statistics.free_attention`): the slider moves the row, and the prediction does not move. Other
    views keep showing the model as it was recorded.

    Args:
        trace: A trace.

    Raises:
        TypeError: `trace` is not a trace.

    Source: Michel et al. 2019 (heads); Brunner et al. 2020 (free attention).
    """

    _VIEW = "InterventionView"
    NEEDS = Needs(("interventions",))
    _HEIGHT = 560

    def __init__(self, trace: Any, **options: Unpack[ViewOptions]) -> None:
        if not is_trace(trace):
            raise TypeError(
                f"InterventionView() runs the model of a trace, but was given a {type(trace).__name__}: "
                "pass the trace that aw.trace(model, tokenizer, text) returns."
            )
        if not options.get("height"):
            outcomes = min(_MOST_OUTCOMES, len(trace.predictions()) if trace.answer.predicts else 0)
            options["height"] = min(self._HEIGHT, _FRAME_TALL + _OUTCOME_TALL * max(2, outcomes))
        super().__init__(trace, **options)

    def _join(self, start: Mapping[str, Any]) -> Link:
        link = super()._join(start)
        # Interventions change attention token by token, whatever method and unit a linked Explorer shows.
        self._options["method"] = self.content.main.method
        if not self._options["units"]:
            self._options["unit"] = "token"
        return link

    def _handlers(self) -> Mapping[str, Handler]:
        return self._intervention_handlers()

    def describe(self) -> str:
        """Return the predictions in a sentence, before and after the active interventions."""
        from attnwidgets.views.still.predictions import words_of_predictions

        return words_of_predictions(self)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.predictions import interventions_sheet

        return interventions_sheet(self, theme)
