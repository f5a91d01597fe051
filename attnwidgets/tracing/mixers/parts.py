"""The vectors that tokens contribute to each other in a block with any mixers, measured row by row.

The counterpart of `algebra.contributions.Parts` for blocks that no layout describes. Rows of queries are
taken in blocks, so that vectors [query, token, dim] are never all in memory at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch

from attnwidgets._progress import progress
from attnwidgets.tracing.algebra.contributions import nearer
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.tracing.algebra.contributions import Spans
    from attnwidgets.tracing.mixers.mix import MixedBlock

_ROW_BYTES = 2**26  # of vectors in memory at once


@dataclass(frozen=True)
class MixedParts:
    """The vectors of a block.

    Methods that take `spans` add the vectors of a span's tokens before measuring them and return a column
    per span; by default each token is a span.

    Args:
        block: The block's run.
        with_residual: Whether a token's vector to itself includes the residual connection.
    """

    block: MixedBlock
    with_residual: bool

    @property
    def n_tokens(self) -> int:
        """Number of tokens."""
        return self.block.hidden.shape[1]

    @cached_property
    def _hidden(self) -> Tensor:
        return self.block.hidden[0].to(self.block.mixes[0].dtype) * self.block.residual_scale

    @cached_property
    def reference(self) -> Tensor | None:
        """The sum of the parts and biases [query, dim]; None without the residual connection."""
        if not self.with_residual:
            return None
        return self._hidden + torch.cat([self.block.total(rows, constant=True) for rows in self._blocks()])

    def _blocks(self) -> Iterator[range]:
        """Yield queries whose vectors are in memory at once."""
        widest = max(mix.n_channels for mix in self.block.mixes)
        groups = max(mix.kernel.n_groups for mix in self.block.mixes)
        numbers = self.n_tokens * (widest + self._hidden.shape[1] + 2 * groups)
        size = max(1, _ROW_BYTES // (self._hidden.element_size() * numbers))
        starts = range(0, self.n_tokens, size)
        for start in progress(starts, f"vectors of {self.block.path}") if len(starts) > 1 else starts:
            yield range(start, min(start + size, self.n_tokens))

    def _rows(self, spans: Spans | None) -> Iterator[tuple[range, Tensor]]:
        """Yield some queries with their vectors [query, element, dim], the residual connection included."""
        owners = self._owners(spans)
        for rows in self._blocks():
            vectors = self.block.vectors(rows)
            if self.with_residual:
                vectors[range(len(rows)), list(rows)] += self._hidden[list(rows)]
            if spans is None:
                missing = self.n_tokens - vectors.shape[1]
                yield rows, torch.nn.functional.pad(vectors, (0, 0, 0, missing))
                continue
            summed = vectors.new_zeros(len(rows), len(spans), vectors.shape[2])
            tokens, elements = owners
            is_read = tokens < vectors.shape[1]
            summed.index_add_(1, elements[is_read], vectors[:, tokens[is_read]])
            yield rows, summed

    def _owners(self, spans: Spans | None) -> tuple[Tensor, Tensor]:
        """Return tokens and the numbers of the spans that they lie in [match] each."""
        parts = [(token,) for token in range(self.n_tokens)] if spans is None else spans
        pairs = [(token, element) for element, span in enumerate(parts) for token in span]
        tokens, elements = torch.tensor(pairs).long().reshape(-1, 2).unbind(1)
        return tokens, elements

    def norms(self, spans: Spans | None = None) -> Tensor:
        """Return the norm of every vector [query, token], float64."""
        return torch.cat([vectors.double().norm(dim=-1) for _, vectors in self._rows(spans)])

    def head_norms(self, spans: Spans | None = None) -> Tensor:
        """Return the norm of each head's vectors [head, query, token], without the residual connection."""
        owners, count = self._owners(spans), self.n_tokens if spans is None else len(spans)
        return torch.cat([self.block.head_norms(rows, owners, count) for rows in self._blocks()], 1)

    def from_self(self, spans: Spans | None = None) -> Tensor:
        """Return each token's vector to itself, or to the span around it [query, dim]."""
        index = torch.arange(self.n_tokens)
        if spans is not None:
            tokens, elements = self._owners(spans)
            index[tokens] = elements
        return torch.cat(
            [vectors[range(len(rows)), index[list(rows)]] for rows, vectors in self._rows(spans)]
        )

    def total(self) -> Tensor:
        """Return the sum of all vectors [query, dim], including the residual connection if it is counted."""
        added = torch.cat([self.block.total(rows) for rows in self._blocks()])
        return added + self._hidden if self.with_residual else added

    def nearness(
        self,
        to: Tensor,
        power: int,
        *,
        shift: float = 0.0,
        chunk_size: int | None = None,
        spans: Spans | None = None,
    ) -> Tensor:
        """Return |to_i| - |vector_ij - to_i| [query, element]; see `Parts.nearness`."""
        del chunk_size  # the size of blocks of queries is fixed
        gains = []
        for rows, vectors in self._rows(spans):
            target = to[list(rows), None]
            gains.append(nearer(target, vectors - target + shift, power))
        return torch.cat(gains)

    def residual_nearness(self, to: Tensor, power: int, *, shift: float = 0.0) -> Tensor:
        """Return the same for the residual connection alone [query]."""
        residual = self._hidden if self.with_residual else torch.zeros_like(to)
        return nearer(to, residual - to + shift, power)

    def unread(self, spans: Spans | None = None) -> Tensor:
        """Return whether a query receives nothing from an element [query, element]."""
        return torch.cat([(vectors == 0).all(-1) for _, vectors in self._rows(spans)])


def mixed_parts(block: MixedBlock, stage: str) -> MixedParts:
    """Return a block's vectors at a stage; see `algebra.contributions.parts_of`.

    Raises:
        UnsupportedModelError: For a stage that includes the residual connection, if the block adds more to it
            than its mixers' outputs; for a stage after norms, unless the block is pre-norm.
    """
    if not block.scales and (stage != "attn" or len(block.mixes) > 1):
        several = len(block.mixes) > 1
        raise UnsupportedModelError(
            f"the vectors of {block.path} are unknown: no state of it is the sum of what it reads and its "
            f"{'mixers return' if several else 'mixer returns'}."
            + ("" if several else " variant='attn' leaves the residual connection out.")
        )
    if stage in ("res_ln", "enc") and not block.is_pre_norm:
        raise UnsupportedModelError(
            f"the vectors of {block.path} after its norms are unknown: it is a post-norm block that no "
            "description fits. variant='attn' and variant='res' need none."
        )
    return MixedParts(block, stage != "attn")
