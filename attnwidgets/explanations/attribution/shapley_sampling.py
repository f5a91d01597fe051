"""Shapley values by sampling: what an element adds to a target, averaged over orders of adding elements.

Castro, Gomez and Tejada 2009, Polynomial Calculation of the Shapley Value Based on Sampling; Strumbelj and
Kononenko 2010.
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

PAPER = "Castro et al. 2009, Polynomial Calculation of the Shapley Value Based on Sampling"


@method(
    "shapley_sampling",
    question="By perturbing",
    gist="each word's fair share, from many versions of the text",
    paper=PAPER,
    needs=("model", "embeddings", "target", "own tokens", CAPTUM),
    returns="Attributions [source]",
    cost="samples x elements passes, in batches",
    speed="minutes",
)
def shapley_sampling(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    baseline: Any = None,
    samples: int = 25,
    seed: int = 0,
    batch_size: int = 16,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """What each element adds to the target, averaged over random orders of adding elements to a baseline.

    Computed by captum's ShapleyValueSampling (the extra `captum`). The values sum to f(x) - f(baseline) up to
    rounding, whatever the number of samples.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        baseline: {baseline}
        samples: Number of random orders.
        seed: Seed of the orders; torch's global generator is left as it was.
        batch_size: {batch_size}
        unit: What is added as a whole: "token" by default, "word", "sentence".
        stack: {stack}

    Returns:
        Attributions [source], or [target, source], signed, by `unit`.

    Raises:
        RuntimeError: If captum is not installed.
        ValueError: If the target is NaN (the message names the layer) or one input is too long for the
            available memory; for an unknown unit, stack or baseline, or fewer than one sample; if the target
            must be named.
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A pleasure.")
        >>> aw.shapley_sampling(trace, samples=2, unit="word").provenance["options"]["samples"]
        2
    """
    require_positive(samples=samples, batch_size=batch_size)

    def attribute(given: Perturbed) -> Tensor:
        import torch
        from captum.attr import ShapleyValueSampling

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return ShapleyValueSampling(given.scores).attribute(
                given.embeddings,
                baselines=given.baseline,
                feature_mask=given.features,
                n_samples=samples,
                perturbations_per_eval=batch_size,
            )

    return perturbation_attributions(
        trace,
        target,
        foil,
        attribute,
        method="shapley_sampling",
        title="Shapley values",
        paper=PAPER,
        baseline=baseline,
        options={"samples": samples, "seed": seed},
        batch_size=batch_size,
        unit=unit,
        stack=stack,
    )
