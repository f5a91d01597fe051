"""Rows of kernels that interventions replace, or from which they take tokens away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.intervene.kernel_runs import KernelRun

    Positions = tuple[int, ...]

_KIND = "edit_attention"


@dataclass(frozen=True)
class RowEdit:
    """Replaces rows of kernels; see `edit_attention`.

    Args:
        queries: Positions of the rows, or None for all.
        matrix: Weights [head or 1, query, key]; None for a single column.
        column: The position that is read.
    """

    queries: frozenset[int] | None
    matrix: Tensor | None = None
    column: int = 0

    def __call__(self, run: KernelRun, heads: list[int]) -> Tensor | None:
        """Return outputs [batch, position, head, dim] with those of some rows and heads replaced."""
        rows = [
            row
            for row in run.queries(self.queries, "edit_attention")
            if self._changes(row + (run.first or 0))
        ]
        if not rows:
            return None
        inputs = run.inputs("edit_attention")
        first, length = run.first or 0, run.output.shape[1]
        output = run.output.clone()
        groups = torch.tensor(heads)
        values = inputs.values[:, :, groups]
        for row in rows:
            weights = self._weights(row + first, length).to(values)
            new = torch.einsum("hk,bkhd->bhd", weights.expand(len(heads), -1), values)
            if inputs.gate is not None:
                new = new * inputs.gate[:, row, groups]
            output[:, row, groups] = new.to(output)
        return output

    def _changes(self, position: int) -> bool:
        """Return whether the row of a position is replaced: a row cannot be set to a later token."""
        return position >= self.column if self.matrix is None else position < self.matrix.shape[1]

    def _weights(self, position: int, length: int) -> Tensor:
        """Return the weights of a row [head or 1, key]."""
        if self.matrix is None:
            return torch.eye(length)[None, self.column]
        row = self.matrix[:, position]
        later = row[:, position + 1 :].any(0).nonzero()
        if len(later):
            raise ValueError(
                f"the matrix lets token {position} read token {position + 1 + int(later[0])}, which this "
                "model does not allow."
            )
        row = row[:, :length]
        return torch.nn.functional.pad(row, (0, length - row.shape[1]))


@dataclass(frozen=True)
class Suppression:
    """Removes the values of tokens in kernels from the outputs of others; see `suppress` and `drop_tokens`.

    Args:
        kind: The intervention, for messages.
        sources: Positions of the tokens that are not read.
        targets: Positions of the tokens that do not read them; None for all, which still read themselves.
        after: Only tokens after this position do not read them, or None.
        forget: Whether the state passes the sources unchanged.
    """

    kind: str
    sources: frozenset[int]
    targets: frozenset[int] | None
    after: int | None
    forget: bool

    def __call__(self, run: KernelRun, heads: list[int]) -> Tensor | None:
        """Return outputs [batch, position, head, dim] without the values that some tokens pass to others."""
        hidden = self._hidden(run)
        if not hidden:
            return None
        inputs = run.inputs(self.kind)
        output = run.output.clone()
        for (sources, removed), rows in hidden.items():
            values = inputs.values - inputs.handed(sources)
            at, groups = torch.tensor(rows)[:, None], torch.tensor(heads)
            output[:, at, groups] = inputs.outputs(values, removed)[:, at, groups].to(output)
        return output

    def _hidden(self, run: KernelRun) -> dict[tuple[Positions, Positions], list[int]]:
        """Return rows by the positions that are hidden from them, and by those that the kernel passes.

        Rows before all hidden positions are left out: these kernels are causal.
        """
        hidden: dict[tuple[Positions, Positions], list[int]] = {}
        rows = run.queries(self.targets, self.kind)
        first = run.first or 0
        for row in rows:
            position = row + first
            if self.after is not None and position <= self.after:
                continue
            sources = [at for at in sorted(self.sources) if self.targets is not None or at != position]
            if not sources or sources[0] > position:
                continue
            if run.first is None or sources[0] < first:
                run.inputs(self.kind)  # raises: they are in a state
            at = tuple(source - first for source in sources if source - first < run.output.shape[1])
            removed = tuple(index for index in at if index != row) if self.forget else ()
            hidden.setdefault((at, removed), []).append(row)
        return hidden
