"""A described block recomputed from a changed attention output: the closed form of value zeroing.

The attention output of a token is a sum over keys and heads, so zeroing the values of some keys is a
subtraction. Only the rest of the block is computed again, and only for tokens that read those keys. Most of
that rest is linear too (`after_attention.py`).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.algebra.after_attention import Tail, read_tail
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block

# Bytes of the states that are computed at once: on a CPU, exceeding its caches gains nothing.
_CACHE_BYTES = 2**22
_DEVICE_BYTES = 2**28
# Elements read by different queries are computed for all of these queries. At most one pair in _WASTED may be
# computed for nothing; below _FEW pairs, where a matrix product has hardly begun, any number may.
_WASTED = 16
_FEW = 128


@dataclass(frozen=True)
class Piece:
    """Outputs of a block without the values of each of some elements.

    Args:
        rows: The queries.
        elements: The elements.
        states: Outputs [element, row, width].
    """

    rows: slice
    elements: slice
    states: Tensor


class Resumed:
    """A described block, or some queries of it, that can be finished without the values of some keys.

    Attributes:
        read: Whether any head of a query reads a key [query, key].
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._weights = block.weights()
        matrix, _ = block.projection
        self._matrix = matrix.reshape(block.n_heads, -1, matrix.shape[-1])
        self._values = block.head_values()
        self.read = (self._weights != 0).any(dim=0)

    @property
    def _width(self) -> int:
        return self._matrix.shape[-1]

    @cached_property
    def _attended(self) -> Tensor:
        return self._block.attended()

    @cached_property
    def _tail(self) -> Tail | None:
        return read_tail(self._block)

    @cached_property
    def plain(self) -> Tensor:
        """The block's output [query, width] with all values."""
        if self._tail is not None:
            return self._tail.plain()
        return self._finish(slice(None), self._attended[None])[0]

    def pieces(self, spans: Sequence[Sequence[int]], chunk_size: int | None) -> list[tuple[slice, slice]]:
        """Return the groups of elements to compute together, each with the range of queries that read them.

        Args:
            spans: The keys of each element.
            chunk_size: Maximum number of elements at once; None for the number that fits the caches.
        """
        read = self.read.cpu().numpy()
        first, stop = read.argmax(0), len(read) - read[::-1].argmax(0)
        ends = []
        for span in spans:
            keys = [key for key in span if read[first[key], key]]
            ends.append((min(first[keys]), max(stop[keys])) if keys else (0, 0))
        numbers_per_pair = 4 * self._width if self._tail is not None else self._numbers
        budget = _CACHE_BYTES if self.read.device.type == "cpu" else _DEVICE_BYTES
        fitting = budget // (numbers_per_pair * self._matrix.element_size())
        groups = []
        begin = 0
        while begin < len(spans):
            low, high = ends[begin]
            end, used_pairs = begin + 1, high - low
            while end < len(spans):
                rows = min(low, ends[end][0]), max(high, ends[end][1])
                area = (end + 1 - begin) * (rows[1] - rows[0])
                used_after = used_pairs + ends[end][1] - ends[end][0]
                if area > fitting if chunk_size is None else end - begin == chunk_size:
                    break
                if area > _FEW and (area - used_after) * _WASTED > used_after:
                    break
                (low, high), used_pairs, end = rows, used_after, end + 1
            groups.append((slice(int(low), int(high)), slice(begin, end)))
            begin = end
        return groups

    @property
    def _numbers(self) -> int:
        """Numbers in memory per row when the modules themselves are called."""
        widest = max((max(p.shape) for p in self._block.module.parameters() if p.dim()), default=self._width)
        return 2 * widest + 4 * self._width

    def without(self, spans: Sequence[Sequence[int]], rows: slice, elements: slice) -> Piece:
        """Return the block's outputs without the values of each of some elements.

        Args:
            spans: The keys of each element.
            rows: The queries.
            elements: The elements.
        """
        some = spans[elements]
        longest = max(map(len, some), default=0)
        device = self.read.device
        keys = torch.tensor([[*span, *(longest - len(span)) * (0,)] for span in some], device=device)
        keys = keys.reshape(len(some), longest).long()
        weights = self._weights[:, rows].index_select(2, keys.flatten()).unflatten(2, keys.shape)
        if any(len(span) < longest for span in some):
            lengths = torch.tensor([len(span) for span in some], device=device)
            weights = weights * (torch.arange(longest, device=device) < lengths[:, None])
        if self._tail is not None and longest * len(weights) <= self._width:
            weights = weights.permute(2, 1, 3, 0).flatten(2)
            return Piece(rows, elements, self._tail.without(rows, weights, keys))
        mixed = torch.einsum("hrek,hekv->erhv", weights, self._values[:, keys]).flatten(2)
        attended = self._attended[rows] - mixed @ self._matrix.flatten(0, 1)
        return Piece(rows, elements, self._finish(rows, attended))

    def _finish(self, rows: slice, attended: Tensor) -> Tensor:
        """Return the block's output [element, row, width] for the attention output `attended` of `rows`."""
        block, layout = self._block, self._block.layout
        count = len(attended)
        added = block.through((layout.after,), attended.flatten(0, 1))
        middle = block.hidden[rows].repeat(count, 1) + added
        if layout.order == "parallel":
            states = middle + self._mlp_output[rows].repeat(count, 1)
        elif layout.order == "pre":
            states = middle + block.through((layout.norm2, *layout.mlp), middle)
        else:
            start = block.through((layout.norm1,), middle)
            states = block.through((layout.norm2,), start + block.through(layout.mlp, start))
        return states.reshape(attended.shape)

    @cached_property
    def _mlp_output(self) -> Tensor:
        """Output of the MLP in a parallel block [query, width], which does not depend on attention."""
        layout = self._block.layout
        return self._block.through((layout.norm2, *layout.mlp), self._block.hidden)


def resume(trace: object, layer: int, stack: str, queries: slice = slice(None)) -> Resumed | None:
    """Return a layer ready to be finished, its layout verified; None if no layout is true of it.

    Args:
        trace: A trace made by `aw.trace`.
        layer: Number of the layer.
        stack: The stack's name.
        queries: Those that are computed, consecutive.
    """
    try:
        block = block_of(trace, layer, stack, "value_zeroing")
    except UnsupportedModelError:
        return None
    # With a cross-attention behind it, the effect of self-attention cannot be undone by subtracting.
    return Resumed(block.of(queries)) if block.cross is None else None
