"""A block applied to the sources' vectors: how each source's part of every token passes through it.

T[i, j] is the part of source j in the state of token i: sum_j T[i, j] is that state. Rows i are processed in
chunks that fit a CPU's caches. A vector is stored for every pair, and a value vector for every pair while the
block is computed. Causal models only store the pairs that exist, about half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING

import torch

from attnwidgets._gradients import no_grad
from attnwidgets.tracing.algebra.blocks import resolve_path
from attnwidgets.tracing.algebra.decomposition import Rules, Vectors
from attnwidgets.tracing.algebra.steps import Affine, Gated, Norm, Step, apply_steps, read_steps
from attnwidgets.tracing.recording.attention_function import repeat_heads
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block

# A CPU is fastest with chunks of rows that stay in its caches; an accelerator needs larger ones.
_CHUNK_BYTES = 2**25
_ACCELERATOR_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Sources:
    """The sources that vectors belong to: the elements of a unit, or some of them.

    Args:
        spans: The tokens of each source.
        n_tokens: Number of tokens.
        causal: Whether no token reads a later one, so that rows before a source's first token have no part
            of it.
    """

    spans: tuple[tuple[int, ...], ...]
    n_tokens: int
    causal: bool

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def _reaches(self) -> list[int]:
        """For each token, how many of the first sources may be present in the rows up to it."""
        reaches = [0] * self.n_tokens
        for number, span in enumerate(self.spans, 1):
            for token in span:
                reaches[token] = number
        return list(accumulate(reaches, max))

    def reach(self, stop: int) -> int:
        """Return how many of the first sources may be present in rows before `stop`."""
        return self._reaches[stop - 1] if self.causal else len(self.spans)

    @property
    def low(self) -> int:
        """The first row that may have a part of any source."""
        return min((min(span) for span in self.spans if span), default=0) if self.causal else 0

    @cached_property
    def pairs(self) -> tuple[Tensor, Tensor]:
        """Source [pair] and token [pair] of every token of every source, in the order of the sources."""
        pairs = [(number, token) for number, span in enumerate(self.spans) for token in span]
        sources, tokens = torch.tensor(pairs).reshape(-1, 2).T
        return sources, tokens


@dataclass(frozen=True)
class Chunk:
    """The vectors of some rows [row, source, dim]; sources beyond the last are zero in them."""

    rows: slice
    base: Tensor


@dataclass(frozen=True)
class DecomposedLayer:
    """A block in the form that vectors pass through.

    Args:
        block: The verified block.
        value: W_V [dim, kv head * head dim] and its bias.
        weights: A [head, query, key], times the factor of a norm after attention.
        middle: The state after attention is added [query, dim], before norm 1 of a post-norm block.
        matrix: Map from the heads to the attention output [head * head dim, dim].
        bias: Bias of the attention output [query, dim].
        feed: Steps of the feed-forward layer.
    """

    block: Block
    value: Affine
    weights: Tensor
    middle: Tensor
    matrix: Tensor
    bias: Tensor
    feed: tuple[Step, ...]

    @property
    def hidden(self) -> Tensor:
        """The states that the block reads [token, dim]."""
        return self.block.hidden

    @property
    def output(self) -> Tensor:
        """The states that the block returns [token, dim]."""
        return self.block.output

    @property
    def biased(self) -> bool:
        """Whether the block has any bias to distribute."""
        norms = (self.block.norm1, self.block.norm2, *(step for step in self.feed if isinstance(step, Norm)))
        biases = [norm.shift for norm in norms if norm is not None]
        biases += [step.bias for step in self._maps()]
        return any(bias is not None and bool(bias.any()) for bias in (*biases, self.bias))

    @cached_property
    def n_bytes(self) -> int:
        """Memory beyond the weights of the model, which are copied if they are in another precision."""
        of_model = {p.untyped_storage().data_ptr() for p in self.block.module.parameters()}
        tensors = (self.weights, self.middle, self.matrix, self.bias, *(step.matrix for step in self._maps()))
        return sum(t.nbytes for t in tensors if t.untyped_storage().data_ptr() not in of_model)

    def _maps(self) -> Iterator[Affine]:
        """Yield the affine maps that vectors pass, except for that from the heads."""
        yield self.value
        for step in self.feed:
            parts = (step.up, step.gate) if isinstance(step, Gated) else (step,)
            yield from (part for part in parts if isinstance(part, Affine))

    @property
    def bytes_a_pair(self) -> int:
        """Memory per source and row: its vector, and its value vector while the block is computed."""
        return (self.matrix.shape[1] + self.value.matrix.shape[1]) * self.matrix.element_size()

    def start(self, sources: Sources) -> list[Chunk]:
        """Return the vectors of the model's first input, where each token belongs to the source around it."""
        hidden = self.block.hidden
        owners, tokens = (indices.to(hidden.device) for indices in sources.pairs)
        chunks = []
        size = self._rows_at_a_time(sources)
        for start in range(sources.low, sources.n_tokens, size):
            rows = slice(start, min(start + size, sources.n_tokens))
            base = hidden.new_zeros(rows.stop - start, sources.reach(rows.stop), hidden.shape[1])
            inside = (tokens >= start) & (tokens < rows.stop)
            base[tokens[inside] - start, owners[inside]] = hidden[tokens[inside]]
            chunks.append(Chunk(rows, base))
        return chunks

    def _rows_at_a_time(self, sources: Sources) -> int:
        wide = [step.matrix.shape[1] for step in self.feed if isinstance(step, Affine)]
        wide += [2 * step.up.matrix.shape[1] for step in self.feed if isinstance(step, Gated)]
        numbers = len(sources) * (max(wide, default=0) + 4 * self.matrix.shape[1])
        chunk = _CHUNK_BYTES if self.matrix.device.type == "cpu" else _ACCELERATOR_CHUNK_BYTES
        return max(1, chunk // (numbers * self.matrix.element_size()))

    def advance(
        self,
        chunks: list[Chunk],
        sources: Sources,
        rules: Rules,
        *,
        first: bool,
        ffn: bool,
        only: Sequence[int] | None = None,
    ) -> list[Chunk]:
        """Return the vectors of the block's output.

        Args:
            chunks: The vectors of its input; the list is emptied to free each chunk after use.
            sources: The sources.
            rules: How biases and nonlinear functions are distributed.
            first: Whether this is the first block, where a value belongs to a single source, bias included.
            ffn: Whether vectors pass through the feed-forward layer.
            only: The rows to compute; all by default.
        """
        values = None if first else self._values(chunks, sources, rules)
        bias = self._bias(first=first)
        if only is not None:
            chunks[:] = [_row(chunks, row) for row in only]
        outputs = []
        while chunks:
            chunk = chunks.pop(0)
            mixed = self._mix_first(chunk, sources) if values is None else self._mix(chunk, values, sources)
            outputs.append(Chunk(chunk.rows, self._finish(chunk, mixed, bias, rules, ffn=ffn)))
        return outputs

    def _bias(self, *, first: bool) -> Tensor | None:
        """Return the bias of attention [query, dim]; None if it is zero.

        It includes the bias of the values, except in the first block, whose values include it.
        """
        bias = self.bias
        if self.value.bias is not None and not first:
            heads, size = len(self.weights), self.block.values.shape[-1]
            by_head = repeat_heads(self.value.bias.reshape(1, -1, 1, size), heads)[0]
            added = torch.bmm(by_head, self.matrix.reshape(heads, size, -1))[:, 0]
            bias = bias + self.weights.sum(-1).T @ added
        return bias if bool(bias.any()) else None

    def _values(self, chunks: Iterable[Chunk], sources: Sources, rules: Rules) -> Tensor:
        """Return the value vectors [kv head, key, source, head dim] of keys from `sources.low` on."""
        block = self.block
        norm = block.norm1 if block.layout.order != "post" else None
        kv, n_keys, size = block.values.shape
        shape = (kv, n_keys - sources.low, len(sources), size)
        values = block.hidden.new_zeros(shape) if sources.causal else block.hidden.new_empty(shape)
        for chunk in chunks:
            base = chunk.base
            if norm is not None:
                base = Vectors(block.hidden[chunk.rows], base).normed(norm, rules).whole()
            projected = torch.matmul(base, self.value.matrix).unflatten(-1, (kv, size))
            keys = slice(chunk.rows.start - sources.low, chunk.rows.stop - sources.low)
            values[:, keys, : base.shape[1]] = projected.permute(2, 0, 1, 3)
        return values

    def _mix_first(self, chunk: Chunk, sources: Sources) -> Tensor:
        """Return the heads' mixed values by source [row, source, head * head dim] in the first block."""
        heads = len(self.weights)
        owners, tokens = (indices.to(self.weights.device) for indices in sources.pairs)
        reach = chunk.base.shape[1]
        count = int((owners < reach).sum())
        owners, tokens = owners[:count], tokens[:count]
        values = repeat_heads(self.block.values[None], heads)[0][:, tokens].transpose(0, 1)
        weights = self.weights[:, chunk.rows][..., tokens].permute(1, 2, 0)
        mixed = (weights[..., None] * values).flatten(2)
        if count == reach and bool((owners.diff() == 1).all()):
            return mixed
        return mixed.new_zeros(len(mixed), reach, mixed.shape[-1]).index_add_(1, owners, mixed)

    def _mix(self, chunk: Chunk, values: Tensor, sources: Sources) -> Tensor:
        """Return the heads' mixed values by source [row, source, head * head dim], over all keys."""
        stop = chunk.rows.stop if sources.causal else self.weights.shape[-1]
        weights = self.weights[:, chunk.rows, sources.low : stop]
        heads, rows, keys = weights.shape
        kv, size, reach = len(values), values.shape[-1], chunk.base.shape[1]
        mixed = torch.bmm(weights.reshape(kv, heads // kv * rows, keys), values[:, :keys, :reach].flatten(2))
        return mixed.view(kv, heads // kv, rows, reach, size).permute(2, 3, 0, 1, 4).flatten(2)

    def _finish(self, chunk: Chunk, mixed: Tensor, bias: Tensor | None, rules: Rules, *, ffn: bool) -> Tensor:
        """Return the vectors of the block's output in some rows, from the heads' mixed values."""
        block, rows = self.block, chunk.rows
        added = torch.addmm(chunk.base.flatten(0, 1), mixed.flatten(0, 1), self.matrix)
        middle = Vectors(self.middle[rows], added.view_as(chunk.base))
        middle.add(None if bias is None else bias[rows], rules)
        if block.layout.order == "post":
            start = middle if block.norm1 is None else middle.normed(block.norm1, rules)
            state = start.state + apply_steps(self.feed, start.state)
            base = start.whole()
            if ffn:
                base.add_(start.through(self.feed, rules).whole())
            last = Vectors(state, base)
            return base if block.norm2 is None else last.normed(block.norm2, rules).whole()
        if ffn:
            read = Vectors(block.hidden[rows], chunk.base) if block.layout.order == "parallel" else middle
            read = read if block.norm2 is None else read.normed(block.norm2, rules)
            return middle.whole().add_(read.through(self.feed, rules).whole())
        return middle.whole()


def _row(chunks: Iterable[Chunk], row: int) -> Chunk:
    chunk = next(chunk for chunk in chunks if chunk.rows.start <= row < chunk.rows.stop)
    index = row - chunk.rows.start
    return Chunk(slice(row, row + 1), chunk.base[index : index + 1])


def read_layer(block: Block, method: str) -> DecomposedLayer:
    """Return a block in the form that vectors pass through, verified on the block's output.

    Raises:
        UnsupportedModelError: If part of the block is unknown; the message names the part.
    """
    kind = type(block.module).__name__
    if block.cross is not None or block.own_key != 0:
        reads = "another sequence" if block.cross is not None else "keys that are not tokens of its input"
        raise UnsupportedModelError(
            f"{method} is not available: {kind} reads {reads}, and vectors are followed from the tokens of "
            "one sequence only."
        )
    order = block.layout.order
    matrix, row, bias = block.branch()
    try:
        with no_grad():
            steps = [resolve_path(block.module, path) for path in block.layout.mlp]
            feed = read_steps(steps, block.hidden.shape[-1], block.hidden)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{method} is not available: in {kind}, {error}") from error
    weights = block.weights() * row[:, None]
    mixed = torch.matmul(weights, block.head_values()).transpose(0, 1).flatten(1)
    middle = block.hidden + mixed @ matrix.flatten(0, 1) + bias
    if order == "post":
        start = middle if block.norm1 is None else block.norm1(middle)
        last = start + apply_steps(feed, start)
        last = last if block.norm2 is None else block.norm2(last)
    else:
        start = block.hidden if order == "parallel" else middle
        last = middle + apply_steps(feed, start if block.norm2 is None else block.norm2(start))
    if not block.error(last) <= 1:
        raise UnsupportedModelError(
            f"{method} is not available: the feed-forward layer of {kind} does not compute what its "
            "description says."
        )
    value = Affine(*block.value_projection())
    return DecomposedLayer(block, value, weights, middle, matrix.flatten(0, 1), bias, feed)
