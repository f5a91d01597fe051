"""Saliency, input x gradient and Integrated Gradients: derivatives of a target by the embeddings.

`saliency`, the gradient of a target by every token's embedding: Simonyan et al. 2014, Deep Inside
Convolutional Networks; for text Li et al. 2016, Visualizing and Understanding Neural Models in NLP. Averaged
over noisy inputs it is SmoothGrad (Smilkov et al. 2017), with clipped ReLUs guided backpropagation
(Springenberg et al. 2015).

`input_x_gradient`, the embedding times its gradient, which is exact if the target is linear: Shrikumar et al.
2017, Learning Important Features Through Propagating Activation Differences, section 2; for text Denil et al.
2014, Extraction of Salient Sentences from Labelled Documents.

`integrated_gradients`, gradients averaged on the straight line from a baseline to the input: Sundararajan et
al. 2017, Axiomatic Attribution for Deep Networks, equation 1. Over many baselines these are Expected
Gradients: Erion et al. 2021, Improving Performance of Deep Learning Models with Axiomatic Attribution Priors
and Expected Gradients.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.drawn_baselines import drawn_baselines
from attnwidgets.explanations.attribution.embedding_gradients import (
    Reduce,
    embedding_gradients,
    embedding_stack,
    gradient_attributions,
    reduce_dimensions,
    require_reduction,
    target_attributions,
)
from attnwidgets.explanations.attribution.smoothing import SMOOTHGRAD_PAPER, Smoothing
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.explanations.attribution.input_planes import At
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.trace import Trace

GUIDED_PAPER = "Springenberg et al. 2015, Striving for Simplicity: The All Convolutional Net"
SHARPENED = (
    "sharpened, not faithful: the picture is much the same for other classes and under random weights "
    "(Adebayo et al. 2018); compare it under aw.randomized"
)
EXPECTED_PAPER = (
    "Erion et al. 2021, Improving Performance of Deep Learning Models with Axiomatic Attribution Priors and "
    "Expected Gradients"
)

SALIENCY_PAPER = "Simonyan et al. 2014, Deep Inside Convolutional Networks; Li et al. 2016"

INPUT_X_GRADIENT_PAPER = (
    "Denil et al. 2014; Shrikumar et al. 2017, Learning Important Features Through Propagating Differences"
)

INTEGRATED_GRADIENTS_PAPER = "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks"
Rule = Literal["gausslegendre", "trapezoid", "expected"]
# Share of the change from the baseline that the sum may miss before the result warns of it.
_LARGE_DELTA = 0.05
# Changes below this share of the score are rounding.
_ROUNDING = 1e-5


@method(
    "saliency",
    question="For this prediction",
    gist="to which words it is sensitive",
    paper=f"{SALIENCY_PAPER}; {SMOOTHGRAD_PAPER}; {GUIDED_PAPER}",
    needs=("target", "own tokens"),
    returns="Attributions [source]",
    cost="one pass forward, and one back for every target; for SmoothGrad, of every draw",
    speed="seconds",
)
def saliency(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    reduce: Reduce = "l2",
    noise: float = 0.0,
    draws: int = 50,
    seed: int = 0,
    relu: Literal["gradient", "guided"] = "gradient",
    unit: str | None = None,
    stack: str | None = None,
    at: At = "embedding",
) -> Attributions:
    """How much the target changes with every token's embedding: the size of its gradient there.

    With `noise` this is SmoothGrad: the gradient is averaged over copies of the input with normal noise
    before its size is taken. With `relu="guided"` it is guided backpropagation: the gradient that passes back
    through a ReLU is set to zero where it is negative. Its pictures are sharper, and no more faithful:
    they hardly depend on the class or on the weights of upper layers, and the result says so.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        reduce: {reduce}
        noise: Standard deviation of the noise, as a share of the input's range (its largest number less its
            smallest); the authors use 0.1 to 0.2 for pictures. 0: no noise.
        draws: Number of noisy copies.
        seed: Seed of the noise.
        relu: How the backward pass treats ReLUs: "gradient", or "guided".
        unit: {unit}
        stack: {stack}
        at: {at}

    Returns:
        Attributions [source], or [target, source]: not negative, unless `reduce` is "sum" or "mean". Nothing
        is conserved.

    Raises:
        ValueError: For an unknown option, stack or unit, noise below 0, or fewer than one draw; for "guided"
            of a model without ReLUs; if the target must be named; if gradients are NaN or all zero (the
            message names the layer) or unavailable (inference mode, quantised weights).
        TypeError, IndexError: {no_target}

    Source: Smilkov et al. 2017, section 3; Springenberg et al. 2015, section 3.4; on guided backpropagation,
    Adebayo et al. 2018, Sanity Checks for Saliency Maps.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> aw.saliency(trace).shape == (len(trace.tokens),)
        True
        >>> aw.saliency(trace, noise=0.1, draws=5).title
        "SmoothGrad (l2) for 'positive'"
    """
    require_choice("relu", relu, ("gradient", "guided"))
    smoothing = Smoothing(noise, draws, seed)
    is_guided = relu == "guided"
    names = [name for name, used in (("guided backpropagation", is_guided), ("SmoothGrad", noise)) if used]
    papers = [paper for paper, used in ((GUIDED_PAPER, is_guided), (SMOOTHGRAD_PAPER, noise)) if used]
    return gradient_attributions(
        trace,
        target,
        foil,
        lambda gradient, _: gradient,
        method="saliency",
        title=f"{', '.join(names) or 'saliency'} ({reduce})",
        paper="; ".join(papers) or SALIENCY_PAPER,
        reduce=reduce,
        unit=unit,
        stack=stack,
        at=at,
        during=guided_relus if is_guided else nullcontext,
        smoothing=smoothing,
        options={"relu": relu} if is_guided else {},
        notes=(SHARPENED,) if is_guided else (),
    )


@method(
    "input_x_gradient",
    question="For this prediction",
    gist="which words raise or lower it, by the gradient",
    paper=INPUT_X_GRADIENT_PAPER,
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
    """The contribution of every token to the target, to first order: its embedding times its gradient.

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
        paper=INPUT_X_GRADIENT_PAPER,
        reduce=reduce,
        unit=unit,
        stack=stack,
        at=at,
    )


