"""The attention of the class token, head by head, with the share that is not on patches.

Caron et al. 2021, Emerging Properties in Self-Supervised Vision Transformers, figure 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._selecting import pick
from attnwidgets.explanations.attribution.grad_cam import class_token, picture_stack
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of, require_trace
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

PAPER = "Caron et al. 2021, Emerging Properties in Self-Supervised Vision Transformers"


def class_attention(trace: Trace, layer: int = -1) -> Attributions:
    """Return the attention of the class token in a layer: the row of [CLS] of every head, unchanged.

    The row is not divided by the sum over patches. The share of class and register tokens is reported: a
    map of patches in which it is left out can look sharp while the head hardly reads the picture.

    Args:
        trace: A trace of a picture by a model with a class token.
        layer: Number of the layer; negative ones count from the last.

    Returns:
        Attributions [head, token], rows summing to 1 over all tokens; the targets are "head 0", "head 1", ...
        `.provenance["elsewhere"]` is the share of tokens that are not patches, for every head.

    Raises:
        ValueError: If the trace holds no picture's patches, or the model has no class token
            (`UnsupportedModelError`).
        IndexError: If the layer is out of range.
        TypeError: If `trace` is not a trace.

    Source: Caron et al. 2021, figure 1 (the last layer; their picture keeps the patches that hold 60 % of the
    mass).

    Example:
        >>> import torch, transformers
        >>> config = transformers.ViTConfig(num_hidden_layers=2, hidden_size=32, num_attention_heads=2,
        ...     intermediate_size=32, image_size=32, patch_size=8)
        >>> trace = aw.trace(transformers.ViTModel(config).eval(), None, image=torch.rand(3, 32, 32))
        >>> aw.vision.class_attention(trace).shape
        (2, 17)
    """
    require_trace(trace, "vision.class_attention")
    stack = picture_stack(trace)
    if stack is None:
        raise ValueError(
            "class_attention needs a picture that is read by patches, and this trace holds none."
        )
    axis = trace.axes(stack)[0]
    unit = axis.units["patch"]
    row = class_token(unit)
    if row is None:
        raise UnsupportedModelError(
            "class_attention reads the row of the class token, and this model has none; "
            "aw.attention(trace) has "
            "all rows."
        )
    rows = np.asarray(trace.attention_rows(layer, queries=[row], stack=stack))[:, 0]
    elsewhere = rows[:, np.asarray(unit.special)].astype(float).sum(-1)
    least, most = (f"{share:.0%}" for share in (elsewhere.min(), elsewhere.max()))
    shares = least if least == most else f"{least} to {most}"
    extras = [label for label, special in zip(unit.labels, unit.special, strict=True) if special]
    shown = extras[0] if len(extras) == 1 else f"{extras[0]} to {extras[-1]}"
    number = pick(layer, trace.layers(stack), "layer")[0]
    return Attributions(
        rows,
        axis=axis,
        target=tuple(f"head {head}" for head in range(len(rows))),
        unit="patch",
        **provenance_of(
            trace,
            stack,
            "class_attention",
            title=f"attention of [CLS] in layer {number}",
            paper=PAPER,
            options={"layer": number},
            notes=[f"{shares} of the attention is on {shown}, not on patches"],
            facts={"elsewhere": elsewhere.tolist()},
        ),
    )
