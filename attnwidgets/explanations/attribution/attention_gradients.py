"""Gradients of a target by attention weights: what signed attention and Chefer's rules are made of."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from contextlib import AbstractContextManager

    import numpy as np
    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace


@dataclass(frozen=True)
class AttentionGradients:
    """Attention and a number's gradients by it, of one pass.

    Attributes:
        weights: By stack and layer, attention [head, query, key], float64.
        gradients: The same of the gradients.
        score: The number.
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
    relevance: bool = False,
) -> AttentionGradients:
    """Return attention weights of every stack with a number's gradients by them; one pass forward and back.

    Args:
        trace: A trace whose attention was recorded.
        score_of: Takes the model's outputs of a batch of one and returns the number, [1].
        method: The method's name, for messages.
        hidden_states: Whether the outputs must hold hidden states.
        relevance: Whether the gradients are those that the rules of AttnLRP make, so that attention times
            gradient is its relevance.

    Raises:
        UnsupportedModelError: Where the model's attention cannot be recorded.
        ValueError: Where gradients are NaN or all zero; the message names the layer. Also as `differentiable`
            says.
    """
    from attnwidgets.tracing.gradients.differentiable import differentiable, gradients
    from attnwidgets.tracing.gradients.gradient_checks import diagnosis
    from attnwidgets.tracing.recording.attention_function import UnsupportedModelError

    with differentiable(trace, method) as run, ExitStack() as stack:
        during: Callable[[], AbstractContextManager[Any]] = nullcontext
        if relevance:
            from attnwidgets.relevance.activations import single_activations
            from attnwidgets.relevance.rules import Rules

            stack.enter_context(single_activations(run.model))
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
        flat = [(name, layer) for name in stacks for layer in graph.weights[name]]
        found = gradients(score, [layer for _, layer in flat], again=True)
        whole = [bool(one.isfinite().all()) for one in found]
        if not all(whole) or not any(bool(one.any()) for one in found):
            name = flat[whole.index(False)][0] if not all(whole) else stacks[0]
            raise ValueError(diagnosis(score, graph, "decoder" if name == "cross" else name, method))
        weights: dict[str, list[NDArray[np.float64]]] = {name: [] for name in stacks}
        by: dict[str, list[NDArray[np.float64]]] = {name: [] for name in stacks}
        for (name, layer), gradient in zip(flat, found, strict=True):
            weights[name].append(_array(layer))
            by[name].append(_array(gradient))
        return AttentionGradients(
            {name: tuple(layers) for name, layers in weights.items()},
            {name: tuple(layers) for name, layers in by.items()},
            float(score.detach()[0]),
        )


def _array(tensor: Tensor) -> NDArray[np.float64]:
    return tensor.detach()[0].to("cpu").double().numpy()
