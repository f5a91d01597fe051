"""Attributions by taking parts of the input away, computed by captum."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed
from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.embedding_gradients import embedding_stack, leaf_of
from attnwidgets.explanations.registry.requirements import Need
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import provenance_of
from attnwidgets.explanations.targets.target_set import TargetSet, asked

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnwidgets.tracing.text.units import TokenAxis, Unit
    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class Perturbed:
    """What captum is given.

    Attributes:
        scores: Takes embeddings [batch, token, dim], returns a target's numbers [batch].
        embeddings: [1, token, dim].
        baseline: The same shape.
        features: Which element of the unit a number belongs to [1, token, 1].
    """

    scores: Callable[[Tensor], Tensor]
    embeddings: Tensor
    baseline: Tensor
    features: Tensor


def _installed(_: Any, __: str) -> str:
    return (
        ""
        if importlib.util.find_spec("captum")
        else "which is not installed: pip install attnwidgets[captum]"
    )


CAPTUM = Need("captum", "the package captum", _installed)
"""The requirement that captum is there, so that a menu says so before the error does."""


def require_captum(method: str) -> None:
    """Raise RuntimeError where captum is not installed; the message says how to get it."""
    if importlib.util.find_spec("captum") is None:
        raise RuntimeError(
            f"{method} is computed by captum, which is not installed: pip install attnwidgets[captum]"
        )


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
    """Return what `attribute` says of every target, by elements of a unit that are taken away as a whole.

    `attribute` returns [1, token, dim or 1], the same number for all of an element's tokens; everything else
    is as the methods take it, or what the result is called.
    """
    require_captum(method)
    question: TargetSet = asked(trace, target, foil, method)
    stack = embedding_stack(trace, stack)
    axis = trace.axes(stack)[0]
    name = unit or next(iter(axis.units))
    elements = _unit(axis, name)
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis
    from attnwidgets.tracing.pass_memory import together

    with differentiable(trace, method, back=False) as run:
        graph = run(hidden_states=question.hidden_states)
        given = leaf_of(graph, stack, method, trace).detach()
        for score in question.scores(graph.outputs):
            if not score.isfinite().all():
                raise ValueError(diagnosis(score, graph, stack, method))
        start, said = baseline_embeddings(trace, run.model, given[0], baseline, method)
        owner = torch.zeros(1, given.shape[1], 1, dtype=torch.long, device=given.device)
        for element, span in enumerate(elements.spans):
            owner[0, list(span)] = element
        room = together(run.model, trace, batch_size, graph=False)
        rows = []
        for number in range(len(question.targets)):

            def scores(embeddings: Tensor, number: int = number) -> Tensor:
                found = []
                for part in embeddings.split(room):
                    outputs = run({stack: part}, hidden_states=question.hidden_states).outputs
                    found.append(question.scores(outputs)[number].detach())
                return torch.cat(found)

            found = attribute(Perturbed(scores, given, start[None], owner))[0]
            values = found.mean(-1).double().cpu().numpy()
            rows.append([float(values[span[0]]) if span else 0.0 for span in elements.spans])
    options = {**options, "baseline": said, "unit": name}
    common = provenance_of(trace, stack, method, paper=paper, options=options, notes=question.notes)
    common["provenance"]["title"] = f"{title} with {said}"
    return Attributions(
        question.of(np.array(rows)),
        axis=axis,
        unit=name,
        reach=question.reach(trace, stack),
        **question.names(),
        **common,
    )


def _unit(axis: TokenAxis, name: str) -> Unit:
    if name not in axis.units:
        offered = list(axis.units)
        raise ValueError(f"unit {name!r} is not offered; there is {listed(offered)}.{suggest(name, offered)}")
    return axis.units[name]


def require_positive(**options: int) -> None:
    """Raise ValueError for an option below 1."""
    for name, value in options.items():
        if value < 1:
            raise ValueError(f"{name} must be at least 1, not {value}.")
