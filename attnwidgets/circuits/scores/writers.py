"""How much of a head's attention moves when the output of a component is removed from the keys."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch

from attnwidgets._gradients import no_grad
from attnwidgets.circuits.scores.cell import Cell, blocks_below
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.tracing.algebra.query_key import score_reader
from attnwidgets.tracing.algebra.residual_parts import ComponentParts

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

_AT_ONCE = 32  # parts whose keys are in memory together


def writers_of(trace: Trace, stack: str, layer: int, kind: str, method: str) -> dict[str, Tensor]:
    """Return the outputs of components of a kind in the input of a layer [token, width], by name.

    Args:
        trace: The trace.
        stack: The stack.
        layer: Number of the layer.
        kind: "head" or "MLP".
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If no description fits the blocks, or they read another sequence.
    """
    states = ComponentParts(trace, stack, blocks_below(trace, layer, stack, method))
    parts = states.at(list(range(len(trace.axes(stack)[0]))))
    return {
        written.name: part for written, part in zip(states.names, parts, strict=True) if written.kind == kind
    }


def moved_attention(
    trace: Trace, stack: str, layer: int, head: int, parts: Sequence[Tensor], method: str
) -> Float:
    """Return the share of attention that moves to other keys when a part is removed from all keys [part].

    Norms are recomputed; queries stay. The share is the sum of the gains in a row or that of its losses,
    whichever is larger (a sink may take some), from 0 to 1, averaged over the queries that read two keys and
    are no special tokens; NaN without any.

    Args:
        trace: The trace.
        stack: The stack.
        layer: Number of the layer.
        head: Number of the head.
        parts: Parts of the states that the head reads [token, width].
        method: The method's name, for messages.

    Raises:
        UnsupportedModelError: If queries and keys were not recorded, or do not give the recorded attention.
    """
    blocks = blocks_below(trace, layer, stack, method)
    special = trace.axes(stack)[0].units["token"].special
    with no_grad():
        reader = score_reader(blocks[-1], head, method)
        tokens = range(len(reader.states))
        queries = reader.vectors("query", reader.states, tokens)
        rows = [attention_row(trace, layer, head, query, stack=stack) for query in tokens]
        cells = [
            Cell(trace, stack, layer, head, query, query, blocks, reader, row)
            for query, row in enumerate(rows)
            if not special[query] and (~row.masked).sum() > 1
        ]
        if not cells:
            return np.full(len(parts), np.nan)
        for cell in (cells[0], cells[-1]):
            cell.require_recorded()
        moved = []
        for start in range(0, len(parts), _AT_ONCE):
            some = torch.stack([reader.states - part for part in parts[start : start + _AT_ONCE]])
            keys = reader.vectors("key", some, tokens)
            changes = [
                cell.attention(queries[cell.query].expand(len(keys), -1), keys)
                - cell.attention(queries[cell.query], cell.keys)
                for cell in cells
            ]
            # Equal without a sink, to which keys may lose.
            sides = [[change.clip(0).sum(-1), (-change).clip(0).sum(-1)] for change in changes]
            moved.append(np.mean(np.max(sides, axis=1), axis=0))
    result: Float = np.concatenate(moved)
    return result
