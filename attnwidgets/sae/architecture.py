"""Architectures of sparse autoencoders: the weights of each, and the activations they give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import torch

if TYPE_CHECKING:
    from collections.abc import Mapping

    from torch import Tensor

Architecture = Literal["standard", "topk", "jumprelu", "gated"]
ARCHITECTURES: tuple[Architecture, ...] = ("standard", "topk", "jumprelu", "gated")
WEIGHTS = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold", "b_gate", "b_mag", "r_mag")
"""Names of all weights; the first three belong to every architecture."""
_COMMON = WEIGHTS[:3]
# Further weights by architecture, each [d_sae].
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
    """Return the activations [..., feature] of normalised states.

    Args:
        architecture: The architecture; `SAE` has the formulas.
        x: [..., d_in].
        weights: "W_enc" [d_in, feature] and the architecture's further weights, each [feature].
        k: Largest number of active features per token (topk), chosen among those whose weights are given.
        norms: [feature], factors applied to pre-activations before the k largest are chosen (topk), or None.
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
    """Return the names of the encoder weights other than W_enc."""
    return _OWN[architecture]


def require_weights(architecture: Architecture, weights: Mapping[str, Tensor | None]) -> None:
    """Raise ValueError unless all weights of an architecture are present, finite and of matching shapes."""
    W_enc = weights["W_enc"]
    if W_enc is None or W_enc.dim() != 2:  # noqa: PLR2004 - a matrix
        shape = None if W_enc is None else tuple(W_enc.shape)
        raise ValueError(f"W_enc has shape {shape}; it must be a matrix [d_in, d_sae].")
    d_in, d_sae = W_enc.shape
    needed = (*_COMMON, *_OWN[architecture])
    shapes = {"W_enc": (d_in, d_sae), "W_dec": (d_sae, d_in), "b_dec": (d_in,)}
    for name, tensor in weights.items():
        if (tensor is not None) != (name in needed):
            what = "requires" if tensor is None else "has no"
            raise ValueError(
                f"{name}: a {architecture} SAE {what} {name}; its weights are {', '.join(needed)}."
            )
        if tensor is not None:
            _require_shape(name, tensor, shapes.get(name, (d_sae,)))


def require_k(architecture: Architecture, k: int | None, d_sae: int) -> None:
    """Raise ValueError unless `k` is valid for a topk SAE, and None for any other."""
    if (k is not None) != (architecture == "topk") or (k is not None and not 1 <= k <= d_sae):
        raise ValueError(f"k={k}: a topk SAE needs k from 1 to {d_sae}; other architectures take none.")


def _require_shape(name: str, tensor: Tensor, shape: tuple[int, ...]) -> None:
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; with this W_enc it must be {shape}.")
    if not bool(torch.isfinite(tensor).all()):
        raise ValueError(f"{name} contains NaN or infinite values: the file is damaged, or training failed.")
