"""The parts of a logit: what every head's reading of every token, every bias and feed-forward layer adds.

A logit is linear in the last state once the norms on its way are given the deviation they really had. Its
gradient there is taken down through the blocks, norm by norm, and meets every vector that was added on the
way: nothing of size [query, key, dim] is made, and only the tokens that the head reads are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.blocks import WITHOUT, Block, require_chain
from attnwidgets.tracing.algebra.output_heads import Head, head_of
from attnwidgets.tracing.algebra.steps import Affine, Gated, Pointwise, Scale, Step
from attnwidgets.tracing.recording.attention_function import (
    UnsupportedModelError,
    attention_weights,
    repeat_heads,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.modules import Norm
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class LogitParts:
    """What logits are made of, float64 on the CPU. Summed over all but the targets, it is the logits.

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

    def __sub__(self, other: LogitParts) -> LogitParts:
        """Return the parts of the difference."""
        apart: dict[str, Any] = {name: getattr(self, name) - getattr(other, name) for name in _numbers()}
        return LogitParts(**apart, curved=self.curved or other.curved)

    def __getitem__(self, targets: slice | list[int]) -> LogitParts:
        """Return the parts of some targets."""
        some: dict[str, Any] = {name: getattr(self, name)[targets] for name in _numbers()}
        return LogitParts(**some, curved=self.curved)

    @staticmethod
    def join(several: Sequence[LogitParts]) -> LogitParts:
        """Return the parts of several, target by target."""
        joined: dict[str, Any] = {
            name: torch.cat([getattr(parts, name) for parts in several]) for name in _numbers()
        }
        return LogitParts(**joined, curved=any(parts.curved for parts in several))


def _numbers() -> tuple[str, ...]:
    return tuple(part.name for part in fields(LogitParts) if part.name != "curved")


def logit_parts(
    trace: Trace,
    stack: str,
    wanted: Sequence[tuple[int | None, int]],
    method: str,
    *,
    value_bias: bool = False,
) -> LogitParts:
    """Return the parts of some logits.

    Args:
        trace: What `aw.trace` returned.
        stack: The stack that the head reads.
        wanted: Row (None for logits [class]) and column of every logit.
        method: Who asks, for messages.
        value_bias: Whether what the values' bias and the shift of norm 1 add is kept apart.

    Raises:
        UnsupportedModelError: If a block or the head is not described, or something lies between blocks.
    """
    found: dict[tuple[int | None, int], LogitParts] = {}
    for position in dict.fromkeys(position for position, _ in wanted):
        indices = list(dict.fromkeys(index for other, index in wanted if other == position))
        head = head_of(trace, stack, method, position)
        blocks = [block_of(trace, number, stack, method) for number in range(trace.n_layers(stack))]
        require_chain(blocks, method)
        with torch.no_grad():
            together = _parts(blocks, head, position, indices, value_bias=value_bias)
        found |= {(position, index): together[[place]] for place, index in enumerate(indices)}
    return LogitParts.join([found[place] for place in wanted])


def _parts(
    blocks: Sequence[Block], head: Head, position: int | None, indices: list[int], *, value_bias: bool
) -> LogitParts:
    rows = head.rows(position)
    gradient, final_bias = _through_head(head, position, indices)
    curved = any(isinstance(step, Pointwise) for step in (*head.before, *head.steps))
    layers = []
    for block in reversed(blocks):
        found, gradient = _through_block(block, rows, gradient, value_bias=value_bias)
        layers.append(found)
    attention, *biases = (torch.stack(part[::-1], dim=1) for part in zip(*layers, strict=True))
    initial = gradient.new_zeros(len(indices), len(blocks[0].hidden))
    initial[:, rows] = (gradient * _exact(blocks[0].hidden[rows])).sum(-1)
    value, output, mlp, norm = biases
    return LogitParts(attention, value, output, mlp, norm, initial, final_bias, curved)


def _exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU, where sums of many parts lose nothing."""
    return tensor.detach().to("cpu").double()


def _through_norm(norm: Norm, gradient: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient [target, row, dim] before a norm that read `state` [row, dim].

    And what its shift adds [target].
    """
    added = _dot(gradient, norm.shift)
    before = gradient * _exact(norm.gain)
    if norm.centred:
        before = before - before.mean(-1, keepdim=True)
    return before / _deviation(norm, state), added


def _dot(gradient: Tensor, added: Tensor | None) -> Tensor:
    """Return what a vector adds that is added to every row, or one [row, dim] for each [target]."""
    return gradient.new_zeros(len(gradient)) if added is None else (gradient * _exact(added)).sum((1, 2))


def _deviation(norm: Norm, state: Tensor) -> Tensor:
    return norm.deviation(_exact(state))


def _through_head(head: Head, position: int | None, indices: list[int]) -> tuple[Tensor, Tensor]:
    """Return the gradient [target, row, dim] of logits at what a head reads, and what its biases add."""
    steps = (*head.before, *head.steps)
    rows = head.rows(position)
    states = _states(head, rows)
    last = max((place for place, step in enumerate(steps) if isinstance(step, Affine)), default=-1)
    projection = steps[last]
    if not isinstance(projection, Affine):
        raise UnsupportedModelError(f"logits of a head without a projection are not taken apart. {WITHOUT}")
    # What follows the last projection is done to logits one by one, so that one column of it is all there is.
    factor = torch.ones(len(indices), dtype=torch.float64)
    for place in range(last + 1, len(steps)):
        factor = factor * _slope(steps[place], states[place])[0, indices]
    gradient = (factor * _exact(projection.matrix[:, indices])).T[:, None]
    bias = factor * (0.0 if projection.bias is None else _exact(projection.bias[indices]))
    for place in reversed(range(last)):
        if place == len(head.before) - 1:
            gradient = _spread(gradient, len(rows))
        gradient, added = _through_step(steps[place], gradient, states[place])
        bias = bias + added
    return gradient if head.before else _spread(gradient, len(rows)), bias


def _spread(gradient: Tensor, rows: int) -> Tensor:
    """Return the gradient before the mean over rows [target, row, dim]."""
    return (gradient / rows).expand(-1, rows, -1)


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
    if isinstance(step, Affine):
        return gradient @ _exact(step.matrix).T, _dot(gradient, step.bias)
    if isinstance(step, (Scale, Pointwise, Gated)):
        return gradient * _slope(step, state), _dot(gradient, None)
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
    """Return what a block adds, and the gradient [target, row, dim] at its input.

    That is attention [target, head, key], the biases of values and of the output, the feed-forward layer, and
    the shifts of norms [target].
    """
    post = block.layout.order == "post"
    shift = _dot(gradient, None)
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
    mlp = _dot(above, _exact(end[rows]) - start)
    asked = torch.einsum("hvd,trd->trhv", matrix, gradient)
    values = _exact(block.head_values())
    constant = _constant(block) if value_bias else None
    by_row = weights.transpose(0, 1) * row[:, None, None]
    apart = _dot(gradient, None)
    if constant is not None:
        values = values - constant[:, None]
        apart = (by_row.sum(-1) * (asked * constant).sum(-1)).sum((1, 2))
    attention = (by_row * torch.einsum("hkv,trhv->trhk", values, asked)).sum(1)
    return (attention, apart, _dot(gradient, bias), mlp, shift), gradient


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
