"""SAELens: cfg.json and sae_weights.safetensors, of version 6 and older; also the format SAEs are saved in.

The facts are those of SAELens 6.54 (sae_lens/saes, sae_lens/loading/pretrained_sae_loaders.py).
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from safetensors.torch import save as dump_tensors

from attnwidgets._files import write_bytes
from attnwidgets.sae.coder import ARCHITECTURES, NORMALISATIONS, WEIGHTS
from attnwidgets.sae.formats.files import (
    Reader,
    SAEFormatError,
    read_json,
    read_safetensors,
    sae_weights,
    setting,
    widened,
)
from attnwidgets.sae.sae import SAE
from attnwidgets.sae.training.history import History

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONFIG, _WEIGHTS = "cfg.json", "sae_weights.safetensors"
_SCALER = "activation_scaler.json"
_OURS = "attnwidgets.safetensors"
UNFOLDED = "expected_average_only_in"
"""Key in an SAE's metadata as long as the input scale of its training is not folded in."""

# Names replaced in version 6.
_OLD_NAMES = {
    "hook_point": "hook_name",
    "hook_point_head_index": "hook_head_index",
    "activation_fn_str": "activation_fn",
}
_REFUSED = {
    **dict.fromkeys(
        ("transcoder", "skip_transcoder", "jumprelu_transcoder", "jumprelu_skip_transcoder"),
        "a transcoder: it writes to another hook point than it reads",
    ),
    "abstopk": "an AbsTopK SAE, whose features may be negative",
    "matching_pursuit": "a matching-pursuit SAE, which encodes step by step",
    "temporal": "a temporal SAE, which also reads other tokens",
    "batchtopk": "a batch-top-k SAE in training; save it for inference (jumprelu)",
    "matryoshka_batchtopk": "a matryoshka SAE in training; save it for inference (jumprelu)",
}
_DROPPED = ("scaling_factor", "finetuning_scaling_factor")
# Entries of older, flat configurations that version 6 keeps as metadata.
_METADATA = (
    *("model_name", "hook_name", "hook_name_out", "hook_head_index", "prepend_bos"),
    *("exclude_special_tokens", "context_size", "dataset_path", "neuronpedia_id"),
    "model_from_pretrained_kwargs",
)
_VERSION = "6.0.0"  # of saved files


def _read(folder: Path) -> SAE:
    path = folder / _CONFIG
    extra = folder / _OURS
    return from_parts(
        *modern(read_json(path)),
        read_safetensors(folder / _WEIGHTS),
        path=path,
        scale=_scale(folder),
        maxima=read_safetensors(extra).get("maxima") if extra.is_file() else None,
        origin=f"SAELens folder {folder.name}",
    )


