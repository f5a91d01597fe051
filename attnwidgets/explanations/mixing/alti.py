"""ALTI and ALTI-Logit: how close each token's vector is to the sum of all of them, up to a logit.

ALTI: Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer, sections 3
and 4.

ALTI-Logit, the contributions of input tokens to a logit through attention, layer by layer: Ferrando et al.
2023, Explaining How Transformers Use Context to Build Predictions, sections 2 and 3.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.block_maps import (
    block_map,
    chosen_layers,
    distance_options,
    in_unit,
    measured_stack,
    no_norm_note,
    shares,
)
from attnwidgets.explanations.mixing.layer_product import decoder_alone
from attnwidgets.explanations.mixing.logit_targets import (
    LOGIT_NEEDS,
    decompose_logits,
    layer_map,
    logit_result,
)
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import measured_on_blocks
from attnwidgets.explanations.results.units import unit_grid

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import Unit

    Float = NDArray[np.float64]

ALTI_PAPER = "Ferrando et al. 2022, Measuring the Mixing of Contextual Information in the Transformer"

ALTI_LOGIT_PAPER = "Ferrando et al. 2023, Explaining How Transformers Use Context to Build Predictions"


@method(
    "alti",
    question="What goes into a token",
    gist="how much of each word is in each word",
    paper=ALTI_PAPER,
    needs="mixing",
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
    its sum (equations 9 and 10). Pre-norm blocks have no norm there: t_ij is the term of j in the residual
    sum and y_i is that sum. Feed-forward layers do not mix tokens and are left out.

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
            connection is a further part, the decoder's token itself, whose share is 1 less the sum of the row
            (Ferrando et al. 2022b, Towards Opening the Black Box of Neural Machine Translation).
        layers: Numbers of the layers to include; all by default.

    Returns:
        A lazy map [layer, query, key] in the requested unit, 0 to 1. Rows sum to 1; a row in which every
        vector is farther from the sum than a zero vector is zero.

    Raises:
        ValueError: For an unknown option or unit; as `UnsupportedModelError`, if no description fits the
            model's blocks or they differ from it (the message names the methods that work).
        IndexError: If a layer is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> contributions = aw.alti(trace, rolled_out=True)
        >>> trace.tokens[contributions.layer(-1)[0].argmax()]
        'cat'
    """
    power, shift = distance_options(distance, compat, chunk_size)
    require_choice("after", after, ("norm1", "norm2"))
    stack = measured_stack(trace, stack, "alti", alone="after='norm2'" if after == "norm2" else "")
    import torch

    from attnwidgets.tracing.algebra.block_runs import require_whole
    from attnwidgets.tracing.mixers.runs import parts_at

    if rolled_out:
        require_whole(trace, stack, "alti with rolled_out=True", attention=False)
    grid = unit_grid(trace, stack, unit)
    if compat == "authors":
        grid = replace(grid, causal=False)

    def measure(layer: int) -> Any:
        parts = parts_at(trace, layer, stack, "res_ln" if after == "norm1" else "enc", "alti")
        whole: Any = parts.reference
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
        "paper": ALTI_PAPER,
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
        "measured": True,
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


@method(
    "alti_logit",
    question="For this prediction",
    gist="how much each word adds to the predicted token",
    paper=ALTI_LOGIT_PAPER,
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
    """The contributions of input tokens to a logit through attention or what replaces it, tracked by ALTI.

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

    The output of a state space, a delta rule or a gated convolution is a sum over tokens, too, exactly, with
    its kernel, gates and norms fixed (`aw.mixing`). So is attention that no description fits (latent
    attention, experts around it). Such blocks must add to the residual stream without a norm after the sum.

    Args:
        trace: A trace made by `aw.trace`, of a model with a head.
        target: The logit: a token by string or id, a class, or `aw.targets.token(token, position=...)`; by
            default the model's prediction. A list of them gives [target, source].
        foil: A token or class to contrast the target with, for the contributions to target - foil.
        tracked: Whether contributions are tracked down to the input (ALTI-Logit). Otherwise a layer's reading
            of a position counts for that position, as if layers did not mix (the paper's "Logit").
        initial: "own" adds the initial embedding's contribution to the token that the head reads, the last
            token of a language model, as in the authors' evaluation; "apart" leaves it to the `residual`.
        biases: Where the contributions of norm 1's shift and the bias of the values go: "shared" distributes
            them among tokens by attention, as published; "apart" leaves them to the `residual` and needs a
            description of the blocks.
        distance: The norm in ALTI: see `aw.alti`.
        compat: "authors" computes ALTI as the authors' code does: see `aw.alti`.
        chunk_size: Number of source tokens that ALTI compares at a time; by default the number that fits.
        stack: Stack that the head reads, if the model has several.
        layers: Numbers of the layers whose attention or other mixing is counted; all by default. That of
            others is left to the `residual`.

    Returns:
        Attributions [source] (or [target, source]) in logits, signed. `.map` holds the contributions of every
        layer [layer, target, source]; with `initial` they sum to the values. `.residual` is the model's logit
        minus the sum of the values. `.provenance["parts"]` has the terms that sum to the logit: initial,
        attention, value bias, output bias, mlp, norm bias (post-norm blocks), final bias (of the final norm
        and the head). `aw.direct_logit_attribution` has them layer by layer.

    Raises:
        ValueError: For an unknown option; if the model has no head, or a target is not a single logit (a
            string of several tokens) or equals its foil; as `UnsupportedModelError`, if no description fits
            the head, or a block's output is not a known sum (the message says why).
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
    included = chosen_layers(trace, logits.stack, layers, measured=True)
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
    common = logit_result(trace, logits, "alti_logit", title=title, paper=ALTI_LOGIT_PAPER, options=options)
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
