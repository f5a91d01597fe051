"""Shares of heads, residual connection and feed-forward layer in a block's sums, for contribution graphs.

Here each head's vector of each token is a separate part, and so is the residual connection;
`contributions.py` sums heads and residual before measuring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.algebra.contributions import nearer, parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block


@dataclass(frozen=True)
class BlockShares:
    """Shares of a block's parts in its two sums, in float64 on the CPU.

    Args:
        attention: Shares of each head's vectors in the sum after attention [head, query, key].
        residual: Share of the residual connection in that sum [query]; sums to one with `attention`.
        mlp: Share of the feed-forward layer in the block's output [query].
        mlp_residual: Share of the states the feed-forward layer is added to [query]; sums to one with `mlp`.
        parallel: Whether the feed-forward layer reads the block's input, in parallel with attention.
    """

    attention: Tensor
    residual: Tensor
    mlp: Tensor
    mlp_residual: Tensor
    parallel: bool


def shares_of(
    block: Block,
    power: int,
    *,
    floor: float,
    shift: float = 0.0,
    unread: bool = False,
    chunk_size: int | None = None,
) -> BlockShares:
    """Return the shares of a block's parts.

    A part's share of a sum y is max(floor, |y| - |part - y|), divided by the total over parts. The first sum
    is the state after attention, and after norm 1 in post-norm blocks; the second is the block's output.
    Parts of a normalised state pass the norm with the state's own deviation.

    Args:
        block: A verified block.
        power: 1 or 2, the norm |.| above.
        floor: Minimum for a part before dividing.
        shift: Added to every component of the difference.
        unread: Whether keys that a query does not read, and thus have no vector, get `floor` too.
        chunk_size: Keys compared at a time; None for the number that fits a chunk.
    """
    parts = parts_of(block, "res_ln")
    whole = block.middle if parts.reference is None else parts.reference
    heads = []
    for head in range(len(parts.weights)):
        near = parts.of_head(head).nearness(whole, power, shift=shift, chunk_size=chunk_size)
        near = near.to("cpu").double().clamp_(min=floor)
        heads.append(near if unread else near.masked_fill_(~parts.weights[head].bool().cpu(), 0.0))
    attention = torch.stack(heads)
    residual_part = parts.residual if parts.residual is not None else block.hidden
    residual = _nearness(residual_part, whole, power, shift).clamp_(min=floor)
    total = attention.sum((0, 2)) + residual
    update, before, output = _second_sum(block, whole)
    mlp, rest = (_nearness(part, output, power, shift).clamp_(min=floor) for part in (update, before))
    return BlockShares(
        attention / total[:, None],
        residual / total,
        mlp / (mlp + rest),
        rest / (mlp + rest),
        block.layout.order == "parallel",
    )


def _second_sum(block: Block, middle: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the feed-forward layer's output, what it is added to, and the block's output [query, dim]."""
    if block.layout.order != "post":
        return block.output - middle, middle, block.output
    added = block.last - middle
    if block.norm2 is None:
        return added, middle, block.last
    deviation = block.norm2.deviation(block.last)
    direct = block.norm2.direct
    return direct(added) / deviation, direct(middle) / deviation, block.norm2(block.last)


def _nearness(part: Tensor, whole: Tensor, power: int, shift: float) -> Tensor:
    """Return |whole| - |part - whole| [query]; for power 1, summed over the differences of components."""
    part, whole = part.to("cpu").double(), whole.to("cpu").double()
    return nearer(whole, part - whole + shift, power)
