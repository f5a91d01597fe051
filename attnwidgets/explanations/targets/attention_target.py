"""A weight of attention as a target: which inputs make this head look there."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from attnwidgets._errors import quoted, require_choice
from attnwidgets._selecting import element, pick
from attnwidgets.explanations.results.trace_protocol import resolve_stack
from attnwidgets.explanations.targets.resolve import ATTENTIONS, Target
from attnwidgets.tracing.unsupported import UnsupportedModelError

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.tracing.trace import Trace

OF = ("log-odds", "log", "weight")
_TWO = 2
_ATTRIBUTES = ("attentions", "encoder_attentions", "decoder_attentions", "cross_attentions")

# Attribute of the outputs, and index in it, that return a layer's weights, by stack and layer.
_attributes: weakref.WeakKeyDictionary[Trace, dict[tuple[str, int], tuple[str, int]]] = (
    weakref.WeakKeyDictionary()
)


class Weight(NamedTuple):
    """A weight that a user names; see `aw.targets.attention`."""

    layer: int
    head: int
    query: int | str
    key: int | str
    of: Literal["log-odds", "log", "weight"]
    stack: str | None


def attention_target(trace: Trace, named: Weight, name: str, method: str) -> Target:
    """Return a weight of attention, or its logarithm or log-odds, as a target.

    Raises:
        ValueError, IndexError, TypeError: If it does not exist, or the weight is 0.
        UnsupportedModelError: If the model's outputs do not include the weights of the layer.
    """
    require_choice("of", named.of, OF)
    stack = resolve_stack(trace, named.stack)
    (layer,) = pick(named.layer, trace.layers(stack), "layer")
    (head,) = pick(named.head, range(trace.n_heads(stack, layer)), "head")
    queries, keys = (axis.units["token"].labels for axis in trace.axes(stack))
    query, key = element(named.query, queries, "query"), element(named.key, keys, "key")
    words = f"{quoted(queries[query])} (token {query}) to {quoted(keys[key])} (token {key})"
    recorded = np.asarray(trace.attention_rows(layer, [head], [query], stack))[0, 0]
    if recorded[key] == 0:
        raise ValueError(
            f"{name}: the weight of {words} in head {layer}.{head} is 0, masked or too small for its "
            "precision, so that nothing changes it; name a key that the query reads."
        )
    if named.of == "log-odds" and np.count_nonzero(recorded) < _TWO:
        raise ValueError(
            f"{name}: {quoted(queries[query])} reads no other key in head {layer}.{head}, so that its weight "
            'has no odds; name another query, or of="weight".'
        )
    attribute, index = _attribute_of(trace, stack, layer, method)

    def score(outputs: Any) -> Tensor:
        import torch

        from attnwidgets._tensors import widened

        layers = getattr(outputs, attribute, None)
        if layers is None or layers[index] is None:
            raise ValueError(
                f"{method} runs the model where it returns no attention weights, so that {name} cannot be "
                "read; aw.saliency, aw.integrated_gradients and aw.lrp read it."
            )
        row = widened(layers[index][:, head, query])
        weight = row[:, key]
        if named.of == "weight":
            return weight
        if named.of == "log":
            return weight.log()
        # Their sum is exact where the weight itself is nearly 1.
        others = torch.cat([row[:, :key], row[:, key + 1 :]], dim=-1).sum(-1)
        return weight.log() - others.log()

    at = f"attention of {words} in head {layer}.{head}"
    label = at if named.of == "weight" else f"{named.of} of {at}"
    return Target(label, "attention", score, reads=(ATTENTIONS,), reading="none")


def _attribute_of(trace: Trace, stack: str, layer: int, method: str) -> tuple[str, int]:
    """Return the attribute of a model's outputs, and the index in it, with the weights of a layer.

    Raises:
        UnsupportedModelError: If the outputs do not include them.
    """
    attributes = _attributes.setdefault(trace, {})
    if (stack, layer) not in attributes:
        import torch

        from attnwidgets.tracing.gradients.differentiable import differentiable

        number = trace.layers(stack).index(layer)
        with differentiable(trace, method) as run:
            graph = run(keep=("weights",), reads=(ATTENTIONS,))
        recorded = graph.weights.get(stack) or []
        same = [
            (attribute, index)
            for attribute in _ATTRIBUTES
            for index, weights in enumerate(getattr(graph.outputs, attribute, None) or ())
            if number < len(recorded) and weights is not None and torch.equal(weights, recorded[number])
        ]
        if not same:
            raise UnsupportedModelError(
                f"{method} cannot read a weight of attention as a target: {type(trace.model).__name__} does "
                f"not return those of layer {layer} among its outputs."
            )
        # Layers that attend alike are told apart by their order.
        attributes[stack, layer] = next((match for match in same if match[1] == number), same[0])
    return attributes[stack, layer]
