"""The same input once more through a model that may have been changed since."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.tracing.attention_modules import sites
from attnwidgets.tracing.pass_memory import room_to_record
from attnwidgets.tracing.predictions import predict
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.batch import by_stack
from attnwidgets.tracing.recording.borrow import borrowed, unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorder import can_generate, record
from attnwidgets.tracing.trace import RecordedLayer, Stack, Trace

if TYPE_CHECKING:
    from torch import Tensor


def again(trace: Trace) -> Trace:
    """Return the trace of a trace's input as its model is now.

    Raises:
        UnsupportedModelError: If the trace has no model, or its attention cannot be recorded.
        ValueError: If its attention was not recorded.
    """
    from attnwidgets.tracing.interventions import said_of

    if trace.model is None:
        raise UnsupportedModelError(
            "this trace has no model to run again; make it with aw.trace(model, tokenizer, text)"
        )
    model = unwrap(trace.model)
    sites(trace)
    with borrowed(model) as twin, room_to_record(twin, trace.inputs):
        done = record(twin, trace.inputs)
    if not done.calls:
        raise UnsupportedModelError(
            f"the attention of {type(model).__name__} cannot be recorded: {done.note}"
        )
    table = {}
    for name, calls in by_stack(model, done.calls).items():
        stack = trace.stack_table[name]
        shapes = [layer.shape for layer in stack.layers]
        table[name] = Stack(
            tuple(RecordedLayer(call, 0, *shape[1:]) for call, shape in zip(calls, shapes, strict=True)),
            stack.query,
            stack.key,
        )
    logits = own_logits(trace, done.outputs)
    return Trace(
        table,
        model=trace.model,
        tokenizer=trace.tokenizer,
        model_id=trace.model_id,
        input_ids=trace.input_ids,
        logits=logits,
        inputs=trace.inputs,
        warning=trace.warning,
        memory=trace.memory,
        predicted=predictions_of(trace, logits),
        interventions=said_of(trace.model),
    )


def own_logits(trace: Trace, outputs: Any) -> Tensor | None:
    """Return the logits of a pass on a trace's own input, as its trace keeps them."""
    found = getattr(outputs, "logits", None)
    if trace.logits is None or found is None:
        return None
    own: Tensor = found[0].detach().to("cpu", copy=True)
    return own[-len(trace.logits) :] if own.dim() > 1 else own


def predictions_of(trace: Trace, logits: Tensor | None) -> tuple[str, tuple[Any, ...]]:
    """Return the title of a trace's predictions and what other logits predict there."""
    inner = unwrap(trace.model)
    reader = text_tokenizer(trace.tokenizer)
    config = getattr(inner, "config", None)
    return predict(logits, config, reader, trace.input_ids, generates=can_generate(inner))
