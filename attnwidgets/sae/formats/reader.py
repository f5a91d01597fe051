"""Reader: how a format of SAEs is recognised and read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from pathlib import Path

    from attnwidgets.sae.sae import SAE

_SHOWN = 8


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
        """Yield the folders, below the first one, that contain an SAE of this format.

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
    """Return a sentence that names the folders containing SAEs, as choices of `sae_id`; "" if there are none.

    Args:
        files: Relative paths of all files.
        readers: The known formats.
    """
    known = set(files)
    folders = sorted({folder for reader in readers for folder in reader.folders(known)})
    if not folders:
        return ""
    more = ", ..." if len(folders) > _SHOWN else ""
    return f" There are SAEs in {', '.join(map(repr, folders[:_SHOWN]))}{more}: name one as sae_id."
