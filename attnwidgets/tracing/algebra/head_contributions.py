"""How near each head's vectors come to what a block adds up: the parts of a contribution graph.

Every head's vector of every token is a part of its own here, and so is the residual connection;
`contributions.py` sums heads and residual before it measures.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.algebra.contributions import parts_of

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block


@dataclass(frozen=True)
class BlockShares:
    """Of what a block's two sums are made, in float64 on the CPU.

    Args:
        attention: Every head's vector of every key in the sum after attention [head, query, key].
        residual: The residual connection in that sum [query]; it sums to one with `attention`.
        mlp: The feed-forward layer in the block's output [query].
        mlp_residual: What the feed-forward layer is added to [query]; it sums to one with `mlp`.
        parallel: Whether the feed-forward layer reads the block's input, beside attention.
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

    A part's share of a sum y is max(floor, |y| - |part - y|), divided by the total over parts. The sum after
    attention is what the block adds up, after norm 1 where that follows; the second is its output. Parts of a
    state that is normed pass the norm with the state's own deviation.

    Args:
        block: A proved block.
        power: 1 or 2, the norm of the above.
        floor: What a part counts at least.
        shift: Added to every component of the difference.
        unread: Whether `floor` is also given to keys that a query does not read, which have no vector there.
        chunk_size: Keys that are compared at a time; None for as many as fit a chunk.
    """
    parts = parts_of(block, "res_ln")
    whole = block.middle if parts.reference is None else parts.reference
    heads = []
    for head in range(len(parts.weights)):
        near = parts.of_head(head).nearness(whole, power, shift=shift, chunk_size=chunk_size)
        near = near.to("cpu").double().clamp_(min=floor)
        heads.append(near if unread else near.masked_fill_(~parts.weights[head].bool().cpu(), 0.0))
    attention = torch.stack(heads)
    own = parts.own if parts.own is not None else block.hidden
    residual = _nearness(own, whole, power, shift).clamp_(min=floor)
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
    """Return what the feed-forward layer adds, what it adds it to, and the block's output [query, dim]."""
    if block.layout.order != "post":
        return block.output - middle, middle, block.output
    added = block.last - middle
    if block.norm2 is None:
        return added, middle, block.last
    deviation = block.norm2.deviation(block.last)
    direct = block.norm2.direct
    return direct(added) / deviation, direct(middle) / deviation, block.norm2(block.last)


def _nearness(part: Tensor, whole: Tensor, power: int, shift: float) -> Tensor:
    """Return |whole| - |part - whole| [query]; for power 1 summed component by component."""
    part, whole = part.to("cpu").double(), whole.to("cpu").double()
    apart = part - whole + shift
    if power == 1:
        return (whole.abs() - apart.abs()).sum(-1)
    return whole.square().sum(-1).sqrt() - apart.square().sum(-1).sqrt()
