"""Equivalent forms of an SAE: in lecture notation, with scales folded in, with unit directions."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.sae.sae import SAE


class Lecture(NamedTuple):
    """An SAE in lecture notation: f = ReLU(W_enc h + b_enc), h_hat = W_dec f + b_dec.

    Attributes:
        W_enc: [d_sae, d_in].
        b_enc: [d_sae]; includes the bias that the SAE subtracts from its input.
        W_dec: [d_in, d_sae]; a feature's direction is a column.
        b_dec: [d_in].
    """

    W_enc: Tensor
    b_enc: Tensor
    W_dec: Tensor
    b_dec: Tensor


def lecture(sae: SAE) -> Lecture:
    """Return the weights of an SAE in lecture notation: nothing is subtracted from h before encoding.

    A feature's activation is then f_j ||W_dec[:, j]||, as `encode(h, activation="lecture")` returns it. For a
    topk or jumprelu SAE, W_enc h + b_enc are the pre-activations, to which its own function is applied.

    Raises:
        ValueError: For a gated SAE or one that normalises every token: neither has this form.
    """
    if sae.b_enc is None or sae.per_token:
        why = "a gated SAE has two encoders" if sae.b_enc is None else "it normalises every token"
        raise ValueError(f"lecture(): this SAE has no lecture form, because {why}.")
    bias = sae.b_enc - sae.b_dec @ sae.W_enc if sae.apply_b_dec_to_input else sae.b_enc
    norms = sae.W_dec.norm(dim=-1) if sae.rescale_acts_by_decoder_norm else torch.ones_like(bias)
    W_enc = (sae.W_enc * norms).T.contiguous()
    return Lecture(W_enc, bias * norms, sae.directions.T.contiguous(), sae.b_dec.clone())


def fold_input_scale(sae: SAE, scale: float) -> SAE:
    """Return an SAE that reads h and has the activations of `sae` on `scale` times h.

    W_enc is multiplied by the scale, W_dec and b_dec are divided by it, so that it reconstructs h.

    Raises:
        ValueError: If the scale is not positive.
    """
    if not scale > 0:
        raise ValueError(f"scale must be positive, not {scale}.")
    if sae.normalize_activations != "none":
        return sae.replaced()  # normalisation removes the scale of every token
    if sae.rescale_acts_by_decoder_norm:
        sae = fold_decoder_norm(sae)  # else shorter directions would change the activations
    return sae.replaced(W_enc=sae.W_enc * scale, W_dec=sae.W_dec / scale, b_dec=sae.b_dec / scale)


def fold_decoder_norm(sae: SAE) -> SAE:
    """Return an equivalent SAE with unit directions: its activations are the lecture activations of `sae`.

    Raises:
        ValueError: For a topk SAE that chooses features regardless of the norms of their directions: with the
            norms folded in it would choose other features.
    """
    if sae.architecture == "topk" and not sae.rescale_acts_by_decoder_norm:
        raise ValueError(
            "fold_decoder_norm(): other features would be the k largest. "
            'encode(h, activation="lecture") returns a_j ||W_dec[j]|| for the features chosen now.'
        )
    norms = sae.W_dec.norm(dim=-1).clamp_min(torch.finfo(sae.dtype).tiny)
    scaled = {
        name: getattr(sae, name) * norms
        for name in ("W_enc", "b_enc", "threshold", "b_gate", "b_mag")
        if getattr(sae, name) is not None
    }
    folded = sae.replaced(W_dec=sae.W_dec / norms[:, None], rescale_acts_by_decoder_norm=False, **scaled)
    if sae.maxima is not None:
        folded.maxima = sae.maxima if sae.rescale_acts_by_decoder_norm else sae.maxima * norms
    return folded
