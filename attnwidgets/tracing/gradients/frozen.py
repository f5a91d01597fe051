"""Whether a model can be differentiated, and its parameters as constants while it is."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.recording.attention_function import UnsupportedModelError
from attnwidgets.tracing.recording.borrow import unwrap

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor, nn

    from attnwidgets.tracing.trace import Trace

# How many hold a tensor, and whether it required a gradient before the first.
_frozen: dict[int, tuple[int, bool]] = {}
_frozen_guard = threading.Lock()

# How the libraries that quantise call their modules.
_QUANTISED = ("quantized", "bitsandbytes", "quantlinear", "qlinear", "wqlinear", "hqq", "eetq", "aqlm")


@contextmanager
def frozen(model: nn.Module) -> Iterator[None]:
    """Let no tensor of a model require a gradient for the duration; models that share tensors may overlap."""
    tensors = [*model.parameters(), *(buffer for buffer in model.buffers() if buffer.is_leaf)]
    done: list[Tensor] = []
    try:
        for tensor in tensors:
            with _frozen_guard:
                count, before = _frozen.get(id(tensor), (0, tensor.requires_grad))
                _frozen[id(tensor)] = (count + 1, before)
                done.append(tensor)
                if tensor.requires_grad:
                    tensor.requires_grad = False
        yield
    finally:
        for tensor in done:
            with _frozen_guard:
                count, before = _frozen[id(tensor)]
                if count > 1:
                    _frozen[id(tensor)] = (count - 1, before)
                else:
                    del _frozen[id(tensor)]
                    if before:
                        tensor.requires_grad = True


def differentiable_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers, which gradients can be had of.

    Raises:
        UnsupportedModelError: If the trace has none.
        ValueError: As `require_gradients` says.
    """
    model = traced_model(trace, purpose)
    require_gradients(model, purpose)
    return model


def traced_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers; UnsupportedModelError if it has none."""
    if getattr(trace, "model", None) is None or not hasattr(trace, "stream_table"):
        raise UnsupportedModelError(
            f"{purpose} runs the model again, and this trace has none; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    model: nn.Module = unwrap(trace.model)
    return model


def require_gradients(model: nn.Module, purpose: str) -> None:
    """Raise ValueError where no gradient can be had: under inference mode, or of quantised weights."""
    if torch.is_inference_mode_enabled():
        raise ValueError(
            f"{purpose} needs gradients, which torch.inference_mode() rules out; call it outside of that "
            "block (torch.no_grad() is no obstacle)"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            raise ValueError(
                f"{purpose} needs gradients, and {name} was made under torch.inference_mode(); load the "
                "model outside of that block"
            )
        quantised = parameter.is_quantized or not (parameter.is_floating_point() or parameter.is_complex())
        if quantised or hasattr(parameter, "quant_state") or "torchao" in type(parameter.data).__module__:
            raise ValueError(
                f"{purpose} cannot follow gradients through quantised weights, as {name} "
                f"({str(parameter.dtype).removeprefix('torch.')}); load the model without quantisation"
            )
    for name, module in model.named_modules():
        kind = f"{type(module).__module__}.{type(module).__name__}".lower()
        if any(mark in kind for mark in _QUANTISED):
            raise ValueError(
                f"{purpose} cannot follow gradients through quantised weights, as those of {name} "
                f"({type(module).__name__}); load the model without quantisation"
            )
