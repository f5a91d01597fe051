"""Saliency: the gradient of a target by every token's embedding.

Simonyan et al. 2014, Deep Inside Convolutional Networks; for text Li et al. 2016, Visualizing and
Understanding Neural Models in NLP.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.embedding_gradients import (
    Reduce,
    attributed,
    embedding_gradients,
    embedding_stack,
    reduced,
    require_reduction,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.targets.target_set import asked

if TYPE_CHECKING:
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

PAPER = "Simonyan et al. 2014, Deep Inside Convolutional Networks; Li et al. 2016"


@method(
    "saliency",
    paper=PAPER,
    needs=("target", "own tokens"),
    returns="Attributions [source]",
    cost="one pass forward, and one back for every target",
)
def saliency(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    reduce: Reduce = "l2",
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """How much the target would change with every token's embedding: the size of its gradient there.

    Args:
        trace: What `aw.trace` returned.
        target: What is explained: a class or a token by name or number, anything of `aw.targets`, a function
            of the outputs; what the model predicts by default. A list of them gives [target, source].
        foil: What the target is contrasted with: the gradient of target - foil.
        reduce: How the dimensions of a gradient become one number: "l2" (its length), "l1" (the sum of
            absolute values), "sum" (signed), "mean" (signed), "mean_abs", "mean_square" (without a root).
        unit: What the result is read in: "token" by default; coarser units are sums of tokens.
        stack: "encoder" or "decoder" of a model with both; its default otherwise.

    Returns:
        Attributions [source], or [target, source]: not negative, unless `reduce` is "sum" or "mean". Nothing
        is conserved.

    Raises:
        ValueError: For an unknown reduction, stack or unit; where the target must be named; where gradients
            are NaN or all zero (the message names the layer) or cannot be had (inference mode, quantised
            weights).
        TypeError, IndexError: Where `target` names nothing the model returns.
    """
    require_reduction(reduce)
    question = asked(trace, target, foil, "saliency")
    stack = embedding_stack(trace, stack)
    found = embedding_gradients(
        trace, question, "saliency", stack, lambda gradient, _: reduced(gradient, reduce)
    )
    return attributed(
        trace,
        found.gradients,
        question,
        method="saliency",
        title=f"saliency ({reduce})",
        paper=PAPER,
        options={"reduce": reduce},
        stack=stack,
        unit=unit,
    )
