"""Blocks of models as algebra: what a description says, proved on the numbers of a real pass."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import torch

from attnwidgets.tracing.algebra.known_layouts import LAYOUTS
from attnwidgets.tracing.algebra.modules import Norm, is_norm, read_affine, read_norm, run
from attnwidgets.tracing.offloaded_weights import loaded
from attnwidgets.tracing.recording.attention_function import (
    UnsupportedModelError,
    attention_weights,
    repeat_heads,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor, nn

    from attnwidgets.tracing.algebra.block_layout import Layout
    from attnwidgets.tracing.recording.recorder import Call

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
class Block:
    """One attention of one block in one recorded pass. Tensors are in the model's `tail_dtype`.

    Args:
        model: The twin that was run, which it belongs to.
        module: The block in it.
        layout: Its description, proved.
        call: Its attention call, of a batch of one.
        hidden: What that attention is added to [token, dim]: the block's input, or what its self-attention
            made of it where this is its cross-attention.
        values: [kv head, key, head dim].
        output: What the block returned [token, dim].
        cross: The call and the values of the cross-attention that stands between this attention and the MLP;
            None where there is none.
        crosses: Whether the keys are another sequence's.
    """

    model: nn.Module
    module: nn.Module
    layout: Layout
    call: Call
    hidden: Tensor
    values: Tensor
    output: Tensor
    cross: tuple[Call, Tensor] | None = None
    crosses: bool = False

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

    @property
    def own_key(self) -> int | None:
        """Which key is the first query's own token, as 3 after a prefix of three; None in cross-attention."""
        return None if self.crosses else self.call.key.shape[2] - self.call.query.shape[2]

    def weights(self) -> Tensor:
        """Return the attention weights [head, query, key], computed in the precision of the tail."""
        query, key = self.call.query.to(self.hidden.dtype), self.call.key.to(self.hidden.dtype)
        with torch.no_grad():
            weights = attention_weights(query, key, **self.call.settings)[0]
            # The weights are too large to keep. What is mixed by them is not, and is asked for as well.
            if "_mixed" not in vars(self):
                vars(self)["_mixed"] = torch.matmul(weights, self.head_values())
        return weights

    @property
    def mixed(self) -> Tensor:
        """What the heads mix [head, query, head dim]."""
        if "_mixed" not in vars(self):
            self.weights()
        return vars(self)["_mixed"]

    def head_values(self) -> Tensor:
        """Return the values [head, key, head dim], once for every query head that reads them."""
        return repeat_heads(self.values.unsqueeze(0), self.n_heads)[0]

    @cached_property
    def _after(self) -> tuple[Norm | None, Tensor | None]:
        """The norm or the scale [dim] that the attention's output passes before it is added."""
        path = self.layout.after
        if not path:
            return None, None
        step = resolved(self.module, path)
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
        """The attention's side as a linear map of the values, the statistics of `after` held fixed.

        matrix [head, head dim, dim], row [query] and bias [query, dim], so that what the attention adds to
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
        """Return z [token, dim], the state with what attention adds; norm 1 of a post-norm block follows."""
        matrix, row, bias = self.branch()
        added = self.mixed.transpose(0, 1).flatten(1) @ matrix.flatten(0, 1)
        return self.hidden + row[:, None] * added + bias

    @cached_property
    def beyond(self) -> Block | None:
        """The block as its cross-attention sees it, which follows on this attention; None where none does."""
        if self.cross is None:
            return None
        call, values = self.cross
        post = self.layout.order == "post" and self.norm1 is not None
        return replace(
            self,
            layout=self.layout.crossing,
            call=call,
            values=values,
            hidden=self.norm1(self.middle) if post and self.norm1 is not None else self.middle,
            cross=None,
            crosses=True,
        )

    @cached_property
    def last(self) -> Tensor:
        """What the block returns [token, dim], before norm 2 where that comes last."""
        if self.beyond is not None:
            return self.beyond.last
        if self.layout.order == "post":
            start = self.norm1(self.middle) if self.norm1 is not None else self.middle
            return start + self._feed(start)
        read = self.hidden if self.layout.order == "parallel" else self.middle
        return self.middle + self._feed(self.norm2(read) if self.norm2 is not None else read)

    def _feed(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            return self.through(self.layout.mlp, x)

    def through(self, paths: Iterable[str], states: Tensor) -> Tensor:
        """Return states [row, dim] after some steps of the block, in their own precision."""
        for path in filter(None, paths):
            states = run(resolved(self.module, path), states)
        return states

    def recomputed(self) -> Tensor:
        """Return the block's output [token, dim] as the description says it comes about."""
        post = self.layout.order == "post" and self.norm2 is not None
        return self.norm2(self.last) if post and self.norm2 is not None else self.last

    def off(self, found: Tensor | None = None) -> float:
        """Return by how much an output [token, dim] misses the recorded one; more than 1 is refused.

        Args:
            found: The output; that of `recomputed` by default.
        """
        own = self.call.query.dtype
        found = self.recomputed() if found is None else found
        wrong = (found - self.output).double().norm(dim=-1)
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
        kv, keys, size = self.values.shape
        if not layout.value or keys != len(self.hidden) or self.crosses:
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


def require_chain(blocks: Sequence[Block], method: str) -> None:
    """Raise UnsupportedModelError unless every block reads what the one before returned."""
    for number, (before, after) in enumerate(pairwise(blocks)):
        apart = (after.hidden - before.output).norm()
        if not apart <= tolerance(before.call.query.dtype) * before.output.norm():
            raise UnsupportedModelError(
                f"{method} is not available: layer {number + 1} does not read what layer {number} returned; "
                f"something that is not described lies between them. {WITHOUT}"
            )


def fitting(model: nn.Module, name: str) -> Iterator[tuple[Layout, str, nn.Module]]:
    """Yield the layouts that fit around an attention module, with the block's name and the block.

    A layout fits around its self-attention and around its cross-attention; where a block has none, the layout
    that is yielded has none either.
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


def resolved(block: nn.Module, path: str) -> Any:
    """Return what a path names in a block: a module, a vector or a number that scales, or None.

    Raises:
        AttributeError: Where there is no such thing.
    """
    found: Any = block
    for name in path.split("."):
        owner, found = found, getattr(found, name)
    return loaded(owner, name) if isinstance(found, torch.Tensor) else found


def _holds(block: nn.Module, path: str) -> bool:
    try:
        resolved(block, path)
    except AttributeError:
        return False
    return True
