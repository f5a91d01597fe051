"""Gradients of a target by attention weights, for signed attention and Chefer's rules."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class AttentionGradients:
    """Attention weights and a score's gradients by them, from one pass.

    Attributes:
        weights: By stack and layer, attention [head, query, key], float64.
        gradients: By stack and layer, gradients of the same shape.
        score: The score.
    """

    weights: Mapping[str, tuple[NDArray[np.float64], ...]]
    gradients: Mapping[str, tuple[NDArray[np.float64], ...]]
    score: float

    def product(self, stack: str, layer: int) -> NDArray[np.float64]:
        """Return gradient times attention [head, query, key] of one layer."""
        return self.gradients[stack][layer] * self.weights[stack][layer]


def attention_gradients(
    trace: Trace,
    score_of: Callable[[Any], Tensor],
    method: str,
    *,
    hidden_states: bool = False,
    relevance: Literal["attnlrp", "alpha_beta"] | None = None,
) -> AttentionGradients:
    """Return attention weights of every stack with a score's gradients by them; one pass forward and back.

    Args:
        trace: A trace whose attention was recorded.
        score_of: Takes the model's outputs for a batch of one and returns the score, [1].
        method: The method's name, for messages.
        hidden_states: Whether the outputs must hold hidden states.
        relevance: Take gradients under rules of relevance: those of AttnLRP, so that attention times gradient
            is the attention's relevance, or "alpha_beta", under which the gradient itself is.

    Raises:
        UnsupportedModelError: If the model's attention cannot be recorded.
        ValueError: If gradients are NaN or all zero; the message names the layer. See also `differentiable`.
    """
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    with differentiable(trace, method) as run, ExitStack() as exits:
        during: Callable[[], AbstractContextManager[Any]] = nullcontext
        if relevance == "alpha_beta":
            from attnwidgets.relevance.alpha_beta import AlphaBetaRules, passing_activations

            exits.enter_context(passing_activations(run.model))
            during = AlphaBetaRules
        elif relevance == "attnlrp":
            from attnwidgets.relevance.activations import single_activations
            from attnwidgets.relevance.rules import Rules

            exits.enter_context(single_activations(run.model))
            during = partial(Rules, "attnlrp")
        graph = run(keep=("weights",), hidden_states=hidden_states, during=during)
        stacks = [name for name in trace.stacks if graph.weights.get(name)]
        if not stacks:
            raise UnsupportedModelError(
                f"{method} needs attention weights that gradients reach, and {type(run.model).__name__} "
                "computes attention outside transformers' attention interface. aw.saliency, "
                "aw.input_x_gradient and aw.integrated_gradients need none."
            )
        score = score_of(graph.outputs)
        owners = [name for name in stacks for _ in graph.weights[name]]
        by_weight = gradients(score, [layer for name in stacks for layer in graph.weights[name]], again=True)
        finite = [bool(gradient.isfinite().all()) for gradient in by_weight]
        if not all(finite) or not any(bool(gradient.any()) for gradient in by_weight):
            name = stacks[0] if all(finite) else owners[finite.index(False)]
            raise ValueError(diagnosis(score, graph, "decoder" if name == "cross" else name, method))
        arrays = map(_array, by_weight)
        return AttentionGradients(
            {name: tuple(map(_array, graph.weights[name])) for name in stacks},
            {name: tuple(next(arrays) for _ in graph.weights[name]) for name in stacks},
            float(score.detach()[0]),
        )


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach()[0].to("cpu").double().numpy()
