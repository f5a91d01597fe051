"""Occlusion and sampled Shapley values: parts of the input are replaced by a baseline. Computed by captum.

`occlusion`, how much a target drops when a part of the input is removed: Zeiler and Fergus 2014, Visualizing
and Understanding Convolutional Networks, section 4.2; for text Li et al. 2016, Understanding Neural Networks
through Representation Erasure.

`shapley_sampling`, the effect of an element on a target, averaged over orders of adding elements: Castro,
Gomez and Tejada 2009, Polynomial Calculation of the Shapley Value Based on Sampling; Strumbelj and Kononenko
2010. Or by least squares over coalitions: Lundberg and Lee 2017 (Kernel SHAP).
"""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, leaf_of
from attnwidgets.explanations.attribution.kernel_shap import KERNEL_SHAP_PAPER, kernel_shap
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import Need
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

OCCLUSION_PAPER = "Li et al. 2016, Understanding Neural Networks through Representation Erasure"

SHAPLEY_PAPER = "Castro et al. 2009, Polynomial Calculation of the Shapley Value Based on Sampling"
_SHAPLEY = {
    "orders": ("Shapley values", SHAPLEY_PAPER),
    "kernel": ("Shapley values (kernel)", KERNEL_SHAP_PAPER),
}


@dataclass(frozen=True)
class Perturbed:
    """Arguments for captum.

    Attributes:
        scores: Takes embeddings [batch, token, dim], returns a target's scores [batch].
        embeddings: The text's embeddings [1, token, dim].
        baseline: The baseline's embeddings [1, token, dim].
        features: Number of the element that each token belongs to [1, token, 1].
    """

    scores: Callable[[Tensor], Tensor]
    embeddings: Tensor
    baseline: Tensor
    features: Tensor


def _missing_captum(*_: Any) -> str:
    missing = importlib.util.find_spec("captum") is None
    return "which is not installed: pip install attnwidgets[captum]" if missing else ""


CAPTUM = Need("captum", "the package captum", _missing_captum)
"""The requirement that captum is installed, so that menus can say so in advance."""


def perturbation_attributions(
    trace: Trace,
    target: Any,
    foil: Any,
    attribute: Callable[[Perturbed], Tensor],
    *,
    method: str,
    title: str,
    paper: str,
    baseline: Any,
    options: Mapping[str, Any],
    batch_size: int,
    unit: str | None,
    stack: str | None,
) -> Attributions:
    """Return attributions that `attribute` computes target by target, by perturbing elements of a unit.

    `attribute` returns [1, token, dim or 1], the same number for all tokens of an element; the rest are
    arguments of the method, or name the result.

    Raises:
        RuntimeError: If captum is not installed.
        ValueError: See the methods.
    """
    if _missing_captum():
        raise RuntimeError(f"{method} is computed by captum, {_missing_captum()}")
    targets = resolve_target_set(trace, target, foil, method)
    stack = embedding_stack(trace, stack)
    axis = trace.axes(stack)[0]
    name = unit or next(iter(axis.units))
    require_choice("unit", name, tuple(axis.units))
    spans = axis.units[name].spans
    import torch

    from attnwidgets.tracing.gradients.differentiable import diagnosis, differentiable
    from attnwidgets.tracing.pass_memory import together

    with differentiable(trace, method, back=False, entry=stack) as run:
        graph = run(reads=targets.reads)
        embeddings = leaf_of(graph, stack, method, trace).detach()
        for score in targets.scores(graph.outputs):
            if not score.isfinite().all():
                raise ValueError(diagnosis(score, graph, stack, method))
        absent, baseline = baseline_embeddings(trace, run.model, embeddings[0], baseline, method)
        features = torch.zeros(1, embeddings.shape[1], 1, dtype=torch.long, device=embeddings.device)
        for element, span in enumerate(spans):
            features[0, list(span)] = element
        room = together(run.model, trace, batch_size, graph=False)
        rows = []
        for number in range(len(targets.targets)):

            def scores(perturbed: Tensor, number: int = number) -> Tensor:
                graphs = (run({stack: part}, reads=targets.reads) for part in perturbed.split(room))
                return torch.cat([targets.scores(graph.outputs)[number].detach() for graph in graphs])

            by_token = attribute(Perturbed(scores, embeddings, absent[None], features))[0].mean(-1)
            values = by_token.double().cpu().numpy()
            rows.append([float(values[span[0]]) if span else 0.0 for span in spans])
    common = provenance_of(
        trace,
        stack,
        method,
        title=f"{title} with {baseline}",
        paper=paper,
        options={**options, "baseline": baseline, "unit": name},
        notes=targets.notes,
    )
    reach = targets.reach(trace, stack)
    return Attributions(
        targets.of(np.array(rows)), axis=axis, unit=name, reach=reach, **targets.names(), **common
    )


def require_positive(**options: int) -> None:
    """Raise ValueError for an option below 1."""
    for name, value in options.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}.")


