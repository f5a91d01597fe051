"""Memory: whether a graph over a whole text fits, and what to say where it does not."""

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
_SLACK = 1.25  # the estimate is rough: what is refused lies well above it


def graph_bytes(model: nn.Module, trace: Trace, batch: int = 1) -> int:
    """Return about how many bytes a pass with gradients keeps: ins and outs of every matrix, and maps."""
    n_tokens = max(len(trace.axes(stream)[0]) for stream in trace.streams)
    floats = [parameter for parameter in model.parameters() if parameter.is_floating_point()]
    widths = sum(sum(parameter.shape[-2:]) for parameter in floats if parameter.dim() > 1)
    maps = sum(
        heads * queries * keys
        for table in trace.stream_table.values()
        for heads, queries, keys in (layer.shape for layer in table.layers)
    )
    size = max((parameter.element_size() for parameter in floats), default=4)
    return batch * max(size, 4) * (n_tokens * widths + _MAPS_HELD * maps)


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


def too_long(model: nn.Module, trace: Trace, purpose: str, need: int, free: int | None) -> str:
    """Return what to tell a reader whose text does not fit."""
    n_tokens = max(len(trace.axes(stream)[0]) for stream in trace.streams)
    there = "" if free is None else f", and {free / 1e9:.2g} GB are free"
    return (
        f"{purpose} keeps the whole pass of {type(model).__name__} for its way back: over {n_tokens:,} "
        f"tokens that takes about {need / 1e9:.2g} GB{there}. Take a shorter text, fewer inputs at once, or "
        "a device with more memory."
    )


@contextmanager
def room_for_graph(model: nn.Module, trace: Trace, purpose: str, batch: int = 1) -> Iterator[None]:
    """Raise ValueError with what to do where a pass cannot fit, before it runs or when it fails."""
    device = next((parameter.device for parameter in model.parameters()), torch.device("cpu"))
    need, free = graph_bytes(model, trace, batch), free_bytes(device)
    if free is not None and need > _SLACK * free:
        raise ValueError(too_long(model, trace, purpose, need, free))
    try:
        yield
    except RuntimeError as error:
        # torch.OutOfMemoryError on accelerators; on a processor the allocator's own words.
        if isinstance(error, torch.OutOfMemoryError) or "allocate memory" in str(error):
            raise ValueError(too_long(model, trace, purpose, need, free)) from error
        raise
