"""Traces by models without attention from every position to every position.

Of pictures: convolutional models have none, Swin attends in windows, SegFormer's layers differ in size. The
trace has the picture, target and prediction, and the positions of the last feature map are its tokens.
Of texts: state space and recurrent models have none; gradients and removal need none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.anatomy.answer import answer_of, other_heads
from attnwidgets.tracing.anatomy.block_names import is_attention
from attnwidgets.tracing.anatomy.blocks import left_out
from attnwidgets.tracing.anatomy.forward import can_generate, forward_parameters
from attnwidgets.tracing.interventions import said_of
from attnwidgets.tracing.layers import Stack
from attnwidgets.tracing.media.feature_maps import grid_axis, size_of, watching_maps
from attnwidgets.tracing.mixers.log import by_number
from attnwidgets.tracing.model_state import modules_of, state_of
from attnwidgets.tracing.module_trace import Returned
from attnwidgets.tracing.predictions import logits_in, predict
from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.recording.inputs import text_tokenizer
from attnwidgets.tracing.recording.recorded_pass import NoAttentionError
from attnwidgets.tracing.trace import Trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor, nn

    from attnwidgets.tracing.recording.inputs import Sample

_PIXELS = "pixel_values"
_CLASSES = 2  # dimensions of the logits [batch, class]
_REASON = re.compile(r"cannot be traced: (.*?)\.?(?: Weights from another source .*)?$", re.DOTALL)


class PlainPictureTrace(Trace):
    """A pass of a torch module that takes pixels by position and returns logits, as torchvision's do."""

    def call(
        self,
        model: Any,
        inputs: Mapping[str, Any],
        options: Mapping[str, Any],
        parameters: Mapping[str, Tensor],
    ) -> Returned:
        """Return the module's logits for pixels [batch, channel, row, column]."""
        del options  # of transformers' models
        pixels = inputs[_PIXELS]
        output = (
            torch.func.functional_call(model, dict(parameters), (pixels,)) if parameters else model(pixels)
        )
        if not isinstance(output, torch.Tensor) or output.dim() != _CLASSES:
            raise ValueError(
                f"{type(model).__name__} must return logits [batch, class] for pixels, not "
                f"{tuple(output.shape) if isinstance(output, torch.Tensor) else type(output).__name__}"
            )
        return Returned(output)


def trace_without_attention(
    model: nn.Module,
    given_model: Any,
    tokenizer: Any,
    sample: Sample,
    inputs: dict[str, Any],
    memory: int,
    refusal: UnsupportedModelError,
    number: int,
) -> Trace:
    """Return the trace of a picture, or of a text by a model that never attends, without attention.

    Args:
        model: The borrowed model.
        given_model: The user's model.
        tokenizer: The user's processor or tokenizer.
        sample: The input.
        inputs: The model's inputs.
        memory: Byte budget of the trace.
        refusal: Why attention was not recorded. It is raised if something else is read, if a model of texts
            attends all the same, or if interventions are in force on a model of pictures.
        number: Index of the sample in the pass that was refused.

    Raises:
        UnsupportedModelError: If the model has no feature map of the picture either.
    """
    size = size_of(inputs)
    is_text = size is None and sample.text is not None
    if isinstance(refusal, NoAttentionError) and is_text:
        return _of_text(model, given_model, tokenizer, sample, inputs, memory, refusal, number)
    if size is None or sample.ids is not None or said_of(given_model):
        raise refusal
    kind = Trace if _PIXELS in forward_parameters(model) else PlainPictureTrace
    has_attention = any(map(is_attention, modules_of(model)))
    why = _reason(refusal) if has_attention else f"no module of {type(model).__name__} attends"
    if has_attention and kind is PlainPictureTrace:
        why = f"{type(model).__name__} is not a transformers model, so its attention cannot be recorded"
    trace = kind(
        {"self": Stack((), grid_axis((1, 1)), grid_axis((1, 1)))},
        picture=sample.picture,
        no_attention=why,
        **_common(model, given_model, tokenizer, sample, inputs, memory),
    )
    with watching_maps(model, size) as maps:
        outputs = trace.call(model, inputs, {"return_dict": True}, {})
    if not maps:
        raise UnsupportedModelError(
            f"{type(model).__name__} has neither attention from every patch to every patch nor a feature map "
            f"with several places, of this picture of {size[1]} x {size[0]} pixels; aw.trace_module(module, "
            "numbers) traces any module on numbers"
        ) from refusal
    axis = grid_axis(maps[-1].grid)
    trace.stack_table = {"self": Stack((), axis, axis)}
    logits = logits_in(outputs)
    if isinstance(logits, torch.Tensor) and logits.dim() == _CLASSES:
        trace.logits = logits[0].detach().to("cpu", copy=True)
        reader = text_tokenizer(tokenizer)
        trace.answer = answer_of(model, trace.logits, reader, None, generates=False)
        trace.predicted = predict(trace.answer, trace.logits, reader, None)
    return trace


def _of_text(
    model: nn.Module,
    given_model: Any,
    tokenizer: Any,
    sample: Sample,
    inputs: dict[str, Any],
    memory: int,
    passed: NoAttentionError,
    number: int,
) -> Trace:
    """Return the trace of a text by a model that never attends; see `trace_without_attention`."""
    if sample.text is None or sample.others or sample.decoder_ids:
        raise passed
    axis, reader = sample.text.axis(sample.rule), text_tokenizer(tokenizer)
    every = logits_in(passed.outputs)
    ids = torch.tensor(sample.ids)
    # Padding is on the right.
    logits = None if every is None else every[number, : len(ids)].detach().to("cpu", copy=True)
    answer = answer_of(model, logits, reader, ids, generates=can_generate(model), text=sample.text)
    common = _common(model, given_model, tokenizer, sample, inputs, memory)
    mixing = by_number(passed.blocks, passed.mixing, number, len(axis))
    unrecorded = left_out(passed.blocks, "self", attention=False)
    clauses = (sample.warning, other_heads(passed.outputs), unrecorded)
    return Trace(
        {"self": Stack((), axis, axis, passed.blocks, mixing)},
        input_ids=ids,
        logits=logits,
        answer=answer,
        predicted=predict(answer, logits, reader, ids),
        no_attention=_reason(passed),
        **common | {"warning": "; ".join(filter(None, clauses))},
    )


def _common(
    model: nn.Module, given_model: Any, tokenizer: Any, sample: Sample, inputs: dict[str, Any], memory: int
) -> dict[str, Any]:
    """Return the arguments that traces of pictures and of texts share."""
    config: Any = getattr(model, "config", None)
    return {
        "model": given_model,
        "tokenizer": tokenizer,
        "model_id": getattr(config, "_name_or_path", "") or type(model).__name__,
        "inputs": inputs,
        "warning": sample.warning,
        "memory": memory,
        "interventions": said_of(given_model),
        "state": state_of(unwrap(given_model)),
    }


def _reason(refusal: UnsupportedModelError) -> str:
    """Return why attention was not recorded, from the message of its refusal."""
    result = _REASON.search(str(refusal))
    return result[1] if result else str(refusal)
