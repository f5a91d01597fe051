"""The parts of a logit: what every head's reading of every token, every bias and feed-forward layer adds.

A logit is linear in the last state once the norms on its way are given the deviation they really had. Its
gradient there is taken down through the blocks, norm by norm, and meets every vector that was added on the
way: nothing of size [query, key, dim] is made, and only the tokens that the head reads are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.attention_function import UnsupportedModelError, attention_weights, repeat_heads
from attnwidgets.tracing.block_runs import block_of
from attnwidgets.tracing.blocks import WITHOUT, Block, tolerance
from attnwidgets.tracing.heads import Head, head_of
from attnwidgets.tracing.steps import Affine, Gated, Pointwise, Scale, Step

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.modules import Norm
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class LogitParts:
    """What logits are made of; float64, on the CPU. Everything summed over all but the targets is the logits.

    Args:
        attention: What heads read of tokens' states [target, layer, head, key].
        value_bias: What of that is there whatever the states are, where it is kept apart [target, layer].
        output_bias: The bias of attention's output [target, layer].
        mlp: The feed-forward layers [target, layer].
        norm_bias: The shifts of norms within the residual stream, in post-norm blocks [target, layer].
        initial: What the first block reads, at the tokens that the head reads [target, token].
        final_bias: The shift of the final norm and the biases of the head [target].
        curved: Whether the head has an activation, which is then linear through the origin.
    """

    attention: Tensor
    value_bias: Tensor
    output_bias: Tensor
    mlp: Tensor
    norm_bias: Tensor
    initial: Tensor
    final_bias: Tensor
    curved: bool

    def total(self) -> Tensor:
        """Return what the parts sum to [target]."""
        parts = (getattr(self, part.name) for part in fields(self) if part.name != "curved")
        return torch.stack([part.flatten(1).sum(1) if part.dim() > 1 else part for part in parts]).sum(0)

    def __sub__(self, other: LogitParts) -> LogitParts:
        """Return the parts of the difference."""
        names = [part.name for part in fields(self) if part.name != "curved"]
        apart = {name: getattr(self, name) - getattr(other, name) for name in names}
        return LogitParts(**apart, curved=self.curved or other.curved)

    @staticmethod
    def join(several: Sequence[LogitParts]) -> LogitParts:
        """Return the parts of several, target by target."""
        names = [part.name for part in fields(LogitParts) if part.name != "curved"]
        joined: dict[str, Any] = {
            name: torch.cat([getattr(parts, name) for parts in several]) for name in names
        }
        return LogitParts(**joined, curved=any(parts.curved for parts in several))


def logit_parts(
    trace: Trace,
    stream: str,
    wanted: Sequence[tuple[int | None, int]],
    method: str,
    *,
    value_bias: bool = False,
) -> LogitParts:
    """Return the parts of some logits.

    Args:
        trace: What `aw.trace` returned.
        stream: The stream that the head reads.
        wanted: Row (None for logits [class]) and column of every logit.
        method: Who asks, for messages.
        value_bias: Whether what the values' bias and the shift of norm 1 add is kept apart.

    Raises:
        UnsupportedModelError: If a block or the head is not described, or something lies between blocks.
    """
    found = []
    for position, index in wanted:
        head = head_of(trace, stream, method, position)
        blocks = [block_of(trace, number, stream, method) for number in range(trace.n_layers(stream))]
        _require_chain(blocks, method)
        with torch.no_grad():
            found.append(_parts(blocks, head, position, index, value_bias=value_bias))
    return LogitParts.join(found)


def _require_chain(blocks: Sequence[Block], method: str) -> None:
    for number, (before, after) in enumerate(pairwise(blocks)):
        apart = (after.hidden - before.output).norm()
        if not apart <= tolerance(before.call.query.dtype) * before.output.norm():
            raise UnsupportedModelError(
                f"{method} is not available: layer {number + 1} does not read what layer {number} returned; "
                f"something that is not described lies between them. {WITHOUT}"
            )


def _parts(
    blocks: Sequence[Block], head: Head, position: int | None, index: int, *, value_bias: bool
) -> LogitParts:
    rows = head.rows(position)
    gradient, final_bias = _through_head(head, position, index)
    curved = any(isinstance(step, Pointwise) for step in (*head.before, *head.steps))
    layers = []
    for block in reversed(blocks):
        found, gradient = _through_block(block, rows, gradient, value_bias=value_bias)
        layers.append(found)
    attention, *biases = (torch.stack(part[::-1])[None] for part in zip(*layers, strict=True))
    initial = gradient.new_zeros(1, len(blocks[0].hidden))
    initial[0, rows] = (gradient * _exact(blocks[0].hidden[rows])).sum(-1)
    value, output, mlp, norm = biases
    return LogitParts(attention, value, output, mlp, norm, initial, final_bias[None], curved)


def _exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU, where sums of many parts lose nothing."""
    return tensor.detach().to("cpu").double()


