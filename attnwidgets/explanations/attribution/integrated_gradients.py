"""Integrated Gradients: gradients summed on the straight way from a baseline to the input.

Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks, equation 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._progress import progress
from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.embedding_gradients import (
    Reduce,
    attributed,
    embedding_stack,
    leaf_of,
    reduced,
    require_reduction,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.targets.target_set import TargetSet, asked

if TYPE_CHECKING:
    from collections.abc import Iterator

    from torch import Tensor

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.gradients.differentiable import Runner
    from attnwidgets.tracing.trace import Trace

PAPER = "Sundararajan et al. 2017, Axiomatic Attribution for Deep Networks"

# By how much of the change from the baseline the sum may miss it before the result says so.
_LARGE_DELTA = 0.05
# Changes that are this small a share of the score are rounding.
_ROUNDING = 1e-5
# Bytes of the mean gradients that are held; of more targets the points are run again.
_HELD = 1 << 28


@method(
    "integrated_gradients",
    paper=PAPER,
    needs=("target", "own tokens"),
    returns="Attributions [source], with the delta as residual",
    cost="steps passes forward and back, in batches",
)
def integrated_gradients(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    baseline: Any = None,
    steps: int = 50,
    rule: Literal["gausslegendre", "trapezoid"] = "gausslegendre",
    reduce: Reduce = "sum",
    batch_size: int = 10,
    unit: str | None = None,
    stack: str | None = None,
) -> Attributions:
    """What every token adds to the target between a baseline and the input, on the straight way between them.

    With x the tokens' embeddings and b the baseline's: (x - b) times the mean gradient at b + a (x - b), a
    from 0 to 1. The sum over tokens would be f(x) - f(b) in full; what is missing with finitely many steps,
    the delta, is the result's `residual` and is said where it is large.

    A baseline of zeros is far from any input a model has seen: norms make the model flat around it, and the
    sum unreliable. It is not the default.

    Args:
        trace: What `aw.trace` returned.
        target: What is explained: a class or a token by name or number, anything of `aw.targets`, a function
            of the outputs; what the model predicts by default. A list of them gives [target, source].
        foil: What the target is contrasted with: target - foil is explained.
        baseline: What stands for no information, in place of every token: "pad", "mask", "mean" (of all
            embeddings), "zero", a token by its string or id, or numbers [dim] or [token, dim]. By default the
            padding token, else the mask, else the mean.
        steps: Points on the way.
        rule: "gausslegendre" (points and weights of Gauss-Legendre quadrature) or "trapezoid".
        reduce: How the dimensions become one number: "sum" keeps the sum; see `aw.saliency` for the others.
        batch_size: Points that run together, or fewer where the memory has no room for so many.
        unit: What the result is read in: "token" by default; coarser units are sums of tokens.
        stack: "encoder" or "decoder" of a model with both; its default otherwise. The other's embeddings
            stay.

    Returns:
        Attributions [source], or [target, source], signed; `.residual` is f(x) - f(b) less their sum, where
        `reduce` is "sum". `.provenance["change"]` holds f(x) - f(b).

    Raises:
        ValueError: For an unknown option or baseline, fewer than 2 steps, a batch below 1; where the target
            must be named; where gradients are NaN or all zero (the message names the layer) or cannot be had,
            or one text is too long for the memory there is.
        TypeError, IndexError: Where `target` names nothing the model returns.
    """
    require_reduction(reduce)
    require_choice("rule", rule, ("gausslegendre", "trapezoid"))
    for name, value, least in (("steps", steps, 2), ("batch_size", batch_size, 1)):
        if value < least:
            raise ValueError(f"{name} must be at least {least}, not {value}.")
    question = asked(trace, target, foil, "integrated_gradients")
    stack = embedding_stack(trace, stack)
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.pass_memory import together

    with differentiable(trace, "integrated_gradients") as run:
        with torch.no_grad():
            graph = run(hidden_states=question.hidden_states)
        end = leaf_of(graph, stack, "integrated_gradients", trace).detach()[0]
        start, name = baseline_embeddings(trace, run.model, end, baseline, "integrated_gradients")
        way = end - start
        room = together(run.model, trace, batch_size)
        rows, sums = [], []
        for part in question.parts(max(1, _HELD // (8 * end.numel()))):
            mean = _mean_gradient(run, part, stack, start, end, _points(steps, rule), room)
            values = (mean * way.double()).cpu()
            rows.append(reduced(values, reduce))
            sums.append(values.sum((-1, -2)))
        with torch.no_grad():
            below = run({stack: start[None]}, hidden_states=question.hidden_states)
        above, under = (
            torch.stack([score.double()[0] for score in question.scores(found.outputs)]).cpu()
            for found in (graph, below)
        )
    change = above - under
    delta = change - torch.cat(sums)
    return attributed(
        trace,
        torch.cat(rows),
        question,
        method="integrated_gradients",
        title=f"Integrated Gradients from {name}",
        paper=PAPER,
        options={"baseline": name, "steps": steps, "rule": rule, "reduce": reduce},
        stack=stack,
        residual=question.of(delta.tolist()) if reduce == "sum" else None,
        unit=unit,
        warning=_said(delta, change, above, steps),
        facts={"change": question.of(change.tolist())},
    )


def _said(delta: Tensor, change: Tensor, scores: Tensor, steps: int) -> str:
    """Return what a reader must know of the deltas [target]; "" where all are small."""
    taken = (_LARGE_DELTA * change.abs()).clamp(min=_ROUNDING * scores.abs())
    excess = delta.abs() - taken
    worst = int(excess.argmax())
    if float(excess[worst]) <= 0:
        return ""
    there, missing = float(change[worst]), float(delta[worst])
    return (
        f"the sum misses the change from the baseline ({there:.3g}) by {missing:.2g} with {steps} steps: "
        "take more, or another baseline"
    )


def _points(steps: int, rule: str) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Return where on the way from 0 to 1 gradients are taken, and their weights, which sum to one."""
    if rule == "trapezoid":
        weights = np.ones(steps)
        weights[[0, -1]] = 0.5
        return np.linspace(0, 1, steps), weights / weights.sum()
    places, weights = np.polynomial.legendre.leggauss(steps)
    return (1 + places) / 2, weights / 2


