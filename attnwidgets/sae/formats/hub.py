"""SAEs by hub id: only the files of the one that was asked for are fetched."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from attnwidgets.sae.formats.reader import Reader

_ID = re.compile(r"[\w.-]+/[\w.-]+")
_SHOWN = 8


def download(name: str, sae_id: str, revision: str | None, readers: Sequence[Reader]) -> Path:
    """Return the local folder of an SAE in a hub repository.

    Raises:
        FileNotFoundError: If it is no hub id, the hub cannot be reached, or it holds no such SAE; the message
            says what was looked for.
    """
    known = "; ".join(str(reader) for reader in readers)
    if not _ID.fullmatch(name):
        raise FileNotFoundError(
            f"path {name!r} does not exist, and is no hub id (owner/name). Looked for a folder in one of "
            f"these formats: {known}."
        )
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, OfflineModeIsEnabled

    prefix = f"{sae_id.strip('/')}/" if sae_id else ""
    wanted = sorted({prefix + file for reader in readers for file in (*reader.files, *reader.optional)})
    try:
        there = HfApi().list_repo_files(name, revision=revision)
        if not any(file in there for file in wanted):
            raise FileNotFoundError(_not_there(name, sae_id, there, readers))
        root = snapshot_download(name, revision=revision, allow_patterns=wanted)
    except (OfflineModeIsEnabled, LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        if isinstance(error, FileNotFoundError) and not isinstance(error, LocalEntryNotFoundError):
            raise
        cached = _cached(name, revision, wanted, snapshot_download)
        if cached is None:
            raise FileNotFoundError(
                f"path {name!r} does not exist here, and could not be had from the hub ({error}). Pass a "
                f"folder in one of these formats: {known}."
            ) from error
        root = cached
    return Path(root) / sae_id


def _cached(name: str, revision: str | None, wanted: list[str], fetch: Any) -> str | None:
    """Return the folder of what was downloaded before, where the hub cannot be reached."""
    try:
        root = str(fetch(name, revision=revision, allow_patterns=wanted, local_files_only=True))
    except (OSError, ValueError):
        return None
    return root if any((Path(root) / file).is_file() for file in wanted) else None


def _not_there(name: str, sae_id: str, there: Iterable[str], readers: Sequence[Reader]) -> str:
    """Return the message of a repository that holds no SAE at this place."""
    files = set(there)
    folders = {
        file[: -len(reader.files[0])].rstrip("/")
        for reader in readers
        for file in files
        if f"/{file}".endswith(f"/{reader.files[0]}")
        and all(file[: -len(reader.files[0])] + other in files for other in reader.files)
    }
    found = sorted(folder for folder in folders if folder)
    where = f"in its folder {sae_id!r}" if sae_id else "in its first folder"
    offered = (
        f" SAEs lie in {', '.join(map(repr, found[:_SHOWN]))}{', ...' if len(found) > _SHOWN else ''}: "
        "name one as sae_id."
        if found
        else f" Looked for {'; '.join(str(reader) for reader in readers)}."
    )
    return f"hub repository {name!r} holds no SAE {where}.{offered}"
