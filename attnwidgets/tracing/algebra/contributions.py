"""The vectors that tokens contribute to each other in a block, never all in memory at once.

The vector from token j to token i is row_i * sum_h A^h_ij u^h_j with u^h_j = v^h_j matrix^h; the residual
connection is added on the diagonal, and in cross-attention belongs to no key. Heads are summed before
anything is measured. Lengths come from the Gram matrix G of the heads' vectors u^h_j of one token j,
|sum_h a_h u_h|^2 = a^T G a, so nothing of size [query, key, dim] is allocated for them. Keys that are joined
in a span add more vectors to the same sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.steps import Norm

    # For each span, the keys that it joins.
    Spans = Sequence[Sequence[int]]

Stage = Literal["attn", "res", "res_ln", "enc"]

# A CPU is fastest with chunks that stay in its caches; an accelerator needs larger ones.
_CHUNK_BYTES = 2**22
_ACCELERATOR_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Parts:
    """The vectors of a block at a stage.

    Methods that take `spans` add the vectors of a span's keys before measuring them and return a column per
    span; by default each key is a span.

    Args:
        weights: A [head, query, key].
        values: v [head, key, head dim].
        matrix: Map from a head's values to the stage's vectors [head, head dim, dim].
        row: Factor of each query's vectors [query].
        residual: The residual connection at this stage [query, dim]; None if it is left out.
        own_key: Index of the first query's token among the keys, whose vector includes `residual` (the
            next query's is the next key); None if the keys belong to another sequence.
        state: Computes the sum of the parts and biases, if that is a state of the model.
    """

    weights: Tensor
    values: Tensor
    matrix: Tensor
    row: Tensor
    residual: Tensor | None
    own_key: int | None
    state: Callable[[], Tensor] | None

    @cached_property
    def reference(self) -> Tensor | None:
        """The sum of the parts and biases [query, dim]; None if it is not a state of the model."""
        return None if self.state is None else self.state()

    @property
    def dim(self) -> int:
        """Length of the vectors."""
        return self.matrix.shape[-1]

    @cached_property
    def read(self) -> Tensor:
        """Whether any head of a query reads a key [query, key]."""
        return self.weights.amax(0) > 0

    @cached_property
    def causal(self) -> bool:
        """Whether no query reads a later key; False if the keys start with a prefix."""
        return self.own_key == 0 and not bool(self.read.triu(1).any())

    def of_head(self, head: int) -> Parts:
        """Return the vectors of a head, without the residual connection."""
        weights, values, matrix = (
            tensor[head : head + 1] for tensor in (self.weights, self.values, self.matrix)
        )
        return replace(self, weights=weights, values=values, matrix=matrix, residual=None)

    def norms(self, spans: Spans | None = None) -> Tensor:
        """Return the norm of every vector [query, key], float64.

        Memory beyond the attention weights is a few chunks. Squares and sums are float64, which keeps the
        cancellation between heads below the rounding of float32 inputs.
        """
        spans = self._spans(spans)
        n_heads, n_queries, _ = self.weights.shape
        device = _exact_device(self.weights)
        lengths = torch.zeros(n_queries, len(spans), dtype=torch.float64, device=device)
        n_vectors = n_heads * max(map(len, spans), default=1)
        by_gram = n_vectors < self.dim
        numbers_per_span = n_vectors * (self.dim + 3 * n_queries) if by_gram else 2 * self.dim * n_queries
        row = self.row.to(device).double()
        for chunk in self._chunks(spans, max(1, _chunk_bytes(device) // (8 * numbers_per_span))):
            tokens, span_numbers = chunk.owners
            own_queries = tokens - chunk.queries.start
            if by_gram:
                u, a = chunk.sources(), chunk.weights()
                from_self = (
                    None
                    if self.residual is None
                    else torch.bmm(a[span_numbers, :, own_queries][:, None], u[span_numbers])[:, 0]
                )
                u, a = u.to(device).double(), a.to(device).double()
                square = torch.bmm(torch.bmm(u, u.transpose(1, 2)), a).mul_(a).sum(1)
            else:
                vectors = chunk.vectors()
                from_self = None if self.residual is None else vectors[span_numbers, own_queries]
                square = vectors.to(device).double().square_().sum(-1)
            square = square.clamp_(min=0).sqrt_() * row[chunk.queries]
            if self.residual is not None and from_self is not None:
                from_self = (from_self * self.row[tokens, None] + self.residual[tokens]).to(device).double()
                square[span_numbers.to(device), own_queries.to(device)] = from_self.norm(dim=-1)
            lengths[chunk.queries, chunk.elements] = square.T
        return lengths

    def head_norms(self, spans: Spans | None = None) -> Tensor:
        """Return the norm of each head's vectors [head, query, key], without the residual connection."""
        if spans is not None:
            return torch.stack([self.of_head(head).norms(spans) for head in range(len(self.weights))])
        value_norms = torch.stack(
            [(v @ m).norm(dim=-1) for v, m in zip(self.values, self.matrix, strict=True)]
        )  # [head, key], one head's vectors at a time
        return self.weights * value_norms[:, None] * self.row[:, None]

    def from_self(self, spans: Spans | None = None) -> Tensor:
        """Return each token's vector to itself, including the residual connection [query, dim].

        With `spans`, the vector from the span the token lies in.
        """
        if self.own_key is None:
            return self.residual if self.residual is not None else self.row.new_zeros(len(self.row), self.dim)
        if spans is None or all(len(span) == 1 for span in spans):
            weights = self.weights.diagonal(self.own_key, dim1=1, dim2=2)
            return self._write(weights[..., None] * self.values[:, self.own_key :])
        tokens, elements = self.owners(spans)
        span_of = self.row.new_zeros(self.weights.shape[-1], dtype=torch.long)
        for element, span in enumerate(spans):
            span_of[list(span)] = element
        within = torch.zeros_like(self.read)
        within[tokens] = span_of == elements[:, None]
        return self._write((self.weights * within) @ self.values)

    def total(self) -> Tensor:
        """Return the sum of all vectors [query, dim], including the residual connection."""
        return self._write(self.weights @ self.values)

    def _write(self, mixed: Tensor) -> Tensor:
        """Return the heads' output for mixed values [head, query, head dim], plus the residual connection."""
        written = mixed.transpose(0, 1).flatten(1) @ self.matrix.flatten(0, 1) * self.row[:, None]
        return written if self.residual is None else written + self.residual

    def nearness(
        self,
        to: Tensor,
        power: int,
        *,
        shift: float = 0.0,
        chunk_size: int | None = None,
        spans: Spans | None = None,
    ) -> Tensor:
        """Return |to_i| - |part_ij - to_i|: how much closer to `to` each vector is than a zero vector.

        For power 1 the sum runs over the differences of components, which are small; the difference of two
        sums of absolute values would be dominated by rounding.

        Args:
            to: The target vector of every query [query, dim].
            power: 1 or 2, the norm of the difference.
            shift: Added to every component of the difference.
            chunk_size: Keys or spans at a time; None for the number that fits a chunk.
            spans: Keys that are joined.

        Returns:
            [query, key]; exactly zero (without a shift) where a query does not read a key.
        """
        spans = self._spans(spans)
        n_queries = len(self.row)
        size = chunk_size or max(1, _chunk_bytes(to.device) // (to.element_size() * self.dim * n_queries))
        zero_gain = nearer(to, shift - to, power)
        gains = zero_gain[:, None].repeat(1, len(spans))
        buffer = to.new_empty(min(size, len(spans)), n_queries, self.dim)
        for chunk in self._chunks(spans, size):
            difference = chunk.vectors(self.row, buffer)
            difference -= to[chunk.queries]
            if self.residual is not None:
                tokens, span_numbers = chunk.owners
                difference[span_numbers, tokens - chunk.queries.start] += self.residual[tokens]
            if shift:
                difference += shift
            gains[chunk.queries, chunk.elements] = nearer(to[chunk.queries], difference, power).T
        return torch.where(self.unread(spans), zero_gain[:, None], gains)

    def residual_nearness(self, to: Tensor, power: int, *, shift: float = 0.0) -> Tensor:
        """Return the same for the residual connection alone [query]."""
        residual = torch.zeros_like(to) if self.residual is None else self.residual
        return nearer(to, residual - to + shift, power)

    def unread(self, spans: Spans | None = None) -> Tensor:
        """Return whether a query receives nothing from a key [query, key]: no head reads it."""
        read = self.read
        if spans is not None and any(span != (key,) for key, span in enumerate(spans)):
            read = torch.stack([read[:, list(span)].any(1) for span in spans], dim=1)
        unread = ~read
        tokens, elements = self.owners(self._spans(spans))
        unread[tokens, elements] = False
        return unread

    def _spans(self, spans: Spans | None) -> Spans:
        return [(key,) for key in range(self.weights.shape[-1])] if spans is None else spans

    def owners(self, spans: Spans) -> tuple[Tensor, Tensor]:
        """Return the queries whose tokens lie in spans, and the numbers of these spans [match] each."""
        first = self.weights.shape[-1] if self.own_key is None else self.own_key
        pairs = [(key - first, element) for element, span in enumerate(spans) for key in span if key >= first]
        tokens, elements = torch.tensor(pairs, device=self.row.device).long().reshape(-1, 2).unbind(1)
        return tokens, elements

    def _chunks(self, spans: Spans, size: int) -> Iterator[_Chunk]:
        """Yield a few spans at a time, with the queries that may read them."""
        for start in range(0, len(spans), size):
            some = spans[start : start + size]
            first = min((key for span in some for key in span), default=0) if self.causal else 0
            yield _Chunk(self, slice(start, start + len(some)), slice(first, len(self.row)), some)


@dataclass(frozen=True)
class _Chunk:
    """Vectors of a few spans.

    Args:
        parts: The block's vectors.
        elements: Numbers of the spans.
        queries: The queries.
        spans: The keys of these spans.
    """

    parts: Parts
    elements: slice
    queries: slice
    spans: Spans

    @cached_property
    def _keys(self) -> slice | Tensor:
        """The keys, with all spans padded to the longest."""
        first = self.spans[0][0] if self.spans[0] else 0
        if all(tuple(span) == (first + index,) for index, span in enumerate(self.spans)):
            return slice(first, first + len(self.spans))
        longest = max(map(len, self.spans))
        keys = [key for span in self.spans for key in (*span, *(longest - len(span)) * (0,))]
        return torch.tensor(keys, device=self.parts.row.device).long()

    @cached_property
    def owners(self) -> tuple[Tensor, Tensor]:
        """The queries whose tokens lie in these spans, and the numbers of these spans [match] each."""
        return self.parts.owners(self.spans)

    def weights(self) -> Tensor:
        """Return the attention of the queries [span, key * head, query]."""
        weights = self.parts.weights[:, self.queries]
        if isinstance(self._keys, slice):
            return weights[:, :, self._keys].permute(2, 0, 1).contiguous()
        weights = weights.index_select(2, self._keys).unflatten(2, (len(self.spans), -1))
        lengths = torch.tensor([len(span) for span in self.spans], device=weights.device)
        present = torch.arange(weights.shape[3], device=weights.device) < lengths[:, None]
        by_span: Tensor = (weights * present).permute(2, 3, 0, 1)
        return by_span.flatten(1, 2)

    def sources(self) -> Tensor:
        """Return u [span, key * head, dim]."""
        u = torch.bmm(self.parts.values[:, self._keys], self.parts.matrix)
        if isinstance(self._keys, slice):
            return u.transpose(0, 1)
        by_span: Tensor = u.unflatten(1, (len(self.spans), -1)).permute(1, 2, 0, 3)
        return by_span.flatten(1, 2)

    def vectors(self, row: Tensor | None = None, buffer: Tensor | None = None) -> Tensor:
        """Return sum_h A u [span, query, dim].

        Args:
            row: A factor for each query.
            buffer: Memory to write the result to: allocating it for every chunk takes as long as filling it.
        """
        weights = self.weights()
        if row is not None:
            weights *= row[self.queries]
        n_heads, dim = len(self.parts.values), self.parts.dim
        if weights.shape[1] < dim:
            out = None
            if buffer is not None:
                shape = (len(weights), weights.shape[2], dim)
                out = buffer.flatten()[: math.prod(shape)].view(shape)
            return torch.bmm(weights.transpose(1, 2), self.sources(), out=out)
        values = self.parts.values[:, self._keys].unflatten(1, (len(self.spans), -1))
        mixed = torch.einsum("ekhr,hekv->erhv", weights.unflatten(1, (-1, n_heads)), values)
        return mixed.flatten(2) @ self.parts.matrix.flatten(0, 1)


def nearer(to: Tensor, difference: Tensor, power: int) -> Tensor:
    """Return |to| - |difference| over the last axis; `difference` is overwritten."""
    if power == 1:
        return torch.sub(to.abs(), difference.abs_(), out=difference).sum(-1)
    return to.square().sum(-1).sqrt() - difference.square_().sum(-1).sqrt()


def _chunk_bytes(device: torch.device) -> int:
    return _CHUNK_BYTES if device.type == "cpu" else _ACCELERATOR_CHUNK_BYTES


def _exact_device(tensor: Tensor) -> torch.device:
    """Return a device that computes in float64, which Apple's accelerator does not."""
    return torch.device("cpu") if tensor.device.type == "mps" else tensor.device


def parts_of(block: Block, stage: Stage) -> Parts:
    """Return a block's vectors at a stage.

    Args:
        block: A verified block.
        stage: "attn": the attention output, without the bias of its projection; "res": plus the residual
            connection; "res_ln": after norm 1 of a post-norm block; "enc": after its norm 2 too, with the
            statistics of the real states and the feed-forward layer between the norms left out. In pre-norm
            blocks no norm follows, and the last two equal "res".

    Raises:
        UnsupportedModelError: For "enc" of a post-norm block with a cross-attention between its norms.

    Returns:
        Parts whose `reference` is the state they add up to, less biases: none for "attn"; the sum before
        norm 1 for "res"; norm 1's output for "res_ln"; the block's output for "enc" of a post-norm block,
        from which they also differ by the feed-forward layer.
    """
    if block.cross is not None and block.layout.order == "post" and stage == "enc":
        raise UnsupportedModelError(
            f"the vectors after norm 2 of {type(block.module).__name__} are unknown: a cross-attention with "
            "its own norm lies between the two norms; take the vectors after norm 1."
        )
    weights = block.weights()
    matrix, row, _ = block.branch()
    residual = None if stage == "attn" else block.hidden
    # Norms with the real states they read. States are computed only when needed: each costs a layer.
    norms: list[tuple[Norm | None, Callable[[], Tensor]]] = []
    if block.layout.order == "post" and stage in ("res_ln", "enc"):
        norms.append((block.norm1, lambda: block.middle))
    if block.layout.order == "post" and stage == "enc":
        norms.append((block.norm2, lambda: block.last))
    state_with_biases: Callable[[], Tensor] | None = None if stage == "attn" else lambda: block.middle
    for norm, before in norms:
        if norm is None:
            continue
        state = before()
        deviation = norm.deviation(state)
        matrix, row = norm.direct(matrix), row / deviation[:, 0]
        residual = None if residual is None else norm.direct(residual) / deviation
        state_with_biases = partial(norm, state)
    return Parts(weights, block.head_values(), matrix, row, residual, block.own_key, state_with_biases)
