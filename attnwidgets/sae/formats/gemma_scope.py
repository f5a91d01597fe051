"""Gemma Scope (1): params.npz in `layer_N/width_16k/average_l0_K`, of repositories named after their site.

JumpReLU with a threshold for every feature; nothing is subtracted from the input. The folder holds no
configuration: layer, width and site are read from its path (Lieberum et al. 2024, Gemma Scope).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from attnwidgets.sae.formats.files import SAEFormatError, place_of, read_npz, take, widened
from attnwidgets.sae.formats.reader import Reader
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from pathlib import Path

_PARAMS = "params.npz"
# How repositories end, and what their SAEs read.
_HOOKS = {"res": "hook_resid_post", "mlp": "hook_mlp_out", "att": "attn.hook_z"}
_EMBEDDING = re.compile(r"(?:^|/)embedding(?:/|$)")


def _read(folder: Path) -> SAE:
    path = folder / _PARAMS
    raw = widened(read_npz(path))
    weights = {f"W_{name[2:]}" if name.startswith("w_") else name: tensor for name, tensor in raw.items()}
    place = place_of(folder, "gemma-scope")
    if "transcoder" in place or "W_skip" in weights:
        raise SAEFormatError(f"{str(path)!r} is a transcoder of Gemma Scope; not supported.")
    W_enc, W_dec = take(weights, "W_enc", path), take(weights, "W_dec", path)
    if _EMBEDDING.search(place):
        # Trained on embeddings as they are before Gemma multiplies them by the root of the width.
        width = W_enc.shape[0] ** 0.5
        W_enc, W_dec = W_enc / width, W_dec * width
    return SAE(
        W_enc,
        W_dec,
        take(weights, "b_dec", path),
        take(weights, "b_enc", path),
        architecture="jumprelu",
        threshold=take(weights, "threshold", path),
        apply_b_dec_to_input=False,
        site=_site(place),
        model_name=_model(place),
        metadata={"prepend_bos": True, "context_size": 1024},
        origin=f"Gemma Scope, {'/'.join(folder.parts[-3:])}",
    )


def _site(place: str) -> str:
    if _EMBEDDING.search(place):
        return "hook_embed"
    layer = re.search(r"layer_(\d+)", place)
    kind = re.search(r"gemma-scope-[\w.-]*?-(res|mlp|att)\b", place)
    return f"blocks.{layer.group(1)}.{_HOOKS[kind.group(1)]}" if layer and kind else ""


def _model(place: str) -> str:
    found = re.search(r"gemma-scope-(\d+b)-(pt|it)", place)
    if found is None:
        return ""
    return f"google/gemma-2-{found.group(1)}{'-it' if found.group(2) == 'it' else ''}"


READER = Reader("Gemma Scope", (_PARAMS,), _read)