def _through_norm(norm: Norm, gradient: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient [row, dim] before a norm that read `state` [row, dim], and what its shift adds."""
    added = gradient.new_zeros(()) if norm.shift is None else (gradient * _exact(norm.shift)).sum()
    before = gradient * _exact(norm.gain)
    if norm.centred:
        before = before - before.mean(-1, keepdim=True)
    return before / _deviation(norm, state), added


def _deviation(norm: Norm, state: Tensor) -> Tensor:
    return norm.deviation(_exact(state))


def _through_head(head: Head, position: int | None, index: int) -> tuple[Tensor, Tensor]:
    """Return the gradient [row, dim] of a logit at the states that a head reads, and what its biases add."""
    steps = (*head.before, *head.steps)
    rows = head.rows(position)
    states = _states(head, rows)
    last = max((place for place, step in enumerate(steps) if isinstance(step, Affine)), default=-1)
    projection = steps[last]
    if not isinstance(projection, Affine):
        raise UnsupportedModelError(f"logits of a head without a projection are not taken apart. {WITHOUT}")
    # What follows the last projection is done to logits one by one, so that one column of it is all there is.
    factor = torch.ones((), dtype=torch.float64)
    for place in range(last + 1, len(steps)):
        factor = factor * _slope(steps[place], states[place])[0, index]
    gradient = factor * _exact(projection.matrix[:, index])[None]
    bias = factor * (0.0 if projection.bias is None else _exact(projection.bias[index]))
    for place in reversed(range(last)):
        if place == len(head.before) - 1:
            gradient = (gradient / len(rows)).expand(len(rows), -1)
        gradient, added = _through_step(steps[place], gradient, states[place])
        bias = bias + added
    return gradient if head.before else (gradient / len(rows)).expand(len(rows), -1), bias


def _states(head: Head, rows: list[int]) -> list[Tensor]:
    """Return what every step of a head read, in order."""
    read = []
    state = head.hidden[rows]
    for step in head.before:
        read.append(state)
        state = step(state)
    state = state.mean(dim=0, keepdim=True)
    for step in head.steps:
        read.append(state)
        state = step(state)
    return read


def _through_step(step: Step, gradient: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient before a step that read `state`, and what its bias adds."""
    nothing = gradient.new_zeros(())
    if isinstance(step, Affine):
        added = nothing if step.bias is None else (gradient * _exact(step.bias)).sum()
        return gradient @ _exact(step.matrix).T, added
    if isinstance(step, (Scale, Pointwise, Gated)):
        return gradient * _slope(step, state), nothing
    return _through_norm(step, gradient, state)


def _slope(step: Step, state: Tensor) -> Tensor:
    """Return by what a step multiplies every component of a state; through the origin where it is curved."""
    if isinstance(step, Scale):
        return _exact(step.factor).expand(state.shape)
    if not isinstance(step, Pointwise):
        raise UnsupportedModelError(
            f"logits of a head with a {type(step).__name__.lower()} there are not taken apart. {WITHOUT}"
        )
    done, raw = _exact(step(state)), _exact(state)
    return torch.where(raw == 0, torch.ones_like(raw), done / raw)


def _through_block(
    block: Block, rows: list[int], gradient: Tensor, *, value_bias: bool
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return what a block adds, and the gradient [row, dim] at its input.

    That is attention [head, key], the biases of values and of the output, the feed-forward layer, and the
    shifts of norms.
    """
    post = block.layout.order == "post"
    shift = gradient.new_zeros(())
    if post and block.norm2 is not None:
        gradient, shift = _through_norm(block.norm2, gradient, block.last[rows])
    above = gradient
    middle, matrix, row, bias, weights = _middle(block, rows)
    if post and block.norm1 is not None:
        gradient, added = _through_norm(block.norm1, gradient, middle)
        shift = shift + added
    start = _exact(middle)
    if post and block.norm1 is not None:
        start = block.norm1.direct(middle).to("cpu").double() / _deviation(block.norm1, middle)
        start = start if block.norm1.shift is None else start + _exact(block.norm1.shift)
    end = block.last if post else block.output
    mlp = (above * (_exact(end[rows]) - start)).sum()
    # [row, head, head dim] -> [row, head, key]
    asked = torch.einsum("hvd,rd->rhv", matrix, gradient)
    values = _exact(block.head_values())
    constant = _constant(block) if value_bias else None
    by_row = weights.transpose(0, 1) * row[:, None, None]
    apart = gradient.new_zeros(())
    if constant is not None:
        values = values - constant[:, None]
        apart = (by_row.sum(-1) * (asked * constant).sum(-1)).sum()
    attention = (by_row * torch.einsum("hkv,rhv->rhk", values, asked)).sum(0)
    return (attention, apart, (gradient * bias).sum(), mlp, shift), gradient


def _middle(block: Block, rows: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return z of some rows [row, dim] and of what it is made, in float64.

    That is the matrix [head, head dim, dim], factors [row], bias [row, dim] and weights [head, row, key].
    """
    matrix, row, bias = block.branch()
    weights = _weights(block, rows)
    mixed = torch.matmul(weights, block.head_values())
    middle = block.hidden[rows] + row[rows, None] * torch.einsum("hrv,hvd->rd", mixed, matrix) + bias[rows]
    return middle, _exact(matrix), _exact(row[rows]), _exact(bias[rows]), _exact(weights)


def _weights(block: Block, rows: list[int]) -> Tensor:
    """Return the attention of some queries [head, row, key], in the precision of the tail."""
    query, key = (states.to(block.hidden.dtype) for states in (block.call.query, block.call.key))
    count = query.shape[2]

    def cut(setting: Any) -> Any:
        whole = isinstance(setting, torch.Tensor) and setting.dim() == query.dim()
        return setting[:, :, rows] if whole and setting.shape[2] == count else setting

    settings = {name: cut(setting) for name, setting in block.call.settings.items()}
    return attention_weights(query[:, :, rows], key, **settings)[0]


def _constant(block: Block) -> Tensor | None:
    """Return what is in a block's values whatever its input [head, head dim]; None for nothing."""
    matrix, bias = block.value_projection()
    constant = torch.zeros_like(matrix[0]) if bias is None else bias
    norm = block.norm1
    if block.layout.order != "post" and norm is not None and norm.shift is not None:
        constant = constant + norm.shift @ matrix
    if not constant.any():
        return None
    kv, _, size = block.values.shape
    return _exact(repeat_heads(constant.reshape(1, kv, 1, size), block.n_heads)[0, :, 0])
