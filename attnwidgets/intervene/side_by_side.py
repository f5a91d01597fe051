"""Predictions under each of several interventions alone, from one pass over copies of the input."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import torch

from attnwidgets.intervene.heads import HeadIntervention
from attnwidgets.intervene.preview import Replay, changed, changed_logits
from attnwidgets.tracing.interventions import Intervention
from attnwidgets.tracing.predictions import logits_in
from attnwidgets.tracing.rerun_trace import own_logits

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    from attnwidgets.intervene.preview import Changed
    from attnwidgets.tracing.interventions import Seen
    from attnwidgets.tracing.trace import Trace


class _OneEach(Intervention):
    """Interventions on attention, each in force in a copy of the input."""

    def __init__(self, trace: Trace, each: Sequence[HeadIntervention]) -> None:
        where = frozenset(at for intervention in each for at in intervention.where)
        names = "; ".join(intervention.said for intervention in each)
        super().__init__(trace, each[0].kind, names, where)
        self._each = each

    def weigh(self, seen: Seen, weights: Tensor) -> Tensor:
        """Return the weights to continue with [copy, head, query, key]."""
        return self._changed("weigh", seen, weights)

    def write(self, seen: Seen, output: Tensor) -> Tensor:
        """Return the head outputs to continue with [copy, head, query, dim]."""
        return self._changed("write", seen, output)

    def _changed(self, step: Literal["weigh", "write"], seen: Seen, given: Tensor) -> Tensor:
        result = given
        for copy, intervention in enumerate(self._each):
            if (seen.stack, seen.layer) not in intervention.where:
                continue
            changed_copies = getattr(intervention, step)(seen, given)
            if changed_copies is not given:
                result = given.clone() if result is given else result
                result[copy] = changed_copies[copy]
        return result


def each_changed(trace: Trace, interventions: Sequence[Intervention]) -> list[Changed]:
    """Return what `changed` returns for each intervention alone.

    A single pass runs over a copy of the input for each, if the interventions act in attention and the model
    takes several inputs and predicts classes or tokens; its numbers differ by rounding.

    Args:
        trace: A trace with its model.
        interventions: Interventions for this trace, not active.

    Raises:
        ValueError: See `changed`.
    """
    in_attention = [
        intervention
        for intervention in interventions
        if isinstance(intervention, HeadIntervention) and not intervention.changes_kernels
    ]
    several = len(in_attention) == len(interventions) > 1
    if several and trace.answer.is_distribution and trace.logits is not None and _is_single(trace.inputs):
        try:
            with Replay(trace) as replay:
                outputs = replay.run((_OneEach(trace, in_attention),), copies=len(in_attention))
        except (IndexError, RuntimeError, ValueError):
            pass  # the model takes one input at a time, or one of these fails: alone, it says why
        else:
            all_logits = logits_in(outputs)
            if all_logits is not None and len(all_logits) == len(in_attention):
                each = (own_logits(trace, outputs, copy) for copy in range(len(in_attention)))
                return [changed_logits(trace, trace.logits, logits) for logits in each if logits is not None]
    return [changed(trace, intervention) for intervention in interventions]


def _is_single(inputs: Mapping[str, Any]) -> bool:
    """Return whether all inputs of a model have a batch of one."""
    tensors = [value for value in inputs.values() if value is not None]
    return all(isinstance(value, torch.Tensor) and value.dim() > 1 and len(value) == 1 for value in tensors)
