"""Occlusion: how much a target drops when a part of the input is removed.

Zeiler and Fergus 2014, Visualizing and Understanding Convolutional Networks, section 4.2; for text Li et al.
2016, Understanding Neural Networks through Representation Erasure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.perturbation import (
    CAPTUM,
    Perturbed,
    perturbation_attributions,
    require_positive,
)
from attnwidgets.explanations.registry.registry import method

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

PAPER = "Li et al. 2016, Understanding Neural Networks through Representation Erasure"


@method(
    "occlusion",
    question="By perturbing",
    gist="what is lost when a word is covered",
    paper=PAPER,
    needs=("model", "embeddings", "target", "own tokens", CAPTUM),
    returns="Attributions [source]",
    cost="one pass for every element, in batches",
    speed="seconds",
)
def occlusion(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    baseline: Any = None,
    batch_size: int = 16,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """How much the target drops when an element's embeddings are replaced by a baseline's.

    That is f(x) - f(x without the element), computed by captum's FeatureAblation (the extra `captum`).

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        baseline: {baseline}
        batch_size: {batch_size}
        unit: What is removed as a whole: "token" by default, "word", "sentence". The value of a word is not
            the sum over its tokens.
        stack: {stack}

    Returns:
        Attributions [source], or [target, source], signed, by `unit`. Nothing is conserved.

    Raises:
        RuntimeError: If captum is not installed.
        ValueError: If the target is NaN (the message names the layer) or one input is too long for the
            available memory; for an unknown unit, stack or baseline; if the target must be named.
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.occlusion(trace, unit="word").unit
        'word'
    """
    require_positive(batch_size=batch_size)

    def attribute(given: Perturbed) -> Tensor:
        from captum.attr import FeatureAblation

        return FeatureAblation(given.scores).attribute(
            given.embeddings,
            baselines=given.baseline,
            feature_mask=given.features,
            perturbations_per_eval=batch_size,
        )

    return perturbation_attributions(
        trace,
        target,
        foil,
        attribute,
        method="occlusion",
        title="occlusion",
        paper=PAPER,
        baseline=baseline,
        options={},
        batch_size=batch_size,
        unit=unit,
        stack=stack,
    )
