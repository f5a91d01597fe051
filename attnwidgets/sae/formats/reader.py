"""What a format is: the files that tell it, and how they are read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from attnwidgets.sae.sae import SAE


@dataclass(frozen=True)
class Reader:
    """A format of SAEs on disk.

    Args:
        name: As people call it.
        files: Files a folder must hold, by their paths in it.
        read: Returns the SAE of a folder that holds them.
        optional: Further files that are read where they are there.
    """

    name: str
    files: tuple[str, ...]
    read: Callable[[Path], SAE]
    optional: tuple[str, ...] = ()

    def fits(self, folder: Path) -> bool:
        """Return whether a folder holds the files."""
        return all((folder / name).is_file() for name in self.files)

    def __str__(self) -> str:
        return f"{self.name} ({' and '.join(self.files)})"
