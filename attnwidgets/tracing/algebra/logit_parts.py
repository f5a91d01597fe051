"""The parts of a logit and of a block's sums: by head and token, bias and feed-forward layer.

A logit is linear in the last state when the norms on the way keep the deviations they had. Its gradient is
propagated down through the blocks and multiplied with every vector that was added on the way. Nothing of size
[query, key, dim] is allocated, and only the tokens that the output head reads are processed.

For contribution graphs, the second half computes shares of heads, residual connection and feed-forward layer
in a block's sums. There each head's vector of each token is a separate part, and so is the residual
connection; `contributions.py` sums heads and residual before measuring.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import torch
from torch.nn.functional import pad

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.block_runs import chain_of
from attnwidgets.tracing.algebra.blocks import WITHOUT, Block
from attnwidgets.tracing.algebra.contributions import nearer, parts_of
from attnwidgets.tracing.algebra.steps import Affine, Gated, Pointwise, Scale, Step
from attnwidgets.tracing.anatomy.output_heads import Head, head_of
from attnwidgets.tracing.mixers.runs import is_described, mixed_chain
from attnwidgets.tracing.recording.attention_function import repeat_heads
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.steps import Norm
    from attnwidgets.tracing.mixers.mix import MixedBlock
    from attnwidgets.tracing.trace import Trace

_ROUNDINGS = 16  # of a block's output, in units of its precision


@dataclass(frozen=True)
class LogitParts:
    """The parts of logits, float64 on the CPU. All parts of a target sum to its logit.

    Args:
        attention: Contributions of heads, of attention and other mixers, and the tokens they read [target,
            layer, head, key]; zero for heads that a layer does not have.
        value_bias: The share of `attention` that does not depend on the states, if separated
            [target, layer].
        output_bias: The bias of the attention output [target, layer].
        mlp: The feed-forward layers [target, layer].
        norm_bias: The shifts of norms within the residual stream, in post-norm blocks [target, layer].
        initial: The input of the first block, at the tokens that the output head reads [target, token].
        final_bias: The shift of the final norm and the biases of the output head [target].
        heads: The number of heads of each layer.
        curved: Whether the output head has an activation, which is replaced by a line through the origin.
    """

    attention: Tensor
    value_bias: Tensor
    output_bias: Tensor
    mlp: Tensor
    norm_bias: Tensor
    initial: Tensor
    final_bias: Tensor
    heads: tuple[int, ...]
    curved: bool

    def __sub__(self, other: LogitParts) -> LogitParts:
        """Return the parts of the difference."""
        return LogitParts.combine(operator.sub, self, other)

    def __getitem__(self, targets: slice | list[int]) -> LogitParts:
        """Return the parts of some targets."""
        return LogitParts.combine(operator.itemgetter(targets), self)

    @staticmethod
    def combine(function: Callable[..., Tensor], *several: LogitParts) -> LogitParts:
        """Return parts whose tensors are `function` of the tensors of several."""
        tensors: dict[str, Any] = {
            field.name: function(*(getattr(parts, field.name) for parts in several))
            for field in fields(LogitParts)
            if field.name not in ("heads", "curved")
        }
        return replace(several[0], **tensors, curved=any(parts.curved for parts in several))

    @staticmethod
    def join(several: Sequence[LogitParts]) -> LogitParts:
        """Return the parts of several, concatenated along the targets."""
        return LogitParts.combine(lambda *tensors: torch.cat(tensors), *several)


def logit_parts(
    trace: Trace,
    stack: str,
    cells: Sequence[tuple[int | None, int]],
    method: str,
    *,
    value_bias: bool = False,
) -> LogitParts:
    """Return the parts of some logits.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: The stack that the output head reads.
        cells: Row (None for logits [class]) and column of each logit.
        method: The method's name, for messages.
        value_bias: Whether the contributions of the values' bias and the shift of norm 1 are separated.

    Raises:
        UnsupportedModelError: If the terms of a block are unknown, no description fits the output
            head, or something unknown lies between blocks; with `value_bias`, if no description fits a block.
    """
    described = is_described(trace, stack)
    if value_bias and not described:
        raise UnsupportedModelError(
            f"{method} cannot separate the bias of the values in blocks that no description fits: in them it "
            'is part of what tokens add. Use biases="shared".'
        )
    parts_by_logit: dict[tuple[int | None, int], LogitParts] = {}
    for position in dict.fromkeys(position for position, _ in cells):
        indices = list(dict.fromkeys(index for head_position, index in cells if head_position == position))
        head = head_of(trace, stack, method, position)
        blocks = chain_of(trace, stack, method) if described else mixed_chain(trace, stack, method)
        with no_grad():
            parts = _parts(blocks, head, position, indices, value_bias=value_bias)
        parts_by_logit |= {(position, index): parts[[number]] for number, index in enumerate(indices)}
    return LogitParts.join([parts_by_logit[logit] for logit in cells])


def _parts(
    blocks: Sequence[Block | MixedBlock],
    head: Head,
    position: int | None,
    indices: list[int],
    *,
    value_bias: bool,
) -> LogitParts:
    rows = head.rows(position)
    gradient, final_bias = through_head(head, position, indices)
    curved = any(isinstance(step, Pointwise) for step in (*head.before, *head.steps))
    layers = []
    for block in reversed(blocks):
        if isinstance(block, Block):
            parts, gradient = _through_block(block, rows, gradient, value_bias=value_bias)
        else:
            parts, gradient = _through_mixed(block, rows, gradient)
        layers.append(parts)
    by_head, *others = ([*part] for part in zip(*layers[::-1], strict=True))
    heads = tuple(part.shape[1] for part in by_head)
    attention = torch.stack([pad(part, (0, 0, 0, max(heads) - part.shape[1])) for part in by_head], dim=1)
    value, output, mlp, norm = (torch.stack(part, dim=1) for part in others)
    first = blocks[0].hidden.flatten(0, -2)
    initial = gradient.new_zeros(len(indices), len(first))
    initial[:, rows] = (gradient * _exact(first[rows])).sum(-1)
    return LogitParts(attention, value, output, mlp, norm, initial, final_bias, heads, curved)


def _exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU, where sums of many parts stay accurate."""
    return tensor.detach().to("cpu").double()


