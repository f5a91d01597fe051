"""Reading SAE files as JSON and tensors, and the weights that formats share.

Nothing is unpickled: a file from elsewhere can do no harm.
"""

from __future__ import annotations

import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

LINEAR = {
    "W_enc": "encoder.weight",
    "W_dec": "decoder.weight",
    "b_enc": "encoder.bias",
    "b_dec": "decoder.bias",
}
"""Names of the weights in files of SAEs that are made of two nn.Linear."""
_HALF = (torch.float16, torch.bfloat16)


class SAEFormatError(ValueError):
    """The files are not an SAE in a known format, are not supported, or would have to be unpickled."""


def read_json(path: Path) -> dict[str, Any]:
    """Return the object in a JSON file.

    Raises:
        SAEFormatError: If the file contains no JSON object.
    """
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SAEFormatError(f"{str(path)!r} is damaged: it is not JSON ({error}).") from error
    if not isinstance(config, dict):
        raise SAEFormatError(f"{str(path)!r} is damaged: it contains no JSON object.")
    return config


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, half precision widened to float32.

    Raises:
        SAEFormatError: If the file is damaged.
    """
    try:
        return widened(load_file(path))
    except (SafetensorError, OSError) as error:
        raise SAEFormatError(f"{str(path)!r} is damaged: its tensors cannot be read ({error}).") from error


def read_npz(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an npz file as tensors, half precision widened to float32.

    Raises:
        SAEFormatError: If the file is damaged or contains objects, which would have to be unpickled.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return widened({name: torch.from_numpy(np.array(file[name])) for name in file.files})
    except (ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise SAEFormatError(
            f"{str(path)!r} cannot be read as plain arrays ({error}); objects in it are not unpickled."
        ) from error


def read_torch(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a torch file, half precision widened to float32; code in it is not run.

    Raises:
        SAEFormatError: If the file is damaged or contains more than tensors.
    """
    try:
        tensors = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise SAEFormatError(
            f"{str(path)!r} cannot be read as weights only, and nothing else in it is unpickled, because a "
            f"pickle can hold code ({str(error).splitlines()[0]}). Save its state_dict() again, or use "
            "safetensors."
        ) from error
    if not isinstance(tensors, dict) or not all(isinstance(value, Tensor) for value in tensors.values()):
        raise SAEFormatError(f"{str(path)!r} contains no state_dict, a dict of tensors.")
    return widened(tensors)


def take(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """Return a tensor by its name.

    Raises:
        SAEFormatError: If the tensor is missing; the message lists the tensors of the file.
    """
    if name not in tensors:
        raise SAEFormatError(f"{str(path)!r} has no tensor {name!r}; it has {listed(sorted(tensors))}.")
    return tensors[name]


def sae_weights(tensors: Mapping[str, Tensor], path: Path, names: Mapping[str, str]) -> dict[str, Any]:
    """Return the weights of an SAE from tensors with other names.

    Weights of nn.Linear, which end in ".weight", are stored [output, input] and are transposed.

    Args:
        tensors: Tensors by their names in the file.
        path: The file, for messages.
        names: Name of each weight in the file.

    Raises:
        SAEFormatError: If a tensor is missing.
    """
    weights = {name: take(tensors, in_file, path) for name, in_file in names.items()}
    return {name: w.T if names[name].endswith(".weight") else w for name, w in weights.items()}


def jumprelu(tensors: Mapping[str, Tensor], path: Path) -> dict[str, Any]:
    """Return weights and options of a JumpReLU SAE whose files use the SAE's own names, in either case.

    Raises:
        SAEFormatError: If a tensor is missing.
    """
    names = {name.casefold(): name for name in ("W_enc", "W_dec", "b_dec", "b_enc", "threshold")}
    cased = {names.get(name.casefold(), name): tensor for name, tensor in tensors.items()}
    weights = {name: take(cased, name, path) for name in names.values()}
    return weights | {"architecture": "jumprelu", "apply_b_dec_to_input": False}


def setting(config: Mapping[str, Any], name: str, path: Path) -> Any:
    """Return a setting by its name.

    Raises:
        SAEFormatError: If the configuration lacks the setting.
    """
    if name not in config:
        raise SAEFormatError(f"{str(path)!r} does not say {name!r}.{suggest(name, config)}")
    return config[name]


def path_in_repository(folder: Path, repository: str) -> str:
    """Return the path of a folder from the part that contains the repository's name, or its last three parts.

    The parts before depend on the user's machine and tell nothing about the SAE.
    """
    parts = folder.resolve().parts
    starts = [index for index, part in enumerate(parts) if repository in part]
    return "/".join(parts[starts[-1] :] if starts else parts[-3:])


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with half precision widened to float32, in which SAEs compute."""
    return {name: t.float() if t.dtype in _HALF else t for name, t in tensors.items()}
