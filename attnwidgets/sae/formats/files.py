"""Files of SAEs as tensors and JSON. Nothing is unpickled: a foreign file can do no harm."""

from __future__ import annotations

import json
import pickle
import zipfile
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from torch import Tensor

_HALF = (torch.float16, torch.bfloat16)


class SAEFormatError(ValueError):
    """Files that are no SAE in a known format, hold what is not supported, or would have to be unpickled."""


def read_json(path: Path) -> dict[str, Any]:
    """Return an object in a JSON file.

    Raises:
        SAEFormatError: If it is none.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise SAEFormatError(f"{str(path)!r} is damaged: it is not JSON ({error}).") from error
    if not isinstance(found, dict):
        raise SAEFormatError(f"{str(path)!r} is damaged: it holds no JSON object.")
    return found


def read_safetensors(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file.

    Raises:
        SAEFormatError: If it is damaged.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - it is no mapping
    except (SafetensorError, OSError) as error:
        raise SAEFormatError(f"{str(path)!r} is damaged: its tensors cannot be read ({error}).") from error


def read_npz(path: Path) -> dict[str, Tensor]:
    """Return the arrays of an npz file; object arrays, which would be unpickled, are refused.

    Raises:
        SAEFormatError: If it is damaged or holds objects.
    """
    try:
        with np.load(path, allow_pickle=False) as file:
            return {name: torch.from_numpy(np.array(file[name])) for name in file.files}
    except (ValueError, TypeError, OSError, zipfile.BadZipFile) as error:
        raise SAEFormatError(
            f"{str(path)!r} cannot be read as plain arrays ({error}); objects in it are not unpickled."
        ) from error


def read_torch(path: Path) -> dict[str, Tensor]:
    """Return the tensors of a torch file by name; code in it is refused and not run.

    Raises:
        SAEFormatError: If it is damaged, or holds more than tensors.
    """
    try:
        found = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError, OSError, ValueError, KeyError) as error:
        raise SAEFormatError(
            f"{str(path)!r} cannot be read as weights only, and nothing else in it is unpickled, since a "
            f"pickle can hold code ({str(error).splitlines()[0]}). Save its state_dict() again, or use "
            "safetensors."
        ) from error
    if not isinstance(found, dict) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise SAEFormatError(f"{str(path)!r} holds no state_dict: names with tensors.")
    return found


def take(tensors: Mapping[str, Tensor], name: str, path: Path) -> Tensor:
    """Return a tensor by its name.

    Raises:
        SAEFormatError: If it is not there; the message lists what is.
    """
    if name not in tensors:
        raise SAEFormatError(f"{str(path)!r} has no tensor {name!r}; it has {listed(sorted(tensors))}.")
    return tensors[name]


def setting(config: Mapping[str, Any], name: str, path: Path) -> Any:
    """Return a setting by its name.

    Raises:
        SAEFormatError: If it is not there.
    """
    if name not in config:
        raise SAEFormatError(f"{str(path)!r} does not say {name!r}.{suggest(name, config)}")
    return config[name]


def place_of(folder: Path, repository: str) -> str:
    """Return the end of a folder's path: from the repository on that is named so, or its last three names.

    What stands before is the reader's own, and says nothing of an SAE.
    """
    parts = folder.resolve().parts
    named = [number for number, part in enumerate(parts) if repository in part]
    return "/".join(parts[named[-1] :] if named else parts[-3:])


def widened(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return tensors with half precision as float32, in which SAEs compute here."""
    return {name: t.float() if t.dtype in _HALF else t for name, t in tensors.items()}
