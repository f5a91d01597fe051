"""Estimates of a method's memory from the sizes of a trace or map."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.requirements import is_map

if TYPE_CHECKING:
    import torch

_DOUBLE = 8


@dataclass(frozen=True)
class Sizes:
    """The sizes of a trace's stack, or of a map.

    Attributes:
        layers: Number of layers.
        heads: Largest number of heads of a layer; 1 without a head axis.
        queries: Number of queries.
        keys: Number of keys.
        bytes: Bytes of one number: 4 or 8.
        device: Device of the model; None without one.
    """

    layers: int
    heads: int
    queries: int
    keys: int
    bytes: int
    device: torch.device | None = None

    @property
    def matrix(self) -> int:
        """Bytes of one matrix [query, key]."""
        return self.queries * self.keys * self.bytes

    @property
    def double(self) -> int:
        """Bytes of one matrix [query, key] in float64."""
        return self.queries * self.keys * _DOUBLE


Takes = Callable[[Sizes], float]
"""Takes the sizes; returns the approximate bytes that a method holds at once beyond the trace."""


def sizes_of(explained: Any, stack: str | None = None) -> Sizes | None:
    """Return the sizes of a map or a trace; None if it is neither, or has no attention."""
    if is_map(explained):
        queries, keys = explained.shape[-2:]
        size = np.dtype(explained.dtype).itemsize
        return Sizes(len(explained.layers), len(explained.heads or (0,)), queries, keys, size)
    table = getattr(explained, "stack_table", {})
    stack = getattr(explained, "default_stack", None) if stack is None else stack
    if stack not in table or not table[stack].layers:
        return None
    query, key = explained.axes(stack)
    device = None
    if getattr(explained, "model", None) is not None:
        from attnwidgets.tracing.pass_memory import device_of
        from attnwidgets.tracing.recording.borrow import unwrap

        device = device_of(unwrap(explained.model))
    layers, heads = explained.n_layers(stack), explained.n_heads(stack)
    return Sizes(layers, heads, len(query), len(key), np.dtype(explained.dtype).itemsize, device)


def followed_through(sizes: Sizes) -> float:
    """Return the bytes of a product over layers in float64, with every layer kept."""
    return sizes.layers * sizes.matrix + 4 * sizes.double


def measured_on_blocks(sizes: Sizes) -> float:
    """Return the bytes of a map that is measured on blocks, with every layer kept.

    The additional pass holds several copies of a layer's weights, and so does every measured layer.
    """
    return sizes.layers * sizes.matrix + 4 * sizes.heads * sizes.matrix


def measured_by_head(sizes: Sizes) -> float:
    """Return the bytes of a map of heads that is measured on blocks: see `measured_on_blocks`."""
    return (sizes.layers + 7) * sizes.heads * sizes.matrix


def network(sizes: Sizes) -> float:
    """Return the bytes of a network with an edge for every pair of tokens in every layer."""
    return 4 * sizes.layers * sizes.double
