"""Signed attention: the effect of every attention weight on a target, to first order, from its gradient.

The product of attention and its gradient, head by head: Chefer et al. 2021, Generic Attention-model
Explainability, equation 5 before averaging; Barkan et al. 2021, Grad-SAM; Hao et al. 2021 in one step.
"""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.trace_protocol import provenance_of, resolve_stack
from attnwidgets.explanations.targets.target_set import resolve_target_set

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping
    from contextlib import AbstractContextManager

    from numpy.typing import NDArray
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

PAPER = "Chefer et al. 2021, Generic Attention-model Explainability; Barkan et al. 2021, Grad-SAM"


@method(
    "signed_attention",
    question="For this prediction",
    gist="which attention weights raise or lower it",
    paper=PAPER,
    needs=("recorded model", "target"),
    returns="MixingMap [layer, head, query, key], signed",
    cost="one pass forward and one back",
    speed="seconds",
)
def signed_attention(
    trace: Trace,
    target: Any = None,
    foil: Any = None,
    *,
    of: Literal["loss", "score"] = "loss",
    stack: str | None = None,
) -> MixingMap:
    """The effect of every attention weight on the target: -dL/dalpha * alpha, head by head.

    L is the target's loss, so that positive numbers speak for the target: paying that attention lowers its
    loss.

    Args:
        trace: {trace}
        target: {target}
        foil: {foil}
        of: "loss" for the loss of the target, as in lectures: -log p of a class or a token, or minus the
            score of any other target; "score" for d(score)/dalpha * alpha of the logit itself. With a foil
            among the same logits both are the same.
        stack: {any_stack}

    Returns:
        A map [layer, head, query, key], signed; zero where attention is zero. Rows have no common sum.

    Raises:
        ValueError: For an unknown option or stack; if the target must be named, or is a list; if gradients
            are NaN or all zero (the message names the layer) or unavailable; if attention is not recorded
            (`UnsupportedModelError`).
        TypeError, IndexError: {no_target}

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "The film was a pleasure.")
        >>> signed = aw.signed_attention(trace)
        >>> signed.shape == aw.attention(trace).shape
        True
    """
    require_choice("of", of, ("loss", "score"))
    targets = resolve_target_set(trace, target, foil, "signed_attention").single("signed_attention")
    stack = resolve_stack(trace, stack)

    def score(outputs: Any) -> Any:
        return -targets.losses(outputs)[0] if of == "loss" else targets.scores(outputs)[0]

    gradients = attention_gradients(trace, score, "signed_attention", reads=targets.reads)
    values = np.stack([gradients.product(stack, index) for index in range(trace.n_layers(stack))])
    query, key = trace.axes(stack)
    names = targets.names()
    contrast = f" rather than {names['foil']!r}" if names["foil"] else ""
    common = provenance_of(
        trace,
        stack,
        "signed_attention",
        title=f"signed attention for {names['target']!r}{contrast}",
        paper=PAPER,
        options={"of": of, **names},
        notes=targets.notes,
    )
    return MixingMap(
        values,
        query=query,
        key=key,
        layers=trace.layers(stack),
        unit=next(iter(query.units)),
        causal=trace.is_causal(stack),
        stochastic=False,
        signed=True,
        **common,
    )


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
        """Return gradient times attention [head, query, key] of a layer."""
        return self.gradients[stack][layer] * self.weights[stack][layer]


def attention_gradients(
    trace: Trace,
    score_of: Callable[[Any], Tensor],
    method: str,
    *,
    reads: Collection[str] = (),
    relevance: Literal["attnlrp", "alpha_beta"] | None = None,
) -> AttentionGradients:
    """Return attention weights of every stack with a score's gradients by them; one pass forward and back.

    Args:
        trace: A trace whose attention was recorded.
        score_of: Takes the model's outputs for a batch of 1 and returns the score, [1].
        method: The method's name, for messages.
        reads: Options of a call for outputs that the score reads besides logits; see `Target`.
        relevance: Take gradients under rules of relevance: those of AttnLRP, so that attention times gradient
            is the attention's relevance, or "alpha_beta", under which the gradient itself is.

    Raises:
        UnsupportedModelError: If the model's attention cannot be recorded.
        ValueError: If gradients are NaN or all zero; the message names the layer. See also `differentiable`.
    """
    from attnwidgets.tracing.gradients.differentiable import diagnosis, differentiable, gradients
    from attnwidgets.tracing.unsupported import UnsupportedModelError

    with differentiable(trace, method) as run, ExitStack() as exits:
        in_force: AbstractContextManager[Any] = nullcontext()
        if relevance == "alpha_beta":
            from attnwidgets.relevance.alpha_beta import AlphaBetaRules, passing_activations

            exits.enter_context(passing_activations(run.model))
            in_force = AlphaBetaRules()
        elif relevance == "attnlrp":
            from attnwidgets.relevance.backward import single_activations
            from attnwidgets.relevance.kernels import whole_kernels
            from attnwidgets.relevance.rules import Rules

            in_force = rules = Rules("attnlrp")
            exits.enter_context(single_activations(run.model))
            exits.enter_context(whole_kernels(run.model, rules.settings))
        graph = run(keep=("weights",), reads=reads, during=lambda: in_force)
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
