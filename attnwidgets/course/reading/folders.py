"""Where files lie: a folder or a zip archive, read alike, and never more than a class hands in."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path, PurePosixPath
from typing import Protocol

from attnwidgets.course.errors import AnswerError

SUFFIXES = frozenset({".ipynb", ".html", ".htm", ".json", ".py", ".txt", ".md", ".csv", ".zip"})
"""Kinds of files that may hold answers."""
_LARGEST = 200_000_000
"""Bytes of one file: a notebook with many pictures, and not what a hostile archive unpacks to."""


class Files(Protocol):
    """Files by their path relative to a root, with "/" between folders."""

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""


class Folder:
    """The files of a folder and of the folders in it, without hidden ones."""

    def __init__(self, path: Path, *, deep: bool = True) -> None:
        self._path, self._deep = path, deep

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""
        found = self._path.rglob("*") if self._deep else self._path.glob("*")
        names = [path.relative_to(self._path).as_posix() for path in found if path.is_file()]
        return sorted(filter(_may_hold, names))

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        path = self._path / name
        if path.stat().st_size > _LARGEST:
            raise AnswerError(f"it has {path.stat().st_size:,} bytes, more than {_LARGEST:,}")
        return path.read_bytes()


class Zip:
    """The files in an archive; nothing is unpacked to the disk."""

    def __init__(self, data: bytes) -> None:
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as error:
            raise AnswerError("it is not a zip archive, or only a part of one") from error

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""
        inside = (info.filename for info in self._archive.infolist() if not info.is_dir())
        return sorted(filter(_may_hold, inside))

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""
        try:
            with self._archive.open(name) as file:
                data = file.read(_LARGEST + 1)
        except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, ValueError) as error:
            raise AnswerError(f"it cannot be unpacked ({error})") from error
        if len(data) > _LARGEST:
            raise AnswerError(f"it unpacks to more than {_LARGEST:,} bytes")
        return data


def _may_hold(name: str) -> bool:
    path = PurePosixPath(name)
    hidden = any(part.startswith((".", "__MACOSX")) for part in path.parts)
    return not hidden and path.suffix.lower() in SUFFIXES
