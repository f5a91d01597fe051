"""The same SAE written otherwise: as lectures do, with scales folded in, with directions of length one."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import torch

if TYPE_CHECKING:
    from torch import Tensor

    from attnwidgets.sae.sae import SAE


class Lecture(NamedTuple):
    """An SAE as lectures write it: f = ReLU(W_enc h + b_enc), h_hat = W_dec f + b_dec.

    Attributes:
        W_enc: [d_sae, d_in].
        b_enc: [d_sae]; what the SAE subtracts from its input is folded into it.
        W_dec: [d_in, d_sae]; a feature's direction is a column.
        b_dec: [d_in].
    """

    W_enc: Tensor
    b_enc: Tensor
    W_dec: Tensor
    b_dec: Tensor


def lecture(sae: SAE) -> Lecture:
    """Return the weights of an SAE as lectures write them: nothing is subtracted from h before encoding.

    A feature's activation there is f_j ||W_dec[:, j]||: what `encode(h, activation="lecture")` returns. For a
    topk or jumprelu SAE, W_enc h + b_enc are the pre-activations that its own function is applied to.

    Raises:
        ValueError: For a gated SAE, or one that normalises every token, which have no such form.
    """
    if sae.b_enc is None or sae.per_token:
        why = "a gated SAE has two encoders" if sae.b_enc is None else "it normalises every token"
        raise ValueError(f"lecture(): this SAE has no such form, since {why}.")
    bias = sae.b_enc - sae.b_dec @ sae.W_enc if sae.apply_b_dec_to_input else sae.b_enc
    norms = sae.W_dec.norm(dim=-1) if sae.rescale_acts_by_decoder_norm else torch.ones_like(bias)
    W_enc = (sae.W_enc * norms).T.contiguous()
    return Lecture(W_enc, bias * norms, sae.directions.T.contiguous(), sae.b_dec.clone())


def fold_input_scale(sae: SAE, scale: float) -> SAE:
    """Return the SAE of states h that does what another does of `scale` times h.

    Reconstructions are those of h; activations stay: W_enc is multiplied, W_dec and b_dec are divided.

    Raises:
        ValueError: If the scale is not positive.
    """
    if not scale > 0:
        raise ValueError(f"scale must be positive, not {scale}.")
    if sae.normalize_activations != "none":
        return sae.replaced()  # every token is rescaled anyway
    if sae.rescale_acts_by_decoder_norm:
        sae = fold_decoder_norm(sae)  # or activations would follow the shorter directions
    return sae.replaced(W_enc=sae.W_enc * scale, W_dec=sae.W_dec / scale, b_dec=sae.b_dec / scale)


def fold_decoder_norm(sae: SAE) -> SAE:
    """Return the same SAE with directions of length one: its activations are the lecture's of the other.

    Raises:
        ValueError: For a topk SAE that chooses before its directions' norms are taken in: it would choose
            other features.
    """
    if sae.architecture == "topk" and not sae.rescale_acts_by_decoder_norm:
        raise ValueError(
            "fold_decoder_norm(): the k largest would be others than before. "
            'encode(h, activation="lecture") gives a_j ||W_dec[j]|| of the features that are chosen now.'
        )
    norms = sae.W_dec.norm(dim=-1).clamp_min(torch.finfo(sae.dtype).tiny)
    scaled = {
        name: getattr(sae, name) * norms
        for name in ("W_enc", "b_enc", "threshold", "b_gate", "b_mag")
        if getattr(sae, name) is not None
    }
    made = sae.replaced(W_dec=sae.W_dec / norms[:, None], rescale_acts_by_decoder_norm=False, **scaled)
    if sae.maxima is not None:
        made.maxima = sae.maxima if sae.rescale_acts_by_decoder_norm else sae.maxima * norms
    return made
