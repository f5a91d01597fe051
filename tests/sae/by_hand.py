"""SAEs computed token by token and feature by feature, in float64, from the definitions alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    import attnwidgets as aw


def by_hand(sae: aw.SAE, h: torch.Tensor) -> torch.Tensor:
    """The activations, token by token and feature by feature, in float64, from the definitions."""
    result = torch.zeros(len(h), sae.d_sae, dtype=torch.float64)
    for token, state in enumerate(h.double()):
        x = state - state.mean() if sae.centre else state
        if sae.normalize_activations == "layer_norm":
            x = x - x.mean()
            x = x / (torch.sqrt(x.square().sum() / (len(x) - 1)) + 1e-5)
        if sae.normalize_activations == "constant_norm_rescale":
            x = x * len(x) ** 0.5 / x.norm()
        if sae.apply_b_dec_to_input:
            x = x - sae.b_dec.double()
        row = []
        for j in range(sae.d_sae):
            along = float(x @ sae.W_enc[:, j].double())
            if sae.architecture == "gated":
                magnitude = along * float(sae.r_mag[j].double().exp()) + float(sae.b_mag[j])
                row.append(max(magnitude, 0.0) if along + float(sae.b_gate[j]) > 0 else 0.0)
                continue
            p = along + float(sae.b_enc[j])
            if sae.architecture == "jumprelu":
                p = p if p > float(sae.threshold[j]) else 0.0
            if sae.rescale_acts_by_decoder_norm:
                p *= float(sae.W_dec[j].double().norm())
            row.append(p)
        if sae.architecture == "topk":
            lowest = sorted(row)[-sae.k]
            row = [value if value >= lowest else 0.0 for value in row]
        result[token] = torch.tensor(row, dtype=torch.float64).clamp_min(0)
    return result


def rebuilt(sae: aw.SAE, a: torch.Tensor, h: torch.Tensor) -> torch.Tensor:
    """The reconstruction, token by token, in float64."""
    rows = []
    for activations, state in zip(a.double(), h.double(), strict=True):
        row = sae.b_dec.double().clone()
        for j in range(sae.d_sae):
            direction = sae.W_dec[j].double()
            row += activations[j] * (
                direction / direction.norm() if sae.rescale_acts_by_decoder_norm else direction
            )
        x = state - state.mean() if sae.centre else state
        if sae.normalize_activations == "layer_norm":
            row = row * (x - x.mean()).std() + x.mean()
        if sae.normalize_activations == "constant_norm_rescale":
            row = row * x.norm() / len(x) ** 0.5
        rows.append(row + state.mean() if sae.centre else row)
    return torch.stack(rows)
