"""Finish a described block from another attention output: the closed form of zeroing values.

What attention adds to a token is a sum over keys, so taking some keys' values away is a subtraction; only the
rest of the block (norms and MLP) is computed again, and only for tokens that read those keys at all.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.attention_function import UnsupportedModelError
from attnwidgets.tracing.blocks import Block, fitting, tail_dtype

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.rerun import RecordedBlocks


class Resumed:
    """A described block, to be finished from attention outputs that lack the values of some keys.

    The model is to be held by `borrowed` meanwhile.

    Attributes:
        attended: What attention adds [query, width], after its output projection.
        read: Whether any head of a query reads a key [query, key].
    """

    def __init__(self, block: Block) -> None:
        self._block = block
        self._weights = block.weights()
        matrix, _ = block.projection
        self._matrix = matrix.reshape(block.n_heads, -1, matrix.shape[-1])
        self._values = block.head_values()
        self.attended = block.attended()
        self.read = (self._weights != 0).any(dim=0)

    def without(self, keys: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return which queries read any of `keys` [row], and their `attended` without them [row, width]."""
        index = torch.tensor(list(keys), device=self.read.device, dtype=torch.long)
        rows = self.read[:, index].any(dim=1).nonzero()[:, 0]
        sources = torch.einsum("hkv,hvd->hkd", self._values[:, index], self._matrix)
        weights = self._weights[:, rows][:, :, index]
        return rows, self.attended[rows] - torch.einsum("hrk,hkd->rd", weights, sources)

    def finish(self, rows: Tensor, attended: Tensor) -> Tensor:
        """Return the block's output [row, width] where attention adds `attended` to the queries `rows`."""
        layout = self._block.layout
        added = self._through((layout.after,), attended)
        middle = self._block.hidden[rows] + added
        if layout.order == "parallel":
            return middle + self._beside[rows]
        if layout.order == "pre":
            return middle + self._through((layout.norm2, *layout.mlp), middle)
        start = self._through((layout.norm1,), middle)
        return self._through((layout.norm2,), start + self._through(layout.mlp, start))

    @cached_property
    def _beside(self) -> Tensor:
        """What the MLP of a parallel block adds [query, width]: attention has no part in it."""
        return self._through((self._block.layout.norm2, *self._block.layout.mlp), self._block.hidden)

    def _through(self, paths: Sequence[str], states: Tensor) -> Tensor:
        """Return states [row, width] after some modules of the block, half-precision weights widened."""
        return self._block.through(paths, states)


def resume(blocks: RecordedBlocks, layer: int) -> Resumed | None:
    """Return a layer ready to be finished, its description proved; None where none is true of it.

    The model is to be held by `borrowed` while this and what it returns are used.
    """
    recorded = blocks.layers[layer]
    dtype = tail_dtype(recorded.output.dtype)
    given = (recorded.hidden, recorded.values[recorded.call], recorded.output)
    hidden, values, output = (tensor[0].to(dtype) for tensor in given)
    for layout, _, module in fitting(blocks.model, recorded.attention.name):
        block = Block(blocks.model, module, layout, recorded.attention, hidden, values, output)
        try:
            if block.off() <= 1:
                return Resumed(block)
        except (RuntimeError, TypeError, AttributeError, UnsupportedModelError):
            # Modules of these names that take other arguments or shapes.
            continue
    return None
