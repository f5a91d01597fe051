"""Download of SAEs by hub id; only the files of the requested SAE are fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets.sae.formats.reader import offer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.sae.formats.reader import Reader

_ID = re.compile(r"[\w.-]+/[\w.-]+")


def download(name: str, sae_id: str, revision: str | None, readers: Sequence[Reader]) -> Path:
    """Return the local folder of an SAE in a hub repository.

    Raises:
        FileNotFoundError: If `name` is not a hub id, the hub cannot be reached, or the repository contains no
            such SAE; the message lists the known formats or the SAEs there are.
    """
    known = "; ".join(str(reader) for reader in readers)
    if not _ID.fullmatch(name):
        raise FileNotFoundError(
            f"path {name!r} does not exist and is not a hub id (owner/name). Pass a folder in one of these "
            f"formats: {known}."
        )
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    prefix = f"{sae_id.strip('/')}/" if sae_id else ""
    file_names = sorted({prefix + file for reader in readers for file in (*reader.files, *reader.optional)})
    try:
        files = HfApi().list_repo_files(name, revision=revision)
        if not any(file in files for file in file_names):
            where = f"in its folder {sae_id!r}" if sae_id else "in its top folder"
            remedy = offer(files, readers) or f" The known formats are: {known}."
            raise FileNotFoundError(f"hub repository {name!r} contains no SAE {where}.{remedy}")
        root = snapshot_download(name, revision=revision, allow_patterns=file_names)
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise
        cached = _cached_folder(name, revision, file_names, snapshot_download)
        if cached is None:
            raise FileNotFoundError(
                f"path {name!r} does not exist here and could not be downloaded from the hub ({error}). Pass "
                f"a folder in one of these formats: {known}."
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
