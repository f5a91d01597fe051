"""ALTI-Logit: what every input token adds to a logit through attention, layer by layer.

Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions, sections 2 and 3.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets._selecting import pick
from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.logit_targets import (
    LOGIT_NEEDS,
    Wanted,
    layer_map,
    logit_result,
    wanted_logits,
)
from attnwidgets.explanations.registry.memory_estimates import measured_on_blocks
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.attributions import Attributions

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.trace_protocol import TraceLike

    Float = NDArray[np.float64]

PAPER = "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions"


@method(
    "alti_logit",
    paper=PAPER,
    needs=LOGIT_NEEDS,
    returns="Attributions [source] to a logit, with every layer's as .map [layer, target, source]",
    cost="one more pass, then ALTI of every layer but the last: heads n² dim operations in chunks",
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
    """What every input token adds to a logit through attention, followed down to the input by ALTI.

    A logit is the sum of what was added to the residual stream, each through the final norm (with the real
    state's deviation) and the token's column of the unembedding: what the heads of layer l read of every
    token j, the feed-forward layers, biases, and the initial embedding (equations 5 to 7). What layer l reads
    of token j is shared among the input's tokens as ALTI's rollout says j was made of them up to layer l - 1,
    and layers are summed. Feed-forward layers are not followed to tokens: what they and the biases add is no
    token's, and is the `residual`; so is what ALTI says is made of no token at all (its rows of zeros).

    Beyond the models of the paper: RMSNorm, grouped queries, parallel blocks, and norms behind attention
    follow from the blocks' descriptions; in post-norm blocks a part passes every later norm with the
    deviation of the real state. A head with an activation (a masked-language or a class head) or a soft cap
    is taken as linear through the origin at its real value; the result's `warning` says so.

    Args:
        trace: What `aw.trace` returned, of a model with a head.
        target: The logit: a token by its string or id, a class, `aw.targets.token(token, position=...)`; by
            default what the model predicts. A list of them gives [target, source].
        foil: A token or class that the target is contrasted with: the attributions of target - foil.
        tracked: Whether layers' inputs are followed down to the input (ALTI-Logit); otherwise what layers
            read of a position counts for that position, as if layers did not mix (the paper's "Logit").
        initial: "own" gives what the initial embedding adds to the token that the head reads, the last one
            of a language model, as in the authors' evaluation; "apart" leaves it to the `residual`.
        biases: What the shift of norm 1 and the bias of the values add: "shared" by tokens as attention
            weighs them, as published; "apart" leaves it to the `residual`.
        distance: The norm in ALTI: see `aw.alti`.
        compat: "authors" computes ALTI as the authors' code does: see `aw.alti`.
        chunk_size: Source tokens that ALTI compares at a time; None for as many as fit.
        stack: The stack that the head reads, where there are several.
        layers: Layers whose attention is counted, by number; all by default. The others' is left to the
            `residual`.

    Returns:
        Attributions [source] (or [target, source]) in logits, signed. `.map` has every layer's
        [layer, target, source]; with `initial` they sum to the values. `.residual` is the model's logit less
        the sum of the values, and `.provenance["parts"]` says of what all is made: initial, attention, value
        bias, output bias, mlp, norm bias (post-norm blocks), final bias (of the final norm and the head);
        they sum to the logit. `aw.direct_logit_attribution` has them layer by layer.

    Raises:
        ValueError: For an unknown option; where the model has no head, a target is no single logit (a string
            of several tokens) or its own foil, or blocks or head are not described (`UnsupportedModelError`).
        IndexError: Where there is no such token, position or layer.
        TypeError: Where `target` or `foil` is nothing that names a logit.
    """
    require_choice("initial", initial, ("own", "apart"))
    require_choice("biases", biases, ("shared", "apart"))
    require_choice("distance", distance, ("l1", "l2"))
    require_choice("compat", compat, ("authors", None))
    value_bias = biases == "apart"
    wanted = wanted_logits(trace, target, foil, method="alti_logit", stack=stack, value_bias=value_bias)
    numbers = tuple(range(trace.n_layers(wanted.stack)))
    counted = numbers if layers is None else pick(layers, numbers, "layer")
    by_layer: Float = wanted.parts.attention.sum(2).numpy()
    if tracked:
        mixing = alti(trace, distance, compat=compat, chunk_size=chunk_size, stack=wanted.stack)
        by_layer = _followed(by_layer, mixing.layer, max(counted))
    values = by_layer[:, list(counted)].sum(1)
    if initial == "own":
        values = values + wanted.parts.initial.numpy()
    options = {
        "tracked": tracked,
        "initial": initial,
        "biases": biases,
        "distance": distance,
        "compat": compat,
        "layers": None if layers is None else list(counted),
    }
    title = "ALTI-Logit" if tracked else "Logit"
    common = logit_result(trace, wanted, "alti_logit", title=title, paper=PAPER, options=options)
    return _attributions(wanted, values, by_layer, counted, trace.axes(wanted.stack)[1], common)


def _attributions(
    wanted: Wanted,
    values: Float,
    by_layer: Float,
    counted: tuple[int, ...],
    sources: Any,
    common: dict[str, Any],
) -> Attributions:
    rest = np.asarray(wanted.scores) - values.sum(-1)
    return Attributions(
        values if wanted.several else values[0],
        axis=sources,
        target=wanted.labels,
        foil=None if wanted.foil is None else wanted.foil.label,
        residual=rest.tolist() if wanted.several else float(rest[0]),
        map=layer_map(wanted, lambda number: by_layer[:, number], sources, common, layers=counted),
        unit=next(iter(sources.units)),
        **common,
    )


def _followed(by_layer: Float, mixing: Any, last: int) -> Float:
    """Return what layers read of tokens' states [target, layer, token], as shares of the input's tokens.

    Row by row from the top: layer l's row passes C_{l-1}, ..., C_0, with all rows above it; no product of two
    matrices [token, token] is taken.
    """
    found: Float = by_layer.copy()
    for below in progress(range(last - 1, -1, -1), "ALTI-Logit"):
        found[:, below + 1 :] = found[:, below + 1 :] @ np.asarray(mixing(below), dtype=np.float64)
    return found
