"""Checks that a model can be differentiated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.recording.borrow import unwrap
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import nn

    from attnwidgets.tracing.trace import Trace

# Marks of quantisation libraries in the names of their modules.
_QUANTISED = ("quantized", "bitsandbytes", "quantlinear", "qlinear", "wqlinear", "hqq", "eetq", "aqlm")


def differentiable_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers, after checking that it is differentiable.

    Raises:
        UnsupportedModelError: If the trace has no model.
        ValueError: If it cannot be differentiated; see `require_gradients`.
    """
    model = traced_model(trace, purpose)
    require_gradients(model, purpose)
    return model


def traced_model(trace: Trace, purpose: str) -> nn.Module:
    """Return a trace's model without wrappers, or raise an UnsupportedModelError if it has none."""
    if getattr(trace, "model", None) is None or not hasattr(trace, "stack_table"):
        raise UnsupportedModelError(
            f"{purpose} runs the model again, but this trace has no model; "
            "make it with aw.trace(model, tokenizer, text)"
        )
    return unwrap(trace.model)


def require_gradients(model: nn.Module, purpose: str) -> None:
    """Raise a ValueError under inference mode, or if the model has quantised weights."""
    if torch.is_inference_mode_enabled():
        raise ValueError(
            f"{purpose} needs gradients, which torch.inference_mode() disables; call it outside that block "
            "(torch.no_grad() is fine)"
        )
    for name, parameter in model.named_parameters():
        if parameter.is_inference():
            raise ValueError(
                f"{purpose} needs gradients, and {name} was created under torch.inference_mode(); load the "
                "model outside that block"
            )
    quantised = quantised_weights(model)
    if quantised:
        raise ValueError(
            f"{purpose} cannot compute gradients through quantised weights such as {quantised}; load the "
            "model without quantisation"
        )


def quantised_weights(module: nn.Module) -> str:
    """Return the first quantised weights in a module, in words; "" if there are none."""
    for name, parameter in module.named_parameters():
        is_quantised = parameter.is_quantized or not (parameter.is_floating_point() or parameter.is_complex())
        if is_quantised or hasattr(parameter, "quant_state") or "torchao" in type(parameter.data).__module__:
            return f"{name} ({str(parameter.dtype).removeprefix('torch.')})"
    for name, part in module.named_modules():
        kind = f"{type(part).__module__}.{type(part).__name__}".lower()
        if any(mark in kind for mark in _QUANTISED):
            return f"those of {name} ({type(part).__name__})"
    return ""
