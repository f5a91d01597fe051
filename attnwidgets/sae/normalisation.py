"""What an SAE does to states before it reads them, and undoes after it has written them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

Normalisation = Literal["none", "constant_norm_rescale", "layer_norm"]
NORMALISATIONS: tuple[Normalisation, ...] = ("none", "constant_norm_rescale", "layer_norm")
_EPS = 1e-5


class Undo(NamedTuple):
    """How a reconstruction of normalised states is taken back: multiply, then add (each [..., 1])."""

    multiply: Tensor
    add: Tensor


def normalise(kind: Normalisation, states: Tensor, *, centre: bool = False) -> tuple[Tensor, Undo | None]:
    """Return states as an SAE reads them [..., width], and how to take that back; None where nothing is done.

    Args:
        kind: "constant_norm_rescale" gives every token the norm sqrt(width); "layer_norm" subtracts a token's
            mean and divides by its deviation (unbiased) plus 1e-5. Both as in SAELens.
        states: [..., width].
        centre: Subtract every token's mean first. TransformerLens does so to the residual streams of
            LayerNorm models, by centring the weights that write into them.
    """
    if kind == "none" and not centre:
        return states, None
    mean = states.mean(dim=-1, keepdim=True)
    one, zero = torch.ones_like(mean), torch.zeros_like(mean)
    shift = zero
    if centre:
        states, shift = states - mean, mean
    if kind == "constant_norm_rescale":
        # A token of zeros stays one.
        norm = states.norm(dim=-1, keepdim=True).clamp_min(torch.finfo(states.dtype).tiny)
        coefficient = states.shape[-1] ** 0.5 / norm
        return states * coefficient, Undo(1 / coefficient, shift)
    if kind == "layer_norm":
        own = states.mean(dim=-1, keepdim=True)
        states = states - own
        deviation = states.std(dim=-1, keepdim=True)
        return states / (deviation + _EPS), Undo(deviation, own + shift)
    return states, Undo(one, shift)
