"""Occlusion: how much a target drops when a part of the input is taken away.

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
    paper=PAPER,
    needs=("model", "target", "own tokens", CAPTUM),
    returns="Attributions [source]",
    cost="one pass for every element that is taken away, in batches",
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
        trace: What `aw.trace` returned.
        target: What is explained: a class or a token by name or number, anything of `aw.targets`, a function
            of the outputs; what the model predicts by default. A list of them gives [target, source].
        foil: What the target is contrasted with: target - foil is explained.
        baseline: What stands in place: "pad", "mask", "mean" (of all embeddings), "zero", a token by its
            string or id, or numbers [dim] or [token, dim]. By default the padding token, else the mask,
            else the mean.
        batch_size: Inputs that run together, or fewer where the memory has no room for so many.
        unit: What is taken away as a whole: "token" by default, "word", "sentence". This is not the sum
            over its tokens.
        stack: "encoder" or "decoder" of a model with both; its default otherwise.

    Returns:
        Attributions [source], or [target, source], signed, in the unit asked for. Nothing is conserved.

    Raises:
        RuntimeError: Where captum is not installed.
        ValueError: Where the target is NaN (the message names the layer) or one input is too long for the
            memory there is; for an unknown unit, stack or baseline; where the target must be named.
        TypeError, IndexError: Where `target` names nothing the model returns.
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
