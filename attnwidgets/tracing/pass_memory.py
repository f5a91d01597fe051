"""Memory of passes over whole texts: estimates, batch sizes that fit, and errors if even one does not."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.causal_mask import LONG_MASK, supports_sdpa
from attnwidgets.tracing.free_memory import free_bytes, is_forced, less_of, out_of_memory, room_for
from attnwidgets.tracing.recording.attention_function import AGAIN_BYTES, changers

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from torch import nn

    from attnwidgets.tracing.trace import Trace

_MAPS_HELD = 2  # attention weights, and a copy of them in the softmax or in the next product
_MAPS_KEPT = 5  # if a method reads them: their gradients, and copies of both in float64
_MAPS_CHANGED = 3  # with an intervention: scores, weights, and changed weights
_SLACK = 1.25  # the estimate is rough: only needs well above the free memory are refused
_MASKS = 3  # of eager attention [query, key]: as numbers, as booleans, and of sliding windows
_LOGITS = 3  # of the recorded pass, of the plain pass that checks it, and of the trace
_STATES = 8  # per token and layer: hidden states, norms, queries, keys, values
_CELL = 64  # multiplications per attention weight: its products, and the softmax between them
_SHARE = 0.5  # of the free memory, for inputs that run together


def graph_bytes(
    model: nn.Module, trace: Trace, batch: int = 1, *, maps_kept: bool = False, again: bool = False
) -> int:
    """Estimate the bytes that a pass with gradients keeps: inputs and outputs of every matrix, and maps.

    With `again`, large maps are computed twice rather than kept.
    """
    n_tokens, widths, maps, size = _sizes(model, trace)
    maps = [numbers for numbers in maps if not again or batch * size * numbers <= AGAIN_BYTES]
    copies = _MAPS_HELD + _MAPS_KEPT * maps_kept
    return batch * size * (n_tokens * sum(map(sum, widths)) + copies * sum(maps))


def pass_bytes(model: nn.Module, trace: Trace, batch: int = 1) -> int:
    """Estimate the bytes that a pass without gradients takes: states, and one layer's numbers."""
    n_tokens, widths, maps, size = _sizes(model, trace)
    states = (len(maps) + 1) * max(map(min, widths), default=0)
    layer = max(map(sum, widths), default=0)
    return batch * size * (n_tokens * (states + layer) + _MAPS_HELD * max(maps, default=0))


def _sizes(model: nn.Module, trace: Trace) -> tuple[int, list[tuple[int, ...]], list[int], int]:
    """Return the number of tokens, the sides of matrices, the sizes of maps, and the bytes of a number."""
    n_tokens = max(len(trace.axes(stack)[0]) for stack in trace.stacks)
    floats = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    widths = [tuple(parameter.shape[-2:]) for parameter in floats if parameter.dim() > 1]
    maps = [
        heads * queries * keys
        for table in trace.stack_table.values()
        for heads, queries, keys in (layer.shape for layer in table.layers)
    ]
    size = max((parameter.element_size() for parameter in floats), default=4)
    return n_tokens, widths, maps, max(size, 4)


def recording_bytes(model: Any, inputs: Mapping[str, Any]) -> int:
    """Estimate the bytes that a recorded pass takes: the recorded numbers, and states while it runs.

    Attention weights are computed in blocks of queries, so they hardly count unless they are changed. Of a
    sound, the largest are the first convolution's states of all samples. 0 without text or sound.
    """
    batch, n_tokens, config = _text_of(model, inputs)
    if not n_tokens:
        return _samples_bytes(model, inputs)
    layers, width = (_size(config, name) for name in ("num_hidden_layers", "hidden_size"))
    try:
        vocabulary = int(model.get_output_embeddings().weight.shape[0])
    except (AttributeError, NotImplementedError):  # not a language model
        vocabulary = 0
    recorded = 2 * layers * width
    # Texts of unequal lengths need a mask, see `CausalMask`.
    masks = 0 if batch == 1 and n_tokens**2 > LONG_MASK and supports_sdpa(model) else _MASKS
    # Interventions on attention take the weights of a whole layer.
    changes = any(changer.active for changer in changers.get())
    maps = _MAPS_CHANGED * _size(config, "num_attention_heads") if changes else 0
    numbers = n_tokens * (recorded + _STATES * width + _LOGITS * vocabulary) + (masks + maps) * n_tokens**2
    return batch * numbers * _number_bytes(model)


def _samples_bytes(model: Any, inputs: Mapping[str, Any]) -> int:
    """Estimate the bytes of the first convolution over a sound's samples: its states, and their norm."""
    samples = inputs.get("input_values")
    config: Any = getattr(model, "config", None)
    config = getattr(config, "encoder", config)
    widths, strides = (getattr(config, name, None) for name in ("conv_dim", "conv_stride"))
    if not isinstance(samples, torch.Tensor) or not widths or not strides:
        return 0
    return 2 * samples.numel() // int(strides[0]) * int(widths[0]) * _number_bytes(model)


def returned_bytes(model: Any, inputs: Mapping[str, Any]) -> int:
    """Estimate the bytes of a pass that returns its attention: the weights of all layers at once."""
    batch, n_tokens, config = _text_of(model, inputs)
    if not n_tokens:  # a picture, of whose stages some configs list the numbers
        return 0
    names = ("num_hidden_layers", "num_attention_heads")
    layers, heads = (_size(config, name) for name in names)
    return batch * heads * n_tokens**2 * (layers + _MAPS_HELD) * _number_bytes(model)


