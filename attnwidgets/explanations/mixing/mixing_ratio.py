"""Mixing ratio: how much of a token comes from other tokens, layer by layer.

Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language
Models, section 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets.explanations.mixing.attention_norm import TITLES, VARIANTS, Variant
from attnwidgets.explanations.mixing.block_maps import chosen_layers, described_stack, no_norm_note
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.arrays import as_floats
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of

if TYPE_CHECKING:
    from collections.abc import Iterable

PAPER = (
    "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of "
    "Masked Language Models"
)


@method(
    "mixing_ratio",
    question="What goes into a token",
    gist="how much comes from other words, by layer",
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="Attributions [layer, token]: one target per layer",
    cost="one more pass",
    speed="seconds",
    takes=measured_on_blocks,
)
def mixing_ratio(
    trace: TraceLike,
    variant: Variant = "res_ln",
    *,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> Attributions:
    """How much of each token comes from other tokens, by layer: 0 if it only keeps itself, 1 if nothing.

    With t_ij the vector that token j contributes to token i (see `aw.attention_norm` for the variants), the
    ratio is |sum over j != i of t_ij| / (|sum over j != i of t_ij| + |t_ii|): the norm of a sum of vectors,
    not a sum of norms.

    Args:
        trace: A trace made by `aw.trace`.
        variant: "res_ln" as published; "attn", "res" or "enc".
        stack: Stack of a model that has several; the trace's default if omitted. In "cross" the others are
            the tokens of the other sequence, and a token keeps its residual connection (nothing with "attn").
            "enc" needs blocks with self-attention only.
        layers: Numbers of the layers to include; all by default.

    Returns:
        Attributions [layer, token], 0 to 1; the targets are "layer 0", "layer 1", ... A token that receives
        nothing has 0.

    Raises:
        ValueError: For an unknown option; as `UnsupportedModelError`, if no description fits the model's
            blocks.
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> ratios = aw.mixing_ratio(trace)
        >>> ratios.values.shape, bool((ratios.values < 0.5).all())
        ((6, 9), True)
    """
    require_choice("variant", variant, VARIANTS)
    stack = described_stack(trace, stack, "mixing_ratio", alone="variant='enc'" if variant == "enc" else "")

    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.algebra.contributions import parts_of

    chosen = chosen_layers(trace, stack, layers)
    rows = []
    with no_grad():
        for layer in chosen:
            parts = parts_of(block_of(trace, layer, stack, "mixing_ratio"), variant)
            kept = parts.kept()
            others = (parts.total() - kept).norm(dim=-1)
            total = others + kept.norm(dim=-1)
            rows.append(as_floats(others / total.masked_fill(total == 0, 1.0)))
    query = trace.axes(stack)[0]
    notes = [no_norm_note(trace, stack, "mixing_ratio")] if variant in ("res_ln", "enc") else []
    options = {"variant": variant}
    common = provenance_of(trace, stack, "mixing_ratio", paper=PAPER, options=options, notes=notes)
    common["provenance"]["title"] = f"mixing ratio ({TITLES[variant]})"
    return Attributions(
        np.stack(rows),
        axis=query,
        target=tuple(f"layer {layer}" for layer in chosen),
        unit=next(iter(query.units)),
        **common,
    )
