"""Register neurons: units of MLPs that fire at tokens of high norm, and make them.

Jiang et al. 2025, Vision Transformers Don't Need Trained Registers, section 3.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.explanations.attribution.grad_cam import picture_stack
from attnwidgets.explanations.results.trace_protocol import require_trace
from attnwidgets.vision.token_norms import outlier_tokens, token_norms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from torch import Tensor, nn

    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

PAPER = "Jiang et al. 2025, Vision Transformers Don't Need Trained Registers"


class RegisterNeuron(NamedTuple):
    """A hidden unit of an MLP.

    Attributes:
        layer: Number of the block.
        unit: Number of the unit.
        score: Its mean absolute activation at outlier tokens.
        elsewhere: Its mean absolute activation at the other patches.
    """

    layer: int
    unit: int
    score: float
    elsewhere: float


def find_register_neurons(
    traces: Any,
    *,
    k: int = 10,
    layer: int = -1,
    threshold: float | None = None,
    up_to: int | None = None,
) -> tuple[RegisterNeuron, ...]:
    """Return the units of MLPs that are most active at tokens of high norm, over several pictures.

        score(l, u) = mean over pictures of mean over outlier tokens p of |a_pu|

    with a the activation of hidden unit u of block l at token p. The highest scores among the first blocks
    count: later units read the outliers instead of making them. A unit with the same activation elsewhere
    (`.elsewhere`) is not a register neuron.

    Args:
        traces: Traces of pictures by one model; the more, the better (the authors take hundreds).
        k: Number of units (the authors take 10 in a ViT-B and 50 in a ViT-L).
        layer: The layer after which norms are read, as for `outlier_tokens`.
        threshold: The norm above which a token is an outlier; by default three times the patches' median.
        up_to: The last block whose units count, negative ones counted from the model's last; by default
            that after which outliers appear first, in any picture.

    Returns:
        Units, the highest score first.

    Raises:
        ValueError: If no picture has an outlier, the traces are of several models, k is below 1, or the MLPs
            of the model are not known.
        IndexError: If the layer is out of range.
        TypeError: If something else than traces is given.

    Example:
        >>> import torch, transformers
        >>> config = transformers.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2,
        ...     intermediate_size=32, image_size=32, patch_size=8)
        >>> trace = aw.trace(transformers.ViTModel(config).eval(), None, image=torch.rand(3, 32, 32))
        >>> low = 0.5 * aw.vision.outlier_tokens(trace).median
        >>> len(aw.vision.find_register_neurons(trace, k=3, threshold=low))
        3
    """
    if k < 1:
        raise ValueError(f"k must be at least 1, not {k}.")
    listed = list(traces) if isinstance(traces, (list, tuple)) else [traces]
    for trace in listed:
        require_trace(trace, "vision.find_register_neurons")
    if len({id(trace.model) for trace in listed}) > 1:
        raise ValueError("traces are of several models; give those of one.")
    scores, elsewhere, first, largest = [], [], [], 0.0
    for trace in listed:
        norms = token_norms(trace)
        found = outlier_tokens(norms, threshold, layer)
        largest = max(largest, float(norms.values[layer].max()) / found.median)
        if not len(found):
            continue
        units = _activations(trace)
        patches = [place for place, special in enumerate(norms.source_unit.special) if not special]
        rest = [place for place in patches if place not in found.tokens]
        scores.append([row[list(found.tokens)].mean(0) for row in units])
        elsewhere.append([row[rest].mean(0) if rest else np.zeros(row.shape[1]) for row in units])
        first.append(_first_layer(norms.values, found.tokens, patches, found.threshold / found.median))
    if not scores:
        raise ValueError(
            f"no token is an outlier: the largest norm is {largest:.2f} times the median of the "
            f"patches. Models "
            "without outliers have no register neurons; otherwise pass threshold=."
        )
    mean = [np.mean(rows, axis=0) for rows in zip(*scores, strict=True)]
    last = max(first) if up_to is None else position(up_to, range(len(mean)), "layer")
    other = [np.mean(rows, axis=0) for rows in zip(*elsewhere, strict=True)]
    ranked = sorted(
        (
            RegisterNeuron(number, unit, float(score), float(other[number][unit]))
            for number, row in enumerate(mean[: last + 1])
            for unit, score in enumerate(row)
        ),
        key=lambda neuron: (-neuron.score, neuron.layer, neuron.unit),
    )
    return tuple(ranked[:k])


def _first_layer(
    norms: NDArray[np.floating], tokens: Sequence[int], patches: Sequence[int], times: float
) -> int:
    """Return the first layer after which half of the outliers are some times the median."""
    for layer, row in enumerate(norms):
        if np.mean(row[list(tokens)] > times * np.median(row[list(patches)])) >= 0.5:  # noqa: PLR2004 - half
            return layer
    return len(norms) - 1


def hidden_units(trace: Trace, model: nn.Module) -> list[HookPoint]:
    """Return the hook points of the hidden units of every block's MLP in the stack that reads a picture.

    Raises:
        ValueError: If the stack is unknown, or its MLPs are not described.
    """
    from attnwidgets.tracing.anatomy.block_names import block_names
    from attnwidgets.tracing.hooks.hook_point import in_block

    stack = picture_stack(trace)
    blocks = block_names(trace, model).get(stack or "", ())
    if not blocks:
        raise ValueError(f"the blocks of {type(model).__name__} that read a picture are not found.")
    return [in_block(model, block, number, "mlp.hook_post") for number, block in enumerate(blocks)]


def _activations(trace: Trace) -> list[NDArray[np.float64]]:
    """Return the absolute activations of the hidden units of every block [token, unit]."""
    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.hooks.hook import hooked

    kept: list[NDArray[np.float64]] = []

    def keep(states: Tensor) -> None:
        kept.append(states.detach().reshape(-1, states.shape[-1]).abs().double().cpu().numpy())

    with differentiable(trace, "find_register_neurons", back=False) as run, ExitStack() as undo:
        for point in hidden_units(trace, run.model):
            undo.enter_context(hooked(run.model, point, keep))
        run()
    return kept
