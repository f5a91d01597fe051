"""ALTI-Logit: contributions of input tokens to a logit through attention, layer by layer.

Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, sections 2 and 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.block_maps import chosen_layers, distance_options
from attnwidgets.explanations.mixing.logit_targets import (
    LOGIT_NEEDS,
    decompose_logits,
    layer_map,
    logit_result,
)
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.trace_protocol import TraceLike

    Float = NDArray[np.float64]

PAPER = "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions"


@method(
    "alti_logit",
    question="For this prediction",
    gist="how much each word adds to the predicted token",
    paper=PAPER,
    needs=LOGIT_NEEDS,
    returns="Attributions [source] to a logit, with every layer's as .map [layer, target, source]",
    cost="one more pass, then ALTI of every layer but the last: heads n² dim operations in chunks",
    speed="seconds",
    takes=measured_on_blocks,
)
def alti_logit(
    trace: TraceLike,
    target: Any = None,
    foil: Any = None,
    *,
    tracked: bool = True,
    initial: Literal["own", "apart"] = "own",
    biases: Literal["shared", "apart"] = "shared",
    distance: Literal["l1", "l2"] = "l1",
    compat: Literal["authors"] | None = None,
    chunk_size: int | None = None,
    stack: str | None = None,
    layers: int | Iterable[int] | slice | None = None,
) -> Attributions:
    """The contributions of input tokens to a logit through attention, tracked down to the input by ALTI.

    A logit is the sum of all terms added to the residual stream, each passed through the final norm (with the
    real state's deviation) and the token's column of the unembedding: the heads' readings of each token j in
    layer l, the feed-forward layers, biases, and the initial embedding (equations 5 to 7). A reading of token
    j in layer l is distributed among the input tokens by ALTI's rollout up to layer l - 1, and layers are
    summed. Feed-forward layers are not tracked to tokens: they and the biases belong to no token and make up
    the `residual`, as do shares that ALTI assigns to no token (its rows of zeros).

    Beyond the models of the paper, RMSNorm, grouped queries, parallel blocks and norms on the attention
    output follow from the blocks' descriptions; in post-norm blocks a part passes every later norm with the
    deviation of the real state. A head with an activation (a masked-language or a class head) or a soft cap
    is replaced by a line through the origin and its real value, and the result's `warning` says so.

    Args:
        trace: A trace made by `aw.trace`, of a model with a head.
        target: The logit: a token by string or id, a class, or `aw.targets.token(token, position=...)`; by
            default the model's prediction. A list of them gives [target, source].
        foil: A token or class to contrast the target with, for the contributions to target - foil.
        tracked: Whether contributions are tracked down to the input (ALTI-Logit). Otherwise a layer's reading
            of a position counts for that position, as if layers did not mix (the paper's "Logit").
        initial: "own" adds the initial embedding's contribution to the token that the head reads, the last
            one of a language model, as in the authors' evaluation; "apart" leaves it to the `residual`.
        biases: Where the contributions of norm 1's shift and the bias of the values go: "shared" distributes
            them among tokens by attention, as published; "apart" leaves them to the `residual`.
        distance: The norm in ALTI: see `aw.alti`.
        compat: "authors" computes ALTI as the authors' code does: see `aw.alti`.
        chunk_size: Number of source tokens that ALTI compares at a time; by default the number that fits.
        stack: Stack that the head reads, if the model has several.
        layers: Numbers of the layers whose attention is counted; all by default. The attention of others is
            left to the `residual`.

    Returns:
        Attributions [source] (or [target, source]) in logits, signed. `.map` holds the contributions of every
        layer [layer, target, source]; with `initial` they sum to the values. `.residual` is the model's logit
        minus the sum of the values. `.provenance["parts"]` has the terms that sum to the logit: initial,
        attention, value bias, output bias, mlp, norm bias (post-norm blocks), final bias (of the final norm
        and the head). `aw.direct_logit_attribution` has them layer by layer.

    Raises:
        ValueError: For an unknown option; if the model has no head, or a target is not a single logit (a
            string of several tokens) or is its own foil; as `UnsupportedModelError`, if no description fits
            blocks or head.
        IndexError: If the token, position or layer is out of range.
        TypeError: If `target` or `foil` cannot name a logit.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A great film.")
        >>> scores = aw.alti_logit(trace)
        >>> scores.target, scores.labels[scores.values.argmax()]
        ('positive', 'great')
    """
    require_choice("initial", initial, ("own", "apart"))
    require_choice("biases", biases, ("shared", "apart"))
    distance_options(distance, compat, chunk_size)
    value_bias = biases == "apart"
    logits = decompose_logits(trace, target, foil, method="alti_logit", stack=stack, value_bias=value_bias)
    included = chosen_layers(trace, logits.stack, layers)
    by_layer: Float = logits.parts.attention.sum(2).numpy()
    if tracked:
        mixing = alti(trace, distance, compat=compat, chunk_size=chunk_size, stack=logits.stack)
        by_layer = _track_to_input(by_layer, mixing.layer, max(included))
    values = by_layer[:, list(included)].sum(1)
    if initial == "own":
        values = values + logits.parts.initial.numpy()
    options = {
        "tracked": tracked,
        "initial": initial,
        "biases": biases,
        "distance": distance,
        "compat": compat,
        "layers": None if layers is None else list(included),
    }
    title = "ALTI-Logit" if tracked else "Logit"
    common = logit_result(trace, logits, "alti_logit", title=title, paper=PAPER, options=options)
    sources = trace.axes(logits.stack)[1]
    return logits.attributions(
        values,
        axis=sources,
        map=layer_map(logits, lambda number: by_layer[:, number], sources, common, layers=included),
        unit=next(iter(sources.units)),
        **common,
    )


def _track_to_input(by_layer: Float, mixing: Any, last: int) -> Float:
    """Return contributions of tokens' states [target, layer, token], distributed among the input tokens.

    From the top, the row of layer l is multiplied by C_{l-1}, ..., C_0, together with all rows above it; no
    two matrices [token, token] are multiplied.
    """
    tracked: Float = by_layer.copy()
    for below in progress(range(last - 1, -1, -1), "ALTI-Logit"):
        tracked[:, below + 1 :] = tracked[:, below + 1 :] @ np.asarray(mixing(below), dtype=np.float64)
    return tracked
