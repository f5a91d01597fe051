"""ALTI: how close each token's vector is to the sum of all of them.

Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, sections 3 and 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import (
    block_map,
    described_stack,
    distance_options,
    in_unit,
    no_norm_note,
    shares,
)
from attnwidgets.explanations.mixing.layer_product import decoder_alone
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.joint_units import unit_grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import Unit

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"


@method(
    "alti",
    question="What goes into a token",
    gist="how much of each word is in each word",
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="MixingMap [layer, query, key]; cumulative to that layer if rolled out",
    cost="one more pass, then a layer when it is opened: heads n² dim operations in chunks",
    speed="seconds",
    takes=measured_on_blocks,
)
def alti(
    trace: TraceLike,
    distance: Literal["l1", "l2"] = "l1",
    *,
    rolled_out: bool = False,
    after: Literal["norm1", "norm2"] = "norm1",
    compat: Literal["authors"] | None = None,
    unit: str | Unit | tuple[Unit, Unit] | None = None,
    chunk_size: int | None = None,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> MixingMap:
    """How much of each token is in each other: how close its vector is to the sum of all vectors.

    With t_ij the vector of token j in token i after norm 1 (`aw.attention_norm`, "res_ln") and y_i the real
    output of norm 1, with all biases: the contribution is max(0, |y_i| - |t_ij - y_i|), each row divided by
    its sum (equations 9 and 10). Pre-norm blocks have no norm there: t_ij is what j adds to the residual sum
    and y_i is that sum. Feed-forward layers do not mix tokens and are left out.

    Args:
        trace: A trace made by `aw.trace`.
        distance: The norm |.| above: "l1" as published, or "l2".
        rolled_out: Whether layers are multiplied, R_l = C_l R_{l-1}, as the paper does for whole models; a
            layer then holds the contributions of the input tokens. Rows already include the residual.
        after: "norm1" as published; "norm2" compares after the block's second norm with the block's output,
            which only differs in post-norm blocks.
        compat: "authors" adds 1e-6 to every component inside the distance, as the authors' code does. It
            changes contributions by up to about 7e-5, and leaves up to about 1e-7 at keys that a query does
            not read, including those hidden by a causal mask.
        unit: Unit whose vectors are added before they are compared: tokens by default; a name ("word",
            "sentence") or a Unit. This differs from `.to(unit)`, which adds the contributions of tokens:
            vectors in opposite directions cancel. Rows are averaged over a unit's tokens, as in `.to(unit)`.
            A pair of Units (query, key) serves "cross".
        chunk_size: Number of source tokens (or elements of the unit) compared at a time; by default the
            number that fits 4 MB (256 MB on an accelerator).
        stack: Stack of a model that has several; the trace's default if omitted. In "cross" the residual
            connection is a further part, the decoder's own token, whose share is one minus the sum of the row
            (Ferrando et al. 2022b, Towards Opening the Black Box of Neural Machine Translation).
        layers: Numbers of the layers to include; all by default.

    Returns:
        A lazy map [layer, query, key] in the requested unit, 0 to 1. Rows sum to one; a row in which every
        vector is farther from the sum than a zero vector is zero.

    Raises:
        ValueError: For an unknown option or unit; as `UnsupportedModelError`, if no description fits the
            model's blocks or they do not compute what it says (the message names the methods that work).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> contributions = aw.alti(trace, rolled_out=True)
        >>> trace.tokens[contributions.layer(-1)[0].argmax()]
        'cat'
    """
    power, shift = distance_options(distance, compat, chunk_size)
    require_choice("after", after, ("norm1", "norm2"))
    stack = described_stack(trace, stack, "alti", alone="after='norm2'" if after == "norm2" else "")
    import torch

    from attnwidgets.tracing.algebra.block_runs import block_of, require_whole
    from attnwidgets.tracing.algebra.contributions import parts_of

    if rolled_out:
        require_whole(trace, stack, "alti with rolled_out=True")
    grid = unit_grid(trace, stack, unit)
    if compat == "authors":
        grid = replace(grid, causal=False)

    def measure(layer: int) -> Any:
        block = block_of(trace, layer, stack, "alti")
        parts = parts_of(block, "res_ln" if after == "norm1" else "enc")
        whole = block.middle if parts.reference is None else parts.reference
        gains = parts.nearness(whole, power, shift=shift, chunk_size=chunk_size, spans=grid.spans)
        gains.clamp_(min=0)
        if compat is None:
            gains.masked_fill_(parts.unread(grid.spans), 0.0)
        if stack == "cross":
            residual = parts.residual_nearness(whole, power, shift=shift).clamp_(min=0)
            return in_unit(shares(torch.cat([gains, residual[:, None]], dim=1))[:, :-1], grid)
        return in_unit(shares(gains), grid)

    common: dict[str, Any] = {
        "method": "alti",
        "paper": PAPER,
        "options": {
            "distance": distance,
            "rolled_out": rolled_out,
            "after": after,
            "compat": compat,
            "unit": grid.name,
        },
        "stack": stack,
        "stochastic": False if stack == "cross" else None,
        "notes": (
            no_norm_note(trace, stack, "alti") if after == "norm2" else "",
            "the share missing from a row is what the token keeps of itself" if stack == "cross" else "",
            decoder_alone(stack) if rolled_out else "",
        ),
        "grid": grid,
    }
    title = "ALTI" if distance == "l1" else "ALTI (L2)"
    single = block_map(trace, measure, title=title, layers=None if rolled_out else layers, **common)
    if not rolled_out:
        return single
    product = rollout(single, residual=None, normalize=False)
    return block_map(
        trace,
        lambda layer: torch.from_numpy(product.layer(layer).copy()),
        title=f"{title}, rolled out",
        layers=layers,
        **common,
    )
