"""Whether two passes of a model are the same computation: its attention functions, and its outputs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.recording.borrow import configs_of
from attnwidgets.tracing.recording.twin import IMPLEMENTATION

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from torch import Tensor, nn

_COMPARED = 2**20  # numbers compared at a time


def attention_of(model: nn.Module) -> Hashable | None:
    """Return a key of the functions that compute a model's attention; None if they have no identity.

    Attention functions may be registered or replaced, and modules set to be (not) causal, without a
    trace in the config. Hooks and replaced methods may do anything, also something else in the next pass;
    but for the hooks that transformers leaves on a model whose attentions or hidden states were requested.
    """
    flags: set[tuple[type, float | None, float | None]] = set()
    for module in model.modules():
        attributes = vars(module)
        hooks = (*attributes["_forward_hooks"].values(), *attributes["_forward_pre_hooks"].values())
        if "forward" in attributes or not all(map(_is_of_transformers, hooks)):
            return None
        causal, scaling = attributes.get("is_causal"), attributes.get("scaling")
        flags.add(
            (
                type(module),
                causal if isinstance(causal, (int, float)) else None,
                scaling if isinstance(scaling, (int, float)) else None,
            )
        )
    files = (sys.modules.get(name) for name in {kind.__module__ for kind, *_ in flags})
    eager = frozenset(getattr(file, "eager_attention_forward", None) for file in files)
    return frozenset(functions_of(model).items()), eager, frozenset(flags)


def functions_of(model: nn.Module) -> dict[str, Any]:
    """Return the attention functions that a model's configs name; None for eager attention."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    names = {str(getattr(config, IMPLEMENTATION)) for config in configs_of(model)}
    return {name: FUNCTIONS[name] if name in FUNCTIONS.valid_keys() else None for name in names}


def is_transformers_own(model: nn.Module) -> bool:
    """Return whether a model computes attention by functions of transformers, none registered or replaced."""
    functions = (function for function in functions_of(model).values() if function is not None)
    return all(map(_is_of_transformers, functions))


def _is_of_transformers(function: Any) -> bool:
    return str(getattr(function, "__module__", "")).startswith("transformers.")


def is_half(numbers: Tensor) -> bool:
    """Return whether numbers have 16 bits or fewer."""
    return numbers.element_size() < torch.finfo(torch.float32).bits // 8


def tolerance(numbers: Tensor) -> float:
    """Return the relative difference up to which two outputs are the same."""
    return 2e-2 if is_half(numbers) else 1e-3


def apart(ours: Tensor, reference: Tensor) -> float:
    """Return the largest difference, relative to the largest number; NaN equals NaN."""
    gaps, sizes = [torch.zeros((), dtype=torch.float64)], [1e-6]
    parts = (numbers.reshape(-1).split(_COMPARED) for numbers in (ours, reference))
    for part, reference_part in zip(*parts, strict=True):
        first, second = part.double(), reference_part.double()
        differs = ~((first == second) | (first.isnan() & second.isnan()))
        if differs.any():
            gaps.append((first - second)[differs].abs().max().cpu())
        sizes.append(float(second[second.isfinite()].abs().max()) if second.isfinite().any() else 0.0)
    return float(torch.stack(gaps).max()) / max(sizes)  # NaN if only one of them is


def main_output(outputs: Any) -> Tensor | None:
    """Return the output that matters most: logits, last hidden state, or the first float tensor."""
    for name in ("logits", "last_hidden_state", "logits_per_image"):
        value = getattr(outputs, name, None)
        if isinstance(value, torch.Tensor):
            return value
    values = outputs.values() if hasattr(outputs, "values") else ()
    return next((v for v in values if isinstance(v, torch.Tensor) and v.is_floating_point()), None)


def kept_positions(inputs: Mapping[str, Any], output: Tensor) -> Any:
    """Return the positions of an output without padding, where outputs are arbitrary."""
    for name in ("decoder_attention_mask", "attention_mask"):
        mask = inputs.get(name)
        if isinstance(mask, torch.Tensor) and output.dim() > mask.dim() and mask.shape == output.shape[:2]:
            # Logits are large; without padding, a slice avoids a copy.
            return slice(None) if mask.all() else mask.bool().to(output.device)
    return slice(None)
