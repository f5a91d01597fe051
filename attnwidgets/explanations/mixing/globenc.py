"""GlobEnc: norms of the vectors after whole blocks, multiplied through the layers.

Modarressi et al. 2022, GlobEnc: Quantifying Global Token Attribution by Incorporating the Whole Encoder
Layer in Transformers, section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.mixing.attention_norm import attention_norm
from attnwidgets.explanations.mixing.block_maps import block_map, described_stack, no_norm_note
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
    "Encoder Layer in Transformers"
)


@method(
    "globenc",
    question="What goes into a token",
    gist="how much of each input word is left",
    paper=PAPER,
    needs=("own blocks", "every block"),
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
            and whose rows do not sum to one. "row" divides each row of N_l by its sum before the product, as
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
    stack = described_stack(trace, stack, "globenc", alone="globenc")
    from attnwidgets.tracing.algebra.block_runs import require_whole

    require_whole(trace, stack, "globenc")
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
        paper=PAPER,
        options={"normalize": normalize, "unit": blocks.unit},
        stack=stack,
        layers=None,
        stochastic=False if normalize == "none" else None,
        notes=(no_norm_note(trace, stack, "globenc"),),
        grid=unit_grid(trace, stack, unit),
    )
