"""Methods as differentiable functions of the embeddings, from which an attack takes its direction.

Only the direction: every change that an attack tries is measured by the method itself, with all its options.
The derivative of a gradient is needed, which activations with a kink do not have: there (ReLU) the direction
is that of the linear piece.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.attribution.baselines import baseline_embeddings
from attnwidgets.explanations.attribution.smoothing import Smoothing
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    # Takes a pass and embeddings [token, dim]; returns the method there, in the graph of the embeddings.
    Form = Callable[["Pass", Tensor], "At"]

    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.tracing.gradients.differentiable import Graph, Runner
    from attnwidgets.tracing.trace import Trace

_POINTS = 4
_DRAWS = 8
_RESIDUAL = 0.5  # as published


@dataclass(frozen=True)
class At:
    """A method at some embeddings.

    Attributes:
        values: Its values [token].
        logits: The model's logits, [class] or [token, vocabulary].
        gradient: The gradient of the target that the values are made of [token, dim]; None if they are not
            made of one.
        moves: Whether the values move with the embeddings where the gradient does not.
    """

    values: Tensor
    logits: Tensor
    gradient: Tensor | None = None
    moves: bool = True


@dataclass(frozen=True)
class Pass:
    """A pass of the model for a form.

    Attributes:
        run: Runs it on the trace's inputs.
        trace: The trace.
        stack: The stack whose embeddings are changed.
        targets: The target that is explained.
        options: The method's options.
        query: The query whose row of a map is read.
    """

    run: Runner
    trace: Trace
    stack: str
    targets: TargetSet
    options: Mapping[str, Any]
    query: int

    def graph(self, embeddings: Tensor, **options: Any) -> Graph:
        """Run the model at embeddings [batch, token, dim] that stay in their graph."""
        return self.run({self.stack: embeddings}, reads=self.targets.reads, **options)

    def score(self, graph: Graph) -> Tensor:
        """Return the target's scores [batch]."""
        return self.targets.scores(graph.outputs)[0]

    def baseline(self, embeddings: Tensor) -> Tensor:
        """Return the method's baseline [token, dim]."""
        # Expected Gradients draw from several baselines, or words: for the direction the default is enough.
        given = None if self.options.get("rule") == "expected" else self.options.get("baseline")
        return baseline_embeddings(self.trace, self.run.model, embeddings.detach(), given, "attack")[0]


def _gradient(at: Pass, embeddings: Tensor, **options: Any) -> tuple[Tensor, Graph]:
    """Return the mean over a batch of the target's gradients [token, dim], differentiable, and the graph."""
    import torch

    batch = embeddings if embeddings.dim() == 3 else embeddings[None]  # noqa: PLR2004
    graph = at.graph(batch, **options)
    inside = graph.inputs[at.stack]
    (gradient,) = torch.autograd.grad(at.score(graph).sum(), inside, create_graph=True)
    return gradient.mean(0), graph


def _logits(graph: Graph) -> Tensor:
    from attnwidgets.explanations.targets.resolve import head_of

    logits: Tensor = head_of(graph.outputs)[0]
    return logits


def _saliency(at: Pass, embeddings: Tensor) -> At:
    options = at.options
    draws = min(options.get("draws", _DRAWS), _DRAWS)
    smoothing = Smoothing(options.get("noise", 0.0), draws, options.get("seed", 0))
    gradient, graph = _gradient(at, smoothing.copies(embeddings, slice(None)))
    if smoothing.noise:
        graph = at.graph(embeddings[None])
    return At((gradient.square().sum(-1) + 1e-18).sqrt(), _logits(graph), gradient, moves=False)


def _input_x_gradient(at: Pass, embeddings: Tensor) -> At:
    gradient, graph = _gradient(at, embeddings)
    return At((gradient * embeddings).sum(-1), _logits(graph), gradient)


def _lrp(at: Pass, embeddings: Tensor) -> At:
    from attnwidgets.relevance.rules import Rules

    options = at.options
    rules = Rules(options.get("rule", "attnlrp"), options.get("bias", "absorb"), insist=True)
    gradient, graph = _gradient(at, embeddings, during=lambda: rules)
    return At((gradient * embeddings).sum(-1), _logits(graph), gradient)


def _integrated_gradients(at: Pass, embeddings: Tensor) -> At:
    import torch

    start = at.baseline(embeddings)
    shares = ((torch.arange(_POINTS) + 0.5) / _POINTS).to(embeddings)[:, None, None]
    gradient, _ = _gradient(at, start + shares * (embeddings - start))
    graph = at.graph(embeddings[None])
    return At((gradient * (embeddings - start)).sum(-1), _logits(graph), gradient)


def _occlusion(at: Pass, embeddings: Tensor) -> At:
    import torch

    start = at.baseline(embeddings)
    removed = torch.eye(len(embeddings), device=embeddings.device, dtype=torch.bool)[..., None]
    batch = torch.where(removed, start, embeddings)
    graph = at.graph(torch.cat([embeddings[None], batch]))
    scores = at.score(graph)
    return At(scores[0] - scores[1:], _logits(graph))


def _attention(at: Pass, embeddings: Tensor) -> At:
    graph = at.graph(embeddings[None], keep=("weights",))
    return At(graph.weights[at.stack][-1][0].mean(0)[at.query], _logits(graph))


def _rollout(at: Pass, embeddings: Tensor) -> At:
    import torch

    graph = at.graph(embeddings[None], keep=("weights",))
    weight = at.options.get("residual_weight", _RESIDUAL)
    row = torch.eye(len(embeddings)).to(embeddings)[at.query]
    for weights in reversed(graph.weights[at.stack]):
        row = (1 - weight) * row @ weights[0].mean(0) + weight * row
    return At(row, _logits(graph))


FORMS: Mapping[str, Form] = {
    "attention": _attention,
    "input_x_gradient": _input_x_gradient,
    "integrated_gradients": _integrated_gradients,
    "lrp": _lrp,
    "occlusion": _occlusion,
    "rollout": _rollout,
    "saliency": _saliency,
}
"""The methods that are differentiated, by name."""

STAND_INS: Mapping[str, str] = {"attributions": "input_x_gradient", "map": "rollout"}
"""By kind of result, the method whose direction an attack on any other method takes.

On the demo classifier such a change moves DecompX, ALTI-Logit, DeepLIFT and value zeroing twice as far as the
best of nine random ones; a search by random steps, with as many passes, moved them no further than chance.
"""


def targets_of(trace: Trace, options: Mapping[str, Any]) -> TargetSet:
    """Return the target of a method with these options."""
    return resolve_target_set(trace, options.get("target"), options.get("foil"), "attack")
