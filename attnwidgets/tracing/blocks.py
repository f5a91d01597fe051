"""Blocks of a model as algebra: what a description says, proved on the numbers of a real pass."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import nn

from attnwidgets.tracing.attention_function import UnsupportedModelError, attention_weights, repeat_heads
from attnwidgets.tracing.borrow import borrowed
from attnwidgets.tracing.layouts import LAYOUTS, Layout

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.tracing.recorder import Call

WITHOUT = "Methods that need no description still work: attention, rollout, attention_flow, value_zeroing."

# By how much a block's update may miss its description, relative to its size, in the precision of the model.
# Double precision is no stricter: RMSNorm is written in single precision in most models.
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2
_ROUNDINGS = 2


def tail_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision to compute in: float32 for half precision, else the model's own."""
    return dtype if dtype in _TOLERANCE else torch.float32


def tolerance(dtype: torch.dtype) -> float:
    """Return by what share of its size a recomputed state may differ, for a model of this precision."""
    return _TOLERANCE.get(dtype, _HALF_TOLERANCE)


@dataclass(frozen=True)
class Norm:
    """LayerNorm or RMSNorm as gain * (x - mean) / deviation(x) + shift; RMSNorm has no mean.

    Everything but the deviation is linear: with the deviation of a real x held fixed, parts that sum to x are
    mapped to parts that sum to the normed x less `shift`.

    Args:
        gain: [dim].
        shift: [dim], or None.
        eps: Added to the variance.
        centred: Whether the mean is subtracted.
    """

    gain: Tensor
    shift: Tensor | None
    eps: float
    centred: bool

    def deviation(self, x: Tensor) -> Tensor:
        """Return sqrt(variance + eps) over the last axis [..., 1]; RMSNorm's mean square is not centred."""
        centre = x - x.mean(-1, keepdim=True) if self.centred else x
        return torch.sqrt(centre.square().mean(-1, keepdim=True) + self.eps)

    def direct(self, parts: Tensor) -> Tensor:
        """Return gain * (parts - mean): the norm's linear side, before the division."""
        return self.gain * (parts - parts.mean(-1, keepdim=True) if self.centred else parts)

    def __call__(self, x: Tensor) -> Tensor:
        """Return the norm of x."""
        normed = self.direct(x) / self.deviation(x)
        return normed if self.shift is None else normed + self.shift


def read_norm(module: nn.Module, dim: int, like: Tensor) -> Norm | None:
    """Return a module's norm in the dtype and on the device of `like`; None for one that does nothing."""
    if isinstance(module, nn.Identity):
        return None
    weight = getattr(module, "weight", None)
    shift = getattr(module, "bias", None)
    eps = getattr(module, "variance_epsilon", getattr(module, "eps", None))
    if eps is None:
        eps = torch.finfo(like.dtype if weight is None else weight.dtype).eps
    centred = isinstance(module, nn.LayerNorm)
    gain = like.new_ones(dim) if weight is None else weight.detach().to(like)
    if not centred and weight is not None:
        # Gemma keeps its gain less one. A norm of ones gives the gain: the module itself can say which it is.
        ones = module(weight.new_ones(1, dim)).detach().to(like)[0]
        if (ones - gain - 1).norm() < (ones - gain).norm():
            gain = gain + 1
    return Norm(gain, None if shift is None else shift.detach().to(like), float(eps), centred)


def read_affine(module: nn.Module, inputs: int, like: Tensor) -> tuple[Tensor, Tensor | None]:
    """Return a projection's matrix [input, output] and bias in the dtype and on the device of `like`.

    Plain layers are read; wrapped ones (adapters, quantised weights) are asked what they do to unit vectors.
    """
    weight, bias = getattr(module, "weight", None), getattr(module, "bias", None)
    plain = type(module) is nn.Linear or type(module).__name__ == "Conv1D"
    if plain and weight is not None and weight.device.type != "meta":
        matrix = weight.detach().to(like)
        matrix = matrix.T if type(module) is nn.Linear else matrix
        return matrix, None if bias is None else bias.detach().to(like)
    parameter = next(module.parameters(), None)
    dtype = like.dtype if parameter is None or not parameter.is_floating_point() else parameter.dtype
    with torch.no_grad():
        shift = module(torch.zeros(1, inputs, dtype=dtype, device=like.device)).to(like)[0]
        matrix = module(torch.eye(inputs, dtype=dtype, device=like.device)).to(like) - shift
    return matrix, shift