def _through_norm(norm: Norm, gradient: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient [target, row, dim] at the input `state` [row, dim] of a norm.

    The second value is the contribution of the norm's shift [target].
    """
    added = _dot(gradient, norm.shift)
    before = gradient * _exact(norm.gain)
    if norm.centred:
        before = before - before.mean(-1, keepdim=True)
    return before / _deviation(norm, state), added


def _dot(gradient: Tensor, added: Tensor | None) -> Tensor:
    """Return the contribution [target] of a vector [dim] added to every row, or of vectors [row, dim]."""
    return gradient.new_zeros(len(gradient)) if added is None else (gradient * _exact(added)).sum((1, 2))


def _deviation(norm: Norm, state: Tensor) -> Tensor:
    return norm.deviation(_exact(state))


def through_head(head: Head, position: int | None, indices: list[int]) -> tuple[Tensor, Tensor]:
    """Return the gradient [target, row, dim] of logits at the states a head reads, and its biases' share."""
    steps = (*head.before, *head.steps)
    rows = head.rows(position)
    states = _states(head, rows)
    last_projection = max((index for index, step in enumerate(steps) if isinstance(step, Affine)), default=-1)
    projection = steps[last_projection]
    if not isinstance(projection, Affine):
        raise UnsupportedModelError(f"logits of a head without a projection cannot be decomposed. {WITHOUT}")
    # Steps after the last projection act on each logit separately, so its columns are all that is needed.
    factor = torch.ones(len(indices), dtype=torch.float64)
    for index in range(last_projection + 1, len(steps)):
        factor = factor * _slope(steps[index], states[index])[0, indices]
    gradient = (factor * _exact(projection.matrix[:, indices])).T[:, None]
    bias = factor * (0.0 if projection.bias is None else _exact(projection.bias[indices]))
    for index in reversed(range(last_projection)):
        if index == len(head.before) - 1:
            gradient = _spread(gradient, len(rows))
        gradient, added = _through_step(steps[index], gradient, states[index])
        bias = bias + added
    return gradient if head.before else _spread(gradient, len(rows)), bias


def _spread(gradient: Tensor, rows: int) -> Tensor:
    """Return the gradient [target, row, dim] before the mean over rows."""
    return (gradient / rows).expand(-1, rows, -1)


def _states(head: Head, rows: list[int]) -> list[Tensor]:
    """Return the inputs of a head's steps, in order."""
    inputs = []
    state = head.hidden[rows]
    for step in head.before:
        inputs.append(state)
        state = step(state)
    state = state.mean(dim=0, keepdim=True)
    for step in head.steps:
        inputs.append(state)
        state = step(state)
    return inputs


def _through_step(step: Step, gradient: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradient at the input `state` of a step, and the contribution of its bias."""
    if isinstance(step, Affine):
        return gradient @ _exact(step.matrix).T, _dot(gradient, step.bias)
    if isinstance(step, (Scale, Pointwise, Gated)):
        return gradient * _slope(step, state), _dot(gradient, None)
    return _through_norm(step, gradient, state)


def _slope(step: Step, state: Tensor) -> Tensor:
    """Return the factor of each component of a state in a step; output / input for a nonlinear step."""
    if isinstance(step, Scale):
        return _exact(step.factor).expand(state.shape)
    if not isinstance(step, Pointwise):
        raise UnsupportedModelError(
            f"logits of a head with a {type(step).__name__.lower()} there cannot be decomposed. {WITHOUT}"
        )
    after, before = _exact(step(state)), _exact(state)
    return torch.where(before == 0, torch.ones_like(before), after / before)


def _through_block(
    block: Block, rows: list[int], gradient: Tensor, *, value_bias: bool
) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the parts that a block adds, and the gradient [target, row, dim] at its input.

    The parts are attention [target, head, key], the biases of values and of the output, the feed-forward
    layer, and the shifts of norms [target].
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
    per_value = torch.einsum("hvd,trd->trhv", matrix, gradient)
    values = _exact(block.head_values())
    constant = _constant(block) if value_bias else None
    by_row = weights.transpose(0, 1) * row[:, None, None]
    value_bias_part = _dot(gradient, None)
    if constant is not None:
        values = values - constant[:, None]
        value_bias_part = (by_row.sum(-1) * (per_value * constant).sum(-1)).sum((1, 2))
    attention = (by_row * torch.einsum("hkv,trhv->trhk", values, per_value)).sum(1)
    return (attention, value_bias_part, _dot(gradient, bias), mlp, shift), gradient


def _through_mixed(block: MixedBlock, rows: list[int], gradient: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
    """Return the same as `_through_block` for a block that adds its parts to its input.

    The rest of its output, beyond input and mixers, belongs to the feed-forward layer.
    """
    above, gradient = gradient, gradient * block.output_scale
    by_row = [block.head_products(row, gradient[:, index]) for index, row in enumerate(rows)]
    mixed, with_biases = (_exact(block.total(rows, constant=constant)) for constant in (False, True))
    hidden, output = (_exact(states[0, rows]) for states in (block.hidden, block.output))
    rest = output - block.output_scale * (block.residual_scale * hidden + with_biases)
    # A block without a feed-forward layer leaves rounding.
    if rest.abs().max() <= _ROUNDINGS * torch.finfo(block.precision).eps * output.abs().max():
        rest = torch.zeros_like(rest)
    nothing, bias = _dot(gradient, None), _dot(gradient, with_biases - mixed)
    parts = torch.stack(by_row).sum(0), nothing, bias, _dot(above, rest), nothing
    return parts, gradient * block.residual_scale


def _middle(block: Block, rows: list[int]) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Return z of some rows [row, dim], and in float64 the terms of its attention branch.

    These are matrix [head, head dim, dim], factors [row], bias [row, dim] and weights [head, row, key].
    """
    matrix, row, bias = block.branch()
    weights = block.call.rows(block.hidden.dtype, rows)
    mixed = torch.matmul(weights, block.head_values())
    middle = block.hidden[rows] + row[rows, None] * torch.einsum("hrv,hvd->rd", mixed, matrix) + bias[rows]
    return middle, _exact(matrix), _exact(row[rows]), _exact(bias[rows]), _exact(weights)


def _constant(block: Block) -> Tensor | None:
    """Return the part of the values that does not depend on the input [head, head dim]; None if zero."""
    matrix, bias = block.value_projection()
    constant = torch.zeros_like(matrix[0]) if bias is None else bias
    norm = block.norm1
    if block.layout.order != "post" and norm is not None and norm.shift is not None:
        constant = constant + norm.shift @ matrix
    if not constant.any():
        return None
    kv, _, size = block.values.shape
    return _exact(repeat_heads(constant.reshape(1, kv, 1, size), block.n_heads)[0, :, 0])


@dataclass(frozen=True)
class BlockShares:
    """Shares of a block's parts in its two sums, in float64 on the CPU.

    Args:
        attention: Shares of each head's vectors in the sum after attention [head, query, key].
        residual: Share of the residual connection in that sum [query]; sums to 1 with `attention`.
        mlp: Share of the feed-forward layer in the block's output [query].
        mlp_residual: Share of the states the feed-forward layer is added to [query]; sums to 1 with `mlp`.
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
    Parts of a normalised state pass the norm with the deviation of the state.

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
    """Return the feed-forward layer's output, the state before it, and the block's output [query, dim]."""
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
