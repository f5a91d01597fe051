"""Memory: whether a pass over a whole text fits, how many fit together, and what to say where none does."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import nn

    from attnwidgets.tracing.trace import Trace

_MAPS_HELD = 2  # attention weights, and what the softmax or the next product keeps of them
_MAPS_KEPT = 5  # where they are kept: gradients by them, and copies of both in float64
_SLACK = 1.25  # the estimate is rough: what is refused lies well above it
_SHARE = 0.5  # of the free memory that inputs which run together may take


def graph_bytes(model: nn.Module, trace: Trace, batch: int = 1, *, maps_kept: bool = False) -> int:
    """Return about how many bytes a pass with gradients keeps: ins and outs of every matrix, and maps."""
    n_tokens, widths, maps, size = _sizes(model, trace)
    held = _MAPS_HELD + _MAPS_KEPT * maps_kept
    return batch * size * (n_tokens * sum(map(sum, widths)) + held * sum(maps))


def pass_bytes(model: nn.Module, trace: Trace, batch: int = 1) -> int:
    """Return about how many bytes a pass without gradients takes: states, and one layer's numbers."""
    n_tokens, widths, maps, size = _sizes(model, trace)
    states = (len(maps) + 1) * max(map(min, widths), default=0)
    layer = max(map(sum, widths), default=0)
    return batch * size * (n_tokens * (states + layer) + _MAPS_HELD * max(maps, default=0))


def _sizes(model: nn.Module, trace: Trace) -> tuple[int, list[tuple[int, ...]], list[int], int]:
    """Return the number of tokens, the sides of matrices, the sizes of maps, and the bytes of a number."""
    n_tokens = max(len(trace.axes(stream)[0]) for stream in trace.streams)
    floats = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    widths = [tuple(parameter.shape[-2:]) for parameter in floats if parameter.dim() > 1]
    maps = [
        heads * queries * keys
        for table in trace.stream_table.values()
        for heads, queries, keys in (layer.shape for layer in table.layers)
    ]
    size = max((parameter.element_size() for parameter in floats), default=4)
    return n_tokens, widths, maps, max(size, 4)


def free_bytes(device: torch.device) -> int | None:
    """Return how much memory a device has left; None where it does not say."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    table = Path("/proc/meminfo")
    if device.type != "cpu" or not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    return int(lines["MemAvailable"].split()[0]) * 1024 if "MemAvailable" in lines else None


def together(model: nn.Module, trace: Trace, wanted: int, *, graph: bool = True) -> int:
    """Return how many inputs may run together: as many as wanted, or as the memory has room for; 1 at least.

    Args:
        model: The model.
        trace: A trace of one input of that size.
        wanted: The most.
        graph: Whether each keeps its pass for the way back.
    """
    free = free_bytes(_device(model))
    if free is None:
        return wanted
    need = graph_bytes(model, trace) if graph else pass_bytes(model, trace)
    return max(1, min(wanted, int(_SHARE * free) // max(1, need)))


def too_long(model: nn.Module, trace: Trace, purpose: str, batch: int, need: int, free: int | None) -> str:
    """Return what to tell a reader whose text does not fit."""
    n_tokens = max(len(trace.axes(stream)[0]) for stream in trace.streams)
    there = "" if free is None else f", and {free / 1e9:.2g} GB are free"
    keeps = torch.is_grad_enabled()
    what = "keeps the whole pass of {} for its way back" if keeps else "runs {}"
    fewer = ", fewer inputs at once (batch_size=)" if batch > 1 else ""
    other = "; aw.occlusion keeps no pass" if keeps else ""
    return (
        f"{purpose} {what.format(type(model).__name__)}: over {n_tokens:,} tokens"
        f"{f' and {batch} inputs at once' if batch > 1 else ''} that takes about {need / 1e9:.2g} GB{there}. "
        f"Take a shorter text{fewer}, or a device with more memory{other}."
    )


@contextmanager
def room_for_pass(
    model: nn.Module, trace: Trace, purpose: str, batch: int = 1, *, maps_kept: bool = False
) -> Iterator[None]:
    """Raise ValueError with what to do where a pass cannot fit, before it runs or when it fails.

    Where gradients are on, the pass is kept for its way back.
    """
    if torch.is_grad_enabled():
        need = graph_bytes(model, trace, batch, maps_kept=maps_kept)
    else:
        need = pass_bytes(model, trace, batch)
    free = free_bytes(_device(model))
    if free is not None and need > _SLACK * free:
        raise ValueError(too_long(model, trace, purpose, batch, need, free))
    with told_what_to_do(model, trace, purpose, batch, need):
        yield


@contextmanager
def told_what_to_do(
    model: nn.Module, trace: Trace, purpose: str, batch: int = 1, need: int | None = None
) -> Iterator[None]:
    """Say what to do where the memory is not enough, in place of the allocator's own words."""
    try:
        yield
    except RuntimeError as error:
        # torch.OutOfMemoryError on accelerators; on a processor the allocator's own words.
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
            need = graph_bytes(model, trace, batch) if need is None else need
            raise ValueError(
                too_long(model, trace, purpose, batch, need, free_bytes(_device(model)))
            ) from error
        raise


def _device(model: nn.Module) -> torch.device:
    return next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
