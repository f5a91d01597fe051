"""Reading SAE files: how a format is recognised, JSON and tensors, and the download by hub id.

Nothing is unpickled: a file from elsewhere can do no harm.
"""

from __future__ import annotations

import json
import pickle
import re
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from attnwidgets._errors import suggest
from attnwidgets._selecting import listed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from attnwidgets.sae.sae import SAE

LINEAR = {
    "W_enc": "encoder.weight",
    "W_dec": "decoder.weight",
    "b_enc": "encoder.bias",
    "b_dec": "decoder.bias",
}
"""Names of the weights in files of SAEs that are made of two nn.Linear."""

_HALF = (torch.float16, torch.bfloat16)

_ID = re.compile(r"[\w.-]+/[\w.-]+")

_SHOWN = 8


class SAEFormatError(ValueError):
    """The files are not an SAE in a format that is read, are not supported, or would have to be unpickled."""


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
    """Return weights and options of a JumpReLU SAE whose files use the names of `aw.SAE`, in either case.

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


def download(name: str, sae_id: str, revision: str | None, readers: Sequence[Reader]) -> Path:
    """Return the local folder of an SAE in a hub repository.

    Raises:
        FileNotFoundError: If `name` is not a hub id, the hub cannot be reached, or the repository contains no
            such SAE; the message lists the formats or the SAEs in the repository.
    """
    formats = "; ".join(str(reader) for reader in readers)
    if not _ID.fullmatch(name):
        raise FileNotFoundError(
            f"path {name!r} does not exist and is not a hub id (owner/name). Pass a folder in one of these "
            f"formats: {formats}."
        )
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    prefix = f"{sae_id.strip('/')}/" if sae_id else ""
    file_names = sorted({prefix + file for reader in readers for file in (*reader.files, *reader.optional)})
    try:
        files = HfApi().list_repo_files(name, revision=revision)
        if not any(file in files for file in file_names):
            where = f"in its folder {sae_id!r}" if sae_id else "in its top folder"
            remedy = offer(files, readers) or f" The known formats are: {formats}."
            raise FileNotFoundError(f"hub repository {name!r} contains no SAE {where}.{remedy}")
        root = snapshot_download(name, revision=revision, allow_patterns=file_names)
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise
        cached = _cached_folder(name, revision, file_names, snapshot_download)
        if cached is None:
            raise FileNotFoundError(
                f"path {name!r} does not exist here and could not be downloaded from the hub ({error}). Pass "
                f"a folder in one of these formats: {formats}."
            ) from error
        root = cached
    return Path(root) / sae_id


def _cached_folder(name: str, revision: str | None, file_names: list[str], fetch: Any) -> str | None:
    """Return the folder of an earlier download, for when the hub cannot be reached."""
    try:
        root = str(fetch(name, revision=revision, allow_patterns=file_names, local_files_only=True))
    except (OSError, ValueError):
        return None
    return root if any((Path(root) / file).is_file() for file in file_names) else None


@dataclass(frozen=True)
class Reader:
    """A format of SAEs on disk.

    Args:
        name: Common name of the format.
        files: Files that a folder must contain, by their relative paths.
        read: Returns the SAE of a folder that contains them.
        optional: Further files, read if they exist.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], SAE]
    optional: tuple[str, ...] = ()

    def fits(self, folder: Path) -> bool:
        """Return whether a folder contains the files."""
        return all((folder / name).is_file() for name in self.files)

    def folders(self, files: set[str]) -> Iterable[str]:
        """Yield the folders, below the top folder, that contain an SAE of this format.

        Args:
            files: Paths of all files.
        """
        for file in files:
            prefix = file.removesuffix(self.files[0])
            if (
                prefix != file
                and prefix.endswith("/")
                and all(prefix + other in files for other in self.files)
            ):
                yield prefix.rstrip("/")

    def __str__(self) -> str:
        return f"{self.name} ({' and '.join(self.files)})"


def offer(files: Iterable[str], readers: Sequence[Reader]) -> str:
    """Return a sentence that names the folders containing SAEs, as choices of `sae_id`; "" without any.

    Args:
        files: Relative paths of all files.
        readers: The formats.
    """
    paths = set(files)
    folders = sorted({folder for reader in readers for folder in reader.folders(paths)})
    if not folders:
        return ""
    more = ", ..." if len(folders) > _SHOWN else ""
    return f" There are SAEs in {', '.join(map(repr, folders[:_SHOWN]))}{more}: name one as sae_id."
