"""Contextual decomposition: a token's part of a logit, carried with the rest through every layer.

Murdoch, Liu and Yu 2018, Beyond Word Importance; Hsu et al. 2025, Efficient Automated Circuit Discovery in
Transformers using Contextual Decomposition (CD-T), section 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from attnwidgets._gradients import no_grad
from attnwidgets._tensors import is_half
from attnwidgets.explanations.mixing.block_maps import measured_stack, require_chunk_size
from attnwidgets.explanations.mixing.logit_targets import PROPAGATION_NEEDS, target_logits
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of
from attnwidgets.explanations.results.units import unit_grid

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.mixing.logit_targets import Cell, TargetLogits
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.algebra.two_parts import TwoParts
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPER = (
    "Hsu et al. 2025, Efficient Automated Circuit Discovery in Transformers using Contextual Decomposition; "
    "Murdoch et al. 2018, Beyond Word Importance"
)
_NAME = "contextual_decomposition"
_ERROR, _ERROR_IN_HALF = 0.01, 0.1  # largest error of the sum of both parts, relative to the logit, or to 1
_AT_ONCE = 16  # sources that are carried through the blocks together, unless a number is given


@method(
    _NAME,
    question="For this prediction",
    gist="what of the logit comes from each word, the rest kept apart",
    paper=PAPER,
    needs=PROPAGATION_NEEDS,
    returns="Attributions [source] to a logit",
    cost="one more pass, then for each source two passes of every block",
    speed="seconds",
)
def contextual_decomposition(
    trace: TraceLike,
    target: Any = None,
    foil: Any = None,
    *,
    unit: str | Unit | None = None,
    stack: str | None = None,
    chunk_size: int | None = None,
) -> Attributions:
    """How much of a logit comes from each input token: contextual decomposition for transformers (CD-T).

    For one token at a time, every state of the model is the sum of a relevant part b, which starts as the
    token's embedding, and an irrelevant part g, which starts as those of all others. The parts add up to the
    state at every step:

        linear     W b and W g; a bias is shared as |W b| : |W g|, component by component
        norm       both divided by the deviation of b + g
        attention  both mixed with the weights that attention had
        function   f(b + g) - f(g) is relevant, f(g) irrelevant

    Of a gated feed-forward layer f(v) u, which the paper does not cover, half follows the parts of f(v) and
    half those of u, as in `aw.decompx`: as a function of both, parts grow beyond all bounds. Weights of
    attention are treated as fixed, so that a token which only changes them receives nothing. The values of
    several tokens need not sum to the logit: an effect that two have only together is relevant to both.

    Published for BERT and GPT-2. All follows from descriptions of blocks and head, which are verified on the
    numbers of the pass. Blocks that no description fits (state spaces and other kernels, latent attention,
    mixtures of experts) are run with both parts, operation by operation under these rules; weights of kernels
    and experts and the gates of mixers are fixed, like those of attention, and so is the activation of a
    short convolution, as a factor. Each block is checked: if its whole input is relevant, its whole output
    must be. The authors' code also moves all of a component to the larger part where both differ
    in sign; this is left out, for results then jump with rounding.

    Args:
        trace: A trace made by `aw.trace`.
        target: The logit: a class by name or index, a token by string or id (the next token, or the token at
            a mask), or `aw.targets.token(token, position=...)`; by default the model's prediction. A list of
            them gives [target, source].
        foil: A class or token to contrast the target with, for the parts of target - foil.
        unit: Unit of the sources: tokens by default; a name ("word") or a Unit makes all tokens of an element
            relevant together, which is not the sum over its tokens.
        stack: Stack that the head reads.
        chunk_size: Number of sources carried through the blocks together, 16 by default.

    Returns:
        Attributions [source] (or [target, source]), signed: the relevant part of the logit, in logits.
        `.residual` is the logit less their sum: biases, and joint effects of tokens.

    Raises:
        ValueError: For an unknown unit, a chunk_size below 1, a target that is not a single logit, a model
            without a head, NaN inside the model, or parts that no longer add up to the logit (they can grow
            from block to block); as `UnsupportedModelError`, if no description fits the head, or parts cannot
            be carried through a block (the message names it).
        IndexError: If the class, token or position does not exist.
        TypeError: If `target` or `foil` cannot name a logit.

    Example:
        >>> model, tokenizer = aw.zoo.additive(letters="abcd", length=8)
        >>> trace = aw.trace(model, tokenizer, "abca")
        >>> aw.circuits.contextual_decomposition(trace, 1).values.round(2).tolist()
        [0.0, 1.5, 0.5, -0.5, 1.5]
    """
    require_chunk_size(chunk_size)
    logits = target_logits(trace, target, foil, method=_NAME, stack=stack, stack_of=measured_stack)
    grid = unit_grid(trace, logits.stack, unit)
    spans = grid.key.units[grid.name].spans
    values = _relevant(cast("Trace", trace), logits, spans, chunk_size or _AT_ONCE)
    options = {"unit": grid.name}
    common = provenance_of(trace, logits.stack, _NAME, paper=PAPER, options=options, notes=logits.notes)
    common["provenance"]["title"] = "contextual decomposition"
    return logits.attributions(values, axis=grid.key, unit=grid.name, **common)


def _relevant(trace: Trace, logits: TargetLogits, spans: Any, at_once: int) -> Float:
    """Return the relevant part of every target, less its foil's, by source [target, source]."""
    import torch

    from attnwidgets._progress import progress
    from attnwidgets.relevance.frozen_blocks import FrozenBlock, blocks_in_parts
    from attnwidgets.tracing.algebra.two_parts import from_tokens, through_block

    layers = blocks_in_parts(trace, logits.stack, _NAME, "half")
    chunks: list[TwoParts] = [
        from_tokens(layers[0].hidden, spans[start : start + at_once])
        for start in range(0, len(spans), at_once)
    ]
    with no_grad():
        for at in progress(range(len(layers)), desc=_NAME):
            layer = layers[at]
            for number, parts in enumerate(chunks):
                if isinstance(layer, FrozenBlock):
                    chunks[number] = layer.in_two_parts(parts)
                else:
                    chunks[number] = through_block(layer, parts, divided=True)
        relevant = [logit_parts_in_two(trace, logits, parts, _NAME).relevant for parts in chunks]
        return torch.cat(relevant).T.cpu().double().numpy()


