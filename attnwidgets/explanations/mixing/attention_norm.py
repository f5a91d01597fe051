"""Norms of the vectors that tokens add to each other: norm-based analysis, GlobEnc and the mixing ratio.

`attention_norm`: Kobayashi et al. 2020, Attention is Not Only a Weight, equation 3; Kobayashi et al. 2021,
Incorporating Residual and Normalization Layers into Analysis of Masked Language Models, section 3. The
variant "enc" is GlobEnc's.

`globenc`, norms of the vectors after whole blocks, multiplied through the layers: Modarressi et al. 2022,
GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder Layer in Transformers,
section 3.

`mixing_ratio`, how much of a token comes from other tokens, layer by layer: Kobayashi et al. 2021, section
4.1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets.explanations.mixing.block_maps import (
    NO_RESIDUAL,
    block_map,
    chosen_layers,
    in_unit,
    measured_stack,
    no_norm_note,
    shares,
)
from attnwidgets.explanations.mixing.rollout import BeyondPrecisionError, rollout
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_on_blocks
from attnwidgets.explanations.results.arrays import as_floats
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of
from attnwidgets.explanations.results.units import unit_grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.tracing.text.units import Unit

NORM_PAPER = (
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

GLOBENC_PAPER = (
    "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole "
    "Encoder Layer in Transformers"
)

MIXING_RATIO_PAPER = (
    "Kobayashi et al. 2021, Incorporating Residual and Normalization Layers into Analysis of "
    "Masked Language Models"
)


@method(
    "attention_norm",
    question="What goes into a token",
    gist="how much of what is read arrives",
    paper=NORM_PAPER,
    needs="mixing",
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
            model's blocks or they differ from it (the message names the methods that work).
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
    stack = measured_stack(trace, stack, "attention_norm", alone="variant='enc'" if variant == "enc" else "")
    from attnwidgets.tracing.mixers.runs import parts_at

    grid = unit_grid(trace, stack, unit)

    def measure(layer: int) -> Any:
        parts = parts_at(trace, layer, stack, variant, "attention_norm")
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
        paper=NORM_PAPER,
        options={"variant": variant, "per_head": per_head, "normalize": normalize, "unit": grid.name},
        stack=stack,
        layers=layers,
        stochastic=None if normalize == "row" else False,
        per_head=per_head,
        notes=notes,
        grid=grid,
        measured=True,
    )


@method(
    "globenc",
    question="What goes into a token",
    gist="how much of each input word is left",
    paper=GLOBENC_PAPER,
    needs=("own sequence", "every mixer"),
    returns="MixingMap [layer, query, key], cumulative to that layer",
    cost="one more pass, then every layer up to the one that is opened",
    speed="seconds",
    takes=measured_on_blocks,
)
def globenc(
    trace: TraceLike,
    normalize: Literal["none", "row"] = "none",
    *,
    unit: str | Unit | tuple[Unit, Unit] | None = None,
    stack: str | None = None,
) -> MixingMap:
    """The norms of the vectors after whole blocks (N-Enc), multiplied from the input to each layer.

    With N_l layer l of `aw.attention_norm(trace, "enc")`: R_0 = N_0, R_l = N_l R_{l-1}. No residual is added,
    since N_l includes it.

    Args:
        trace: A trace made by `aw.trace`.
        normalize: "none" is the published GlobEnc, a product of plain norms, which grows from layer to layer
            and whose rows do not sum to 1. "row" divides each row of N_l by its sum before the product, as
            later toolkits do; the two are different measures and order tokens differently. A row of zeros
            stays zero.
        unit: Unit of every N_l (see `aw.attention_norm`) and of their product.
        stack: Stack of a model that has several, with self-attention only; the trace's default if omitted.

    Returns:
        A lazy map [layer, query, key], cumulative to each layer. The published numbers are the row of [CLS]
        in the last layer.

    Raises:
        ValueError: For an unknown option; as `UnsupportedModelError`, if no description fits the model's
            blocks; when a layer is computed, if the product exceeds the model's precision (use "row" then).

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> first_row = aw.globenc(trace, normalize="row").layer(-1)[0]
        >>> trace.tokens[first_row.argmax()]
        '[CLS]'
    """
    require_choice("normalize", normalize, ("none", "row"))
    stack = measured_stack(trace, stack, "globenc", alone="globenc")
    from attnwidgets.tracing.algebra.block_runs import require_whole

    require_whole(trace, stack, "globenc", attention=False)
    blocks = attention_norm(trace, "enc", unit=unit, stack=stack)
    product = rollout(blocks, residual=None, normalize=normalize == "row")

    def measure(layer: int) -> Tensor:
        import torch

        try:
            return torch.from_numpy(product.layer(layer).copy())
        except BeyondPrecisionError as error:
            remedy = "pass normalize='row', which divides rows before the product"
            raise BeyondPrecisionError(error.reason, remedy) from None

    return block_map(
        trace,
        measure,
        method="globenc",
        title="GlobEnc" if normalize == "none" else "GlobEnc, rows normalised",
        paper=GLOBENC_PAPER,
        options={"normalize": normalize, "unit": blocks.unit},
        stack=stack,
        layers=None,
        stochastic=False if normalize == "none" else None,
        notes=(no_norm_note(trace, stack, "globenc"),),
        grid=unit_grid(trace, stack, unit),
        measured=True,
    )


@method(
    "mixing_ratio",
    question="What goes into a token",
    gist="how much comes from other words, by layer",
    paper=MIXING_RATIO_PAPER,
    needs="mixing",
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
    stack = measured_stack(trace, stack, "mixing_ratio", alone="variant='enc'" if variant == "enc" else "")

    from attnwidgets.tracing.mixers.runs import parts_at

    chosen = chosen_layers(trace, stack, layers, measured=True)
    rows = []
    with no_grad():
        for layer in chosen:
            parts = parts_at(trace, layer, stack, variant, "mixing_ratio")
            from_itself = parts.from_self()
            from_others = (parts.total() - from_itself).norm(dim=-1)
            total = from_others + from_itself.norm(dim=-1)
            rows.append(as_floats(from_others / total.masked_fill(total == 0, 1.0)))
    query = trace.axes(stack)[0]
    notes = [no_norm_note(trace, stack, "mixing_ratio")] if variant in ("res_ln", "enc") else []
    options = {"variant": variant}
    common = provenance_of(
        trace, stack, "mixing_ratio", paper=MIXING_RATIO_PAPER, options=options, notes=notes, attention=False
    )
    common["provenance"]["title"] = f"mixing ratio ({TITLES[variant]})"
    return Attributions(
        np.stack(rows),
        axis=query,
        target=tuple(f"layer {layer}" for layer in chosen),
        unit=next(iter(query.units)),
        **common,
    )
