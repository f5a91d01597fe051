"""dictionary_learning: ae.pt (a state_dict) and config.json with {"trainer": {"dict_class": ...}}.

Activations are those of the weights as they lie there. `AutoEncoder.from_pretrained` of that library makes
directions of length one unless told otherwise: its activations are `encode(h, activation="lecture")` here,
and `sae.fold_decoder_norm()` is the same SAE.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._selecting import listed
from attnwidgets.sae.formats.files import SAEFormatError, read_json, read_torch, setting, take, widened
from attnwidgets.sae.formats.reader import Reader
from attnwidgets.sae.sae import SAE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from torch import Tensor

_WEIGHTS, _CONFIG = "ae.pt", "config.json"


def _linear(weights: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return encoder and decoder of classes that are made of nn.Linear, whose weights are [output, input]."""
    return {
        "W_enc": take(weights, "encoder.weight", path).T,
        "W_dec": take(weights, "decoder.weight", path).T,
    }


def _auto_encoder(weights: Mapping[str, Tensor], _: Mapping[str, Any], path: Path) -> dict[str, Any]:
    bias = {"b_dec": take(weights, "bias", path), "b_enc": take(weights, "encoder.bias", path)}
    return _linear(weights, path) | bias


def _auto_encoder_new(weights: Mapping[str, Tensor], _: Mapping[str, Any], path: Path) -> dict[str, Any]:
    return _linear(weights, path) | {
        "b_dec": take(weights, "decoder.bias", path),
        "b_enc": take(weights, "encoder.bias", path),
        "apply_b_dec_to_input": False,
    }


def _gated(weights: Mapping[str, Tensor], _: Mapping[str, Any], path: Path) -> dict[str, Any]:
    return _linear(weights, path) | {
        "b_dec": take(weights, "decoder_bias", path),
        "r_mag": take(weights, "r_mag", path),
        "b_gate": take(weights, "gate_bias", path),
        "b_mag": take(weights, "mag_bias", path),
        "architecture": "gated",
    }


def _jumprelu(weights: Mapping[str, Tensor], _: Mapping[str, Any], path: Path) -> dict[str, Any]:
    names = ("W_enc", "W_dec", "b_dec", "b_enc", "threshold")
    found = {name: take(weights, name, path) for name in names}
    return found | {"architecture": "jumprelu", "apply_b_dec_to_input": False}


def _top_k(weights: Mapping[str, Tensor], trainer: Mapping[str, Any], path: Path) -> dict[str, Any]:
    k = int(weights["k"]) if "k" in weights else int(setting(trainer, "k", path))
    return _linear(weights, path) | {
        "b_dec": take(weights, "b_dec", path),
        "b_enc": take(weights, "encoder.bias", path),
        "architecture": "topk",
        "k": k,
    }


def _batch_top_k(weights: Mapping[str, Tensor], trainer: Mapping[str, Any], path: Path) -> dict[str, Any]:
    """Chosen over a batch in training, by one threshold afterwards; an unset one (-1) lets all pass."""
    if "W_enc" in weights:
        names = ("W_enc", "W_dec", "b_dec", "b_enc")
        found: dict[str, Any] = {name: take(weights, name, path) for name in names}
    else:
        found = {name: value for name, value in _top_k(weights, trainer, path).items() if name != "k"}
    return found | {"architecture": "jumprelu", "threshold": float(take(weights, "threshold", path))}


_CLASSES: dict[str, Callable[[Mapping[str, Tensor], Mapping[str, Any], Path], dict[str, Any]]] = {
    "AutoEncoder": _auto_encoder,
    "AutoEncoderNew": _auto_encoder_new,
    "GatedAutoEncoder": _gated,
    "JumpReluAutoEncoder": _jumprelu,
    "AutoEncoderTopK": _top_k,
    "BatchTopKSAE": _batch_top_k,
    "MatryoshkaBatchTopKSAE": _batch_top_k,
}


def from_weights(name: str, weights: Mapping[str, Tensor], trainer: Mapping[str, Any], path: Path) -> SAE:
    """Return the SAE that weights of one of the library's classes define.

    Raises:
        SAEFormatError: If the class is not supported.
    """
    if name not in _CLASSES:
        raise SAEFormatError(
            f"{str(path)!r} holds a {name} of dictionary_learning, which is not supported; supported are "
            f"{listed(_CLASSES)}."
        )
    plain = widened({key: tensor for key, tensor in weights.items() if tensor.is_floating_point()})
    found = _CLASSES[name]({**weights, **plain}, trainer, path)
    layer, submodule = trainer.get("layer"), trainer.get("submodule_name") or ""
    return SAE(
        **found,
        site=_site(layer, str(submodule)),
        model_name=str(trainer.get("lm_name") or ""),
        metadata={"submodule_name": submodule or None},
        origin=f"dictionary_learning {name}",
    )


def _site(layer: Any, submodule: str) -> str:
    """Return the site of a trainer: its submodule says what is read, the layer where."""
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