def _run(module: nn.Module, x: Tensor) -> Tensor:
    """Return what a module makes of x, in the precision of x: narrower weights are widened for the call."""
    tensors = [*module.named_parameters(), *module.named_buffers()]
    wider = {
        name: tensor.to(x.dtype)
        for name, tensor in tensors
        if tensor.is_floating_point() and tensor.dtype != x.dtype
    }
    if wider:
        widened: Tensor = torch.func.functional_call(module, wider, (x,))
        return widened
    made: Tensor = module(x)
    return made


@dataclass(frozen=True)
class Block:
    """One block in one recorded pass. Tensors are in `tail_dtype` of the model, on its device.

    Args:
        model: The model it belongs to.
        module: The block.
        layout: Its description, proved.
        call: Its attention call, of a batch of one.
        hidden: Its input [token, dim].
        values: [kv head, token, head dim].
        output: What it returned [token, dim].
    """

    model: nn.Module
    module: nn.Module
    layout: Layout
    call: Call
    hidden: Tensor
    values: Tensor
    output: Tensor

    def part(self, path: str) -> nn.Module:
        """Return a module of the block by its path."""
        return self.module.get_submodule(path)

    def norm(self, path: str) -> Norm | None:
        """Return a norm of the block by its path; None where the path is "" or the module does nothing."""
        return read_norm(self.part(path), self.hidden.shape[-1], self.hidden) if path else None

    @cached_property
    def norm1(self) -> Norm | None:
        """The norm of the attention's side."""
        return self.norm(self.layout.norm1)

    @cached_property
    def norm2(self) -> Norm | None:
        """The norm of the other side."""
        return self.norm(self.layout.norm2)

    @property
    def n_heads(self) -> int:
        """Number of query heads."""
        return self.call.query.shape[1]

    def weights(self) -> Tensor:
        """Return the attention weights [head, query, key], computed in the precision of the tail."""
        query, key = self.call.query.to(self.hidden.dtype), self.call.key.to(self.hidden.dtype)
        with torch.no_grad():
            return attention_weights(query, key, **self.call.settings)[0]

    def head_values(self) -> Tensor:
        """Return the values [head, token, head dim], once for every query head that reads them."""
        return repeat_heads(self.values.unsqueeze(0), self.n_heads)[0]

    @cached_property
    def _after(self) -> tuple[Norm | None, Tensor | None]:
        """The norm or the scale [dim] that the attention's output passes before it is added."""
        if not self.layout.after:
            return None, None
        module = self.part(self.layout.after)
        if getattr(module, "eps", getattr(module, "variance_epsilon", None)) is not None:
            return self.norm(self.layout.after), None
        with torch.no_grad():
            return None, _run(module, torch.ones_like(self.hidden[:1]))[0]

    @property
    def projection(self) -> tuple[Tensor, Tensor | None]:
        """The attention's output projection W_O [head * head dim, dim] and its bias [dim], before `after`."""
        return read_affine(self.part(self.layout.out), self.n_heads * self.values.shape[-1], self.hidden)

    def attended(self) -> Tensor:
        """Return the attention's output [token, dim] after W_O and its bias, before `after`."""
        mixed = torch.matmul(self.weights(), self.head_values())
        matrix, bias = self.projection
        joined = mixed.transpose(0, 1).flatten(1) @ matrix
        return joined if bias is None else joined + bias

    def branch(self) -> tuple[Tensor, Tensor, Tensor]:
        """The attention's side as a linear map of the values, the statistics of `after` held fixed.

        matrix [head, head dim, dim], row [token] and bias [token, dim], so that what the attention adds to
        token i is row_i * sum_j sum_h A^h_ij v^h_j matrix^h + bias_i.
        """
        matrix, bias = self.projection
        norm, scale = self._after
        row = self.hidden.new_ones(len(self.hidden))
        added = torch.zeros_like(self.hidden[:1]) if bias is None else bias[None]
        if scale is not None:
            matrix, added = matrix * scale, added * scale
        if norm is not None:
            row = 1 / norm.deviation(self.attended())[:, 0]
            matrix, added = norm.direct(matrix), norm.direct(added) * row[:, None]
            added = added if norm.shift is None else added + norm.shift
        heads = matrix.reshape(self.n_heads, -1, matrix.shape[-1])
        return heads, row, added.expand_as(self.hidden)

    @cached_property
    def middle(self) -> Tensor:
        """Return z [token, dim], the input with what attention adds; norm 1 of a post-norm block follows."""
        matrix, row, bias = self.branch()
        mixed = torch.matmul(self.weights(), self.head_values())
        return self.hidden + row[:, None] * torch.einsum("htv,hvd->td", mixed, matrix) + bias

    @cached_property
    def last(self) -> Tensor:
        """What the block returns [token, dim], before norm 2 where that comes last."""
        if self.layout.order == "post":
            start = self.norm1(self.middle) if self.norm1 is not None else self.middle
            return start + self._feed(start)
        read = self.hidden if self.layout.order == "parallel" else self.middle
        return self.middle + self._feed(self.norm2(read) if self.norm2 is not None else read)

    def _feed(self, x: Tensor) -> Tensor:
        # Some of these modules hold dropout: the model is borrowed, for they may be in training mode.
        with borrowed(self.model):
            for path in self.layout.mlp:
                x = _run(self.part(path), x)
        return x

    def recomputed(self) -> Tensor:
        """Return the block's output [token, dim] as the description says it comes about."""
        post = self.layout.order == "post" and self.norm2 is not None
        return self.norm2(self.last) if post and self.norm2 is not None else self.last

    def off(self) -> float:
        """Return by how much the recomputed update misses the recorded one; more than 1 is refused."""
        own = self.call.query.dtype
        wrong = (self.recomputed() - self.output).double().norm(dim=-1)
        update = (
            (self.output if self.layout.order == "post" else self.output - self.hidden).double().norm(dim=-1)
        )
        slack = (
            _ROUNDINGS
            * torch.finfo(own).eps
            * (self.output.double().norm(dim=-1) + self.hidden.double().norm(dim=-1))
        )
        ratio = wrong / (tolerance(own) * update + slack)
        return float(ratio.nan_to_num(nan=torch.inf).max())

    def value_projection(self) -> tuple[Tensor, Tensor | None]:
        """Return W_V [dim, kv head * head dim] and its bias, which make the values of what is read; proved.

        Raises:
            UnsupportedModelError: If the values do not come about that way.
        """
        dim, layout = self.hidden.shape[-1], self.layout
        kv, _, size = self.values.shape
        if not layout.value:
            raise UnsupportedModelError(
                f"the value projection of {type(self.module).__name__} is not known. {WITHOUT}"
            )
        matrix, bias = read_affine(self.part(layout.value), dim, self.hidden)
        columns = torch.arange(matrix.shape[-1], device=matrix.device)
        if layout.fused == "thirds":
            columns = columns[-kv * size :]
        elif layout.fused == "heads":
            columns = columns.reshape(kv, 3, size)[:, 2].flatten()
        matrix, bias = matrix[:, columns], None if bias is None else bias[columns]
        read = self.norm1(self.hidden) if layout.order != "post" and self.norm1 is not None else self.hidden
        made = read @ matrix if bias is None else read @ matrix + bias
        values = self.values.transpose(0, 1).flatten(1)
        own = self.call.query.dtype
        if not (made - values).norm() <= tolerance(own) * values.norm():
            raise UnsupportedModelError(
                f"the values of {type(self.module).__name__} are not those of its projection "
                f"{layout.value}. {WITHOUT}"
            )
        return matrix, bias


def fitting(model: nn.Module, name: str) -> Iterator[tuple[Layout, str, nn.Module]]:
    """Yield the layouts that fit around an attention module, with the block's name and the block."""
    for layout in LAYOUTS:
        if name != layout.attention and not name.endswith("." + layout.attention):
            continue
        block_name = name[: -len(layout.attention)].rstrip(".")
        block = model.get_submodule(block_name)
        if all(_holds(block, path) for path in layout.paths):
            yield layout, block_name, block


def _holds(block: nn.Module, path: str) -> bool:
    try:
        block.get_submodule(path)
    except AttributeError:
        return False
    return True
