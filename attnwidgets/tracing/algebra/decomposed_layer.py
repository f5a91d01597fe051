"""A block as vectors go through it: what each source has made of every token, from its input to its output.

T[i, j] is what source j has become in the state of token i: sum_j T[i, j] is that state. Rows i are worked
through in chunks that fit a processor's cache; what is kept is one vector for every pair, and one value
vector for every pair while the block is passed. Causal models keep the pairs there are, about half.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from attnwidgets.tracing.algebra.blocks import resolved
from attnwidgets.tracing.algebra.decomposition import Rules, Vectors
from attnwidgets.tracing.algebra.modules import Norm
from attnwidgets.tracing.algebra.steps import Affine, Gated, Step, read_steps
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError, repeat_heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.blocks import Block

# Chunks of rows that stay in a processor's cache are fastest there; an accelerator wants more work at a time.
_CHUNK_BYTES = 2**25
_ACCELERATOR_CHUNK_BYTES = 2**28


@dataclass(frozen=True)
class Sources:
    """What the vectors come from: the elements of a unit, or some of them.

    Args:
        spans: The tokens of each.
        n_tokens: How many tokens there are.
        causal: Whether no token reads a later one: rows before an element's first token hold nothing of it.
    """

    spans: tuple[tuple[int, ...], ...]
    n_tokens: int
    causal: bool

    def __len__(self) -> int:
        return len(self.spans)

    @cached_property
    def _reaches(self) -> list[int]:
        """How many sources, from the first, may be found in the rows up to each token."""
        reaches = [0] * self.n_tokens
        for number, span in enumerate(self.spans, 1):
            for token in span:
                reaches[token] = max(reaches[token], number)
        for token in range(1, self.n_tokens):
            reaches[token] = max(reaches[token], reaches[token - 1])
        return reaches

    def reach(self, stop: int) -> int:
        """Return how many sources, from the first, may be found in rows before `stop`."""
        return self._reaches[stop - 1] if self.causal else len(self.spans)

    @property
    def low(self) -> int:
        """The first row that may hold anything."""
        return min((min(span) for span in self.spans if span), default=0) if self.causal else 0

    @cached_property
    def places(self) -> tuple[Tensor, Tensor]:
        """(source [place], token [place]) of every token of every source, in the sources' order."""
        pairs = [(number, token) for number, span in enumerate(self.spans) for token in span]
        sources, tokens = torch.tensor(pairs).reshape(-1, 2).T
        return sources, tokens


@dataclass(frozen=True)
class Chunk:
    """The vectors of some rows: [row, source, dim]. Sources beyond its last one have no part in them."""

    rows: slice
    base: Tensor


