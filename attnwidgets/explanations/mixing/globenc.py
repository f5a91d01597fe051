"""GlobEnc: lengths of whole blocks' vectors, followed through the layers.

Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder
Layer in Transformers, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.attention_norm import attention_norm
from attnwidgets.explanations.mixing.block_maps import NO_NORM_AFTER, block_map, own_stack
from attnwidgets.explanations.mixing.rollout import BeyondPrecisionError, rollout
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.joint_units import unit_grid

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import Unit

PAPER = (
    "Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole "
    "Encoder Layer "
    "in Transformers"
)


@method(
    "globenc",
    paper=PAPER,
    needs="own blocks",
    returns="MixingMap [layer, query, key], cumulative to that layer",
    cost="one more pass, then every layer up to the one that is opened",
    takes=measured_on_blocks,
)
def globenc(
    trace: TraceLike,
    normalize: Literal["none", "row"] = "none",
    *,
    unit: str | Unit | tuple[Unit, Unit] | None = None,
    stack: str | None = None,
) -> MixingMap:
    """Lengths of the vectors after whole blocks (N-Enc), multiplied from the input to every layer.

    With N_l the map `aw.attention_norm(trace, "enc")` of layer l: R_0 = N_0, R_l = N_l R_{l-1}. No residual
    is added, since N_l holds it.

    Args:
        trace: What `aw.trace` returned.
        normalize: "none" is the published GlobEnc: the product of lengths as they are, which grows from
            layer to layer and whose rows do not sum to one. "row" divides every row of N_l by its sum before
            the product, as later toolkits do; the two are different measures and order tokens differently. A
            row of zeros stays zero.
        unit: The unit of every N_l (see `aw.attention_norm`), and of their product.
        stack: Which stack of a model with several, of blocks that read one sequence only.

    Returns:
        A lazy map [layer, query, key], cumulative to each layer. The published numbers are the row of [CLS]
        in the last.

    Raises:
        ValueError: For an unknown option, where the model's blocks are not described, or (when a layer is
            opened) where the product of a deep model leaves the range of its precision; use "row" then.
    """
    require_choice("normalize", normalize, ("none", "row"))
    blocks = attention_norm(trace, "enc", unit=unit, stack=own_stack(trace, stack, "globenc"))
    from attnwidgets.tracing.algebra.block_runs import norms_last

    product = rollout(blocks, residual=None, normalize=normalize == "row")

    def measure(layer: int) -> Tensor:
        import torch

        try:
            found = product.layer(layer)
        except BeyondPrecisionError as error:
            remedy = "pass normalize='row', which divides rows before the product"
            raise BeyondPrecisionError(error.said, remedy) from None
        return torch.from_numpy(found.copy())

    return block_map(
        trace,
        measure,
        method="globenc",
        title="GlobEnc" if normalize == "none" else "GlobEnc, rows normalised",
        paper=PAPER,
        options={"normalize": normalize, "unit": blocks.unit},
        stack=blocks.stack,
        layers=None,
        stochastic=False if normalize == "none" else None,
        warning="" if norms_last(trace, blocks.stack, "globenc") else NO_NORM_AFTER,
        grid=unit_grid(trace, blocks.stack, unit),
    )
