"""Norm-based analysis: the norm of the vector one token contributes to another, not its weight alone.

Kobayashi et al. 2020, Attention is Not Only a Weight, equation 3; Kobayashi et al. 2021, Incorporating
Residual and Normalization Layers into Analysis of Masked Language Models, section 3. The variant "enc" is
GlobEnc's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import (
    NO_RESIDUAL,
    block_map,
    described_stack,
    in_unit,
    no_norm_note,
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
    question="What goes into a token",
    gist="how much of what is read arrives",
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="MixingMap [layer, query, key], or [layer, head, query, key] per head",
    cost="one more pass, then a layer when it is opened: O(heads n²) memory beyond its attention",
    speed="seconds",
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
    """The norm of the vector that each token contributes to each other token.

    With A^h the attention weights, v^h_j the value vectors (with their bias) and W_O^h the output projection
    of head h, token j contributes c_ij = sum_h A^h_ij v^h_j W_O^h to token i; heads are summed before the
    norm is computed. The bias of W_O belongs to no token and is left out. The variants, with the papers'
    names:

        attn     |c_ij|                                             (2020, equation 3)
        res      |c_ij + [i = j] x_i|, x_i the block's input        (2021, AttnRes-N)
        res_ln   the same after norm 1: the mean is subtracted from each vector, the deviation is that of
                 the sum, and the shift is left out                 (2021, AttnResLn-N)
        enc      the same after norm 2 with its real deviation; the feed-forward layer between the norms is
                 skipped                                            (GlobEnc, N-Enc)

    Pre-norm blocks (GPT-2, Llama) have no norm after the sum: "res_ln" and "enc" then equal "res", and the
    map's warning says so. In Gemma 2 and 3, c_ij is measured after the norm that follows attention.

    Args:
        trace: A trace made by `aw.trace`.
        variant: "attn", "res", "res_ln" or "enc".
        per_head: Whether to return a map per head, |A^h_ij v^h_j W_O^h| (2020, equation 2); for "attn" only.
        normalize: "none", as the authors do, for plain norms; "row" divides each row by its sum (a row of
            zeros stays zero).
        unit: Unit whose vectors are added before they are measured: tokens by default; a name ("word",
            "sentence") or a Unit. This differs from `.to(unit)`, which adds the norms of tokens: vectors in
            opposite directions cancel. Rows are averaged over a unit's tokens, as in `.to(unit)`. A pair of
            Units (query, key) serves "cross".
        stack: Stack of a model that has several; the trace's default if omitted. In "cross" the keys belong
            to the other sequence and the residual connection to none of them, so "res" equals "attn" there,
            and the map's warning says so. "enc" needs blocks with self-attention only.
        layers: Numbers of the layers to include; all by default.

    Returns:
        A lazy map [layer, query, key] in the requested unit; with `per_head`, [layer, head, query, key]. For
        half-precision models, everything after the recorded queries, keys and values is float32.

    Raises:
        ValueError: For an unknown option or unit; as `UnsupportedModelError`, if no description fits the
            model's blocks or they do not compute what it says (the message names the methods that work).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> aw.attention_norm(trace, "res_ln").shape
        (6, 9, 9)
    """
    require_choice("variant", variant, VARIANTS)
    require_choice("normalize", normalize, ("none", "row"))
    if per_head and variant != "attn":
        raise ValueError(
            f"per_head requires variant='attn': the residual connection in {variant!r} belongs to no head."
        )
    stack = described_stack(trace, stack, "attention_norm", alone="variant='enc'" if variant == "enc" else "")
    from attnwidgets.tracing.algebra.block_runs import block_of
    from attnwidgets.tracing.algebra.contributions import parts_of

    grid = unit_grid(trace, stack, unit)

    def measure(layer: int) -> Any:
        parts = parts_of(block_of(trace, layer, stack, "attention_norm"), variant)
        lengths = parts.head_norms(grid.spans) if per_head else parts.norms(grid.spans)
        return in_unit(shares(lengths) if normalize == "row" else lengths, grid)

    notes = (
        no_norm_note(trace, stack, "attention_norm") if variant in ("res_ln", "enc") else "",
        NO_RESIDUAL if stack == "cross" and variant != "attn" else "",
    )
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
        notes=notes,
        grid=grid,
    )
