"""Signed attention: what every attention weight does for a target, to first order.

The product of attention and its gradient, head by head: Chefer et al. 2021, Generic Attention-model
Explainability, equation 5 before averaging; Barkan et al. 2021, Grad-SAM; Hao et al. 2021 in one step.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.attribution.attention_gradients import attention_gradients
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of, resolve_stack
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

PAPER = "Chefer et al. 2021, Generic Attention-model Explainability; Barkan et al. 2021, Grad-SAM"


@method(
    "signed_attention",
    question="For this prediction",
    gist="which attention weights raise or lower it",
    paper=PAPER,
    needs=("recorded model", "target"),
    returns="MixingMap [layer, head, query, key], signed",
    cost="one pass forward and one back",
    speed="seconds",
)
def signed_attention(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    of: Literal["loss", "score"] = "loss",
    stack: str | None = None,
) -> MixingMap:
    """What every attention weight does for the target: -dL/dalpha * alpha, head by head.

    L is the target's loss, so that positive numbers speak for the target: paying that attention lowers its
    loss.

    Args:
        trace: {trace}
        target: {target}
        foil: {foil}
        of: "loss" for the loss of the target, as in lectures: -log p of a class or a token, or minus the
            score of any other target; "score" for d(score)/dalpha * alpha of the logit itself. With a foil
            among the same logits both are the same.
        stack: {any_stack}

    Returns:
        A map [layer, head, query, key], signed; zero where attention is zero. Rows sum to nothing in
        particular.

    Raises:
        ValueError: For an unknown option or stack; if the target must be named, or is a list; if gradients
            are NaN or all zero (the message names the layer) or unavailable; if attention is not recorded
            (`UnsupportedModelError`).
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> signed = aw.signed_attention(trace)
        >>> signed.shape == aw.attention(trace).shape
        True
    """
    require_choice("of", of, ("loss", "score"))
    targets = resolve_target_set(trace, target, foil, "signed_attention").single("signed_attention")
    stack = resolve_stack(trace, stack)

    def score(outputs: Any) -> Any:
        return -targets.losses(outputs)[0] if of == "loss" else targets.scores(outputs)[0]

    gradients = attention_gradients(trace, score, "signed_attention", hidden_states=targets.hidden_states)
    values = np.stack([gradients.product(stack, index) for index in range(trace.n_layers(stack))])
    query, key = trace.axes(stack)
    names = targets.names()
    contrast = f" rather than {names['foil']!r}" if names["foil"] else ""
    common = provenance_of(
        trace,
        stack,
        "signed_attention",
        title=f"signed attention for {names['target']!r}{contrast}",
        paper=PAPER,
        options={"of": of, **names},
        notes=targets.notes,
    )
    return MixingMap(
        values,
        query=query,
        key=key,
        layers=trace.layers(stack),
        unit=next(iter(query.units)),
        causal=trace.is_causal(stack),
        stochastic=False,
        signed=True,
        **common,
    )