@dataclass(frozen=True)
class DecomposedLayer:
    """A block's algebra.

    Args:
        block: The block, proved.
        value: W_V [dim, kv head * head dim] and its bias.
        weights: A [head, query, key], times the factor of a norm after attention.
        middle: The state with what attention adds [query, dim], before norm 1 of a post-norm block.
        matrix: From heads to what attention adds [head * head dim, dim].
        bias: What attention adds beside that [query, dim].
        feed: The steps of the other side.
    """

    block: Block
    value: Affine
    weights: Tensor
    middle: Tensor
    matrix: Tensor
    bias: Tensor
    feed: tuple[Step, ...]

    @property
    def biased(self) -> bool:
        """Whether there is anything to share out."""
        norms = (self.block.norm1, self.block.norm2, *(step for step in self.feed if isinstance(step, Norm)))
        biases = [norm.shift for norm in norms if norm is not None]
        for step in self.feed:
            parts = (step.up, step.gate) if isinstance(step, Gated) else (step,)
            biases += [part.bias for part in parts if isinstance(part, Affine)]
        return any(bias is not None and bool(bias.any()) for bias in (*biases, self.value.bias, self.bias))

    @property
    def bytes_a_pair(self) -> int:
        """What is kept for a source in a row: its vector, and its value vector while the block is passed."""
        return (self.matrix.shape[1] + self.value.matrix.shape[1]) * self.matrix.element_size()

    def start(self, sources: Sources) -> list[Chunk]:
        """Return the vectors of the block's input, where every token is its own source."""
        hidden = self.block.hidden
        owners, tokens = (place.to(hidden.device) for place in sources.places)
        chunks = []
        size = self._rows_at_a_time(sources)
        for start in range(sources.low, sources.n_tokens, size):
            rows = slice(start, min(start + size, sources.n_tokens))
            base = hidden.new_zeros(rows.stop - start, sources.reach(rows.stop), hidden.shape[1])
            here = (tokens >= start) & (tokens < rows.stop)
            base[tokens[here] - start, owners[here]] = hidden[tokens[here]]
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
            chunks: Those of its input; the list is emptied, so that each goes when it is done with.
            sources: What they come from.
            rules: How what is not linear is shared out.
            first: Whether this is the first block, in which a value belongs to one source, bias and all.
            ffn: Whether vectors go through the feed-forward layer.
            only: The rows that are wanted; all by default.
        """
        values = None if first else self._values(chunks, sources, rules)
        bias = self._bias(first=first)
        if only is not None:
            chunks[:] = [_row(chunks, row) for row in only]
        found = []
        while chunks:
            chunk = chunks.pop(0)
            mixed = (
                self._first_mixed(chunk, sources) if values is None else self._mixed(chunk, values, sources)
            )
            found.append(Chunk(chunk.rows, self._finished(chunk, mixed, bias, rules, ffn=ffn)))
        return found

    def _bias(self, *, first: bool) -> Tensor | None:
        """Return what attention adds [query, dim] beside the sources' vectors; None for nothing.

        The bias of the values is in it but in the first block, whose values are taken with theirs.
        """
        bias = self.bias
        if self.value.bias is not None and not first:
            heads, size = len(self.weights), self.block.values.shape[-1]
            own = repeat_heads(self.value.bias.reshape(1, -1, 1, size), heads)[0]
            each = torch.bmm(own, self.matrix.reshape(heads, size, -1))[:, 0]
            bias = bias + self.weights.sum(-1).T @ each
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
            made = torch.matmul(base, self.value.matrix).unflatten(-1, (kv, size))
            keys = slice(chunk.rows.start - sources.low, chunk.rows.stop - sources.low)
            values[:, keys, : base.shape[1]] = made.permute(2, 0, 1, 3)
        return values

    def _first_mixed(self, chunk: Chunk, sources: Sources) -> Tensor:
        """Return what heads draw from every source [row, source, head * head dim] in the first block."""
        heads = len(self.weights)
        owners, tokens = (place.to(self.weights.device) for place in sources.places)
        reach = chunk.base.shape[1]
        count = int((owners < reach).sum())
        owners, tokens = owners[:count], tokens[:count]
        values = repeat_heads(self.block.values[None], heads)[0][:, tokens].transpose(0, 1)
        weights = self.weights[:, chunk.rows][..., tokens].permute(1, 2, 0)
        drawn = (weights[..., None] * values).flatten(2)
        if count == reach and bool((owners.diff() == 1).all()):
            return drawn
        return drawn.new_zeros(len(drawn), reach, drawn.shape[-1]).index_add_(1, owners, drawn)

    def _mixed(self, chunk: Chunk, values: Tensor, sources: Sources) -> Tensor:
        """Return what heads draw from every source [row, source, head * head dim] through all keys."""
        stop = chunk.rows.stop if sources.causal else self.weights.shape[-1]
        weights = self.weights[:, chunk.rows, sources.low : stop]
        heads, rows, keys = weights.shape
        kv, size, reach = len(values), values.shape[-1], chunk.base.shape[1]
        drawn = torch.bmm(weights.reshape(kv, heads // kv * rows, keys), values[:, :keys, :reach].flatten(2))
        return drawn.view(kv, heads // kv, rows, reach, size).permute(2, 3, 0, 1, 4).flatten(2)

    def _finished(
        self, chunk: Chunk, mixed: Tensor, bias: Tensor | None, rules: Rules, *, ffn: bool
    ) -> Tensor:
        """Return the vectors of the block's output in some rows, of what their heads have drawn."""
        block, rows = self.block, chunk.rows
        added = torch.addmm(chunk.base.flatten(0, 1), mixed.flatten(0, 1), self.matrix)
        middle = Vectors(self.middle[rows], added.view_as(chunk.base))
        middle.add(None if bias is None else bias[rows], rules)
        if block.layout.order == "post":
            start = middle if block.norm1 is None else middle.normed(block.norm1, rules)
            state = start.state + _after(self.feed, start.state)
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
    place = row - chunk.rows.start
    return Chunk(slice(row, row + 1), chunk.base[place : place + 1])


def _after(steps: Iterable[Step], state: Tensor) -> Tensor:
    for step in steps:
        state = step(state)
    return state


def read_layer(block: Block, method: str) -> DecomposedLayer:
    """Return a block's algebra, proved on what the block added.

    Raises:
        UnsupportedModelError: If a part of it is not described; the message names the part.
    """
    kind = type(block.module).__name__
    if block.cross is not None or block.own_key != 0:
        reads = "another sequence" if block.cross is not None else "keys that are no tokens of its input"
        raise UnsupportedModelError(
            f"{method} is not available: {kind} reads {reads}, and vectors are followed from the tokens of "
            "one sequence."
        )
    order = block.layout.order
    matrix, row, bias = block.branch()
    try:
        with torch.no_grad():
            steps = [resolved(block.module, path) for path in block.layout.mlp]
            feed = read_steps(steps, block.hidden.shape[-1], block.hidden)
    except UnsupportedModelError as error:
        raise UnsupportedModelError(f"{method} is not available: in {kind}, {error}") from error
    weights = block.weights() * row[:, None]
    drawn = torch.matmul(weights, block.head_values()).transpose(0, 1).flatten(1)
    middle = block.hidden + drawn @ matrix.flatten(0, 1) + bias
    if order == "post":
        start = middle if block.norm1 is None else block.norm1(middle)
        last = start + _after(feed, start)
        last = last if block.norm2 is None else block.norm2(last)
    else:
        start = block.hidden if order == "parallel" else middle
        last = middle + _after(feed, start if block.norm2 is None else block.norm2(start))
    if not block.off(last) <= 1:
        raise UnsupportedModelError(
            f"{method} is not available: the feed-forward layer of {kind} does not compute what its "
            "description says."
        )
    value = Affine(*block.value_projection())
    return DecomposedLayer(block, value, weights, middle, matrix.flatten(0, 1), bias, feed)
