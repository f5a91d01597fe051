"""Formats of SAEs on disk, one per file, and the function that opens any of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from attnwidgets.sae.formats import (
    dictionary_learning,
    gemma_scope,
    gemma_scope_2,
    llama_scope,
    saelens,
    sparsify,
)
from attnwidgets.sae.formats.files import Reader, SAEFormatError, download, offer

if TYPE_CHECKING:
    from attnwidgets.sae.sae import SAE

__all__ = ["READERS", "SAEFormatError", "open_sae"]

READERS: tuple[Reader, ...] = (
    saelens.READER,
    sparsify.READER,
    gemma_scope.READER,
    gemma_scope_2.READER,
    llama_scope.READER,
    dictionary_learning.READER,
)
_SHOWN = 8


def open_sae(path: str | Path, sae_id: str, revision: str | None) -> tuple[SAE, Path]:
    """Return the SAE in a folder or a hub repository, as its files define it, and its folder.

    For the arguments and errors see `SAE.from_pretrained`.
    """
    folder = Path(path)
    if not folder.exists():
        folder = download(str(path), sae_id, revision, READERS)
    elif sae_id:
        if not (folder / sae_id).exists():
            raise FileNotFoundError(f"{str(folder)!r} contains no {sae_id!r}.{_offer_below(folder)}")
        folder /= sae_id
    if folder.is_file():
        folder = folder.parent
    reader = next((reader for reader in READERS if reader.fits(folder)), None)
    if reader is None:
        raise SAEFormatError(_unknown(folder))
    return reader.read(folder), folder


def _unknown(folder: Path) -> str:
    """Return the message for a folder in no known format."""
    names = sorted(item.name + "/" * item.is_dir() for item in folder.iterdir())
    shown = ", ".join(names[:_SHOWN]) + (", ..." if len(names) > _SHOWN else "") if names else "nothing"
    known = "; ".join(str(reader) for reader in READERS)
    return (
        f"{str(folder)!r} is not an SAE in a known format. The formats are: {known}. The folder contains "
        f"{shown}.{_offer_below(folder)}"
    )


def _offer_below(folder: Path) -> str:
    return offer((path.relative_to(folder).as_posix() for path in folder.rglob("*")), READERS)
