"""What every token gives to every other in a block, as vectors that are never all held at once.

The vector from token j to token i is row_i * sum_h A^h_ij u^h_j with u^h_j = v^h_j matrix^h, and the residual
connection on the diagonal; in cross-attention it belongs to no key. Heads are summed before anything is
measured. Lengths come from the Gram matrices of the u^h_j of one token j, head by head:
|sum_h a_h u_h|^2 = a^T G a. Nothing of size [query, key, dim] is made for them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets.tracing.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.tracing.blocks import Block

Stage = Literal["attn", "res", "res_ln", "enc"]

# Chunks that stay in a processor's cache are fastest there; an accelerator wants more work at a time.
_CHUNK_BYTES = 2**23
_ACCELERATOR_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Parts:
    """The vectors of one block at one stage.

    Args:
        weights: A [head, query, key].
        values: v [head, key, head dim].
        matrix: From a head's values to the stage's vectors [head, head dim, dim].
        row: Factor of every query's vectors [query].
        own: What the residual connection adds [query, dim], at this stage; None for nothing.
        own_key: Which key is the first query's own token, to whose vector `own` belongs (the second query's
            is the next); None where the keys are another sequence's, and `own` is of none of them.
        reference: What the parts add up to with biases [query, dim], where the stage is one of the model's
            states.
        causal: Whether no query reads a later key.
    """

    weights: Tensor
    values: Tensor
    matrix: Tensor
    row: Tensor
    own: Tensor | None
    own_key: int | None
    reference: Tensor | None
    causal: bool

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        return self.matrix.shape[-1]

    def sources(self, keys: slice) -> Tensor:
        """Return u [key, head, dim] of some keys."""
        return torch.einsum("hkv,hvd->khd", self.values[:, keys], self.matrix)

    def _chunks(self, size: int) -> Iterator[tuple[slice, slice]]:
        """Yield slices of keys with the queries that may read them."""
        n_keys = self.weights.shape[-1]
        for start in range(0, n_keys, size):
            yield slice(start, min(start + size, n_keys)), slice(start if self.causal else 0, None)

    def norms(self) -> Tensor:
        """Return the length of every vector [query, key], float64.

        Beyond the attention weights this takes no more than a few chunks. Squares and sums are float64, which
        takes the cancellation between heads below the rounding of float32 inputs.
        """
        n_heads, n_queries, n_keys = self.weights.shape
        exact = _exact_device(self.weights)
        found = torch.zeros(n_queries, n_keys, dtype=torch.float64, device=exact)
        size = max(1, _chunk_bytes(exact) // (8 * n_heads * (self.dim + 3 * n_queries)))
        for keys, queries in self._chunks(size):
            u = self.sources(keys).to(exact).double()
            gram = torch.bmm(u, u.transpose(1, 2))
            a = self.weights[:, queries, keys].to(exact).double().permute(2, 1, 0)
            square = (torch.bmm(a, gram) * a).sum(-1)
            found[queries, keys] = square.clamp_(min=0).sqrt_().T
        found *= self.row.to(exact).double()[:, None]
        if self.own is not None and self.own_key is not None:
            found.diagonal(self.own_key).copy_(self.kept().to(exact).double().norm(dim=-1))
        return found

    def head_norms(self) -> Tensor:
        """Return the length of every head's vector [head, query, key], without the residual connection."""
        lengths = torch.stack(
            [(v @ m).norm(dim=-1) for v, m in zip(self.values, self.matrix, strict=True)]
        )  # [head, key], one head's vectors at a time
        return self.weights * lengths[:, None] * self.row[:, None]

    def kept(self) -> Tensor:
        """Return what every token keeps of itself [query, dim]: its vector to itself, with the residual."""
        if self.own_key is None:
            return self.own if self.own is not None else self.row.new_zeros(len(self.row), self.dim)
        weights = self.weights.diagonal(self.own_key, dim1=1, dim2=2)
        values = self.values[:, self.own_key :]
        mixed = torch.einsum("hi,hiv,hvd->id", weights, values, self.matrix) * self.row[:, None]
        return mixed if self.own is None else mixed + self.own

    def total(self) -> Tensor:
        """Return the sum of every token's vectors [query, dim], with the residual connection."""
        mixed = torch.einsum("htv,hvd->td", self.weights @ self.values, self.matrix) * self.row[:, None]
        return mixed if self.own is None else mixed + self.own

    def nearness(
        self, to: Tensor, power: int, *, shift: float = 0.0, chunk_size: int | None = None
    ) -> Tensor:
        """Return by how much nearer every vector comes to one vector per query than nothing at all does.

        That is |to_i| - |part_ij - to_i|. For power 1 it is summed component by component, whose differences
        are small; two sums of absolute values would leave their rounding behind.

        Args:
            to: [query, dim].
            power: 1 or 2, the norm of the difference.
            shift: Added to every component of the difference.
            chunk_size: Keys at a time; None for as many as fit a chunk.

        Returns:
            [query, key]; exactly zero (without a shift) where a query does not read a key at all.
        """
        n_queries, n_keys = self.weights.shape[1:]
        size = chunk_size or max(1, _chunk_bytes(to.device) // (to.element_size() * self.dim * n_queries))
        nothing = _nearer(to, shift - to, power)
        found = nothing[:, None].repeat(1, n_keys)
        scaled = self.weights * self.row[:, None]
        for keys, queries in self._chunks(size):
            a = scaled[:, queries, keys].permute(2, 1, 0)
            count, rows = a.shape[:2]
            apart = torch.baddbmm(to[queries].expand(count, rows, -1), a, self.sources(keys), beta=-1)
            if self.own is not None and self.own_key is not None:
                tokens = torch.arange(count, device=to.device) + keys.start - self.own_key
                places = (tokens >= 0).nonzero()[:, 0]
                tokens = tokens[places]
                apart[places, tokens - (queries.start or 0)] += self.own[tokens]
            if shift:
                apart += shift
            found[queries, keys] = _nearer(to[queries], apart, power).T
        return torch.where(self.unread(), nothing[:, None], found)

    def own_nearness(self, to: Tensor, power: int, *, shift: float = 0.0) -> Tensor:
        """Return the same of the residual connection alone [query]."""
        own = torch.zeros_like(to) if self.own is None else self.own
        return _nearer(to, own - to + shift, power)

    def unread(self) -> Tensor:
        """Return whether a query gets nothing at all of a key [query, key]: it reads it in no head."""
        unread = ~self.weights.any(0)
        if self.own_key is not None:
            unread.diagonal(self.own_key).zero_()
        return unread


def _nearer(to: Tensor, apart: Tensor, power: int) -> Tensor:
    """Return |to| - |apart| over the last axis; `apart` is overwritten."""
    if power == 1:
        return torch.sub(to.abs(), apart.abs_(), out=apart).sum(-1)
    return to.square().sum(-1).sqrt() - apart.square_().sum(-1).sqrt()


def _chunk_bytes(device: torch.device) -> int:
    return _CHUNK_BYTES if device.type == "cpu" else _ACCELERATOR_CHUNK_BYTES


def _exact_device(tensor: Tensor) -> torch.device:
    """Return where float64 can be computed: Apple's accelerator has none."""
    return torch.device("cpu") if tensor.device.type == "mps" else tensor.device


def parts_of(block: Block, stage: Stage) -> Parts:
    """Return a block's vectors at a stage.

    Args:
        block: A proved block.
        stage: "attn": what attention adds, without the bias of its output projection; "res": with the
            residual connection; "res_ln": after norm 1 of a post-norm block; "enc": after its norm 2, which
            is given the statistics of the real states, the feed-forward layer between them left out. Blocks
            that norm before they mix have no norm there, and both are "res".

    Raises:
        UnsupportedModelError: For "enc" of a post-norm block that has a cross-attention between its norms.

    Returns:
        Parts whose `reference` is the state they add up to, less biases: none for "attn"; the sum before
        norm 1 for "res"; norm 1's output for "res_ln"; the block's output for "enc" of a post-norm block,
        from which they differ by the feed-forward layer as well.
    """
    if block.cross is not None and block.layout.order == "post" and stage == "enc":
        raise UnsupportedModelError(
            f"the vectors after {type(block.module).__name__} are not known at its norm 2: between the two "
            "norms stand a cross-attention and a norm of its own; take them after norm 1."
        )
    weights = block.weights()
    matrix, row, _ = block.branch()
    own = None if stage == "attn" else block.hidden
    reference = None if stage == "attn" else block.middle
    # Norms with the real states they read; no state is asked for without need, since it takes a layer's work.
    passed = []
    if block.layout.order == "post" and stage in ("res_ln", "enc"):
        passed.append((block.norm1, block.middle))
    if block.layout.order == "post" and stage == "enc":
        passed.append((block.norm2, block.last))
    for norm, state in passed:
        if norm is None:
            continue
        deviation = norm.deviation(state)
        matrix, row = norm.direct(matrix), row / deviation[:, 0]
        own = None if own is None else norm.direct(own) / deviation
        reference = norm(state)
    # A prefix of keys comes before all tokens, and is none of them.
    causal = block.own_key == 0 and not bool(torch.triu(weights, diagonal=1).any())
    return Parts(weights, block.head_values(), matrix, row, own, block.own_key, reference, causal)