def _size(config: Any, name: str) -> int:
    """Return a size in a config, the largest where it varies by layer; 0 if there is none."""
    configs = config.per_layer_config if getattr(config, "is_heterogeneous", False) else [config]
    return max(int(getattr(layer_config, name, 0) or 0) for layer_config in configs)


def _text_of(model: Any, inputs: Mapping[str, Any]) -> tuple[int, int, Any]:
    """Return the number of texts, the tokens of the longest, and the config of the model that reads them."""
    config: Any = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    ids = (inputs.get(name) for name in ("input_ids", "decoder_input_ids"))
    sizes = [tuple(tensor.shape) for tensor in ids if isinstance(tensor, torch.Tensor)]
    return max((size[0] for size in sizes), default=0), max((size[-1] for size in sizes), default=0), config


def _number_bytes(model: nn.Module) -> int:
    floats = (parameter for parameter in model.parameters() if parameter.is_floating_point())
    return max(4, next(floats, torch.zeros(())).element_size())


@contextmanager
def room_to_record(model: nn.Module, inputs: Mapping[str, Any]) -> Iterator[None]:
    """Raise ValueError with advice if a recorded pass does not fit, before it runs or when it fails."""
    batch, n_tokens, _ = _text_of(model, inputs)
    length = f" of {n_tokens:,} tokens" if n_tokens else ""
    purpose = f"a trace{length} by {type(model).__name__}"
    purpose += f", {batch} texts at once," if batch > 1 else ""
    shorter = less_of(inputs)
    cut = " (truncation=True cuts it to the model's limit)" if shorter == "a shorter text" else ""
    remedy = f"Take {shorter}{cut}, or a device with more memory"
    with room_for(purpose, recording_bytes(model, inputs), device_of(model), remedy):
        yield


def together(model: nn.Module, trace: Trace, most: int, *, graph: bool = True) -> int:
    """Return how many inputs may run together: `most`, or the number that fits in memory; at least 1.

    Args:
        model: The model.
        trace: A trace of an input of that size.
        most: The largest number.
        graph: Whether each pass is kept for its backward pass.
    """
    free = free_bytes(device_of(model))
    if free is None:
        return most
    need = graph_bytes(model, trace) if graph else pass_bytes(model, trace)
    return max(1, min(most, int(_SHARE * free) // max(1, need)))


def too_long(model: nn.Module, trace: Trace, purpose: str, batch: int, need: int, free: int | None) -> str:
    """Return the message for a text that does not fit."""
    n_tokens = max(len(trace.axes(stack)[0]) for stack in trace.stacks)
    available = "" if free is None else f", and {free / 1e9:.2g} GB are free"
    keeps = torch.is_grad_enabled()
    action = "keeps the whole pass of {} for the backward pass" if keeps else "runs {}"
    fewer = ", fewer inputs at once (batch_size=)" if batch > 1 else ""
    alternative = "; aw.occlusion keeps no pass" if keeps else ""
    return (
        f"{purpose} {action.format(type(model).__name__)}: over {n_tokens:,} tokens"
        f"{f' and {batch} inputs at once' if batch > 1 else ''} that takes about {need / 1e9:.2g} GB"
        f"{available}. "
        f"Take {less_of(trace.inputs)}{fewer}, or a device with more memory{alternative}."
    )


@contextmanager
def room_for_pass(
    model: nn.Module,
    trace: Trace,
    purpose: str,
    batch: int = 1,
    *,
    maps_kept: bool = False,
    again: bool = False,
) -> Iterator[None]:
    """Raise ValueError with advice if a pass does not fit, before it runs or when it fails.

    With gradients enabled, the pass is kept for its backward pass.
    """
    if torch.is_grad_enabled():
        need = graph_bytes(model, trace, batch, maps_kept=maps_kept, again=again)
    else:
        need = pass_bytes(model, trace, batch)
    free = free_bytes(device_of(model))
    if free is not None and need > _SLACK * free and not is_forced():
        raise ValueError(too_long(model, trace, purpose, batch, need, free))
    with told_what_to_do(model, trace, purpose, batch, need):
        yield


@contextmanager
def told_what_to_do(
    model: nn.Module, trace: Trace, purpose: str, batch: int = 1, need: int | None = None
) -> Iterator[None]:
    """Replace the allocator's error by an error with advice."""
    try:
        yield
    except RuntimeError as error:
        if out_of_memory(error):
            need = graph_bytes(model, trace, batch) if need is None else need
            raise ValueError(
                too_long(model, trace, purpose, batch, need, free_bytes(device_of(model)))
            ) from error
        raise


def device_of(model: nn.Module) -> torch.device:
    """Return the device of a model's first parameter."""
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))


def pass_work(trace: Trace) -> float:
    """Estimate the multiplications of a pass over a trace's input, by weights and in attention."""
    tokens = max(len(trace.axes(stack)[0]) for stack in trace.stacks)
    weights = sum(parameter.numel() for parameter in trace.model.parameters())
    layers = (layer.shape for table in trace.stack_table.values() for layer in table.layers)
    cells = sum(heads * queries * keys for heads, queries, keys in layers)
    return float(tokens * weights + _CELL * cells)
