"""What views ask about interventions, and what of it a page without a kernel holds."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.base.view import View
from attnwidgets.views.interventions.specs import Intervened, checked
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import torch

    from attnwidgets.tracing.interventions import Intervention
    from attnwidgets.views.interventions.specs import Spec
    from attnwidgets.views.wire.handlers import Answer

PAGE_WORK = 5e10
"""Multiplications that making a page may cost for predictions nobody has asked for."""
_MOST = 10  # outcomes before, and as many after
_MOST_HEADS = 32
_LONGEST_LIST = 32
_STOPS = (0.25, 0.5, 0.75, 1)


class Intervening(View):
    """A view that shows, or changes, which interventions on its trace are active."""

    _intervened: Intervened

    def _connect(self, *, fixed: bool) -> dict[str, Any]:
        traits = super()._connect(fixed=fixed)
        if self._intervened.reach is not None:
            traits["selection"].reach = self._intervened.reach
        return traits

    def interventions(self) -> tuple[Intervention, ...]:
        """Return what is active in this view and those linked with it, as interventions for `trace.rerun`.

        They are not entered, and apply in the order of the list::

            trace.rerun(*explorer.interventions())

        Raises:
            ValueError: The view has no trace, or the trace no model.
        """
        return self._intervened.interventions(self.selection.interventions)

    def _intervention_topics(self, *, rows: bool = True) -> dict[str, Handler]:
        """Return what may be asked about interventions.

        "interventions" tells why there can be none; "changed" what the model says with some; of a row of
        attention, "own_row" is as recorded, "free_row" as it may be with nothing else changed.

        Args:
            rows: Whether rows are asked for.
        """
        found = {
            "interventions": Handler(lambda: ({"refusal": self._intervened.refusal()}, [])),
            "changed": Handler(
                self._changed, runs_model=True, for_page=self._changes_for_page, prefetched=self._active
            ),
        }
        if rows:
            found |= {
                "own_row": Handler(self._own_row, for_page=self._rows_for_page),
                "free_row": Handler(self._free_row, runs_model=True, for_page=self._free_for_page),
            }
        return found

    # -- answers -----------------------------------------------------------------------------------

    def _changed(self, interventions: Any, target: int | None = None) -> Answer:
        found = self._intervened.changed(interventions)
        trace = self._intervened.trace
        outcomes = sorted(
            {*_largest(found.before), *_largest(found.after), *([] if target is None else [int(target)])},
            key=lambda i: -max(float(found.before[i]), float(found.after[i])),
        )
        rows = [
            [i, found.label(trace, i) if trace else "", float(found.before[i]), float(found.after[i])]
            for i in outcomes
        ]
        return {
            "kind": found.kind,
            "title": found.title,
            "count": len(found.before),
            "distance": _finite(found.distance),
            "likeness": _finite(found.likeness),
            "rows": rows,
        }, []

    def _own_row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        trace = self._intervened.trace
        if trace is None:
            raise ValueError(f"an attention row is not here: {self._intervened.refusal()}.")
        spec = {
            "kind": "row",
            "stack": stack,
            "layer": layer,
            "head": head,
            "query": query,
            "to": "uniform",
        }
        checked([spec], self._intervened.reach)
        row = trace.attention_rows(layer, [head], [query], stack)[0, 0].numpy()
        queries, keys = (axis.units["token"] for axis in trace.axes(stack))
        return {"query": queries.labels[query], "keys": list(keys.labels)}, [_packed(row)]

    def _free_row(self, stack: str, layer: int, head: int, query: int) -> Answer:
        why = self._intervened.refusal()
        if why:
            raise ValueError(f"a free row cannot be found: {why}.")
        row, movable = self._intervened.free(str(stack), int(layer), int(head), int(query))
        return {"movable": movable}, [_packed(row)]

    # -- what a page holds -------------------------------------------------------------------------

    def _active(self) -> Iterator[dict[str, Any]]:
        """Yield what is active, if anything is."""
        if self.selection.interventions:
            yield {"interventions": [dict(spec) for spec in self.selection.interventions]}

    def _changes_for_page(self) -> Iterator[dict[str, Any]]:
        """Yield every list that undo leads through, every head of the layer alone, and one row's edits."""
        active = [dict(spec) for spec in self.selection.interventions]
        for count in range(len(active), max(0, len(active) - _LONGEST_LIST), -1):
            yield {"interventions": active[:count]}
        told = {str(active[:1])}
        room = PAGE_WORK
        for spec in self._singles():
            room -= self._cost()
            if room < 0:
                return
            if str([spec]) not in told:
                yield {"interventions": [spec]}

    def _cost(self) -> float:
        """Return about how many multiplications one pass of the model is."""
        from attnwidgets.tracing.pass_memory import pass_work

        trace = self._intervened.trace
        if trace is None or self._intervened.reach is None:
            return float("inf")
        return pass_work(trace)

    def _singles(self) -> Iterator[Spec]:
        place = self._looked_at()
        if place is None or self._intervened.reach is None:
            return
        stack, layer, head, query = place
        heads = range(self._intervened.reach.heads[stack][layer])
        for one in sorted(heads, key=lambda at: abs(at - head))[:_MOST_HEADS]:
            yield {"kind": "ablate", "stack": stack, "layer": layer, "head": one, "how": "zero"}
        row = {"kind": "row", "stack": stack, "layer": layer, "head": head, "query": query}
        yield row | {"to": "uniform"}
        key = self._pinned("key")
        if key is not None:
            yield row | {"to": "one_hot", "key": key}
        for amount in _STOPS:
            yield row | {"to": "free", "amount": amount}

    def _rows_for_page(self) -> Iterator[dict[str, Any]]:
        if not self._shows_attention():
            return
        rows = [_row_of(spec) for spec in self.selection.interventions if spec["kind"] == "row"]
        place = self._looked_at()
        if place is not None and self._intervened.reach is not None:
            stack, layer, head, query = place
            heads = range(self._intervened.reach.heads[stack][layer])
            near = sorted(heads, key=lambda at: abs(at - head))[:_MOST_HEADS]
            rows += [{"stack": stack, "layer": layer, "head": one, "query": query} for one in near]
        yield from {str(row): row for row in rows}.values()

    def _free_for_page(self) -> Iterator[dict[str, Any]]:
        if not self._shows_attention():
            return
        specs = [spec for spec in self.selection.interventions if spec.get("to") == "free"]
        place = self._looked_at()
        rows = [_row_of(spec) for spec in specs]
        if place is not None and self._cost() <= PAGE_WORK:
            rows.append(dict(zip(("stack", "layer", "head", "query"), place, strict=True)))
        yield from {str(row): row for row in rows}.values()

    def _shows_attention(self) -> bool:
        """Return whether the view shows attention: an assignment's page must not hold its answer."""
        return any(source.method == "attention" for source in self.sources())

    def _looked_at(self) -> tuple[str, int, int, int] | None:
        """Return stack, layer, head and token of the row that a page opens with; None where nothing runs."""
        reach = self._intervened.reach
        if reach is None or self._intervened.refusal():
            return None
        stack = self.selection.stack if self.selection.stack in reach.heads else reach.stack
        layer = min(self.selection.layer, len(reach.heads[stack]) - 1)
        head = self.selection.head if isinstance(self.selection.head, int) else 0
        query = self._pinned("query")
        last = reach.tokens[stack][0] - 1
        return stack, layer, min(head, reach.heads[stack][layer] - 1), last if query is None else query

    def _pinned(self, side: str) -> int | None:
        """Return the first token of what is pinned."""
        cell, trace = self.selection.pinned, self._intervened.trace
        if cell is None or trace is None:
            return None
        stack = self.selection.stack if self.selection.stack in trace.stacks else trace.default_stack
        unit = trace.axes(stack)[side == "key"].units.get(cell.unit)
        at = getattr(cell, side)
        if unit is None or not 0 <= at < len(unit):
            return None
        return unit.spans[at][0]


def _row_of(spec: Mapping[str, Any]) -> dict[str, Any]:
    return {key: spec[key] for key in ("stack", "layer", "head", "query")}


def _largest(values: torch.Tensor) -> list[int]:
    return values.argsort(descending=True, stable=True)[:_MOST].tolist()


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


def _packed(values: Any) -> bytes:
    return np.ascontiguousarray(values, dtype="<f4").tobytes()
