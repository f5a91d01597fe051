"""The attention that a model returns itself, and whether two of its passes are the same computation."""

from __future__ import annotations

import inspect
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.attention_sources import OUTPUTS, weights_in
from attnwidgets.tracing.free_memory import less_of, require_room
from attnwidgets.tracing.model_state import modules_of
from attnwidgets.tracing.pass_memory import device_of, returned_bytes
from attnwidgets.tracing.recording.borrow import IMPLEMENTATION, configs_of, implementation
from attnwidgets.tracing.recording.call_scope import is_replaced
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence

    from torch import Tensor, nn

ELSEWHERE = "Weights from another source can be shown with aw.from_attentions(attentions, tokens)."

_COMPARED = 2**20  # numbers compared at a time


def returned_weights(
    model: nn.Module, inputs: Mapping[str, Any], options: Mapping[str, Any], reason: str
) -> tuple[Any, dict[str, tuple[Tensor, ...]], str]:
    """Return a model's output, the weights it returns by stack, and a note for readers.

    Args:
        model: A borrowed model.
        inputs: Its inputs.
        options: Other arguments of its forward.
        reason: Why its attention was not recorded, in words.

    Returns:
        The output of the implementation that the user chose; weights [batch, head, query, key] of every layer
        by stack; and a note for readers.

    Raises:
        UnsupportedModelError: If it returns no weights, or numbers that cannot be attention weights.
        ValueError: If two passes on the same input differ.
    """
    name = type(model).__name__
    require_room_for_maps(model, inputs, f"is what it returns itself ({reason})")
    # A user's attention function is called for its weights; transformers' fused functions return none.
    is_custom = not is_transformers_own(model)
    why = f"The attention of {name} cannot be traced: {reason}, and"
    real, before = inputs.get("attention_mask"), torch.get_rng_state()
    with nullcontext() if is_custom else implementation(model, "eager"):
        try:
            outputs = model(**inputs, **options, output_attentions=True)
        except TypeError as error:
            if "output_attentions" not in str(error):
                raise
            raise UnsupportedModelError(f"{why} it takes no output_attentions. {ELSEWHERE}") from error
        draws = not torch.equal(before, torch.get_rng_state())
        again = _weights_in(model(**inputs, **options, output_attentions=True), real) if draws else {}
    weights = _weights_in(outputs, real)
    if not weights:
        function = "by its own attention function" if is_custom else "under eager attention"
        raise UnsupportedModelError(f"{why} it returned none {function}. {ELSEWHERE}")
    if not all(_are_weights(layer) for layers in weights.values() for layer in layers):
        raise UnsupportedModelError(
            f"{why} the attention that it returns is not weights: some values are negative, or rows sum to "
            f"more than 1. {ELSEWHERE}"
        )
    note = (
        f"{name}: {reason}; its attention is what it returned itself, so methods that edit attention or need "
        "queries and keys are not available"
    )
    if draws:
        require_repeatable(model, inputs, options)
        note += _of_draws(weights, again)
    for stack, layers in weights.items():
        # Over one token, every head's map is 1.
        if all(
            min(layer.shape[1], layer.shape[3]) > 1 and bool((layer == layer[:, :1]).all())
            for layer in layers
        ):
            note += f"; it returned one map for all {layers[0].shape[1]} heads of a layer, shown as one head"
            weights[stack] = tuple(layer[:, :1] for layer in layers)
    if is_custom or set(functions_of(modules_of(model))) == {"eager"}:
        return outputs, weights, note
    plain = model(**inputs, **options)
    difference = _difference(plain, outputs, inputs)
    if difference:
        require_repeatable(model, inputs, options)
        note += f"; these are the weights of eager attention, which changes its output by {difference:.2g}"
    return plain, weights, note


def require_room_for_maps(model: nn.Module, inputs: Mapping[str, Any], why: str) -> None:
    """Raise a ValueError unless the weights of all layers fit into memory.

    `why` follows "the attention of ..." in the message.
    """
    require_room(
        f"the attention of {type(model).__name__} {why}, for all layers at once: that",
        returned_bytes(model, inputs),
        device_of(model),
        f"Take {less_of(inputs)}",
    )