def _mean_gradient(
    run: Runner,
    question: TargetSet,
    stack: str,
    start: Tensor,
    end: Tensor,
    points: tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]],
    batch_size: int,
) -> Tensor:
    """Return every target's mean gradient [target, token, dim] on the way, float64."""
    import torch

    places, weights = (torch.as_tensor(numbers) for numbers in points)
    mean = torch.zeros(len(question.targets), *end.shape, dtype=torch.float64, device=end.device)
    for first in progress(range(0, len(places), batch_size), desc="integrated gradients"):
        part = slice(first, first + batch_size)
        way = places[part].to(end)[:, None, None]
        for number, found in enumerate(_gradients(run, question, stack, start + way * (end - start))):
            mean[number] += torch.einsum("s,std->td", weights[part].to(mean), found.double())
    for number, each in enumerate(mean):
        if not each.any():
            _refuse_zero(run, question, stack, end, number)
    return mean


def _gradients(run: Runner, question: TargetSet, stack: str, at: Tensor) -> Iterator[Tensor]:
    """Yield every target's gradients [batch, token, dim] at embeddings; their graph goes with the last."""
    from attnwidgets.tracing.gradients.differentiable import gradients
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis

    graph = run({stack: at}, hidden_states=question.hidden_states)
    leaf = leaf_of(graph, stack, "integrated_gradients")
    for score in question.scores(graph.outputs):
        found = gradients(score, [leaf], again=True)[0]
        if not found.isfinite().all():
            raise ValueError(diagnosis(score, graph, stack, "integrated_gradients"))
        yield found


def _refuse_zero(run: Runner, question: TargetSet, stack: str, end: Tensor, number: int) -> None:
    """Raise ValueError for a target whose gradient is zero all the way, unless a lone module says so."""
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis

    graph = run({stack: end[None]}, hidden_states=question.hidden_states)
    if graph.states:
        score = question.scores(graph.outputs)[number]
        raise ValueError(diagnosis(score, graph, stack, "integrated_gradients"))
