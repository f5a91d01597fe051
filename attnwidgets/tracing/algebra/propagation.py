"""Propagation of vectors that add up to the hidden states through all blocks of a model."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

import torch

from attnwidgets._progress import progress
from attnwidgets.tracing.algebra.block_runs import block_of, chain_of
from attnwidgets.tracing.algebra.decomposed_layer import DecomposedLayer, Sources, read_layer
from attnwidgets.tracing.algebra.decomposition import BY_PRODUCT, Rules, Vectors
from attnwidgets.tracing.algebra.steps import Affine

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.algebra.decomposed_layer import Chunk
    from attnwidgets.tracing.anatomy.output_heads import Head
    from attnwidgets.tracing.trace import Trace

# Memory limit above which sources are propagated in groups, if they can be.
_GROUP_BYTES = 2**28
# Memory limit of blocks that were read, beyond the model's own weights. The last one is cached in any case.
_CACHED_BYTES = 2**26


class Layer(Protocol):
    """A block in a form that vectors pass through; see `DecomposedLayer`."""

    @property
    def output(self) -> Tensor:
        """The states that it returns [token, dim]."""
        ...

    @property
    def biased(self) -> bool:
        """Whether it has any bias to distribute."""
        ...

    @property
    def bytes_a_pair(self) -> int:
        """Memory per source and row."""
        ...

    def start(self, sources: Sources) -> list[Chunk]:
        """Return the vectors of its input, where each token belongs to the source around it."""
        ...

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
        """Return the vectors of its output."""
        ...


class Layers(Protocol):
    """All blocks of a stack, in order, each of which reads the output of the block before."""

    @property
    def numbers(self) -> tuple[int, ...]:
        """Their numbers in the model."""
        ...

    def __len__(self) -> int: ...

    def __getitem__(self, layer: int) -> Layer: ...


class DescribedLayers:
    """The blocks of a stack, which layouts describe; as many as fit 64 MB are cached.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: A stack whose blocks only have self-attention.
        method: The method's name, for messages.

    Attributes:
        numbers: Their numbers in the model.
    """

    def __init__(self, trace: Trace, stack: str, method: str) -> None:
        self.numbers = tuple(trace.layers(stack))
        self._trace, self._stack, self._method = trace, stack, method
        chain_of(trace, stack, method)
        self._cached: dict[int, DecomposedLayer] = {}

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, layer: int) -> DecomposedLayer:
        # Layers are also read long after the first: this raises if the weights changed meanwhile.
        block = block_of(self._trace, self.numbers[layer], self._stack, self._method)
        if layer not in self._cached:
            decomposed = read_layer(block, self._method)
            n_bytes = sum(other.n_bytes for other in (decomposed, *self._cached.values()))
            if n_bytes > _CACHED_BYTES:
                self._cached.clear()
            self._cached[layer] = decomposed
        return self._cached[layer]

    def proved(self) -> DescribedLayers:
        """Return these layers, once the description of each is verified.

        Raises:
            UnsupportedModelError: If a description is wrong, or a part unknown.
        """
        for layer in range(len(self)):
            _ = self[layer]
        return self


@dataclass
class Propagation:
    """The vectors of a trace, from the first block's input on.

    Args:
        trace: Trace returned by `aw.trace`.
        stack: A stack whose blocks only have self-attention.
        method: The method's name, for messages.
        spans: The tokens of each source.
        rules: How biases and nonlinear functions are distributed.
        ffn: Whether vectors pass through the feed-forward layers.
        layers: The blocks; by default those that layouts describe.
        lengths: By layer, the norms of the vectors [query, source], float64 on the CPU, for the layers that
            were computed in all rows.
    """

    trace: Trace
    stack: str
    method: str
    spans: tuple[tuple[int, ...], ...]
    rules: Rules
    ffn: bool = True
    layers: Layers | None = None
    lengths: dict[int, Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.n_tokens = len(self.trace.axes(self.stack)[0])
        self._causal = self.trace.is_causal(self.stack)
        self._layers = self.layers or DescribedLayers(self.trace, self.stack, self.method)
        self.n_layers = len(self._layers)

    def held_bytes(self, chunk_size: int | None = None) -> int:
        """Return the bytes that vectors take: a vector and a value vector per token and source."""
        count = len(self.spans) if chunk_size is None else min(chunk_size, len(self.spans))
        return self._layers[0].bytes_a_pair * self.n_tokens * count

    def needs_all(self) -> bool:
        """Return whether biases are distributed among all sources, which must then be propagated together."""
        return self.rules.bias is not None and any(self._layers[n].biased for n in range(self.n_layers))

    def run(
        self, rows: Sequence[int] = (), *, upto: int | None = None, chunk_size: int | None = None
    ) -> Tensor:
        """Propagate the vectors through the blocks, and fill `lengths`.

        Args:
            rows: Tokens whose vectors are returned; the last block is only computed for them. If empty, all
                rows are computed and no vectors returned.
            upto: The last block; that of the model by default.
            chunk_size: Sources at a time; by default all if they must be propagated together, otherwise as
                many as fit 256 MB.

        Returns:
            The vectors [row, source, dim] of these tokens after the last block.
        """
        last = self.n_layers - 1 if upto is None else upto
        if chunk_size is None:
            chunk_size = len(self.spans)
            if self.held_bytes() > _GROUP_BYTES and not self.needs_all():
                chunk_size = max(1, _GROUP_BYTES // self.held_bytes(1))
        hidden = self._layers[last].output
        vectors = hidden.new_zeros(len(rows), len(self.spans), hidden.shape[1])
        partial = 0 < len(rows) < self.n_tokens
        lengths = {
            layer: torch.zeros(self.n_tokens, len(self.spans), dtype=torch.float64)
            for layer in range(last if partial else last + 1)
        }
        starts = range(0, len(self.spans), chunk_size)
        chunks: list[Chunk] = []
        for start, number in progress([(s, n) for s in starts for n in range(last + 1)], desc=self.method):
            group = slice(start, min(start + chunk_size, len(self.spans)))
            sources = Sources(self.spans[group], self.n_tokens, self._causal)
            layer = self._layers[number]
            if number == 0:
                chunks = layer.start(sources)
            # Rows before the first source have no part of it.
            only = [row for row in rows if row >= sources.low] if partial and number == last else None
            chunks = layer.advance(chunks, sources, self.rules, first=number == 0, ffn=self.ffn, only=only)
            for chunk in chunks:
                columns = slice(group.start, group.start + chunk.base.shape[1])
                if number in lengths:
                    lengths[number][chunk.rows, columns] = chunk.base.norm(dim=-1).cpu().double()
                for index, row in enumerate(rows if number == last else ()):
                    if chunk.rows.start <= row < chunk.rows.stop:
                        vectors[index, columns] = chunk.base[row - chunk.rows.start]
        self.lengths |= lengths
        return vectors


def through_head(
    head: Head, position: int | None, indices: Sequence[int], vectors: Tensor, rules: Rules
) -> Tensor:
    """Return the contributions of sources to some logits [source, target].

    Args:
        head: The model's output head.
        position: Row of logits [token, vocabulary]; None for [class].
        indices: Columns of the logits.
        vectors: The sources' vectors in the states that the head reads [row, source, dim].
        rules: How biases and activations are distributed; the activation rule "relu" only concerns
            feed-forward layers, and becomes "zero_origin" here.
    """
    if rules.activation == "relu":
        rules = replace(rules, activation="zero_origin")
    early = Vectors(head.hidden[head.rows(position)], vectors).through(head.before, rules)
    mean = Vectors(early.state.mean(dim=0, keepdim=True), early.whole().mean(dim=0, keepdim=True))
    last, step = [(index, step) for index, step in enumerate(head.steps) if isinstance(step, Affine)][-1]
    parts = mean.through(head.steps[:last], rules)
    columns = list(indices)
    products = None
    if step.bias is not None and rules.bias in BY_PRODUCT:
        products = parts.dot((step.matrix @ step.bias)[None])
    if step.bias is None or products is not None or rules.bias in (None, "cls"):
        bias = None if step.bias is None else step.bias[columns]
        parts = parts.projected(Affine(step.matrix[:, columns], bias), rules, products)
    else:
        whole = parts.projected(step, rules)
        parts = Vectors(whole.state[:, columns], whole.whole()[..., columns])
    return parts.through(head.steps[last + 1 :], rules).whole()[0]
