"""Gradients of targets by the embeddings of a stack's tokens: what saliency and its kin are made of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from attnwidgets._errors import require_choice
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.trace_protocol import TraceLike, provenance_of, resolve_stack

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from torch import Tensor

    from attnwidgets.explanations.targets.target_set import TargetSet
    from attnwidgets.tracing.gradients.differentiable import Graph
    from attnwidgets.tracing.trace import Trace

Reduce = Literal["l2", "l1", "sum", "mean", "mean_abs", "mean_square"]

REDUCTIONS = ("l2", "l1", "sum", "mean", "mean_abs", "mean_square")
"""How the numbers of an embedding's dimensions become one: its length, the sum of absolute values, the signed
sum, and these divided by the number of dimensions ("mean_square" takes no root)."""


def reduced(values: Tensor, how: Reduce) -> Tensor:
    """Return [..., token] of values [..., token, dim]."""
    if how == "l2":
        return values.norm(dim=-1)
    if how == "l1":
        return values.abs().sum(-1)
    if how == "mean_abs":
        return values.abs().mean(-1)
    if how == "mean_square":
        return values.square().mean(-1)
    return values.sum(-1) if how == "sum" else values.mean(-1)


@dataclass(frozen=True)
class EmbeddingGradients:
    """One pass and what came back from it.

    Attributes:
        embeddings: What the tokens were read as [token, dim].
        gradients: Of every target by them [target, token, dim], or what was read of each.
        scores: The targets' numbers [target].
    """

    embeddings: Tensor
    gradients: Tensor
    scores: Tensor


def embedding_stack(trace: TraceLike, stack: str | None) -> str:
    """Return the stack whose tokens are explained; "cross" has none of its own.

    Raises:
        ValueError: Where there is no such stack.
    """
    stack = resolve_stack(trace, stack)
    if stack == "cross":
        raise ValueError('stack "cross" has no tokens of its own; pass stack="encoder" or "decoder".')
    return stack


def embedding_gradients(
    trace: Trace,
    asked: TargetSet,
    method: str,
    stack: str,
    read: Callable[[Tensor, Tensor], Tensor] = lambda gradient, _: gradient,
) -> EmbeddingGradients:
    """Return every target's gradient by the embeddings of a stack; one pass forward, one back for each.

    Args:
        trace: A trace.
        asked: The targets.
        method: The method's name, for messages.
        stack: The stack.
        read: What is kept of each, so that no more than one need be held: takes a gradient and the
            embeddings, [token, dim] both.

    Raises:
        ValueError: Where gradients are NaN or all zero; the message names the layer. Also as `differentiable`
            says.
    """
    import torch

    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis, usable

    with differentiable(trace, method) as run:
        graph = run(hidden_states=asked.hidden_states)
        leaf = leaf_of(graph, stack, method, trace)
        scores = asked.scores(graph.outputs)
        found = []
        for score in scores:
            gradient = gradients(score, [leaf], again=True)[0]
            if not usable([gradient], graph):
                raise ValueError(diagnosis(score, graph, stack, method))
            found.append(read(gradient[0], leaf.detach()[0]))
        return EmbeddingGradients(
            leaf.detach()[0], torch.stack(found), torch.stack([score.detach()[0] for score in scores])
        )


def leaf_of(graph: Graph, stack: str, method: str, trace: Trace | None = None) -> Tensor:
    """Return where a stack's gradients end, [batch, token, dim].

    Raises:
        UnsupportedModelError: Where nothing of the stack was found that a gradient can reach, or it has
            other tokens than the trace.
    """
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    if stack in graph.inputs:
        leaf = graph.inputs[stack]
        if trace is not None and leaf.shape[1] != len(trace.axes(stack)[0]):
            raise UnsupportedModelError(other_tokens(method, trace, leaf.shape[1], len(trace.axes(stack)[0])))
        return leaf
    reached = ", ".join(map(repr, graph.inputs))
    raise UnsupportedModelError(
        f"{method} found no embeddings of stack {stack!r}; gradients reach {reached}."
    )


def other_tokens(method: str, trace: TraceLike, found: int, wanted: int) -> str:
    """Return what to say where a model reads its tokens along another axis than the second."""
    name = type(getattr(trace, "model", None)).__name__
    return (
        f"{method}: the embeddings of {name} hold {found} where the text has {wanted} tokens: it reads "
        "[token, batch, width] and not [batch, token, width], which is not supported. Attention is: "
        "aw.attention(trace)."
    )


def attributed(
    trace: Trace,
    values: Tensor,
    question: TargetSet,
    *,
    method: str,
    title: str,
    paper: str,
    options: Mapping[str, Any],
    stack: str,
    residual: Any = None,
    unit: str | None = None,
    warning: str = "",
    facts: Mapping[str, Any] | None = None,
) -> Attributions:
    """Return values [target, token] as attributions with all they carry, in the unit asked for."""
    axis = trace.axes(stack)[0]
    notes = (*question.notes, warning)
    common = provenance_of(trace, stack, method, paper=paper, options=options, notes=notes)
    common["provenance"] |= {"title": title, **(facts or {})}
    own = next(iter(axis.units))
    found = Attributions(
        question.of(values.to("cpu").double().numpy()),
        axis=axis,
        unit=own,
        residual=residual,
        reach=question.reach(trace, stack),
        **question.names(),
        **common,
    )
    return found if unit is None or unit == own else found.to(unit)


def require_reduction(how: str) -> None:
    """Raise ValueError where there is no such reduction."""
    require_choice("reduce", how, REDUCTIONS)
