"""How long the states of tokens are, layer by layer: outliers among patches serve the model as registers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

OUTLIER = 3.0
"""A patch is an outlier above so many times the median of its layer, as in `aw.vision.outlier_tokens`."""


def token_norms(trace: Any, stack: str) -> NDArray[np.float32]:
    """Return the L2 norm of every token's state after each layer, [layer, token].

    Runs the model once, unless another method has done so for this trace.

    Args:
        trace: A recorded trace with its model.
        stack: Name of a stack that attends to itself.

    Raises:
        UnsupportedModelError: If the model is missing, or its blocks are not found.

    Source:
        Darcet, Oquab, Mairal, Bojanowski (2024), "Vision Transformers Need Registers", figure 3.
    """
    from attnwidgets.tracing.block_replay import captured

    blocks = captured(trace, stack, "token norms")
    norms = [block.output[0].float().norm(dim=-1).cpu().numpy() for block in blocks.layers.values()]
    return np.asarray(np.stack(norms), dtype=np.float32)


def norms_with_registers(
    trace: Any, stack: str, neurons: Sequence[Any]
) -> tuple[NDArray[np.float32], tuple[str, ...]]:
    """Return `token_norms` with test-time registers, [layer, token], the added ones last, and their labels.

    Args:
        trace: A recorded trace with its model.
        stack: Name of a stack that attends to itself.
        neurons: Units as pairs (layer, unit).
    """
    from attnwidgets.vision.test_time_registers import test_time_registers

    with test_time_registers(trace, neurons):
        clean = trace.rerun()
        norms = token_norms(clean, stack)
    return norms, clean.axes(stack)[0].tokens[len(trace.axes(stack)[0]) :]
