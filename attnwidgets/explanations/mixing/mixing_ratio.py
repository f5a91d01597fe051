"""Mixing ratio: how much of a token comes from the others, layer by layer.

Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of Masked Language
Models, section 4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import pick
from attnwidgets.explanations.mixing.attention_norm import TITLES, VARIANTS, Variant
from attnwidgets.explanations.mixing.block_maps import NO_NORM_AFTER, described_stack, own_stack
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
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="Attributions [layer, token]: one target a layer",
    cost="one more pass",
    takes=measured_on_blocks,
)
def mixing_ratio(
    trace: TraceLike,
    variant: Variant = "res_ln",
    *,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> Attributions:
    """How much of every token comes from other tokens, in every layer: 0 keeps itself, 1 is all others.

    With t_ij the vector that token j gives token i (see `aw.attention_norm` for the variants), the ratio is
    |sum over j != i of t_ij| / (|sum over j != i of t_ij| + |t_ii|): the length of a sum of vectors, not a
    sum of lengths.

    Args:
        trace: What `aw.trace` returned.
        variant: "res_ln" as published; "attn", "res" or "enc".
        stack: Which stack of a model with several. In "cross" the others are the tokens of the other
            sequence, and what a token keeps is its residual connection (nothing at all with "attn").
            "enc" is of blocks that read one sequence only.
        layers: Some layers by number; all by default.

    Returns:
        Attributions [layer, token]; the targets are "layer 0", "layer 1", ... A token that gets nothing at
        all has 0.

    Raises:
        ValueError: For an unknown option, or where the model's blocks are not described.
        IndexError: Where the model has no such layer.
    """
    require_choice("variant", variant, VARIANTS)
    if variant == "enc":
        stack = own_stack(trace, stack, "mixing_ratio", what="variant 'enc'")
    else:
        stack = described_stack(trace, stack, "mixing_ratio")
    import torch

    from attnwidgets.tracing.algebra.block_runs import block_of, norms_last
    from attnwidgets.tracing.algebra.contributions import parts_of

    numbers = tuple(range(trace.n_layers(stack)))
    chosen = numbers if layers is None else pick(layers, numbers, "layer")
    rows = []
    with torch.no_grad():
        for layer in chosen:
            parts = parts_of(block_of(trace, layer, stack, "mixing_ratio"), variant)
            own = parts.kept()
            others = (parts.total() - own).norm(dim=-1)
            whole = others + own.norm(dim=-1)
            rows.append(as_floats(others / whole.masked_fill(whole == 0, 1.0)))
    query = trace.axes(stack)[0]
    common = provenance_of(trace, stack, "mixing_ratio", paper=PAPER, options={"variant": variant})
    common["provenance"]["title"] = f"mixing ratio ({TITLES[variant]})"
    if variant in ("res_ln", "enc") and not norms_last(trace, stack, "mixing_ratio"):
        common["warning"] = "; ".join(note for note in (common["warning"], NO_NORM_AFTER) if note)
    return Attributions(
        np.stack(rows),
        axis=query,
        target=tuple(f"layer {layer}" for layer in chosen),
        unit=next(iter(query.units)),
        **common,
    )
