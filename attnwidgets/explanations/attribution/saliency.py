"""Saliency: the gradient of a target by every token's embedding.

Simonyan et al. 2014, Deep Inside Convolutional Networks; for text Li et al. 2016, Visualizing and
Understanding Neural Models in NLP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.embedding_gradients import Reduce, gradient_attributions
from attnwidgets.explanations.registry.registry import method

if TYPE_CHECKING:
    from attnwidgets.explanations.attribution.input_planes import At
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

PAPER = "Simonyan et al. 2014, Deep Inside Convolutional Networks; Li et al. 2016"


@method(
    "saliency",
    question="For this prediction",
    gist="to which words it is sensitive",
    paper=PAPER,
    needs=("target", "own tokens"),
    returns="Attributions [source]",
    cost="one pass forward, and one back for every target",
    speed="seconds",
)
def saliency(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    reduce: Reduce = "l2",
    unit: str | None = None,
    stack: str | None = None,
    at: At = "embedding",
) -> Attributions:
    """How much the target changes with every token's embedding: the size of its gradient there.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        reduce: {reduce}
        unit: {unit}
        stack: {stack}
        at: {at}

    Returns:
        Attributions [source], or [target, source]: not negative, unless `reduce` is "sum" or "mean". Nothing
        is conserved.

    Raises:
        ValueError: For an unknown reduction, stack or unit; if the target must be named; if gradients are NaN
            or all zero (the message names the layer) or unavailable (inference mode, quantised weights).
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.saliency(trace).shape == (len(trace.tokens),)
        True
    """
    return gradient_attributions(
        trace,
        target,
        foil,
        lambda gradient, _: gradient,
        method="saliency",
        title=f"saliency ({reduce})",
        paper=PAPER,
        reduce=reduce,
        unit=unit,
        stack=stack,
        at=at,
    )
