"""Transformer blocks as algebra, verified on the numbers of a real forward pass.

A `Block` has a layout and the recorded tensors of a pass; `branch`, `middle` and `last` recompute the states
between them. `error` compares the recomputed output with the recorded output.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.known_layouts import LAYOUTS
from attnwidgets.tracing.algebra.steps import Norm, is_norm, loaded, read_affine, read_norm, run
from attnwidgets.tracing.recording.attention_function import repeat_heads
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.algebra.known_layouts import Layout
    from attnwidgets.tracing.recording.calls import Call, FollowedCall

WITHOUT = "Methods that need no description still work: attention, rollout, attention_flow, value_zeroing."

# Error allowed in a block's recomputed update, relative to its size, by the precision of the model. The bound
# for double precision leaves room for RMSNorm, which most models compute in single precision.
_TOLERANCE = {torch.float64: 1e-5, torch.float32: 1e-3}
_HALF_TOLERANCE = 5e-2
_ROUNDINGS = 2


def tail_dtype(dtype: torch.dtype) -> torch.dtype:
    """Return the precision to compute in: float32 for half precision, else that of the model."""
    return dtype if dtype in _TOLERANCE else torch.float32


def tolerance(dtype: torch.dtype) -> float:
    """Return the relative error allowed in a recomputed state, for a model of this precision."""
    return _TOLERANCE.get(dtype, _HALF_TOLERANCE)


@dataclass(frozen=True)
class Block:
    """An attention of a block in a recorded pass. Tensors are in the model's `tail_dtype`.

    Args:
        model: The twin of the model that was run.
        module: The block in it.
        layout: The block's layout.
        call: Its attention call, with a batch of 1.
        hidden: The states to which the attention output is added [token, dim]: the block's input, or for a
            cross-attention the states after the self-attention.
        values: Value vectors [kv head, key, head dim].
        output: The block's output [token, dim].
        cross: Call and value vectors of the cross-attention between this attention and the MLP, if any.
        crosses: Whether the keys belong to another sequence.
    """

    model: nn.Module
    module: nn.Module
    layout: Layout
    call: Call | FollowedCall
    hidden: Tensor
    values: Tensor
    output: Tensor
    cross: tuple[Call | FollowedCall, Tensor] | None = None
    crosses: bool = False

    def of(self, queries: slice) -> Block:
        """Return the block over some of its queries, with all keys; it has no cross-attention in between."""
        if queries == slice(None):
            return self
        hidden, output = self.hidden[queries], self.output[queries]
        return replace(self, call=self.call.of(queries), hidden=hidden, output=output)

    def part(self, path: str) -> nn.Module:
        """Return a module of the block by its path."""
        return self.module.get_submodule(path)

    def norm(self, path: str) -> Norm | None:
        """Return a norm of the block by its path; None if the path is "" or the module does nothing."""
        return read_norm(self.part(path), self.hidden.shape[-1], self.hidden) if path else None

    @cached_property
    def norm1(self) -> Norm | None:
        """The norm of the attention branch."""
        return self.norm(self.layout.norm1)

    @cached_property
    def norm2(self) -> Norm | None:
        """The norm of the MLP branch."""
        return self.norm(self.layout.norm2)

    @property
    def n_heads(self) -> int:
        """Number of query heads."""
        return self.call.shape[1]

    @property
    def own_key(self) -> int | None:
        """Index of the first query's token among the keys, 3 after a prefix of 3; None if `crosses`."""
        return None if self.crosses else self.call.shape[3] - self.call.shape[2]

    def weights(self) -> Tensor:
        """Return the attention weights [head, query, key], computed in the precision of the tail."""
        with no_grad():
            weights = self.call.rows(self.hidden.dtype)
            # The weights are too large to cache; the mixed values are small and always needed too.
            if "_mixed" not in vars(self):
                vars(self)["_mixed"] = torch.matmul(weights, self.head_values())
        return weights

    @property
    def mixed(self) -> Tensor:
        """The weighted sums of value vectors [head, query, head dim]."""
        if "_mixed" not in vars(self):
            self.weights()
        return vars(self)["_mixed"]

    def head_values(self) -> Tensor:
        """Return the value vectors [head, key, head dim], repeated for all query heads that read them."""
        return repeat_heads(self.values.unsqueeze(0), self.n_heads)[0]

    @cached_property
    def _after(self) -> tuple[Norm | None, Tensor | None]:
        """The norm or scale [dim] applied to the attention output before it is added."""
        path = self.layout.after
        if not path:
            return None, None
        step = resolve_path(self.module, path)
        if is_norm(step):
            return self.norm(path), None
        return None, run(step, torch.ones_like(self.hidden[:1]))[0]

    @property
    def projection(self) -> tuple[Tensor, Tensor | None]:
        """The attention's output projection W_O [head * head dim, dim] and its bias [dim], before `after`."""
        return read_affine(self.part(self.layout.out), self.n_heads * self.values.shape[-1], self.hidden)

    def attended(self) -> Tensor:
        """Return the attention's output [query, dim] after W_O and its bias, before `after`."""
        matrix, bias = self.projection
        joined = self.mixed.transpose(0, 1).flatten(1) @ matrix
        return joined if bias is None else joined + bias

    def branch(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return the attention branch as a linear map of the values, with the statistics of `after` fixed.

        These are matrix [head, head dim, dim], row [query] and bias [query, dim]: attention adds
        row_i * sum_j sum_h A^h_ij v^h_j matrix^h + bias_i to token i.
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
        """The state z [token, dim] after attention is added, before norm 1 of a post-norm block."""
        matrix, row, bias = self.branch()
        added = self.mixed.transpose(0, 1).flatten(1) @ matrix.flatten(0, 1)
        return self.hidden + row[:, None] * added + bias

    @cached_property
    def beyond(self) -> Block | None:
        """The block from its cross-attention on, which follows this attention; None if it has none."""
        if self.cross is None:
            return None
        call, values = self.cross
        hidden = self.start if self.layout.order == "post" else self.middle
        return replace(
            self,
            layout=self.layout.crossing,
            call=call,
            values=values,
            hidden=hidden,
            cross=None,
            crosses=True,
        )

    @property
    def start(self) -> Tensor:
        """The state that the MLP of a post-norm block is added to [token, dim]: `middle` after norm 1."""
        return self.middle if self.norm1 is None else self.norm1(self.middle)

    @cached_property
    def last(self) -> Tensor:
        """The block's output [token, dim], before norm 2 of a post-norm block."""
        if self.beyond is not None:
            return self.beyond.last
        if self.layout.order == "post":
            start = self.start
            return start + self._feed(start)
        read = self.hidden if self.layout.order == "parallel" else self.middle
        return self.middle + self._feed(self.norm2(read) if self.norm2 is not None else read)

    def _feed(self, x: Tensor) -> Tensor:
        with no_grad():
            return self.through(self.layout.mlp, x)

    def through(self, paths: Iterable[str], states: Tensor) -> Tensor:
        """Return states [row, dim] after some steps of the block, in the precision of the states."""
        for path in filter(None, paths):
            states = run(resolve_path(self.module, path), states)
        return states

    def recomputed(self) -> Tensor:
        """Return the block's output [token, dim], computed by its layout."""
        return self.norm2(self.last) if self.layout.order == "post" and self.norm2 else self.last

    def error(self, output: Tensor | None = None) -> float:
        """Return the error of an output [token, dim] against the recorded output; above 1 it is too large.

        Args:
            output: The output; `recomputed()` by default.
        """
        dtype = self.call.dtype
        output = self.recomputed() if output is None else output
        update = self.output if self.layout.order == "post" else self.output - self.hidden
        wrong, size, recorded, hidden = (
            states.double().norm(dim=-1)
            for states in (output - self.output, update, self.output, self.hidden)
        )
        scale = recorded + hidden
        # The state of a padding token is all zeros, compared to which any error is large.
        scale = scale.where(scale > 0, scale.mean())
        slack = _ROUNDINGS * torch.finfo(dtype).eps * scale
        ratio = wrong / (tolerance(dtype) * size + slack)
        return float(ratio.nan_to_num(nan=torch.inf).max())

    def value_projection(self) -> tuple[Tensor, Tensor | None]:
        """Return W_V [dim, kv head * head dim] and its bias, verified on the recorded values.

        Raises:
            UnsupportedModelError: If the projection is unknown or does not give the recorded values.
        """
        dim, layout = self.hidden.shape[-1], self.layout
        kv, keys, size = self.values.shape
        if not layout.value or keys != len(self.hidden) or self.crosses:
            raise UnsupportedModelError(
                f"the value projection of {type(self.module).__name__} is unknown. {WITHOUT}"
            )
        matrix, bias = read_affine(self.part(layout.value), dim, self.hidden)
        columns: Any = slice(None)
        if layout.fused == "thirds":
            columns = slice(-kv * size, None)
        elif layout.fused == "heads":
            columns = torch.arange(matrix.shape[-1], device=matrix.device).view(kv, 3, size)[:, 2].flatten()
        matrix, bias = matrix[:, columns], None if bias is None else bias[columns]
        read = self.norm1(self.hidden) if layout.order != "post" and self.norm1 is not None else self.hidden
        projected = read @ matrix if bias is None else read @ matrix + bias
        values = self.values.transpose(0, 1).flatten(1)
        if not (projected - values).norm() <= tolerance(self.call.dtype) * values.norm():
            raise UnsupportedModelError(
                f"the value projection {layout.value} of {type(self.module).__name__} does not give its "
                f"values. {WITHOUT}"
            )
        return matrix, bias


def require_chain(blocks: Sequence[Block], method: str) -> None:
    """Raise UnsupportedModelError unless each block reads the output of the block before."""
    for number, (before, after) in enumerate(pairwise(blocks)):
        difference = (after.hidden - before.output).norm()
        if not difference <= tolerance(before.call.dtype) * before.output.norm():
            raise UnsupportedModelError(
                f"{method} is not available: layer {number + 1} does not read the output of layer {number}; "
                f"something unknown lies between them. {WITHOUT}"
            )


def fitting(model: nn.Module, name: str) -> Iterator[tuple[Layout, str, nn.Module]]:
    """Yield the layouts that fit around an attention module, with the block's name and the block.

    The module may be the layout's self-attention or its cross-attention. If the block has no cross-attention,
    neither has the layout that is yielded.
    """
    for layout in LAYOUTS:
        for path in (layout.attention, layout.cross.attention if layout.cross else ""):
            if not path or not f".{name}".endswith(f".{path}"):
                continue
            block_name = name[: -len(path)].rstrip(".")
            block = model.get_submodule(block_name)
            if not all(_holds(block, part) for part in layout.paths):
                continue
            crossed = layout.cross is not None and all(_holds(block, part) for part in layout.cross.paths)
            yield layout if crossed else replace(layout, cross=None), block_name, block


def resolve_path(block: nn.Module, path: str) -> Any:
    """Return the object that a path names in a block: a module, a vector or number that scales, or None.

    Raises:
        AttributeError: If the block lacks the attribute.
    """
    value: Any = block
    for name in path.split("."):
        owner, value = value, getattr(value, name)
    return loaded(owner, name) if isinstance(value, torch.Tensor) else value


def _holds(block: nn.Module, path: str) -> bool:
    try:
        resolve_path(block, path)
    except AttributeError:
        return False
    return True
