"""A traced model's forward pass under the rules, and one backward pass for every target."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from attnwidgets._progress import progress
from attnwidgets.relevance.activations import single_activations
from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
from attnwidgets.tracing.gradients.gradient_checks import diagnosis, usable
from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.relevance.settings import Bias, Rule
    from attnwidgets.tracing.gradients.differentiable import At, Graph, Place, Precision
    from attnwidgets.tracing.hooks.hook_point import HookPoint
    from attnwidgets.tracing.trace import Trace

    # Takes a model's outputs and returns the numbers to explain, differentiably.
    Scores = Callable[[Any], Sequence[Tensor]]


@dataclass
class Relevances:
    """The relevances of several targets, on the CPU, in the precision of the pass.

    Attributes:
        scores: What was explained, [target].
        inputs: By stack: what its tokens are read as, [target, token], float64; of a model's own input by
            its name, [target, ...].
        states: By stack: what every block is given and, last, what the last one returns,
            [target, layer, token].
        beside: By stack: what its blocks are given beside the hidden states (a decoder's: the encoder's
            states), [target, block].
        heads: By stack and layer: what every head writes, [target, head, token].
        values: By name of a site: what passes it, [token, width], ...
        gradients: ... and the gradients there, [target, token, width].
    """

    scores: Tensor
    inputs: dict[str, Tensor] = field(default_factory=dict)
    states: dict[str, Tensor] = field(default_factory=dict)
    beside: dict[str, Tensor] = field(default_factory=dict)
    heads: dict[str, list[Tensor]] = field(default_factory=dict)
    values: dict[str, Tensor] = field(default_factory=dict)
    gradients: dict[str, Tensor] = field(default_factory=dict)

    def total(self, stack: str, layer: int) -> Tensor:
        """Return all relevance where a stack has come to a layer, [target].

        What else reaches the blocks from there on counts with it, or what enters the other stacks.
        """
        found = self.states[stack][:, layer].sum(-1)
        beside = self.beside.get(stack)
        if beside is not None and bool(beside.any()):
            return found + beside[:, layer:].sum(-1)
        return found + sum(other[:, 0].sum(-1) for name, other in self.states.items() if name != stack)


def propagate(
    trace: Trace,
    scores: Scores,
    purpose: str,
    *,
    rule: Rule,
    bias: Bias = "absorb",
    place: Place = "embedding",
    heads: bool = False,
    sites: Sequence[HookPoint] = (),
    hidden_states: bool = False,
    precision: Precision = "float32",
    insist: bool = False,
) -> Relevances:
    """Run a trace's model once under the rules, and back once for every score.

    Args:
        trace: What `aw.trace` returned.
        scores: What is explained: takes the model's outputs.
        purpose: The method's name, for messages.
        rule: See `Settings`.
        bias: The same.
        place: See `differentiable`.
        heads: Whether what every head writes is kept.
        sites: Places in the model where values and gradients are kept whole.
        hidden_states: Whether the scores read hidden states.
        precision: See `differentiable`.
        insist: The same.

    Raises:
        UnsupportedModelError: If the trace has no model, or relevance reaches an operation without a rule.
        ValueError: If gradients cannot be had, are all zero, or are NaN (the message names the layer).
    """
    passing: dict[str, Tensor] = {}
    with (
        differentiable(trace, purpose, place=place, precision=precision) as run,
        single_activations(run.model),
        ExitStack() as stack,
    ):
        for site in sites:
            from attnwidgets.tracing.hooks.hook import hooked

            stack.enter_context(hooked(run.model, site, _keeper(passing, site.name)))
        graph = run(
            keep=("heads",) if heads else (),
            hidden_states=hidden_states,
            during=lambda: Rules(rule, bias, insist=insist),
        )
        values = [score.sum() for score in scores(graph.outputs)]
        places = graph.tensors() | {("sites", name, 0, 0): tensor for name, tensor in passing.items()}
        ends = [index for index, (kind, *_) in enumerate(places) if kind == "inputs"]
        found: dict[At, list[Tensor]] = {at: [] for at in places}
        for value in progress(values, "relevance"):
            # Kept to the last, so that what went wrong can be asked.
            back = gradients(value, list(places.values()), again=True)
            if not usable([back[index] for index in ends], graph):
                raise ValueError(diagnosis(value, graph, trace.default_stack, purpose))
            for at, gradient in zip(places, back, strict=True):
                found[at].append(_kept(at[0], places[at].detach(), gradient))
        together = torch.stack([value.detach().cpu() for value in values])
    result = _together(graph, together, {at: torch.stack(each) for at, each in found.items()})
    for site in sites:
        if site.name not in passing:
            raise UnsupportedModelError(
                f"{purpose}: site {site.name!r}: a pass of {type(run.model).__name__} does not reach it"
            )
        result.values[site.name] = passing[site.name].detach()[0].cpu()
        result.gradients[site.name] = torch.stack(found["sites", site.name, 0, 0])
    return result


def _keeper(passing: dict[str, Tensor], name: str) -> Callable[[Tensor], Tensor]:
    def keep(states: Tensor) -> Tensor:
        passing[name] = states
        # A copy goes on, so that nothing done in place changes what was kept.
        return states.clone()

    return keep


def _kept(kind: str, values: Tensor, gradient: Tensor) -> Tensor:
    """Return what is kept of a place: relevances summed over the width, or the gradients of a site."""
    if kind == "sites":
        return gradient[0].cpu()
    relevance = values[0] * gradient[0]
    if kind == "beside":
        return relevance.sum().cpu()
    if kind == "inputs":
        # How the numbers of a picture or of sound are summed is the method's business.
        vectors = relevance.dim() == len(("token", "width"))
        return relevance.double().sum(-1).cpu() if vectors else relevance.cpu()
    return relevance.sum(-1).cpu()


def _together(graph: Graph, scores: Tensor, found: dict[At, Tensor]) -> Relevances:
    def rows(kind: str, name: str) -> list[Tensor]:
        return [tensor for at, tensor in found.items() if at[:2] == (kind, name)]

    beside = {}
    for stack, blocks in graph.beside.items():
        sums = [
            sum((found["beside", stack, block, i] for i in range(len(given))), torch.zeros_like(scores))
            for block, given in enumerate(blocks)
        ]
        beside[stack] = torch.stack(sums, dim=1) if sums else torch.zeros(len(scores), 0)
    return Relevances(
        scores,
        {name: rows("inputs", name)[0] for name in graph.inputs},
        {name: torch.stack(rows("states", name), dim=1) for name, each in graph.states.items() if each},
        beside,
        {name: rows("heads", name) for name in graph.heads},
    )