def modern(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a configuration and its metadata in the form of version 6; older configurations are flat."""
    new = {_OLD_NAMES.get(name, name): value for name, value in config.items() if name != "metadata"}
    metadata = config.get("metadata") or {}
    kwargs = new.get("activation_fn_kwargs") or {}
    k = kwargs.get("k", new.get("k"))
    function = new.get("activation_fn") or "relu"
    if function == "topk" and k is not None:
        new |= {"architecture": "topk", "k": k}
    elif function != "relu":
        raise SAEFormatError(f"{_CONFIG} names the activation function {function!r}, which is not supported.")
    if isinstance(new.get("normalize_activations"), bool):
        new["normalize_activations"] = UNFOLDED if new["normalize_activations"] else "none"
    if "metadata" not in config:
        new.setdefault("prepend_bos", True)
    flat = {name: new[name] for name in _METADATA if name in new}
    renamed = {_OLD_NAMES.get(name, name): value for name, value in metadata.items() if value is not None}
    return new, {**metadata, **flat, **renamed}


def _scale(folder: Path) -> float | None:
    """Return the input scale that a training checkpoint stores with its weights."""
    path = folder / _SCALER
    if not path.is_file():
        return None
    scaler = read_json(path)
    if scaler.get("has_whitening"):
        raise SAEFormatError(f"{str(path)!r}: whitening of the states is not supported.")
    return scaler.get("scaling_factor")


def from_parts(
    config: Mapping[str, Any],
    metadata: Mapping[str, Any],
    weights: Mapping[str, torch.Tensor],
    *,
    path: Path,
    scale: float | None = None,
    maxima: torch.Tensor | None = None,
    origin: str,
) -> SAE:
    """Return the SAE defined by a configuration and weights of SAELens.

    Raises:
        SAEFormatError: If they are not supported.
    """
    architecture = config.get("architecture") or "standard"
    if architecture in _REFUSED or metadata.get("hook_name_out"):
        kind = _REFUSED.get(architecture, _REFUSED["transcoder"])
        raise SAEFormatError(f"{str(path)!r} holds {kind} (architecture {architecture!r}); not supported.")
    if architecture not in ARCHITECTURES:
        raise SAEFormatError(f"{str(path)!r} names the architecture {architecture!r}, which is unknown.")
    if metadata.get("hook_head_index") is not None:
        raise SAEFormatError(f"{str(path)!r} holds an SAE of one head (hook_head_index); not supported.")
    tensors = _plain(weights, path)
    normalisation = config.get("normalize_activations") or "none"
    if normalisation == UNFOLDED:
        metadata, normalisation = {**metadata, UNFOLDED: scale is None}, "none"
    if normalisation not in NORMALISATIONS:
        raise SAEFormatError(f"{str(path)!r}: normalize_activations={normalisation!r} is not supported.")
    extras = dict(metadata.get("attnwidgets") or {})
    sae = SAE(
        **sae_weights(tensors, path, {name: name for name in WEIGHTS if name in (*WEIGHTS[:3], *tensors)}),
        architecture=architecture,
        k=int(setting(config, "k", path)) if architecture == "topk" else None,
        apply_b_dec_to_input=config.get("apply_b_dec_to_input", True),
        normalize_activations=normalisation,
        rescale_acts_by_decoder_norm=bool(config.get("rescale_acts_by_decoder_norm")),
        centre=bool(extras.get("centre", False)),
        site=str(metadata.get("hook_name") or metadata.get("hf_hook_name") or ""),
        model_name=str(metadata.get("model_name") or ""),
        metadata={name: value for name, value in metadata.items() if name != "attnwidgets"},
        origin=origin,
    )
    for name, size in (("d_in", sae.d_in), ("d_sae", sae.d_sae)):
        if config.get(name, size) != size:
            raise SAEFormatError(f"{str(path)!r} says {name}={config[name]}, but the weights say {size}.")
    if maxima is not None:
        sae.maxima = maxima.to(sae.dtype)
    if "history" in extras:
        sae.history = History.from_dict(extras["history"])
    return sae if scale is None else sae.fold_input_scale(scale)


def _plain(weights: Mapping[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor]:
    """Return the weights without scales of 1; raise SAEFormatError for other scales and unknown weights."""
    for name in _DROPPED:
        if name in weights and not torch.allclose(weights[name], torch.ones_like(weights[name])):
            raise SAEFormatError(f"{str(path)!r}: the SAE has a finetuned scale ({name}); not supported.")
    tensors = {name: tensor for name, tensor in weights.items() if name not in _DROPPED}
    if unknown := sorted(set(tensors) - {*WEIGHTS, "log_threshold"}):
        raise SAEFormatError(f"{str(path)!r}: the weights contain {', '.join(unknown)}, which are unknown.")
    if "log_threshold" in tensors:  # a JumpReLU SAE in training
        tensors.setdefault("threshold", tensors.pop("log_threshold").exp())
    return widened(tensors)


def fold(sae: SAE, input_scale: float | None, name: str, remedy: str, *, stacklevel: int) -> SAE:
    """Return an SAE with the input scale of its training folded in; warn if the scale is unknown.

    Args:
        sae: The SAE as its files or its object define it.
        input_scale: The scale, or None.
        name: Name of the SAE for the warning.
        remedy: How the user can supply the scale.
        stacklevel: Stack level of the warning, counted from the caller.
    """
    unknown = bool(sae.metadata.pop(UNFOLDED, False))
    if input_scale is not None:
        return sae.fold_input_scale(input_scale)
    if unknown:
        warnings.warn(
            f"{name} was trained on states multiplied by a constant that is not in its weights "
            f"(expected_average_only_in). {remedy}; it is sqrt(d_in) over the mean norm of the states. "
            "Without it, activations are computed from unscaled states.",
            UserWarning,
            stacklevel=stacklevel + 1,
        )
    return sae


READER = Reader("SAELens", (_CONFIG, _WEIGHTS), _read, optional=(_SCALER, _OURS))


def write(sae: SAE, path: str | Path) -> Path:
    """Write an SAE in the format of SAELens 6; see `SAE.save_pretrained`."""
    folder = Path(path)
    if not folder.parent.is_dir():
        raise FileNotFoundError(
            f"path {str(path)!r} is in a folder that does not exist; make {str(folder.parent)!r} first."
        )
    if folder.exists() and not (folder.is_dir() and (READER.fits(folder) or not any(folder.iterdir()))):
        raise FileExistsError(f"path {str(path)!r} exists and is not a saved SAE; choose another name.")
    folder.mkdir(exist_ok=True)
    tensors = {name: getattr(sae, name) for name in WEIGHTS if getattr(sae, name) is not None}
    stored = {name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}
    write_bytes(folder / _WEIGHTS, dump_tensors(stored))
    text = json.dumps(_config(sae), indent=1, ensure_ascii=True)
    write_bytes(folder / _CONFIG, (text + "\n").encode("ascii"))
    if sae.maxima is None:
        (folder / _OURS).unlink(missing_ok=True)
    else:
        write_bytes(folder / _OURS, dump_tensors({"maxima": sae.maxima.detach().cpu().contiguous()}))
    return folder


def _config(sae: SAE) -> dict[str, Any]:
    """Return the contents of cfg.json."""
    extras: dict[str, Any] = {"centre": True} if sae.centre else {}
    if sae.history is not None:
        extras["history"] = sae.history.to_dict()
    metadata: dict[str, Any] = {"sae_lens_version": _VERSION, "sae_lens_training_version": None}
    metadata |= sae.metadata | {"model_name": sae.model_name or None}
    # TransformerLens names contain hook_; other names are modules of Hugging Face models.
    metadata |= {"hook_name": sae.site} if "hook_" in sae.site else {"hf_hook_name": sae.site or None}
    if extras:
        metadata["attnwidgets"] = extras
    config: dict[str, Any] = {
        "d_in": sae.d_in,
        "d_sae": sae.d_sae,
        "dtype": str(sae.dtype).removeprefix("torch."),
        "device": "cpu",
        "apply_b_dec_to_input": sae.apply_b_dec_to_input,
        "normalize_activations": sae.normalize_activations,
        "reshape_activations": "hook_z" if sae.site.endswith("hook_z") else "none",
        "metadata": metadata,
        "architecture": sae.architecture,
    }
    if sae.architecture == "topk":
        config |= {"k": sae.k, "rescale_acts_by_decoder_norm": sae.rescale_acts_by_decoder_norm}
    return config
