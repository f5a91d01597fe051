"""Gemma Scope (1): params.npz in `layer_N/width_16k/average_l0_K`, in repositories named after a hook point.

JumpReLU with a threshold for every feature; nothing is subtracted from the input. The folder contains no
configuration: layer, width and hook point are read from its path (Lieberum et al. 2024, Gemma Scope).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attnwidgets.sae.formats.files import Reader, SAEFormatError, jumprelu, path_in_repository, read_npz
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from pathlib import Path

_PARAMS = "params.npz"
# Endings of repository names, and the hook point of their SAEs.
_HOOKS = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}
_EMBEDDING = re.compile(r"(?:^|/)embedding(?:/|$)")


def _read(folder: Path) -> SAE:
    path = folder / _PARAMS
    tensors = read_npz(path)
    location = path_in_repository(folder, "gemma-scope")
    if "transcoder" in location or "W_skip" in tensors:
        raise SAEFormatError(f"{str(path)!r} is a transcoder of Gemma Scope; not supported.")
    weights = jumprelu(tensors, path)
    if _EMBEDDING.search(location):
        # Trained on embeddings before Gemma multiplies them by the square root of their width.
        scale = weights["W_enc"].shape[0] ** 0.5
        weights |= {"W_enc": weights["W_enc"] / scale, "W_dec": weights["W_dec"] * scale}
    return SAE(
        **weights,
        site=_site(location),
        model_name=_model(location),
        metadata={"prepend_bos": True, "context_size": 1024},
        origin=f"Gemma Scope, {'/'.join(folder.parts[-3:])}",
    )


def _site(location: str) -> str:
    if _EMBEDDING.search(location):
        return "hook_embed"
    layer = re.search(r"layer_(\d+)", location)
    kind = re.search(r"gemma-scope-[\w.-]*?-(res|mlp|att)\b", location)
    return f"blocks.{layer.group(1)}.{_HOOKS[kind.group(1)]}" if layer and kind else ""


def _model(location: str) -> str:
    model = re.search(r"gemma-scope-(\d+b)-(pt|it)", location)
    return f"google/gemma-2-{model[1]}{'-it' * (model[2] == 'it')}" if model else ""


READER = Reader("Gemma Scope", (_PARAMS,), _read)
