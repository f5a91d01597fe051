"""What every token gives to every other in a block, as vectors that are never all held at once.

The vector from token j to token i is row_i * sum_h A^h_ij u^h_j with u^h_j = v^h_j matrix^h, and the residual
connection on the diagonal; in cross-attention it belongs to no key. Heads are summed before anything is
measured. Lengths come from the Gram matrices of the u^h_j of one token j, head by head:
|sum_h a_h u_h|^2 = a^T G a. Nothing of size [query, key, dim] is made for them. Several keys that count as
one are so many more vectors in the same sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block
    from attnwidgets.tracing.algebra.modules import Norm

    # Keys that count as one, one span after another.
    Spans = Sequence[Sequence[int]]

Stage = Literal["attn", "res", "res_ln", "enc"]

# Chunks that stay in a processor's cache are fastest there; an accelerator wants more work at a time.
_CHUNK_BYTES = 2**22
_ACCELERATOR_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Parts:
    """The vectors of one block at one stage.

    Where methods take `spans`, the vectors of a span's keys are added before they are measured, and the
    result has a column for every span; by default every key is a span of its own.

    Args:
        weights: A [head, query, key].
        values: v [head, key, head dim].
        matrix: From a head's values to the stage's vectors [head, head dim, dim].
        row: Factor of every query's vectors [query].
        own: What the residual connection adds [query, dim], at this stage; None for nothing.
        own_key: Which key is the first query's own token, to whose vector `own` belongs (the second query's
            is the next); None where the keys are another sequence's, and `own` is of none of them.
        state: Says what the parts add up to with biases, where the stage is one of the model's states.
    """

    weights: Tensor
    values: Tensor
    matrix: Tensor
    row: Tensor
    own: Tensor | None
    own_key: int | None
    state: Callable[[], Tensor] | None

    @cached_property
    def reference(self) -> Tensor | None:
        """What the parts add up to with biases [query, dim]; None where that is no state of the model."""
        return None if self.state is None else self.state()

    @property
    def dim(self) -> int:
        """Size of the vectors."""
        return self.matrix.shape[-1]

    @cached_property
    def read(self) -> Tensor:
        """Whether any head of a query reads a key [query, key]."""
        return self.weights.amax(0) > 0

    @cached_property
    def causal(self) -> bool:
        """Whether no query reads a later key; not asked where a prefix of keys comes before the tokens."""
        return self.own_key == 0 and not bool(self.read.triu(1).any())

    def of_head(self, head: int) -> Parts:
        """Return the vectors of one head, without the residual connection."""
        one = slice(head, head + 1)
        return replace(
            self, weights=self.weights[one], values=self.values[one], matrix=self.matrix[one], own=None
        )

    def norms(self, spans: Spans | None = None) -> Tensor:
        """Return the length of every vector [query, key], float64.

        Beyond the attention weights this takes no more than a few chunks. Squares and sums are float64, which
        takes the cancellation between heads below the rounding of float32 inputs.
        """
        spans = self._each(spans)
        n_heads, n_queries, _ = self.weights.shape
        exact = _exact_device(self.weights)
        found = torch.zeros(n_queries, len(spans), dtype=torch.float64, device=exact)
        together = n_heads * max(map(len, spans), default=1)
        few = together < self.dim
        numbers = together * (self.dim + 3 * n_queries) if few else 2 * self.dim * n_queries
        row = self.row.to(exact).double()
        for chunk in self._chunks(spans, max(1, _chunk_bytes(exact) // (8 * numbers))):
            tokens, places = chunk.owners
            own = tokens - chunk.queries.start
            if few:
                u, a = chunk.sources(), chunk.weights()
                kept = None if self.own is None else torch.bmm(a[places, :, own][:, None], u[places])[:, 0]
                u, a = u.to(exact).double(), a.to(exact).double()
                square = torch.bmm(torch.bmm(u, u.transpose(1, 2)), a).mul_(a).sum(1)
            else:
                vectors = chunk.vectors()
                kept = None if self.own is None else vectors[places, own]
                square = vectors.to(exact).double().square_().sum(-1)
            square = square.clamp_(min=0).sqrt_() * row[chunk.queries]
            if self.own is not None and kept is not None:
                kept = (kept * self.row[tokens, None] + self.own[tokens]).to(exact).double()
                square[places.to(exact), own.to(exact)] = kept.norm(dim=-1)
            found[chunk.queries, chunk.elements] = square.T
        return found

    def head_norms(self, spans: Spans | None = None) -> Tensor:
        """Return the length of every head's vector [head, query, key], without the residual connection."""
        if spans is not None:
            return torch.stack([self.of_head(head).norms(spans) for head in range(len(self.weights))])
        lengths = torch.stack(
            [(v @ m).norm(dim=-1) for v, m in zip(self.values, self.matrix, strict=True)]
        )  # [head, key], one head's vectors at a time
        return self.weights * lengths[:, None] * self.row[:, None]

    def kept(self, spans: Spans | None = None) -> Tensor:
        """Return what every token keeps of itself [query, dim]: its vector to itself, with the residual.

        With `spans`, what it gets of the span that it lies in.
        """
        if self.own_key is None:
            return self.own if self.own is not None else self.row.new_zeros(len(self.row), self.dim)
        if spans is None or all(len(span) == 1 for span in spans):
            weights = self.weights.diagonal(self.own_key, dim1=1, dim2=2)
            return self._written(weights[..., None] * self.values[:, self.own_key :])
        tokens, elements = self.owners(spans)
        span_of = self.row.new_zeros(self.weights.shape[-1], dtype=torch.long)
        for element, span in enumerate(spans):
            span_of[list(span)] = element
        within = torch.zeros_like(self.read)
        within[tokens] = span_of == elements[:, None]
        return self._written((self.weights * within) @ self.values)

    def total(self) -> Tensor:
        """Return the sum of every token's vectors [query, dim], with the residual connection."""
        return self._written(self.weights @ self.values)

    def _written(self, mixed: Tensor) -> Tensor:
        """Return what heads write of values that they mixed [head, query, head dim], with the residual."""
        written = mixed.transpose(0, 1).flatten(1) @ self.matrix.flatten(0, 1) * self.row[:, None]
        return written if self.own is None else written + self.own

    def nearness(
        self,
        to: Tensor,
        power: int,
        *,
        shift: float = 0.0,
        chunk_size: int | None = None,
        spans: Spans | None = None,
    ) -> Tensor:
        """Return by how much nearer every vector comes to one vector per query than nothing at all does.

        That is |to_i| - |part_ij - to_i|. For power 1 it is summed component by component, whose differences
        are small; two sums of absolute values would leave their rounding behind.

        Args:
            to: [query, dim].
            power: 1 or 2, the norm of the difference.
            shift: Added to every component of the difference.
            chunk_size: Keys or spans at a time; None for as many as fit a chunk.
            spans: Keys that count as one.

        Returns:
            [query, key]; exactly zero (without a shift) where a query does not read a key at all.
        """
        spans = self._each(spans)
        n_queries = len(self.row)
        size = chunk_size or max(1, _chunk_bytes(to.device) // (to.element_size() * self.dim * n_queries))
        nothing = _nearer(to, shift - to, power)
        found = nothing[:, None].repeat(1, len(spans))
        room = to.new_empty(min(size, len(spans)), n_queries, self.dim)
        for chunk in self._chunks(spans, size):
            apart = chunk.vectors(self.row, room)
            apart -= to[chunk.queries]
            if self.own is not None:
                tokens, places = chunk.owners
                apart[places, tokens - chunk.queries.start] += self.own[tokens]
            if shift:
                apart += shift
            found[chunk.queries, chunk.elements] = _nearer(to[chunk.queries], apart, power).T
        return torch.where(self.unread(spans), nothing[:, None], found)

    def own_nearness(self, to: Tensor, power: int, *, shift: float = 0.0) -> Tensor:
        """Return the same of the residual connection alone [query]."""
        own = torch.zeros_like(to) if self.own is None else self.own
        return _nearer(to, own - to + shift, power)

    def unread(self, spans: Spans | None = None) -> Tensor:
        """Return whether a query gets nothing at all of a key [query, key]: it reads it in no head."""
        read = self.read
        if spans is not None and any(span != (key,) for key, span in enumerate(spans)):
            read = torch.stack([read[:, list(span)].any(1) for span in spans], dim=1)
        unread = ~read
        tokens, elements = self.owners(self._each(spans))
        unread[tokens, elements] = False
        return unread

    def _each(self, spans: Spans | None) -> Spans:
        return [(key,) for key in range(self.weights.shape[-1])] if spans is None else spans

    def owners(self, spans: Spans) -> tuple[Tensor, Tensor]:
        """Return the queries whose own tokens lie in spans, and which spans these are, both [place]."""
        first = self.own_key
        places = [
            (key - first, number)
            for number, span in enumerate(spans)
            for key in span
            if first is not None and key >= first
        ]
        tokens, numbers = torch.tensor(places, device=self.row.device).long().reshape(-1, 2).unbind(1)
        return tokens, numbers

    def _chunks(self, spans: Spans, size: int) -> Iterator[_Chunk]:
        """Yield spans, a few at a time, with the queries that may read them."""
        for start in range(0, len(spans), size):
            some = spans[start : start + size]
            first = min((key for span in some for key in span), default=0) if self.causal else 0
            yield _Chunk(self, slice(start, start + len(some)), slice(first, len(self.row)), some)


@dataclass(frozen=True)
class _Chunk:
    """Vectors of a few spans.

    Args:
        parts: Where they are from.
        elements: Which spans.
        queries: Which queries.
        spans: Their keys.
    """

    parts: Parts
    elements: slice
    queries: slice
    spans: Spans

    @cached_property
    def _keys(self) -> slice | Tensor:
        """The keys, all spans as long as the longest."""
        first = self.spans[0][0] if self.spans[0] else 0
        if all(tuple(span) == (first + place,) for place, span in enumerate(self.spans)):
            return slice(first, first + len(self.spans))
        longest = max(map(len, self.spans))
        keys = [key for span in self.spans for key in (*span, *(longest - len(span)) * (0,))]
        return torch.tensor(keys, device=self.parts.row.device).long()

    @cached_property
    def owners(self) -> tuple[Tensor, Tensor]:
        """The queries whose own tokens lie in these spans, and which spans these are, both [place]."""
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

    def vectors(self, row: Tensor | None = None, room: Tensor | None = None) -> Tensor:
        """Return sum_h A u [span, query, dim].

        Args:
            row: A factor for each query.
            room: Where to put them, if they fit: new memory for every chunk takes as long as filling it.
        """
        weights = self.weights()
        if row is not None:
            weights *= row[self.queries]
        n_heads, dim = len(self.parts.values), self.parts.dim
        if weights.shape[1] < dim:
            out = None
            if room is not None:
                shape = (len(weights), weights.shape[2], dim)
                out = room.flatten()[: math.prod(shape)].view(shape)
            return torch.bmm(weights.transpose(1, 2), self.sources(), out=out)
        values = self.parts.values[:, self._keys].unflatten(1, (len(self.spans), -1))
        mixed = torch.einsum("ekhr,hekv->erhv", weights.unflatten(1, (-1, n_heads)), values)
        return mixed.flatten(2) @ self.parts.matrix.flatten(0, 1)


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
    # Norms with the real states they read; no state is asked for without need, since it takes a layer's work.
    passed: list[tuple[Norm | None, Callable[[], Tensor]]] = []
    if block.layout.order == "post" and stage in ("res_ln", "enc"):
        passed.append((block.norm1, lambda: block.middle))
    if block.layout.order == "post" and stage == "enc":
        passed.append((block.norm2, lambda: block.last))
    reached: Callable[[], Tensor] | None = None if stage == "attn" else lambda: block.middle
    for norm, before in passed:
        if norm is None:
            continue
        state = before()
        deviation = norm.deviation(state)
        matrix, row = norm.direct(matrix), row / deviation[:, 0]
        own = None if own is None else norm.direct(own) / deviation
        reached = partial(norm, state)
    return Parts(weights, block.head_values(), matrix, row, own, block.own_key, reached)
