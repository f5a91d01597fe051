"""Run a trace's input once more through its model, which may have changed since."""

from __future__ import annotations

import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.anatomy.attention_modules import sites
from attnwidgets.tracing.anatomy.stack_axes import with_registers
from attnwidgets.tracing.interventions import added_to, said_of
from attnwidgets.tracing.layers import RecordedLayer, Stack
from attnwidgets.tracing.model_state import state_of
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.predictions import logits_in, predict
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorder import Call, record
from attnwidgets.tracing.text.axes import without_last
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.prediction import Prediction
    from attnwidgets.tracing.text.units import TokenAxis
    from attnwidgets.tracing.trace import Trace


def again(trace: Trace) -> Trace:
    """Return the trace of a trace's input by its model as it is now.

    Raises:
        UnsupportedModelError: If its attention cannot be recorded.
        ValueError: If its attention was not recorded.
    """
    model = unwrap(trace.model)
    sites(trace)
    with borrowed(model) as twin, room_to_record(twin, trace.inputs):
        recorded = record(twin, trace.inputs)
    if not recorded.is_recorded:
        raise UnsupportedModelError(
            f"the attention of {type(model).__name__} cannot be recorded: {recorded.note}"
        )
    stacks = {}
    for name, calls in recorded.stacks.items():
        before = trace.stack_table[name]
        extra = added_to(trace.model, name) - trace.added.get(name, 0)
        layers = tuple(
            RecordedLayer(call, 0, *(length + extra for length in layer.shape[1:]))
            for call, layer in zip(calls, before.layers, strict=True)
            if isinstance(call, Call)
        )
        query, key = (_with(axis, extra) for axis in (before.query, before.key))
        stacks[name] = Stack(layers, query, key, recorded.blocks[name])
    logits = own_logits(trace, recorded.outputs)
    return replace(
        trace,
        stack_table=stacks,
        logits=logits,
        id=uuid.uuid4().hex,
        predicted=predictions_of(trace, logits),
        interventions=said_of(trace.model),
        state=state_of(model),
        added={name: count for name in stacks if (count := added_to(trace.model, name))},
    )


def _with(axis: TokenAxis, extra: int) -> TokenAxis:
    """Return an axis with so many register tokens more at its end, or fewer."""
    return without_last(axis, -extra) if extra < 0 else with_registers(axis, extra) if extra else axis


def own_logits(trace: Trace, outputs: Any) -> Tensor | None:
    """Return the logits of a pass over a trace's own input, in the form that its trace keeps them."""
    all_logits = logits_in(outputs)
    if trace.logits is None or all_logits is None:
        return None
    logits: Tensor = all_logits[0].detach().to("cpu", copy=True)
    return logits[-len(trace.logits) :] if logits.dim() > 1 else logits


def predictions_of(trace: Trace, logits: Tensor | None) -> tuple[Prediction, ...]:
    """Return the predictions of a trace that follow from other logits."""
    return predict(trace.answer, logits, text_tokenizer(trace.tokenizer), trace.input_ids)
