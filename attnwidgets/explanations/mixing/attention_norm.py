"""Norm-based analysis: the length of what a token gives to another, not its weight alone.

Kobayashi et al. 2020, Attention is Not Only a Weight, equation 3; Kobayashi et al. 2021, Incorporating
Residual and Normalization Layers into Analysis of Masked Language Models, section 3; the variant "enc" is
that of GlobEnc.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import (
    NO_NORM_AFTER,
    NO_RESIDUAL,
    block_map,
    described_stack,
    in_unit,
    own_stack,
    shares,
)
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.joint_units import unit_grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import Unit

PAPER = (
    "Kobayashi et al. 2020, Attention is Not Only a Weight; Kobayashi et al. 2021, Incorporating Residual "
    "and Normalization Layers into Analysis of Masked Language Models"
)

Variant = Literal["attn", "res", "res_ln", "enc"]
VARIANTS: tuple[Variant, ...] = ("attn", "res", "res_ln", "enc")
TITLES = {
    "attn": "attention norm",
    "res": "attention norm + residual",
    "res_ln": "attention norm + residual + norm",
    "enc": "N-Enc",
}


@method(
    "attention_norm",
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="MixingMap [layer, query, key], or [layer, head, query, key] per head",
    cost="one more pass, then a layer when it is opened: O(heads n²) memory beyond its attention",
    takes=measured_on_blocks,
)
def attention_norm(
    trace: TraceLike,
    variant: Variant = "attn",
    *,
    per_head: bool = False,
    normalize: Literal["none", "row"] = "none",
    unit: str | Unit | tuple[Unit, Unit] | None = None,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> MixingMap:
    """The length of the vector that every token gives to every other.

    With A^h the attention weights, v^h_j the values (with their bias) and W_O^h the output projection of
    head h, token j gives token i the vector c_ij = sum_h A^h_ij v^h_j W_O^h; heads are summed before the
    length is taken. The bias of W_O belongs to no token and is left out. The variants, in the papers' names:

        attn     |c_ij|                                             (2020, equation 3)
        res      |c_ij + [i = j] x_i|, x_i the block's input        (2021, AttnRes-N)
        res_ln   the same after norm 1: the mean is taken from each vector, the deviation is the real one of
                 the sum, and the shift is left out                 (2021, AttnResLn-N)
        enc      the same after norm 2 with its real deviation; the feed-forward layer between them is
                 skipped                                            (GlobEnc, N-Enc)

    Blocks that norm before they mix (GPT-2, Llama) have no norm after the sum: "res_ln" and "enc" are then
    the numbers of "res", and the map's warning says so. In Gemma 2 and 3, c_ij is what the norm after the
    attention makes of it.

    Args:
        trace: What `aw.trace` returned.
        variant: "attn", "res", "res_ln" or "enc".
        per_head: One map a head, |A^h_ij v^h_j W_O^h| (2020, equation 2); for "attn" only.
        normalize: "none" as the authors do, lengths as they are; "row" divides every row by its sum (a row of
            zeros stays zero).
        unit: Whose vectors are added before they are measured: tokens by default; a unit's name ("word",
            "sentence") or a Unit. It differs from `.to(unit)`, which adds what was measured token by token:
            vectors that point apart cancel. Rows are averaged over a unit's tokens, as there. A pair of Units
            (query, key) serves "cross".
        stack: Which stack of a model with several. In "cross" the tokens read are those of the other
            sequence and the residual connection is of none of them: "res" is "attn" there, and the map's
            warning says so. "enc" is of blocks that read one sequence only.
        layers: Some layers by number; all by default.

    Returns:
        A lazy map [layer, query, key] in the unit asked for; with `per_head`, [layer, head, query, key]. For
        half-precision models everything after the recorded queries, keys and values is computed in float32.

    Raises:
        ValueError: For an unknown option or unit, or where the model's blocks are not described or do not
            compute what their description says (`UnsupportedModelError`; the message names what still works).
        IndexError: Where the model has no such layer.
    """
    require_choice("variant", variant, VARIANTS)
    require_choice("normalize", normalize, ("none", "row"))
    if per_head and variant != "attn":
        raise ValueError(
            f"per_head is for variant 'attn': the residual connection in {variant!r} belongs to no head."
        )
    if variant == "enc":
        stack = own_stack(trace, stack, "attention_norm", what="variant 'enc'")
    else:
        stack = described_stack(trace, stack, "attention_norm")
    from attnwidgets.tracing.algebra.block_runs import block_of, norms_last
    from attnwidgets.tracing.algebra.contributions import parts_of

    grid = unit_grid(trace, stack, unit)

    def measure(layer: int) -> Any:
        parts = parts_of(block_of(trace, layer, stack, "attention_norm"), variant)
        lengths = parts.head_norms(grid.spans) if per_head else parts.norms(grid.spans)
        return in_unit(shares(lengths) if normalize == "row" else lengths, grid)

    after = variant in ("attn", "res") or norms_last(trace, stack, "attention_norm")
    notes = [] if after else [NO_NORM_AFTER]
    if stack == "cross" and variant != "attn":
        notes.append(NO_RESIDUAL)
    return block_map(
        trace,
        measure,
        method="attention_norm",
        title=TITLES[variant] + (" per head" if per_head else ""),
        paper=PAPER,
        options={"variant": variant, "per_head": per_head, "normalize": normalize, "unit": grid.name},
        stack=stack,
        layers=layers,
        stochastic=None if normalize == "row" else False,
        per_head=per_head,
        warning="; ".join(notes),
        grid=grid,
    )