@method(
    "integrated_gradients",
    question="For this prediction",
    gist="which words raise or lower it, against an empty text",
    paper=f"{INTEGRATED_GRADIENTS_PAPER}; {EXPECTED_PAPER}",
    needs=("embeddings", "target", "own tokens"),
    returns="Attributions [source], with the delta as residual",
    cost="steps passes forward and back, in batches",
    speed="seconds",
)
def integrated_gradients(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    baseline: Any = None,
    steps: int = 50,
    rule: Rule = "gausslegendre",
    seed: int = 0,
    reduce: Reduce = "sum",
    batch_size: int = 10,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """The contribution of every token to the target between a baseline and the input, along a straight line.

    With x the tokens' embeddings and b the baseline's: (x - b) times the mean gradient at b + a (x - b), a
    from 0 to 1. The full integral sums to f(x) - f(b) over the tokens; the delta, by which finitely many
    steps miss this, is the result's `residual`, and the result warns if it is large.

    A baseline of zeros is far from any input a model has seen: norms make the model flat around it, and the
    sum unreliable. It is not the default.

    With `rule="expected"` these are Expected Gradients: every point lies on the line from another baseline,
    and a is drawn uniformly (one from each of `steps` equal parts of 0 to 1). They sum to f(x) less the mean
    of f(b) over the baselines that were drawn, up to a residual that falls as `steps` grow.

    Args:
        trace: {trace}
        target: {target} A list of targets gives [target, source].
        foil: {foil}
        baseline: {baseline} With "expected" also a list of traces with as many tokens, or of numbers
            [token, dim], which are drawn with replacement; there, by default, a word drawn from the
            vocabulary for every token that is not special.
        steps: Number of points on the line, or of draws.
        rule: "gausslegendre" (points and weights of Gauss-Legendre quadrature), "trapezoid", or "expected".
        seed: Seed of the draws of "expected".
        reduce: {reduce} Only "sum" keeps the sum over tokens.
        batch_size: {batch_size}
        unit: {unit}
        stack: {stack} The other stack's embeddings stay as they are.

    Returns:
        Attributions [source], or [target, source], signed. If `reduce` is "sum", `.residual` is f(x) - f(b)
        less their sum. `.provenance["change"]` holds f(x) - f(b), of "expected" with the mean of f(b).

    Raises:
        ValueError: For an unknown option or baseline, fewer than 2 steps, a batch below 1; if the target must
            be named; if gradients are NaN or all zero (the message names the layer) or unavailable; if a
            text is too long for the available memory.
        TypeError, IndexError: {no_target}

    Source: Sundararajan et al. 2017, equation 1; Erion et al. 2021, equation 2.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> scores = aw.integrated_gradients(trace, steps=20)
        >>> total = float(scores.values.sum()) + scores.residual
        >>> bool(np.isclose(total, scores.provenance["change"], atol=1e-4))
        True
    """
    require_reduction(reduce)
    require_choice("rule", rule, get_args(Rule))
    for name, value, least in (("steps", steps, 2), ("batch_size", batch_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}.")
    targets = resolve_target_set(trace, target, foil, "integrated_gradients")
    stack = embedding_stack(trace, stack)
    is_expected = rule == "expected"
    import torch

    with embedding_gradients(trace, targets, "integrated_gradients", stack) as model:
        end = model.embeddings
        if is_expected:
            starts, drawn, baseline = drawn_baselines(model, baseline, steps, seed)
        else:
            one, baseline = baseline_embeddings(trace, model.run.model, end, baseline, "integrated_gradients")
            starts, drawn = one[None], torch.zeros(steps, dtype=torch.long)
        positions, weights = _quadrature(steps, rule, seed)
        fractions = torch.as_tensor(positions).to(end)[:, None, None]
        rows, sums = [], []

        def lines(points: slice) -> Tensor:
            return end - starts[drawn[points]]

        def inputs(points: slice) -> Tensor:
            return starts[drawn[points]] + fractions[points] * lines(points)

        for products in model.means(inputs, weights, batch_size, lines):
            rows.append(reduce_dimensions(products.cpu(), reduce))
            sums.append(products.cpu().sum((-1, -2)))
        scores = model.scores()
        numbers, counts = drawn.unique(return_counts=True)
        below = torch.stack([model.scores(starts[number]) for number in numbers])
        change = scores - counts.double() @ below / steps
    delta = change - torch.cat(sums)
    common = provenance_of(
        trace,
        stack,
        "integrated_gradients",
        title=f"{'Expected' if is_expected else 'Integrated'} Gradients from {baseline}",
        paper=EXPECTED_PAPER if is_expected else INTEGRATED_GRADIENTS_PAPER,
        options={
            "baseline": baseline,
            "steps": steps,
            "rule": rule,
            "reduce": reduce,
            **({"seed": seed} if is_expected else {}),
        },
        notes=(*targets.notes, _delta_note(delta, change, scores, steps)),
        facts={"change": targets.of(change.tolist())},
    )
    residual = targets.of(delta.tolist()) if reduce == "sum" else None
    return target_attributions(trace, stack, torch.cat(rows), targets, common, unit=unit, residual=residual)


@contextmanager
def guided_relus() -> Iterator[None]:
    """Let ReLUs pass back positive gradients alone; raise ValueError if no ReLU ran."""
    from attnwidgets.relevance.guided_relus import GuidedRelus

    with GuidedRelus() as mode:
        yield
    if not mode.count:
        raise ValueError(
            'relu="guided" changes what passes back through ReLUs, and this model runs none (GELU and SiLU '
            'are other functions); relu="gradient" is its gradient.'
        )


def _delta_note(delta: Tensor, change: Tensor, scores: Tensor, steps: int) -> str:
    """Return a warning about deltas [target], or "" if all are small."""
    tolerance = (_LARGE_DELTA * change.abs()).clamp(min=_ROUNDING * scores.abs())
    excess = delta.abs() - tolerance
    worst = int(excess.argmax())
    if float(excess[worst]) <= 0:
        return ""
    return (
        f"the sum misses the change from the baseline ({float(change[worst]):.3g}) by "
        f"{float(delta[worst]):.2g} with {steps} steps: take more, or another baseline"
    )


def _quadrature(steps: int, rule: str, seed: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return positions from 0 to 1 at which gradients are computed, and their weights, which sum to 1."""
    if rule == "expected":
        strata = np.arange(steps) + np.random.default_rng((seed, 1)).random(steps)
        return strata / steps, np.full(steps, 1 / steps)
    if rule == "trapezoid":
        weights = np.ones(steps)
        weights[[0, -1]] = 0.5
        return np.linspace(0, 1, steps), weights / weights.sum()
    nodes, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + nodes) / 2, weights / 2
