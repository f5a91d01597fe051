"""The forward pass of a live page in numpy, compared with torch's on the same weights.

The twin of the page's engine: both compute from the same `Layout`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._gradients import no_grad

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import torch
    from numpy.typing import NDArray

    from attnwidgets.views.page.live.weights import Layout

    Floats = NDArray[np.float64]

TOLERANCE = 1e-4
"""By how much two passes may differ, as a share of the largest logit."""

_ROUNDING = 1e-6
"""By how much they may differ in any case, where all logits are zero."""


def forward(layout: Layout, ids: Sequence[int]) -> tuple[Floats, Floats]:
    """Return the last states [token, width] and the logits [row, outcome] of a text.

    A model without a head has no logits [0, 0]; a model that reads a single token has one row.

    Args:
        layout: The model.
        ids: Its tokens.
    """
    shape = layout.shape
    weights = _unpacked(layout, "")
    x = weights["token"][list(ids)]
    if "position" in weights:
        x = x + weights["position"][: len(ids)]
    x = x + weights.get("type", 0.0)
    if "start" in weights:
        x = _normed(x, shape, weights, "start")
    for number in range(layout.layers):
        x = _block(x, shape, _unpacked(layout, f"{number}"), shape["scales"][number])
    states = _normed(x, shape, weights, "end") if "end" in weights else x
    return states, _outcomes(states, shape, weights, ids)


def _unpacked(layout: Layout, layer: str) -> dict[str, Floats]:
    """Return the weights of a layer by name, or, for "", those of no layer."""
    parts = ((name.rpartition("."), tensor) for name, tensor in layout.tensors.items())
    return {name: tensor.unpacked().astype(np.float64) for (at, _, name), tensor in parts if at == layer}


def _block(x: Floats, shape: Mapping[str, Any], layer_weights: Mapping[str, Floats], scale: float) -> Floats:
    after = shape["after"]
    x = x + _attention(x if after else _normed(x, shape, layer_weights, "n1"), shape, layer_weights, scale)
    if after:
        x = _normed(x, shape, layer_weights, "n1")
    seen = x if after else _normed(x, shape, layer_weights, "n2")
    act = _ACTIVATIONS[shape["activation"]]
    inner = _linear(seen, layer_weights, "up")
    inner = inner * act(_linear(seen, layer_weights, "gate")) if "gate" in layer_weights else act(inner)
    x = x + _linear(inner, layer_weights, "down")
    return _normed(x, shape, layer_weights, "n2") if after else x


def _attention(
    seen: Floats, shape: Mapping[str, Any], layer_weights: Mapping[str, Floats], scale: float
) -> Floats:
    n, size = len(seen), shape["size"]
    q, k, v = (_linear(seen, layer_weights, name).reshape(n, -1, size).swapaxes(0, 1) for name in "qkv")
    if "qn" in layer_weights:  # of every head, as in Qwen3
        q, k = (_normed(states, shape, layer_weights, name) for states, name in ((q, "qn"), (k, "kn")))
    if shape["rotary"]:
        q, k = (_rotated(states, shape["rotary"]) for states in (q, k))
    repeats = shape["heads"] // shape["sources"]
    k, v = (np.repeat(states, repeats, axis=0) for states in (k, v))
    scores = q @ k.swapaxes(1, 2) * scale
    if shape["causal"]:
        scores = np.where(np.tri(n, dtype=bool), scores, -np.inf)
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    mixed = (weights / weights.sum(-1, keepdims=True)) @ v
    return _linear(mixed.swapaxes(0, 1).reshape(n, -1), layer_weights, "o")


def _rotated(states: Floats, base: float) -> Floats:
    """Return [head, token, number] with pairs of numbers turned by angles that grow with the position."""
    half = states.shape[-1] // 2
    angles = np.arange(states.shape[1])[:, None] * base ** (-np.arange(half) / half)
    cos, sin = np.cos(angles), np.sin(angles)
    left, right = states[..., :half], states[..., half:]
    return np.concatenate([left * cos - right * sin, right * cos + left * sin], axis=-1)


def _outcomes(
    states: Floats, shape: Mapping[str, Any], weights: Mapping[str, Floats], ids: Sequence[int]
) -> Floats:
    if shape["reads"] == "none":
        return np.zeros((0, 0))
    last = max((index for index, token in enumerate(ids) if token != shape["padding"]), default=0)
    x = {"all": states, "first": states[:1], "last": states[last : last + 1]}[shape["reads"]]
    for number, step in enumerate(shape["steps"]):
        if step == "norm":
            x = _normed(x, shape, weights, f"s{number}")
        else:
            x = _ACTIVATIONS[step](_linear(x, weights, f"s{number}"))
    return x @ weights.get("out", weights["token"]).T + weights.get("outb", 0.0)


def _linear(x: Floats, weights: Mapping[str, Floats], name: str) -> Floats:
    return np.asarray(x @ weights[name].T + weights.get(f"{name}b", 0.0))


def _normed(x: Floats, shape: Mapping[str, Any], weights: Mapping[str, Floats], name: str) -> Floats:
    centred = x if shape["rms"] else x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + shape["eps"])
    return np.asarray(scaled * weights[name] + weights.get(f"{name}b", 0.0))


def _gelu(x: Floats) -> Floats:
    from scipy.special import erf

    return np.asarray(0.5 * x * (1 + erf(x / np.sqrt(2))))


_ACTIVATIONS: Mapping[str, Callable[[Floats], Floats]] = {
    "relu": lambda x: np.maximum(x, 0.0),
    "tanh": np.tanh,
    "silu": lambda x: x / (1 + np.exp(-x)),
    "gelu": _gelu,
    "gelu_new": lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
}


def torch_logits(rounded: Any, inputs: Mapping[str, torch.Tensor], layout: Layout) -> NDArray[np.float64]:
    """Return the last logits [outcome] that torch computes from the numbers of a page.

    Of a model without a head these are its last states.

    Args:
        rounded: `layout.rounded_copy(model)`.
        inputs: Its arguments for a text; the first axis of all is the batch.
        layout: The model as the page has it.

    Raises:
        ValueError: The page would compute something else.
    """
    ids = [int(token) for token in inputs["input_ids"][0]]
    states, logits = forward(layout, ids)
    with no_grad():
        output = rounded(**{name: values.cpu() for name, values in inputs.items()})
    returned = output.last_hidden_state if layout.shape["reads"] == "none" else output.logits
    expected = np.atleast_2d(returned[0].double().numpy())
    computed = states if layout.shape["reads"] == "none" else logits
    scale = float(np.abs(expected).max())
    distance = float(np.abs(computed - expected).max()) if computed.shape == expected.shape else np.inf
    if not distance <= TOLERANCE * scale + _ROUNDING:
        raise ValueError(
            f"computed in the page, {type(rounded).__name__} differs from what it returns here by "
            f"{distance / max(scale, _ROUNDING):.1e} of its largest output: it has hooks or modules that the "
            "page does not know"
        )
    return np.asarray(expected[-1])
