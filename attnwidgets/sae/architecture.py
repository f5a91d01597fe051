"""Architectures of sparse autoencoders: which weights each has, and which activations follow from them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

Architecture = Literal["standard", "topk", "jumprelu", "gated"]
ARCHITECTURES: tuple[Architecture, ...] = ("standard", "topk", "jumprelu", "gated")
WEIGHTS = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold", "b_gate", "b_mag", "r_mag")
"""Names of all weights, those that every architecture has first."""
_COMMON = WEIGHTS[:3]
# What an architecture has beside them, each [d_sae].
_OWN: Mapping[str, tuple[str, ...]] = {
    "standard": ("b_enc",),
    "topk": ("b_enc",),
    "jumprelu": ("b_enc", "threshold"),
    "gated": ("b_gate", "b_mag", "r_mag"),
}


def activate(
    architecture: Architecture,
    x: Tensor,
    weights: Mapping[str, Tensor],
    *,
    k: int | None,
    norms: Tensor | None,
) -> Tensor:
    """Return activations [..., feature] of what an SAE reads.

    Args:
        architecture: Which; the formulas are those of `SAE`.
        x: [..., d_in].
        weights: "W_enc" [d_in, feature] and the architecture's own [feature].
        k: Features a token may have (topk); chosen among those whose weights are given.
        norms: [feature], by which pre-activations are multiplied before they are chosen (topk), or None.
    """
    W_enc = weights["W_enc"]
    if architecture == "gated":
        gate = x @ W_enc + weights["b_gate"]
        magnitude = x @ (W_enc * weights["r_mag"].exp()) + weights["b_mag"]
        return (gate > 0).to(x.dtype) * magnitude.relu()
    p = x @ W_enc + weights["b_enc"]
    if architecture == "jumprelu":
        return p.relu() * (p > weights["threshold"]).to(p.dtype)
    if architecture == "topk":
        if norms is not None:
            p = p * norms
        best = p.topk(k or 1, dim=-1, sorted=False)
        return torch.zeros_like(p).scatter(-1, best.indices, best.values.relu())
    return p.relu()


def own_weights(architecture: Architecture) -> tuple[str, ...]:
    """Return the names of the weights that encode, beside W_enc."""
    return _OWN[architecture]


def require_weights(architecture: Architecture, given: Mapping[str, Tensor | None]) -> None:
    """Raise ValueError unless the weights of an architecture are all there, finite, and fit each other."""
    W_enc = given["W_enc"]
    if W_enc is None or W_enc.dim() != 2:  # noqa: PLR2004 - a matrix
        shape = None if W_enc is None else tuple(W_enc.shape)
        raise ValueError(f"W_enc has shape {shape}; it is a matrix [d_in, d_sae].")
    d_in, d_sae = W_enc.shape
    needed = (*_COMMON, *_OWN[architecture])
    shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}
    for name, tensor in given.items():
        if (tensor is not None) != (name in needed):
            what = "needs" if tensor is None else "has no"
            raise ValueError(f"{name}: a {architecture} SAE {what} one; it has {', '.join(needed)}.")
        if tensor is not None:
            _require_shape(name, tensor, shapes.get(name, (d_sae,)))


def require_k(architecture: Architecture, k: int | None, d_sae: int) -> None:
    """Raise ValueError unless a topk SAE has a k that it can choose, and another one none."""
    if (k is not None) != (architecture == "topk") or (k is not None and not 1 <= k <= d_sae):
        raise ValueError(f"k={k}: a topk SAE needs a k from 1 to {d_sae}, and others have none.")


def require_one_of(name: str, value: str, choices: Sequence[str]) -> None:
    """Raise ValueError, with the nearest choice, for a value that is none of them."""
    if value not in choices:
        raise ValueError(
            f"{name} must be one of {listed(choices)}, not {value!r}.{suggest(str(value), choices)}"
        )


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; with this W_enc it must be {shape}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} holds NaN or infinite values; the file is damaged or training failed.")
