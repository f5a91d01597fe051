"""Llama Scope: hyperparams.json and checkpoints/final.safetensors.

JumpReLU with one threshold. The SAE reads states times c = sqrt(d_model) / (their mean norm), which is folded
into the weights here. The threshold in the file applies to activations in the scale of the states; those of
the folded SAE are c times as large, and so is its threshold (He et al. 2024, Llama Scope; as in SAELens).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.sae.formats.files import (
    LINEAR,
    Reader,
    SAEFormatError,
    read_json,
    read_safetensors,
    sae_weights,
    setting,
)
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from pathlib import Path

_CONFIG, _WEIGHTS = "hyperparams.json", "checkpoints/final.safetensors"


def _read(folder: Path) -> SAE:
    path, weights_path = folder / _CONFIG, folder / _WEIGHTS
    config = read_json(path)
    site = str(setting(config, "hook_point_in", path))
    out = config.get("hook_point_out", site)
    if out != site:
        raise SAEFormatError(
            f"{str(path)!r} is a transcoder of Llama Scope (from {site!r} to {out!r}); not supported."
        )
    if config.get("act_fn", "jumprelu") != "jumprelu":
        raise SAEFormatError(f"{str(path)!r}: act_fn {config['act_fn']!r} is not known.")
    norm = setting(setting(config, "dataset_average_activation_norm", path), "in", path)
    scale = setting(config, "d_model", path) ** 0.5 / norm
    return SAE(
        **sae_weights(read_safetensors(weights_path), weights_path, LINEAR),
        architecture="jumprelu",
        threshold=setting(config, "jump_relu_threshold", path) * scale,
        apply_b_dec_to_input=False,
        site=site,
        model_name="meta-llama/Llama-3.1-8B",
        metadata={"prepend_bos": True, "context_size": 1024},
        origin=f"Llama Scope, {folder.name}",
    ).fold_input_scale(scale)


READER = Reader("Llama Scope", (_CONFIG, _WEIGHTS), _read)
