"""Input x gradient: what every token's embedding adds to a target, as far as the target is linear.

Shrikumar et al. 2017, Learning Important Features Through Propagating Activation Differences, section 2; for
text Denil et al. 2014, Extraction of Salient Sentences from Labelled Documents.
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

PAPER = (
    "Denil et al. 2014; Shrikumar et al. 2017, Learning Important Features Through Propagating Differences"
)


@method(
    "input_x_gradient",
    paper=PAPER,
    needs=("target", "own tokens"),
    returns="Attributions [source]",
    cost="one pass forward, and one back for every target",
)
def input_x_gradient(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    reduce: Reduce = "sum",
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """What every token's embedding adds to the target, to first order: its embedding times its gradient.

    Args:
        trace: What `aw.trace` returned.
        target: What is explained: a class or a token by name or number, anything of `aw.targets`, a function
            of the outputs; what the model predicts by default. A list of them gives [target, source].
        foil: What the target is contrasted with: target - foil is explained.
        reduce: How the products of all dimensions become one number: "sum" (the dot product, signed), "mean"
            (signed), "l2", "l1", "mean_abs", "mean_square".
        unit: What the result is read in: "token" by default; coarser units are sums of tokens.
        stack: "encoder" or "decoder" of a model with both; its default otherwise.

    Returns:
        Attributions [source], or [target, source]: signed where `reduce` is "sum" or "mean". They do not sum
        to the target, which is not linear in its input.

    Raises:
        ValueError: For an unknown reduction, stack or unit; where the target must be named; where gradients
            are NaN or all zero (the message names the layer) or cannot be had (inference mode, quantised
            weights).
        TypeError, IndexError: Where `target` names nothing the model returns.
    """
    require_reduction(reduce)
    question = asked(trace, target, foil, "input_x_gradient")
    stack = embedding_stack(trace, stack)
    found = embedding_gradients(
        trace, question, "input_x_gradient", stack, lambda gradient, x: reduced(gradient * x, reduce)
    )
    return attributed(
        trace,
        found.gradients,
        question,
        method="input_x_gradient",
        title="input x gradient" if reduce == "sum" else f"input x gradient ({reduce})",
        paper=PAPER,
        options={"reduce": reduce},
        stack=stack,
        unit=unit,
    )
