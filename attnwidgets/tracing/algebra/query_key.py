"""Queries and keys of a head as functions of the states that it reads, verified on those that were recorded.

A score is bilinear: with the deviations of norms fixed, queries and keys are linear in the state, and so are
the steps after them: a norm of queries and keys, a rotation by position. Everything is float64 on the CPU,
since sums of many parts that cancel have to stay accurate.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.blocks import tolerance
from attnwidgets.tracing.algebra.steps import Norm, read_affine, read_norm
from attnwidgets.tracing.recording.calls import Call
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block

# The last part of a value projection's name, and those of the query and key projections.
_SIBLINGS = {
    "v_proj": ("q_proj", "k_proj"), "v_lin": ("q_lin", "k_lin"), "value": ("query", "key"), "v": ("q", "k"),
}  # fmt: skip
_SIDES = ("q", "query"), ("k", "key")
_NORMS = ("norm", "layernorm")  # endings of the names of norms of queries or keys
_UNMOVED = 1e-4  # of the largest change: a dimension that changed by less is not rotated
_SURE = 1e-9  # error of a rotation beyond which no other is tried

Affine = tuple["Tensor", "Tensor | None"]


def projections(block: Block, method: str) -> tuple[Affine, Affine]:
    """Return W_Q [width, head * dim] and W_K [width, kv head * dim] with their biases, as they are named.

    Raises:
        UnsupportedModelError: If the family's description does not say where they are, or its keys are those
            of another sequence.
    """
    layout, call, width = block.layout, call_of(block, method), block.hidden.shape[-1]
    heads, kv, size = block.n_heads, call.kv_heads, call.query.shape[-1]
    path, _, last = layout.value.rpartition(".")
    if block.crosses or not (layout.fused or last in _SIBLINGS):
        raise UnsupportedModelError(f"{method}: the query projection of {layout.family} is not described.")
    if not layout.fused:
        query, key = (
            read_affine(block.part(f"{path}.{name}".lstrip(".")), width, block.hidden)
            for name in _SIBLINGS[last]
        )
        return query, key
    matrix, bias = read_affine(block.part(layout.value), width, block.hidden)
    columns = torch.arange(matrix.shape[-1], device=matrix.device)
    if layout.fused == "thirds":
        sides = columns[: heads * size], columns[heads * size : (heads + kv) * size]
    else:
        by_head = columns.reshape(kv, 3, size)
        sides = by_head[:, 0].flatten(), by_head[:, 1].flatten()
    query, key = ((matrix[:, at], None if bias is None else bias[at]) for at in sides)
    return query, key


def call_of(block: Block, method: str) -> Call:
    """Return a block's attention call with its queries and keys.

    Raises:
        UnsupportedModelError: If weights were recorded without them.
    """
    if not isinstance(block.call, Call):
        raise UnsupportedModelError(
            f"{method} needs queries and keys, and {type(block.module).__name__} computes attention outside "
            "transformers' attention interface, where only its weights are recorded."
        )
    return block.call


def exact(tensor: Tensor) -> Tensor:
    """Return a tensor in float64 on the CPU."""
    return tensor.detach().to("cpu").double()


def exact_norm(norm: Norm) -> Norm:
    """Return a norm whose numbers are float64 on the CPU."""
    return replace(norm, gain=exact(norm.gain), shift=None if norm.shift is None else exact(norm.shift))


@dataclass(frozen=True)
class _SideNorm:
    """The norm of all queries or keys of a layer.

    Args:
        gain: [head, dim].
        shift: [head, dim], or None.
        eps: Added to the variance.
        centred: Whether the mean is subtracted.
        whole: Whether deviation and mean are those of all heads together (OLMo 2), else of each head.
    """

    gain: Tensor
    shift: Tensor | None
    eps: float
    centred: bool
    whole: bool


@dataclass(frozen=True)
class Side:
    """The queries or the keys of a head before any rotation: gain * x / deviation(x) + shift, x = r W + b.

    Args:
        matrix: W [width, dim]; for a norm over all heads, [width, head * dim].
        bias: b, of as many numbers.
        columns: The columns of the head in both.
        norm: The norm that follows; None for none.
        head: The head's row in the norm's gain.
        factor: Factor of queries before attention is called (OPT); 1 for most.
    """

    matrix: Tensor
    bias: Tensor
    columns: slice
    norm: _SideNorm | None
    head: int
    factor: float

    def __call__(self, read: Tensor) -> Tensor:
        """Return the vectors [..., dim] of inputs [..., width], with the deviations of these."""
        projected = read @ self.matrix + self.bias
        return self._scaled(projected[..., self.columns], self._deviation(projected)) + self._shift

    def constant(self, read: Tensor) -> Tensor:
        """Return the parts of the vectors that biases and shifts add [token, dim]."""
        deviation = self._deviation(read @ self.matrix + self.bias)
        scaled = self._scaled(self.bias[self.columns].expand(len(read), -1), deviation)
        return scaled + self._shift

    def linear(self, parts: Tensor, read: Tensor, norm: Norm | None = None) -> Tensor:
        """Return parts [part, token, width] of the input as parts of the vectors [part, token, dim].

        Deviations are those of the whole `read` [token, width]; with `constant` they sum to the vectors.
        With a `norm` before the projection, its linear part is applied to the parts.
        """
        deviation = self._deviation(read @ self.matrix + self.bias)
        matrix = self.matrix[:, self.columns]
        return self._scaled(parts @ (matrix if norm is None else norm.before(matrix)), deviation)

    def _deviation(self, projected: Tensor) -> Tensor | float:
        if self.norm is None:
            return 1.0
        return torch.sqrt(projected.square().mean(-1, keepdim=True) + self.norm.eps)

    def _scaled(self, projected: Tensor, deviation: Tensor | float) -> Tensor:
        gain = 1.0 if self.norm is None else self.norm.gain[self.head]
        return projected * (self.factor * gain / deviation)

    @property
    def _shift(self) -> Tensor | float:
        if self.norm is None or self.norm.shift is None:
            return 0.0
        return self.norm.shift[self.head] * self.factor


@dataclass(frozen=True)
class Rotation:
    """A rotation of pairs of dimensions by position, as it was measured on queries and keys.

    Args:
        turns: Complex numbers [token, pair].
        halves: Whether pairs are (d, d + half); else (2d, 2d + 1).
        size: Dimensions that are rotated; the others stay.
    """

    turns: Tensor
    halves: bool
    size: int

    def __call__(self, vectors: Tensor, tokens: Sequence[int]) -> Tensor:
        """Return vectors [..., token, dim], rotated to the positions of `tokens`."""
        turned = _real(
            self.turns[list(tokens)] * _complex(vectors[..., : self.size], self.halves), self.halves
        )
        return torch.cat([turned, vectors[..., self.size :]], -1)


def _complex(vectors: Tensor, halves: bool) -> Tensor:
    pairs = torch.stack(vectors.chunk(2, -1), -1) if halves else vectors.unflatten(-1, (-1, 2))
    return torch.view_as_complex(pairs.contiguous())


def _real(numbers: Tensor, halves: bool) -> Tensor:
    pairs = torch.view_as_real(numbers)
    return torch.cat([pairs[..., 0], pairs[..., 1]], -1) if halves else pairs.flatten(-2)


@dataclass(frozen=True)
class ScoreReader:
    """The steps by which a head of a block makes queries and keys of states.

    Args:
        states: The states that the block reads [token, width].
        norm: The norm before the projections; None if there is none.
        query: Its queries.
        key: Its keys.
        rotation: The rotation by position; None if there is none.
    """

    states: Tensor
    norm: Norm | None
    query: Side
    key: Side
    rotation: Rotation | None

    def side(self, name: str) -> Side:
        """Return the queries ("query") or the keys ("key")."""
        return self.query if name == "query" else self.key

    def vectors(self, name: str, states: Tensor, tokens: Sequence[int]) -> Tensor:
        """Return queries or keys [..., token, dim] of any states [..., token, width] at these positions.

        Nothing is fixed: norms divide by the deviations of the given states.
        """
        return self.turned(self.unturned(name, states), tokens)

    def unturned(self, name: str, states: Tensor) -> Tensor:
        """Return queries or keys [..., token, dim] of any states before rotation by position."""
        return self.side(name)(self.read(states))

    def parts(self, name: str, parts: Tensor, tokens: Sequence[int]) -> Tensor:
        """Return parts [part, token, width] of these tokens' states as parts of their queries or keys.

        The result [part + 1, token, dim] sums to the recorded vectors; the last part is that of biases and
        shifts of norms. Norms divide by the deviations of the recorded states.
        """
        states, side = self.states[list(tokens)], self.side(name)
        whole = self.read(states)
        linear = side.linear(parts, whole, self.norm)
        if self.norm is not None:
            linear /= self.norm.deviation(states)
        constant = side.constant(whole)
        if self.norm is not None and self.norm.shift is not None:
            shift = self.norm.shift.expand(1, len(states), -1)
            constant = constant + side.linear(shift, whole)[0]
        return self.turned(torch.cat([linear, constant[None]]), tokens)

    def read(self, states: Tensor) -> Tensor:
        """Return the input of the projections [..., width]: states after the norm, if there is one."""
        return states if self.norm is None else self.norm(states)

    def turned(self, vectors: Tensor, tokens: Sequence[int]) -> Tensor:
        """Return queries or keys [..., token, dim], rotated to these positions."""
        return vectors if self.rotation is None else self.rotation(vectors, tokens)


def score_reader(block: Block, head: int, method: str) -> ScoreReader:
    """Return how a head makes queries and keys, verified on those that the model computed.

    Args:
        block: A verified block.
        head: The query head's index.
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If queries and keys are no rotation of the projected states.
    """
    call = call_of(block, method)
    states = exact(block.hidden)
    norm = None if block.layout.order == "post" or block.norm1 is None else exact_norm(block.norm1)
    read = states if norm is None else norm(states)
    recorded = [exact(vectors[0]) for vectors in (call.query, call.key)]
    everything = []
    for (matrix, bias), vectors, names in zip(projections(block, method), recorded, _SIDES, strict=True):
        heads, size = len(vectors), vectors.shape[-1]
        wide = exact(matrix)
        offset = wide.new_zeros(wide.shape[1]) if bias is None else exact(bias)
        everything.append((wide, offset, _side_norm(block, names, heads, size), heads, size))
    with no_grad():
        plain = [_all_heads(read, *side) for side in everything]
        # Rotations keep lengths, so that a factor of queries alone shows in them.
        lengths = [float(after.norm() / before.norm()) for before, after in zip(plain, recorded, strict=True)]
        factor = lengths[0] / lengths[1]
        factor = 1.0 if abs(factor - 1) <= tolerance(call.dtype) else factor
        before = torch.cat([plain[0] * factor, plain[1]])
        rotation = _rotation(before, torch.cat(recorded), tolerance(call.dtype), block, method)
    group = len(recorded[0]) // len(recorded[1])
    query = _side(everything[0], head, factor)
    key = _side(everything[1], head // group, 1.0)
    return ScoreReader(states, norm, query, key, rotation)


_Everything = tuple["Tensor", "Tensor", "_SideNorm | None", int, int]


def _side(everything: _Everything, head: int, factor: float) -> Side:
    matrix, bias, norm, _, size = everything
    columns = slice(head * size, (head + 1) * size)
    if norm is None or not norm.whole:
        matrix, bias, columns = matrix[:, columns], bias[columns], slice(0, size)
    if norm is not None and norm.centred:
        matrix, bias = matrix - matrix.mean(-1, keepdim=True), bias - bias.mean()
    return Side(matrix, bias, columns, norm, head, factor)


def _all_heads(
    read: Tensor, matrix: Tensor, bias: Tensor, norm: _SideNorm | None, heads: int, size: int
) -> Tensor:
    """Return the vectors of all heads [head, token, dim], before any rotation."""
    everything = matrix, bias, norm, heads, size
    if norm is None:
        return (read @ matrix + bias).unflatten(-1, (heads, size)).transpose(0, 1)
    return torch.stack([_side(everything, head, 1.0)(read) for head in range(heads)])


def _side_norm(block: Block, names: Sequence[str], heads: int, size: int) -> _SideNorm | None:
    """Return the norm of queries or keys in the attention module; None if there is none.

    A gain serves all heads (Qwen3, Gemma 3), or a norm covers all heads together (OLMo 2), or each head has a
    separate gain, in a matrix (Cohere) or in a separate norm (StableLM).
    """
    attention = block.part(block.layout.attention)
    module = next(
        (
            part
            for name in (f"{side}_{norm}" for side in names for norm in _NORMS)
            if isinstance(part := getattr(attention, name, None), nn.Module)
            and not isinstance(part, nn.Identity)
        ),
        None,
    )
    if module is None:
        return None
    listed = getattr(module, "norms", None)
    weight = getattr(module, "weight", None)
    if listed is not None:
        read_norms = [read_norm(norm, size, block.hidden) for norm in listed]
        norms = [exact_norm(norm) for norm in read_norms if norm is not None]
    elif weight is not None and weight.dim() > 1:
        norms = _by_head(module, weight)
    else:
        norm = read_norm(module, size if weight is None else len(weight), block.hidden)
        norms = [] if norm is None else [exact_norm(norm)]
    if not norms:
        return None
    gain = torch.stack([norm.gain for norm in norms])
    shift = (
        None
        if norms[0].shift is None
        else torch.stack([norm.shift for norm in norms if norm.shift is not None])
    )
    whole = gain.shape[-1] != size
    gain = gain.reshape(-1, size).expand(heads, size)
    shift = None if shift is None else shift.reshape(-1, size).expand(heads, size)
    return _SideNorm(gain, shift, norms[0].eps, norms[0].centred, whole)


def _by_head(module: nn.Module, weight: Tensor) -> list[Norm]:
    """Return the norm of each head of a module whose gain is a matrix [head, dim]."""
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", 0.0))
    probe = torch.linspace(-1, 2, weight.shape[-1]).to(weight).expand(1, 1, *weight.shape)
    with no_grad():
        output = exact(module(probe))[0, 0]
    gain, inputs = exact(weight), exact(probe)[0, 0]
    kinds = [Norm(gain, None, float(eps), centred) for centred in (False, True)]
    best = min(kinds, key=lambda norm: float((norm(inputs) - output).norm()))
    return [replace(best, gain=row) for row in gain]


def _rotation(before: Tensor, after: Tensor, allowed: float, block: Block, method: str) -> Rotation | None:
    """Return the rotation that takes vectors [head, token, dim] to others; None if they are the same.

    A turn is the complex number per token and pair that fits the vectors of all heads best. The rotation is
    accepted if the turned vectors equal the others.
    """
    scale = after.norm()
    change = before - after
    if change.norm() <= allowed * scale:
        return None
    moved = (change.abs().amax((0, 1)) > _UNMOVED * after.abs().max()).nonzero().flatten()
    last = int(moved.max()) + 1
    best, smallest = None, float("inf")
    for size in dict.fromkeys((last + last % 2, after.shape[-1])):
        for halves in (True, False):
            old, new = (_complex(vectors[..., :size], halves) for vectors in (before, after))
            turns = (old.conj() * new).sum(0) / old.abs().square().sum(0).clamp_min(1e-30)
            candidate = Rotation(turns, halves, size)
            error = float((candidate(before, range(before.shape[1])) - after).norm() / scale)
            # A rotation of fewer dimensions is preferred if both fit as well.
            if best is None or (error < smallest and smallest > _SURE):
                best, smallest = candidate, error
    if not smallest <= allowed:
        raise UnsupportedModelError(
            f"{method}: queries and keys of {block.layout.family} are no rotation of the projected states "
            f"(error {smallest:.2g}), so that their parts are unknown."
        )
    return best
