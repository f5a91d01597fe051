"""ALTI: how near every token's vector comes to what they add up to.

Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, sections 3 and 4.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.block_maps import (
    NO_NORM_AFTER,
    block_map,
    described_stack,
    in_unit,
    own_stack,
    shares,
)
from attnwidgets.explanations.mixing.layer_product import decoder_alone
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.joint_units import unit_grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from torch import Tensor

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import Unit

PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"

_POWERS = {"l1": 1, "l2": 2}
# What torch.nn.functional.pairwise_distance adds to every component unless told otherwise; the authors' code
# leaves it in.
_AUTHORS_SHIFT = 1e-6


@method(
    "alti",
    paper=PAPER,
    needs="a model whose blocks are described",
    returns="MixingMap [layer, query, key]; cumulative to that layer where rolled out",
    cost="one more pass, then a layer when it is opened: heads n² dim operations in chunks",
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
    """How much of every token is in every other: how near its vector comes to the sum of all of them.

    With t_ij the vector of token j in token i after norm 1 (`aw.attention_norm`, "res_ln") and y_i the real
    output of norm 1, with all biases: the contribution is max(0, |y_i| - |t_ij - y_i|), every row divided by
    its sum (equations 9 and 10). Blocks that norm before they mix have no norm there: t_ij is what j adds to
    the residual sum and y_i is that sum. Feed-forward layers do not mix tokens and are left out.

    Args:
        trace: What `aw.trace` returned.
        distance: The norm of the above: "l1" as published, or "l2".
        rolled_out: Multiply the layers, R_l = C_l R_{l-1}, as the paper does for whole models; a layer is
            then the contribution of the input's tokens. Rows hold the residual already.
        after: "norm1" as published; "norm2" compares after the block's second norm with the block's
            output, which differs for post-norm blocks only.
        compat: "authors" adds 1e-6 to every component inside the distance, as the authors' code does; it
            moves contributions by up to about 7e-5, and leaves up to about 1e-7 at keys that a query does not
            read, also at those that a causal model cannot.
        unit: Whose vectors are added before they are compared: tokens by default; a unit's name ("word",
            "sentence") or a Unit. It differs from `.to(unit)`, which adds what was measured token by token:
            vectors that point apart cancel. Rows are averaged over a unit's tokens, as there. A pair of Units
            (query, key) serves "cross".
        chunk_size: Source tokens (or elements of the unit) that are compared at a time; None for as many as
            fit 4 MB (256 MB on an accelerator).
        stack: Which stack of a model with several. In "cross" the residual connection is one more part,
            the decoder's own token: what a row misses of one is its share (Ferrando et al. 2022b, Towards
            Opening the Black Box of Neural Machine Translation).
        layers: Some layers by number; all by default.

    Returns:
        A lazy map [layer, query, key] in the unit asked for. Rows sum to one, except that a token's row in
        which every token is farther from the sum than nothing at all stays zero.

    Raises:
        ValueError: For an unknown option or unit, or where the model's blocks are not described or do not
            compute what their description says (`UnsupportedModelError`; the message names what still works).
        IndexError: Where the model has no such layer.
    """
    require_choice("distance", distance, tuple(_POWERS))
    require_choice("after", after, ("norm1", "norm2"))
    require_choice("compat", compat, ("authors", None))
    if chunk_size is not None and chunk_size < 1:
        raise ValueError(f"chunk_size must be at least 1, not {chunk_size}.")
    stack = (own_stack if after == "norm2" else described_stack)(trace, stack, "alti")
    import torch

    from attnwidgets.tracing.algebra.block_runs import block_of, norms_last
    from attnwidgets.tracing.algebra.contributions import parts_of

    power = _POWERS[distance]
    grid = unit_grid(trace, stack, unit)
    if compat == "authors":
        grid = replace(grid, causal=False)

    def compared(layer: int) -> Tensor:
        block = block_of(trace, layer, stack, "alti")
        parts = parts_of(block, "res_ln" if after == "norm1" else "enc")
        whole = block.middle if parts.reference is None else parts.reference
        shift = _AUTHORS_SHIFT if compat == "authors" else 0.0
        near = parts.nearness(whole, power, shift=shift, chunk_size=chunk_size, spans=grid.spans)
        near.clamp_(min=0)
        if compat is None:
            near.masked_fill_(parts.unread(grid.spans), 0.0)
        if stack != "cross":
            return shares(near)
        own = parts.own_nearness(whole, power, shift=shift).clamp_(min=0)
        return shares(torch.cat([near, own[:, None]], dim=1))[:, :-1]

    def measure(layer: int) -> Any:
        return in_unit(compared(layer), grid)

    notes = [
        NO_NORM_AFTER if after == "norm2" and not norms_last(trace, stack, "alti") else "",
        "what a row misses of one is what the token keeps of itself" if stack == "cross" else "",
        decoder_alone(stack) if rolled_out else "",
    ]
    options = {
        "distance": distance,
        "rolled_out": rolled_out,
        "after": after,
        "compat": compat,
        "unit": grid.name,
    }
    common: dict[str, Any] = {
        "method": "alti",
        "paper": PAPER,
        "options": options,
        "stack": stack,
        "stochastic": False if stack == "cross" else None,
        "warning": "; ".join(filter(None, notes)),
        "grid": grid,
    }
    title = "ALTI" if distance == "l1" else "ALTI (L2)"
    if not rolled_out:
        return block_map(trace, measure, title=title, layers=layers, **common)
    single = block_map(trace, measure, title=title, layers=None, **common)
    product = rollout(single, residual=None, normalize=False)
    return block_map(
        trace,
        lambda layer: torch.from_numpy(product.layer(layer).copy()),
        title=f"{title}, rolled out",
        layers=layers,
        **common,
    )
