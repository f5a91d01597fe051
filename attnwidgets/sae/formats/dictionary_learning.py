"""dictionary_learning: ae.pt (a state_dict) and config.json with {"trainer": {"dict_class": ...}}.

Activations are those of the weights as stored. `AutoEncoder.from_pretrained` of that library normalises
directions to length one by default: its activations are `encode(h, activation="lecture")` here, and
`sae.fold_decoder_norm()` is the same SAE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import listed
from attnwidgets.sae.formats.files import (
    LINEAR,
    Reader,
    SAEFormatError,
    jumprelu,
    read_json,
    read_torch,
    sae_weights,
    setting,
)
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

_WEIGHTS, _CONFIG = "ae.pt", "config.json"


# Chosen over a batch in training, by one threshold afterwards; an unset one (-1) lets all pass.
_BATCH_TOP_K = (LINEAR | {"b_dec": "b_dec", "threshold": "threshold"}, {"architecture": "jumprelu"})
_GATED = {"W_enc": "encoder.weight", "W_dec": "decoder.weight", "b_dec": "decoder_bias"}
_GATED |= {"r_mag": "r_mag", "b_gate": "gate_bias", "b_mag": "mag_bias"}
# Names of the weights in the file, and options of the SAE, by class.
_CLASSES: dict[str, tuple[dict[str, str], dict[str, Any]]] = {
    "AutoEncoder": (LINEAR | {"b_dec": "bias"}, {}),
    "AutoEncoderNew": (LINEAR, {"apply_b_dec_to_input": False}),
    "GatedAutoEncoder": (_GATED, {"architecture": "gated"}),
    "AutoEncoderTopK": (LINEAR | {"b_dec": "b_dec"}, {"architecture": "topk"}),
    "BatchTopKSAE": _BATCH_TOP_K,
    "MatryoshkaBatchTopKSAE": _BATCH_TOP_K,
}
_JUMPRELU = "JumpReluAutoEncoder"


def from_weights(name: str, tensors: Mapping[str, Tensor], trainer: Mapping[str, Any], path: Path) -> SAE:
    """Return the SAE with the weights of one of the library's classes.

    Raises:
        SAEFormatError: If the class is not supported.
    """
    if name == _JUMPRELU:
        weights = jumprelu(tensors, path)
    elif name in _CLASSES:
        names, options = _CLASSES[name]
        if "W_enc" in tensors and options.get("architecture") == "jumprelu":
            names = {weight: weight for weight in names}
        weights = sae_weights(tensors, path, names) | options
    else:
        raise SAEFormatError(
            f"{str(path)!r} holds a {name} of dictionary_learning, which is not supported; supported are "
            f"{listed([*_CLASSES, _JUMPRELU])}."
        )
    if weights.get("architecture") == "topk":
        weights["k"] = int(tensors["k"] if "k" in tensors else setting(trainer, "k", path))
    layer, submodule = trainer.get("layer"), trainer.get("submodule_name") or ""
    return SAE(
        **weights,
        site=_site(layer, str(submodule)),
        model_name=str(trainer.get("lm_name") or ""),
        metadata={"submodule_name": submodule or None},
        origin=f"dictionary_learning {name}",
    )


def _site(layer: Any, submodule: str) -> str:
    """Return the hook point named by a trainer's submodule and layer."""
    if "embed" in submodule:
        return "hook_embed"
    if not isinstance(layer, int) or layer < 0:
        return ""
    if "resid_pre" in submodule:
        return f"blocks.{layer}.hook_resid_pre"
    if "attn" in submodule or "attention" in submodule:
        return f"blocks.{layer}.hook_attn_out"
    return f"blocks.{layer}.{'hook_mlp_out' if 'mlp' in submodule else 'hook_resid_post'}"


def _read(folder: Path) -> SAE:
    path = folder / _CONFIG
    config = read_json(path)
    trainer = setting(config, "trainer", path)
    sae = from_weights(
        str(setting(trainer, "dict_class", path)),
        read_torch(folder / _WEIGHTS),
        trainer,
        folder / _WEIGHTS,
    )
    context = (config.get("buffer") or {}).get("ctx_len")
    sae.metadata |= {"prepend_bos": True} | ({} if context is None else {"context_size": context})
    return sae


READER = Reader("dictionary_learning", (_WEIGHTS, _CONFIG), _read)
