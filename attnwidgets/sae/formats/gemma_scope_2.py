"""Gemma Scope 2 (Gemma 3): params.safetensors with lower-case names, and config.json.

JumpReLU with a threshold for every feature; nothing is subtracted from the input. The configuration names the
hook point by a Hugging Face module; without a configuration, the folder's name does.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attnwidgets.sae.formats.files import (
    Reader,
    SAEFormatError,
    jumprelu,
    path_in_repository,
    read_json,
    read_safetensors,
    take,
)
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from pathlib import Path

_PARAMS, _CONFIG = "params.safetensors", "config.json"
_HOOKS = {"resid_post": "hook_resid_post", "mlp_out": "hook_mlp_out", "attn_out": "attn.hook_z"}


def _read(folder: Path) -> SAE:
    path = folder / _PARAMS
    tensors = read_safetensors(path)
    config: dict[str, Any] = read_json(folder / _CONFIG) if (folder / _CONFIG).is_file() else {}
    location = path_in_repository(folder, "gemma-scope-2")
    if (
        config.get("hf_hook_point_out") not in (None, config.get("hf_hook_point_in"))
        or "affine_skip_connection" in tensors
        or take(tensors, "w_dec", path).dim() > 2  # noqa: PLR2004 - one decoder for every layer
        or re.search(r"transcoder|crosscoder|(?:^|/)clt", location)
    ):
        raise SAEFormatError(f"{str(path)!r} is a transcoder of Gemma Scope 2; not supported.")
    architecture = config.get("architecture", "jump_relu")
    if architecture != "jump_relu":
        raise SAEFormatError(f"{str(path)!r}: architecture {architecture!r} is not known.")
    layer = re.search(r"layer_(\d+)", location)
    kind = next((hook for name, hook in _HOOKS.items() if name in location), "")
    module = str(config.get("hf_hook_point_in") or "")
    return SAE(
        **jumprelu(tensors, path),
        site=module or (f"blocks.{layer.group(1)}.{kind}" if layer and kind else ""),
        model_name=str(config.get("model_name") or "").replace("-v3", "-3"),
        metadata={"prepend_bos": True, "context_size": 1024, "hf_hook_name": module or None},
        origin=f"Gemma Scope 2, {'/'.join(folder.parts[-2:])}",
    )


READER = Reader("Gemma Scope 2", (_PARAMS,), _read, optional=(_CONFIG,))