def logit_parts_in_two(trace: Trace, logits: TargetLogits, parts: TwoParts, method: str) -> TwoParts:
    """Return the parts of every target, less its foil's [copy, target].

    Args:
        trace: Trace returned by `aw.trace`.
        logits: The targets and foils.
        parts: The parts of the last block's output.
        method: Name of the method, for messages.

    Raises:
        ValueError: If the parts do not add up to the logits that the model returned.
    """
    import torch

    from attnwidgets.tracing.algebra.two_parts import TwoParts, through_head_in_two
    from attnwidgets.tracing.anatomy.output_heads import head_of

    cells = dict.fromkeys((*logits.cells, *logits.foil_cells))
    by_cell: dict[Any, TwoParts] = {}
    for position in dict.fromkeys(position for position, _ in cells):
        head = head_of(trace, logits.stack, method, position)
        columns = [index for head_position, index in cells if head_position == position]
        both = through_head_in_two(head, position, columns, parts)
        _require_sum(trace, both.whole, [(position, index) for index in columns], method)
        for number, index in enumerate(columns):
            by_cell[position, index] = TwoParts(both.relevant[:, number], both.irrelevant[:, number])

    def stacked(chosen: Any) -> TwoParts:
        return TwoParts(
            torch.stack([by_cell[cell].relevant for cell in chosen], dim=1),
            torch.stack([by_cell[cell].irrelevant for cell in chosen], dim=1),
        )

    target_parts = stacked(logits.cells)
    return target_parts + stacked(logits.foil_cells).map(torch.neg) if logits.foil_cells else target_parts


def _require_sum(trace: Trace, sums: Tensor, cells: list[Cell], method: str) -> None:
    """Raise if the sums of both parts [copy, cell] are not the logits."""
    logits = cast("Tensor", trace.logits)
    scores = [float((logits if row is None else logits[row])[index]) for row, index in cells]
    expected = sums.new_tensor(scores)
    errors = (sums - expected).abs() / expected.abs().clamp_min(1)
    if not bool((errors <= (_ERROR_IN_HALF if is_half(logits) else _ERROR)).all()):  # NaN is refused, too
        raise ValueError(
            f"{method}: the two parts of the states grew so large that they no longer add up to the logit. "
            "Choose a reference that differs in fewer tokens, or leave it out; for tokens, use aw.alti_logit "
            "or aw.decompx."
        )
