"""DecompX: each token's part of the hidden states as a vector, up to signed scores of a logit.

Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token Decomposition,
section 3.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal, cast

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._gradients import no_grad
from attnwidgets.explanations.mixing.block_maps import in_unit, measured_stack, require_chunk_size
from attnwidgets.explanations.mixing.logit_targets import target_logits
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_on_blocks
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of
from attnwidgets.explanations.results.units import unit_grid

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.mixing.logit_targets import Cell, TargetLogits
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.units import Grid
    from attnwidgets.tracing.algebra.propagation import Propagation
    from attnwidgets.tracing.text.units import Unit
    from attnwidgets.tracing.trace import Trace

    Float = NDArray[np.float64]

PAPER = (
    "Modarressi et al. 2023, DecompX: Explaining Transformers Decisions by Propagating Token Decomposition"
)

TOGETHER = "no description fits the blocks: the biases of each are distributed together, where it returns"

LIMIT = 2**32
"""Bytes of vectors in memory at once above which `force=True` is required."""

# Largest error of the sum of all parts in blocks without a description, relative to the logit, or to 1.
_SUM_ERROR, _SUM_ERROR_IN_HALF = 1e-3, 1e-1

_BIASES = ("absdot", "abssim", "norm", "equal", "cls", "dot", None)
_ACTIVATIONS = ("zero_origin", "linear_approximation", "relu")


@method(
    "decompx",
    question="For this prediction",
    gist="what each word adds, carried through every layer",
    paper=PAPER,
    needs=("own sequence", "every mixer"),
    returns="Attributions [source] to a logit, with the norms of every layer's vectors as .map; that map "
    "alone if nothing is predicted",
    cost="one more pass, then every block for every pair of tokens: tokens² * width numbers are held",
    speed="seconds",
    takes=measured_on_blocks,
)
def decompx(
    trace: TraceLike,
    target: Any = None,
    foil: Any = None,
    *,
    bias: Literal["absdot", "abssim", "norm", "equal", "cls", "dot"] | None = "absdot",
    activation: Literal["zero_origin", "linear_approximation", "relu"] = "zero_origin",
    gate: Literal["half", "fixed"] = "half",
    ffn: bool = True,
    unit: str | Unit | None = None,
    stack: str | None = None,
    chunk_size: int | None = None,
    force: bool = False,
) -> Attributions | MixingMap:
    """Signed scores of the input tokens that sum to a logit, by propagating vectors through the whole model.

    The vector T[i, j] is the part of token j in the hidden state of token i, so sum_j T[i, j] is that state,
    exactly, after every layer. Attention mixes the vectors with its real weights, norms divide them by the
    real deviation, biases are distributed among them, and activations become lines; finally the head turns
    the vectors it reads into scores of a logit (equations 4 to 13).

    Published for BERT and RoBERTa. The same rules extend to masked-language heads, pre-norm blocks, RMSNorm,
    grouped queries, parallel blocks, norms on the attention output, gated feed-forward layers (`gate`) and a
    final soft cap (a line through the origin). All of this follows from descriptions of the blocks and the
    head, which are verified on the numbers of the pass.

    Blocks that no description fits (state spaces, delta rules and other kernels, latent attention, mixtures
    of experts) are run under the rules of relevance, as the linear map that they are with everything else
    fixed at its value: weights of attention, kernels and experts, deviations, gates of mixers, activations as
    factors. Their biases are distributed together, at the block's output. Each block is checked: without its
    biases its map must return the output. In a model without biases the result is that of a description.

    Args:
        trace: A trace made by `aw.trace`.
        target: The logit: a class by name or index, a token by string or id (the next token, or the token at
            a mask), or `aw.targets.token(token, position=...)`; by default the model's prediction. A list of
            them gives [target, source].
        foil: A class or token to contrast the target with, for the scores of target - foil.
        bias: How a bias b is distributed among the vectors t_j of a token: by |t_j b| ("absdot", published),
            |cos(t_j, b)| ("abssim"), |t_j| ("norm"), t_j b ("dot", possibly negative), in equal parts to
            nonzero vectors ("equal"), or all to the first token ("cls"). None drops biases, so that scores do
            not sum to the logit.
        activation: "zero_origin" replaces f(x) by f(x) / x times the parts of x (GeLU_ZO, published);
            "linear_approximation" by f'(x) times the parts of x, with the rest as a bias (GeLU_LA); "relu"
            keeps the parts where x is positive, which does not sum to the logit unless the model uses ReLU.
            The latter two need described blocks.
        gate: How gated feed-forward layers f(g(x)) u(x) are treated, which the paper does not cover: "half"
            averages the parts with u fixed and with f(g) fixed, the Shapley value of the product;
            "fixed" holds f(g) fixed, like attention weights.
        ffn: Whether vectors pass through the feed-forward layers; without them, which needs described blocks,
            they do not sum to the logit.
        unit: Unit of the sources: tokens by default; a name ("word") or a Unit propagates all tokens of an
            element as one vector, which differs from `.to("word")` in how biases are distributed, and is less
            work.
        stack: Stack that the head reads, or "encoder" of an encoder-decoder, which only has a map.
        chunk_size: Number of sources propagated at a time. It requires that no bias is distributed among the
            sources (a model without biases, or bias=None); otherwise all are propagated at once.
        force: Whether to run if more than 4 GB are in memory at once.

    Returns:
        Attributions [source] (or [target, source]) in logits, signed, that sum to the logit; `.residual` is
        the difference (rounding, unless an option above drops something). `.map` is a lazy MixingMap [layer,
        query, key] of the norms |T[i, j]| (the authors' `aggregated`; rows do not sum to 1), each layer
        cumulative from the input; rows of a coarser unit are means over its tokens. Only that map is returned
        if no target is given and the model has no single prediction: without a head, without a mask for a
        masked-language head, and for the encoder of an encoder-decoder; its `.map` is the map itself.

        A vector and a value vector are stored for every pair of token and source, 4 (width + width of the
        values) bytes each in float32 (8 in float64; half precision is computed in float32): 50 MB for 128
        tokens of MiniLM. The norms of all layers are computed together on first use. For the vectors
        themselves see `attnwidgets.tracing.algebra.propagation.Propagation`.

    Raises:
        ValueError: For an unknown option or unit, an unsupported chunk_size, more than 4 GB without `force`,
            a target that is not a single logit, a target for a model without a head, or NaN inside the model
            (the message names the layer); as `UnsupportedModelError`, if no description fits the head, or a
            block is not a linear map of its input and its biases (the message names it).
        IndexError: If the class, token or position does not exist.
        TypeError: If `target` or `foil` cannot name a logit.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A great film.")
        >>> scores = aw.decompx(trace)
        >>> scores.target, scores.labels[scores.values.argmax()]
        ('positive', 'great')
    """
    require_choice("bias", bias, _BIASES)
    require_choice("activation", activation, _ACTIVATIONS)
    require_choice("gate", gate, ("half", "fixed"))
    require_chunk_size(chunk_size)
    stack = measured_stack(trace, stack, "decompx", alone="decompx")
    grid = unit_grid(trace, stack, unit)
    # Without a target and without a single prediction, only the map is returned.
    predicted = trace.predictions_title and "cross" not in trace.stacks
    explained = predicted or target is not None or foil is not None
    logits = None
    if explained:
        logits = target_logits(trace, target, foil, method="decompx", stack=stack, stack_of=measured_stack)

    from attnwidgets.relevance.frozen_blocks import FrozenBlocks, blocks_in_parts
    from attnwidgets.tracing.algebra.decomposition import Rules
    from attnwidgets.tracing.algebra.propagation import Propagation

    rules = Rules(bias, activation, gate)
    spans = grid.key.units[grid.name].spans
    option = "" if ffn else "ffn=False"
    if activation != "zero_origin":
        option = f"activation={activation!r}"
    layers = blocks_in_parts(cast("Trace", trace), stack, "decompx", gate, option)
    propagation = Propagation(cast("Trace", trace), stack, "decompx", spans, rules, ffn=ffn, layers=layers)
    _require_memory(propagation, chunk_size, force=force)
    options = {"bias": bias, "activation": activation, "gate": gate, "ffn": ffn, "unit": grid.name}
    is_frozen = isinstance(layers, FrozenBlocks)
    together = bias is not None and is_frozen and propagation.needs_all()
    notes = (*(() if logits is None else logits.notes), TOGETHER if together else "")
    common = provenance_of(
        trace, stack, "decompx", paper=PAPER, options=options, notes=notes, attention=not is_frozen
    )
    common["provenance"]["title"] = "DecompX"
    lengths = _lengths(propagation, layers.numbers, grid, chunk_size, common)
    if logits is None:
        return lengths
    values = _scores(propagation, logits, chunk_size)
    if bias is not None and isinstance(layers, FrozenBlocks):
        _require_sums(values, logits, half=layers.in_half_precision)
    return logits.attributions(values, axis=grid.key, map=lengths, unit=grid.name, **common)


def _require_sums(values: Float, logits: TargetLogits, *, half: bool) -> None:
    """Raise an UnsupportedModelError if contributions [target, source] do not sum to the logits."""
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    for total, score in zip(values.sum(-1), logits.scores, strict=True):
        # Written so that NaN fails.
        if not abs(total - score) <= (_SUM_ERROR_IN_HALF if half else _SUM_ERROR) * max(1.0, abs(score)):
            raise UnsupportedModelError(
                f"decompx is not available: the parts of the last block's output sum to {total:.5g} in a "
                f"logit of {score:.5g}. Gradients and relevance still work."
            )


def _require_memory(propagation: Propagation, chunk_size: int | None, *, force: bool) -> None:
    """Raise a ValueError if sources cannot be propagated in groups, or need too much memory."""
    together = propagation.needs_all()
    if chunk_size is not None and together:
        raise ValueError(
            f"chunk_size={chunk_size}: biases are distributed among all sources here, which requires all of "
            "them at once; omit chunk_size, or pass bias=None. unit='word' needs less memory."
        )
    n_bytes = propagation.held_bytes(None if together else 1)
    if n_bytes > LIMIT and not force:
        raise ValueError(
            f"decompx holds a vector for every pair of tokens, {n_bytes / 2**30:.1f} GB for these "
            f"{propagation.n_tokens} tokens; pass force=True to run it, unit='word' to propagate words, "
            "bias=None to leave biases out, or shorten the text."
        )


def _scores(propagation: Propagation, logits: TargetLogits, chunk_size: int | None) -> Float:
    """Return the contributions to the targets, minus those to their foils [target, source]."""
    from attnwidgets.tracing.algebra.propagation import through_head
    from attnwidgets.tracing.anatomy.output_heads import head_of

    cells = list(dict.fromkeys((*logits.cells, *logits.foil_cells)))
    heads = {
        position: head_of(propagation.trace, propagation.stack, "decompx", position)
        for position in dict.fromkeys(position for position, _ in cells)
    }
    rows = sorted({row for position, head in heads.items() for row in head.rows(position)})
    with no_grad():
        vectors = propagation.run(rows, chunk_size=chunk_size)
    scores: dict[Cell, Float] = {}
    for position, head in heads.items():
        indices = [index for head_position, index in cells if head_position == position]
        read = vectors[[rows.index(row) for row in head.rows(position)]]
        with no_grad():
            by_target = through_head(head, position, indices, read, propagation.rules).cpu().double().numpy()
        scores |= {(position, index): column for index, column in zip(indices, by_target.T, strict=True)}
    values = np.stack([scores[cell] for cell in logits.cells])
    return values - np.stack([scores[cell] for cell in logits.foil_cells]) if logits.foil_cells else values


def _lengths(
    propagation: Propagation,
    numbers: tuple[int, ...],
    grid: Grid,
    chunk_size: int | None,
    common: dict[str, Any],
) -> MixingMap:
    """Return the norms of the vectors [layer, query, key], reusing those of the run to the head."""
    lock = threading.Lock()

    def layer_of(number: int) -> Any:

        index = numbers.index(number)
        with lock, no_grad():
            if index not in propagation.lengths:
                propagation.run(chunk_size=chunk_size)
        return in_unit(propagation.lengths[index], grid)

    provenance = {**common["provenance"], "title": "DecompX, lengths of the vectors"}
    return MixingMap.lazy(
        layer_of,
        query=grid.query,
        key=grid.key,
        layers=numbers,
        unit=grid.name,
        causal=grid.causal,
        stochastic=False,
        runs_model=True,
        **{**common, "provenance": provenance},
    )
