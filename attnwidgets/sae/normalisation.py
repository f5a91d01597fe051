"""Normalisation of states before encoding, and its inverse after decoding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

Normalisation = Literal["none", "constant_norm_rescale", "layer_norm"]
NORMALISATIONS: tuple[Normalisation, ...] = ("none", "constant_norm_rescale", "layer_norm")
_EPS = 1e-5


class Undo(NamedTuple):
    """Inverse of a normalisation: multiply, then add (each [..., 1])."""

    multiply: Tensor
    add: Tensor


def normalise(kind: Normalisation, states: Tensor, *, centre: bool = False) -> tuple[Tensor, Undo | None]:
    """Return normalised states [..., width] and the inverse; None if there is nothing to undo.

    Args:
        kind: "constant_norm_rescale" scales every token to norm sqrt(width); "layer_norm" subtracts a token's
            mean and divides by its (unbiased) standard deviation plus 1e-5. Both as in SAELens.
        states: States [..., width].
        centre: Subtract every token's mean first. TransformerLens centres the residual stream of LayerNorm
            models in this way, by centring the weights that write to it.
    """
    if kind == "none" and not centre:
        return states, None
    mean = states.mean(dim=-1, keepdim=True)
    one, zero = torch.ones_like(mean), torch.zeros_like(mean)
    shift = zero
    if centre:
        states, shift = states - mean, mean
    if kind == "constant_norm_rescale":
        # The clamp keeps a token of zeros as it is.
        norm = states.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(states.dtype).tiny)
        coefficient = states.shape[-1] ** 0.5 / norm
        return states * coefficient, Undo(1 / coefficient, shift)
    if kind == "layer_norm":
        token_mean = states.mean(dim=-1, keepdim=True)
        states = states - token_mean
        deviation = states.std(dim=-1, keepdim=True)
        return states / (deviation + _EPS), Undo(deviation, token_mean + shift)
    return states, Undo(one, shift)