def require_repeatable(model: nn.Module, inputs: Mapping[str, Any], options: Mapping[str, Any]) -> None:
    """Raise a ValueError if two passes of a model on the same input differ."""
    first, second = (model(**inputs, **options) for _ in range(2))
    difference = _difference(first, second, inputs)
    if difference:
        takes = {"noise", "generator"}.intersection(inspect.signature(model.forward).parameters)
        fixed = (
            f"Fix it by model.forward = functools.partial(model.forward, {min(takes)}=...)"
            if takes
            else "Its forward() takes no noise or generator that would fix it"
        )
        raise ValueError(
            f"{type(model).__name__} cannot be traced: it draws at random in every pass, and two passes on "
            f"the same input differ by {difference:.2g}. {fixed}."
        )


def _weights_in(outputs: Any, real: Tensor | None) -> dict[str, tuple[Tensor, ...]]:
    """Return the weights [batch, head, query, key] of every layer that an output holds, by stack."""
    by_stack: dict[str, tuple[Tensor, ...]] = {}
    for stack in OUTPUTS:
        layers = weights_in(outputs, stack, real)
        if isinstance(layers, torch.Tensor):
            layers = (layers,)
        if layers and all(isinstance(layer, torch.Tensor) for layer in layers):
            by_stack[stack] = tuple(layer.detach() for layer in layers)
    return by_stack


def _of_draws(weights: Mapping[str, Sequence[Tensor]], again: Mapping[str, Sequence[Tensor]]) -> str:
    """Return a clause on a model whose weights change from pass to pass; "" if they do not."""
    pairs = (pair for stack in weights for pair in zip(weights[stack], again[stack], strict=True))
    if all(apart(first, second) <= tolerance(first) for first, second in pairs):
        return ""
    return "; it draws at random in every pass, so that the weights and places of two passes differ"


def _are_weights(layer: Tensor) -> bool:
    """Return whether numbers can be attention weights: at least 0, and at most 1 in the sum of every row."""
    sums = layer.sum(-1, dtype=torch.float64)
    # NaN passes: reading it raises an error that names it.
    return not bool((layer < 0).any()) and not bool((sums > 1 + tolerance(layer)).any())


def _difference(plain: Any, compared: Any, inputs: Mapping[str, Any]) -> float:
    """Return the difference of two outputs, relative to the largest number; 0 within rounding."""
    first, second = main_output(plain), main_output(compared)
    if first is None or second is None or first.shape != second.shape:
        return 0.0
    keep = kept_positions(inputs, first)
    difference = apart(second[keep], first[keep])
    return 0.0 if difference <= tolerance(first) else difference


def attention_of(modules: Collection[nn.Module]) -> Hashable | None:
    """Return a key of the functions that compute attention in a model's modules; None without identity.

    Attention functions may be registered or replaced, and modules set to be (not) causal, without a
    trace in the config. Hooks and replaced methods may do anything, and differ from pass to pass, except the
    hooks that transformers leaves on a model whose attentions or hidden states were requested.
    """
    flags: set[tuple[Any, ...]] = set()
    for module in modules:
        attributes = vars(module)
        hooks = (*attributes["_forward_hooks"].values(), *attributes["_forward_pre_hooks"].values())
        if "forward" in attributes and is_replaced(module):
            return None
        if hooks and not all(map(_is_of_transformers, hooks)):
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
    return frozenset(functions_of(modules).items()), eager, frozenset(flags)


def functions_of(modules: Iterable[nn.Module]) -> dict[str, Any]:
    """Return the attention functions that the configs of a model's modules name; None for eager attention."""
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS as FUNCTIONS

    names = {str(getattr(config, IMPLEMENTATION)) for config in configs_of(modules)}
    return {name: FUNCTIONS[name] if name in FUNCTIONS.valid_keys() else None for name in names}


def is_transformers_own(model: nn.Module) -> bool:
    """Return whether a model computes attention by functions of transformers, none registered or replaced."""
    functions = (function for function in functions_of(modules_of(model)).values() if function is not None)
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
    return float(torch.stack(gaps).max()) / max(sizes)  # NaN if a single side is


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
