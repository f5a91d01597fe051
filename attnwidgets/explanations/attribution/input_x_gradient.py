"""Input x gradient: what every token's embedding adds to a target, as far as the target is linear.

Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences, section 2; for
text Denil et al. 2014, Extraction of Salient Sentences from Labelled Documents.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.embedding_gradients import Reduce, gradient_attributions
from attnwidgets.explanations.registry.registry import method

if TYPE_CHECKING:
    from attnwidgets.explanations.attribution.input_planes import At
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

PAPER = (
    "Denil et al. 2014; Shrikumar et al. 2017, Learning Important Features Through Propagating Differences"
)


@method(
    "input_x_gradient",
    question="For this prediction",
    gist="which words raise or lower it, by the gradient",
    paper=PAPER,
    needs=("target", "own tokens"),
    returns="Attributions [source]",
    cost="one pass forward, and one back for every target",
    speed="seconds",
)
def input_x_gradient(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    reduce: Reduce = "sum",
    unit: str | None = None,
    stack: str | None = None,
    at: At = "embedding",
) -> Attributions:
    """What every token's embedding adds to the target, to first order: its embedding times its gradient.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        reduce: {reduce} By default the sum, which is the dot product of embedding and gradient.
        unit: {unit}
        stack: {stack}
        at: {at}

    Returns:
        Attributions [source], or [target, source]: signed if `reduce` is "sum" or "mean". They do not sum to
        the target, which is not linear in its input.

    Raises:
        ValueError: For an unknown reduction, stack or unit; if the target must be named; if gradients are NaN
            or all zero (the message names the layer) or unavailable (inference mode, quantised weights).
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.input_x_gradient(trace, target=[0, 1]).axis_names
        ('target', 'source')
    """
    return gradient_attributions(
        trace,
        target,
        foil,
        lambda gradient, embedding: gradient * embedding,
        method="input_x_gradient",
        title="input x gradient" if reduce == "sum" else f"input x gradient ({reduce})",
        paper=PAPER,
        reduce=reduce,
        unit=unit,
        stack=stack,
        at=at,
    )
