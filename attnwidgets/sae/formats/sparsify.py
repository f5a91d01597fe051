"""sparsify (EleutherAI): cfg.json and sae.safetensors in a folder named after a module ("layers.5.mlp").

The k largest activations of a token, after subtracting the decoder's bias; states are the module's outputs.
The decoder is stored as [d_sae, d_in], like the encoder. (SAELens 6.54 transposes it, and fails.)
"""

from __future__ import annotations

import re
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

_CONFIG, _WEIGHTS = "cfg.json", "sae.safetensors"
_HOOKPOINT = re.compile(r"(?:.*\.)?(?:layers|h|layer|blocks)\.\d+(?:\..+)?|(?:.*\.)?embed\w*|(?:.*\.)?wte")


def _read(folder: Path) -> SAE:
    path, weights_path = folder / _CONFIG, folder / _WEIGHTS
    config = read_json(path)
    tensors = read_safetensors(weights_path)
    if config.get("transcode") or config.get("skip_connection") or "W_skip" in tensors:
        raise SAEFormatError(f"{str(path)!r} is a transcoder of sparsify; not supported.")
    activation = config.get("activation", "topk")
    if activation != "topk" or config.get("signed"):
        what = "signed activations" if config.get("signed") else f"the activation {activation!r}"
        raise SAEFormatError(f"{str(path)!r} has {what}; only 'topk' SAEs of sparsify are supported.")
    if "W_dec" not in tensors:
        raise SAEFormatError(f"{str(weights_path)!r} has no decoder (W_dec); it is only half of an SAE.")
    hookpoint = folder.resolve().name
    return SAE(
        **sae_weights(tensors, weights_path, LINEAR | {"W_dec": "W_dec", "b_dec": "b_dec"}),
        architecture="topk",
        k=int(setting(config, "k", path)),
        site=hookpoint if _HOOKPOINT.fullmatch(hookpoint) else "",
        metadata={"hf_hook_name": hookpoint},
        origin=f"sparsify, {hookpoint}",
    )


READER = Reader("sparsify", (_CONFIG, _WEIGHTS), _read)
