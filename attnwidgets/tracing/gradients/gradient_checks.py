"""Checks for gradients that are NaN or zero, and a diagnosis of the layer where they became so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.tracing.gradients.differentiable import gradients

if TYPE_CHECKING:
    from collections.abc import Sequence

    from torch import Tensor

    from attnwidgets.tracing.gradients.differentiable import Graph


def usable(grads: Sequence[Tensor], graph: Graph) -> bool:
    """Return whether gradients are finite and not all zero.

    Zeros are a valid result for a single module, such as a ReLU below zero; in a model they are a fault.
    """
    if not all(bool(gradient.isfinite().all()) for gradient in grads):
        return False
    return not graph.states or any(bool(gradient.any()) for gradient in grads)


def cut_of(graph: Graph) -> str:
    """Return a clause on states that the model itself computes without gradients; "" if it has none."""
    for stack, states in graph.states.items():
        reached = [state.requires_grad for state in states]
        cut = [layer for layer, reaches in enumerate(reached) if not reaches and any(reached[:layer])]
        if cut:
            return (
                f"the model computes the states before layer {cut[0]} of stack {stack!r} without gradients "
                "(torch.no_grad() or detach() in its code), so that none pass through earlier layers"
            )
    return ""


def diagnosis(score: Tensor, graph: Graph, stack: str, method: str) -> str:
    """Return a message that says why a gradient cannot be used, and at which layer it failed."""
    states = graph.states.get(stack, [])
    for layer, state in enumerate(states):
        if not state.isfinite().all():
            where = "the embeddings" if layer == 0 else f"layer {layer - 1}"
            return (
                f"{method}: the states after {where} hold NaN or infinite numbers, the first to do so; check "
                "the model's weights and precision."
            )
    if not score.isfinite().all():
        return f"{method}: the target is {float(score.flatten()[0])}; there is nothing to explain."
    cut = cut_of(graph)
    if cut:
        return f"{method}: {cut}."
    backwards = list(enumerate(gradients(score, states, again=True) if states else []))[::-1]
    for layer, gradient in backwards:
        last = layer == len(states) - 1
        after = "into the last layer's output" if last else f"into layer {layer}'s input"
        if not gradient.isfinite().all():
            return f"{method}: the gradient becomes NaN or infinite on its way {after}."
        if not gradient.any():
            return (
                f"{method}: the gradient is zero everywhere on its way {after}, so the target does not "
                "depend on the input, or an operation without a gradient (rounding, a choice) lies between."
            )
    return (
        f"{method}: the gradient is zero or NaN at the embeddings of stack {stack!r}, before layer 0: the "
        "target does not depend on them."
    )
