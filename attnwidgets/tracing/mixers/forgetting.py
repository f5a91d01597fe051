"""Forgetting in blocks without attention, token by token: decay of the state, and overwritten values.

A map shows how much remains of each token's value when a later token reads it. Decay and erasing by the
tokens in between are part of that number and belong to no column.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.tracing.anatomy.blocks import overlap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.tracing.anatomy.blocks import Block

    Float = NDArray[np.float64]

NAMES = ("decay", "beta")
"""The factor by which a token multiplies the state; the part of its key's old value that it replaces."""


def forgetting_layers(trace: Any, stack: str) -> dict[int, tuple[str, ...]]:
    """Return the `NAMES` that were recorded of a stack's blocks that forget, by their numbers."""
    table = getattr(trace, "stack_table", {}).get(stack)
    mixing: Mapping[int, Any] = {} if table is None else table.mixing
    recorded = {
        number: {name for mix in block.mixes for name in mix.kernel.forgetting()}
        for number, block in mixing.items()
    }
    return {number: tuple(n for n in NAMES if n in names) for number, names in recorded.items() if names}


def forgetting(trace: Any, layer: int, stack: str) -> dict[str, Float]:
    """Return how much a block forgets at each token, by name [head, token], in the order of its maps' heads.

    "decay" lies between 0 and 1, which forgets nothing; "beta" between 0, which replaces nothing, and 1 (in
    some models 2). Where each channel forgets by itself, the mean over channels; NaN for attention.

    Args:
        trace: The trace.
        layer: Number of the block; one of `forgetting_layers`.
        stack: Name of its stack.
    """
    block: Block = next(block for block in trace.anatomy.stacks[stack] if block.number == layer)
    mixes = trace.stack_table[stack].mixing[layer].mixes
    heads = [max(mixer.mixing_heads, 1) for mixer in block.mapped]
    values: dict[str, Float] = {}
    for number, mixer in enumerate(block.mapped):
        mix = next((mix for mix in mixes if not mixer.stack and overlap(mixer.path, mix.path)), None)
        for name, by_group in ({} if mix is None else mix.kernel.forgetting()).items():
            rows = by_group.detach().double().cpu().numpy().T
            if len(rows) != heads[number]:
                rows = rows.mean(axis=0, keepdims=True)
            by_head = values.setdefault(name, np.full((sum(heads), rows.shape[1]), np.nan))
            by_head[sum(heads[:number]) :][: len(rows)] = rows
    return values
