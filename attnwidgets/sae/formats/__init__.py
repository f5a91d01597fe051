"""Formats of SAEs on disk, one a file."""

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
from attnwidgets.sae.formats.files import SAEFormatError
from attnwidgets.sae.formats.hub import download

if TYPE_CHECKING:
    import torch

    from attnwidgets.sae.formats.reader import Reader
    from attnwidgets.sae.sae import SAE

__all__ = ["READERS", "SAEFormatError", "read"]

READERS: tuple[Reader, ...] = (
    saelens.READER,
    sparsify.READER,
    gemma_scope.READER,
    gemma_scope_2.READER,
    llama_scope.READER,
    dictionary_learning.READER,
)
_SHOWN = 8


def read(
    path: str | Path,
    sae_id: str = "",
    *,
    site: str | None = None,
    input_scale: float | None = None,
    centre: bool = False,
    device: str | torch.device | None = None,
    dtype: torch.dtype | None = None,
    revision: str | None = None,
) -> SAE:
    """Return the SAE in a folder or a hub repository; see `SAE.from_pretrained`."""
    folder = Path(path)
    if not folder.exists():
        folder = download(str(path), sae_id, revision, READERS)
    elif sae_id:
        folder = _below(folder, sae_id)
    if folder.is_file():
        folder = folder.parent
    reader = next((reader for reader in READERS if reader.fits(folder)), None)
    if reader is None:
        raise SAEFormatError(_unknown(folder))
    sae = reader.read(folder)
    sae = saelens.fold(sae, input_scale, repr(str(folder)), "Pass it as input_scale=", stacklevel=3)
    if site is not None:
        sae.site = site
        for name in ("hf_hook_name", "hook_name"):
            sae.metadata.pop(name, None)
    sae.centre = sae.centre or centre
    return sae.to(device=device, dtype=dtype or sae.dtype)


def _below(folder: Path, sae_id: str) -> Path:
    below = folder / sae_id
    if below.exists():
        return below
    raise FileNotFoundError(f"{str(folder)!r} holds no {sae_id!r}.{_inside(folder)}")


def _unknown(folder: Path) -> str:
    found = sorted(item.name + "/" * item.is_dir() for item in folder.iterdir())
    has = ", ".join(found[:_SHOWN]) + (", ..." if len(found) > _SHOWN else "") if found else "nothing"
    known = "; ".join(str(reader) for reader in READERS)
    return (
        f"{str(folder)!r} is no SAE in a known format. Looked for: {known}. It holds {has}.{_inside(folder)}"
    )


def _inside(folder: Path) -> str:
    """Return what SAEs lie deeper, in words."""
    deeper = {
        str(found.parents[len(Path(reader.files[-1]).parts) - 1].relative_to(folder))
        for reader in READERS
        for found in folder.glob(f"**/{reader.files[-1]}")
    }
    inside = sorted(name for name in deeper if any(reader.fits(folder / name) for reader in READERS))
    if not inside:
        return ""
    more = ", ..." if len(inside) > _SHOWN else ""
    return f" SAEs lie in {', '.join(map(repr, inside[:_SHOWN]))}{more}: name one as sae_id."