@method(
    "occlusion",
    question="By perturbing",
    gist="what is lost when a word is covered",
    paper=OCCLUSION_PAPER,
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
        unit: Unit to remove as a whole: "token" by default, "word", "sentence". The value of a word is not
            the sum over its tokens.
        stack: {stack}

    Returns:
        Attributions [source], or [target, source], signed, by `unit`. Nothing is conserved.

    Raises:
        RuntimeError: If captum is not installed.
        ValueError: If the target is NaN (the message names the layer) or an input is too long for the
            available memory; for an unknown unit, stack or baseline; if the target must be named.
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.occlusion(trace, unit="word").unit
        'word'
    """
    require_positive(batch_size=batch_size)

    def attribute(inputs: Perturbed) -> Tensor:
        from captum.attr import FeatureAblation

        return FeatureAblation(inputs.scores).attribute(
            inputs.embeddings,
            baselines=inputs.baseline,
            feature_mask=inputs.features,
            perturbations_per_eval=batch_size,
        )

    return perturbation_attributions(
        trace,
        target,
        foil,
        attribute,
        method="occlusion",
        title="occlusion",
        paper=OCCLUSION_PAPER,
        baseline=baseline,
        options={},
        batch_size=batch_size,
        unit=unit,
        stack=stack,
    )


@method(
    "shapley_sampling",
    question="By perturbing",
    gist="each word's fair share, from many versions of the text",
    paper=f"{SHAPLEY_PAPER}; {KERNEL_SHAP_PAPER}",
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
    estimator: Literal["orders", "kernel"] = "orders",
    seed: int = 0,
    batch_size: int = 16,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """The contribution of each element to the target: a mean over orders of adding elements to a baseline.

    By "orders", computed by captum's ShapleyValueSampling (the extra `captum`), or by "kernel", Kernel SHAP:
    a linear model of the target's values where only some elements are present. Both run samples x elements
    inputs, and both sum to f(x) - f(baseline) up to rounding, whatever the number of samples. Where all 2^n
    subsets of n elements are no more than that, "kernel" runs each once, and the values are exact.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        baseline: {baseline}
        samples: Number of random orders; of "kernel", number of subsets for each element.
        estimator: "orders" or "kernel".
        seed: Seed of the orders or subsets; torch's global generator is left as it was.
        batch_size: {batch_size}
        unit: Unit to add as a whole: "token" by default, "word", "sentence".
        stack: {stack}

    Returns:
        Attributions [source], or [target, source], signed, by `unit`.

    Raises:
        RuntimeError: If captum is not installed.
        ValueError: If the target is NaN (the message names the layer) or an input is too long for the
            available memory; for an unknown unit, stack, baseline or estimator, or fewer than one sample; if
            the target must be named.
        TypeError, IndexError: {no_target}

    Source: Castro et al. 2009; Lundberg and Lee 2017, theorem 2.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A pleasure.")
        >>> aw.shapley_sampling(trace, samples=2, unit="word").provenance["options"]["samples"]
        2
    """
    require_positive(samples=samples, batch_size=batch_size)
    require_choice("estimator", estimator, tuple(_SHAPLEY))

    def by_kernel(inputs: Perturbed) -> Tensor:
        return _by_kernel(inputs, samples, seed, batch_size)

    def by_orders(inputs: Perturbed) -> Tensor:
        import torch
        from captum.attr import ShapleyValueSampling

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return ShapleyValueSampling(inputs.scores).attribute(
                inputs.embeddings,
                baselines=inputs.baseline,
                feature_mask=inputs.features,
                n_samples=samples,
                perturbations_per_eval=batch_size,
            )

    return perturbation_attributions(
        trace,
        target,
        foil,
        by_kernel if estimator == "kernel" else by_orders,
        method="shapley_sampling",
        title=_SHAPLEY[estimator][0],
        paper=_SHAPLEY[estimator][1],
        baseline=baseline,
        options={"samples": samples, "estimator": estimator, "seed": seed},
        batch_size=batch_size,
        unit=unit,
        stack=stack,
    )


def _by_kernel(inputs: Perturbed, samples: int, seed: int, batch_size: int) -> Tensor:
    """Return Kernel SHAP's values of the elements, as [1, token, 1]."""
    import torch

    n = int(inputs.features.max()) + 1

    def value(present: NDArray[np.bool_]) -> NDArray[np.float64]:
        values = []
        for part in torch.as_tensor(present).to(inputs.features.device).split(batch_size):
            stays = part[:, inputs.features[0, :, 0]][..., None]
            values.append(
                inputs.scores(torch.where(stays, inputs.embeddings, inputs.baseline)).double().cpu()
            )
        return torch.cat(values).numpy()

    by_element = torch.as_tensor(kernel_shap(value, n, samples * n, seed)).to(inputs.features.device)
    return by_element[inputs.features]
