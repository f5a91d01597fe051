"""The files of a folder or a zip archive, and the submissions that they make.

`Folder` and `Zip` list and read files within a `Budget` of bytes, so that a hostile archive cannot exhaust
the memory. `submissions_of` groups their names into submissions by folder and stem.
"""

from __future__ import annotations

import io
import os
import time
import zipfile
from collections import Counter, defaultdict
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, NamedTuple, Protocol

from attnwidgets.course.errors import AnswerError
from attnwidgets.course.sidecar import NAMELESS, is_sidecar, notebook_of

if TYPE_CHECKING:
    from collections.abc import Iterable

SUFFIXES = frozenset({".ipynb", ".html", ".htm", ".json", ".py", ".txt", ".md", ".csv", ".zip"})
"""Kinds of files that may hold answers."""

_LARGEST = 100_000_000
"""Bytes of a submission: notebooks with many pictures, and not the contents of a hostile archive."""

_FREE = 20_000_000
"""Bytes of a submission that do not count against those of the class."""

_SHARED = 1_000_000_000
"""Bytes of all submissions beyond `_FREE` each."""

_MOST_FILES = 10_000
"""Files of an archive."""

_TRUST = (".md", ".txt", ".htm", ".html", ".py", ".ipynb", ".json")
"""Suffixes in the order of trust: pasted receipts first, the file that questions write last."""

_TELLING = (".ipynb", ".html", ".htm", ".py", ".txt", ".md", ".json")
"""Suffixes in the order in which a file gives a submission its name."""


class Budget:
    """Bytes that a class may have, unpacked; a large submission never uses up those of the small."""

    def __init__(self) -> None:
        self._shared, self._used = _SHARED, 0

    def begin(self) -> None:
        """Begin with the next submission."""
        self._used = 0

    def take(self, size: int) -> None:
        """Count a file.

        Raises:
            AnswerError: It is too large. Smaller files of the submission can still be read.
        """
        total = self._used + size
        if total > _LARGEST:
            raise AnswerError(f"with it, the submission has {total:,} bytes, more than {_LARGEST:,}")
        beyond = max(total, _FREE) - max(self._used, _FREE)
        if beyond > self._shared:
            raise AnswerError("other large files have used up the bytes of the class: read it by itself")
        self._used, self._shared = total, self._shared - beyond


class Files(Protocol):
    """Files by their path relative to a root, with "/" between folders.

    Attributes:
        root: The path of the root for the reader, empty or with "/" at its end.
        budget: The bytes that may be read.
        skipped: Why a path cannot be read, where `names` leaves it out.
    """

    root: str
    budget: Budget
    skipped: dict[str, str]

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""

    def read(self, name: str) -> bytes:
        """Return a file's bytes."""

    def saved(self, name: str) -> str:
        """Return when a file was last written, or ""."""


class Folder:
    """The files of a folder and of the folders in it, without hidden ones; links are not followed."""

    root = ""

    def __init__(self, path: Path, *, deep: bool = True) -> None:
        self._path, self._deep = path, deep
        self._paths: dict[str, Path] = {}
        self.budget = Budget()
        self.skipped: dict[str, str] = {}

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""
        for folder, inner, files in os.walk(self._path, onerror=self._unreadable):
            current = Path(folder)
            if current == self._path:
                self.skipped |= {_shown(name): _LINK for name in inner if (current / name).is_symlink()}
            inner[:] = [name for name in inner if self._deep and not _is_hidden(name)]
            for path in (current / name for name in files if _may_hold(name)):
                if path.is_symlink() or path.is_file():
                    self._add(path)
        return sorted(self._paths)

    def _unreadable(self, error: OSError) -> None:
        self.skipped[_shown(os.path.relpath(error.filename, self._path))] = error.strerror or str(error)

    def _add(self, path: Path) -> None:
        name = _shown(path.relative_to(self._path).as_posix())
        if name in self._paths or name in self.skipped:  # a second name that is not UTF-8
            self._paths.pop(name, None)
            self.skipped[name] = _TWICE
        else:
            self._paths[name] = path

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            AnswerError: It is a link, or too large.
        """
        path = self._paths.get(name, self._path / name)
        if path.is_symlink():
            raise AnswerError(_LINK)
        self.budget.take(path.stat().st_size)
        return path.read_bytes()

    def saved(self, name: str) -> str:
        """Return when a file was last written, in UTC."""
        written = self._paths.get(name, self._path / name).stat().st_mtime
        return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(written))


class Zip:
    """The files in an archive; nothing is unpacked to the disk.

    Args:
        data: The archive.
        root: Its path for the reader, with "/" at its end.
        budget: The bytes that may be unpacked.

    Raises:
        AnswerError: It is damaged.
    """

    def __init__(self, data: bytes, root: str, budget: Budget) -> None:
        self.root, self.budget = root, budget
        try:
            self._archive = zipfile.ZipFile(io.BytesIO(data))
        except zipfile.BadZipFile as error:
            raise AnswerError("it is not a zip archive, or only a part of one") from error
        except Exception as error:
            raise _damaged(error) from error
        inside = [info for info in self._archive.infolist() if not info.is_dir()]
        times = Counter(info.filename for info in inside)
        self._infos = {info.filename: info for info in inside if times[info.filename] == 1}
        self.skipped = {name: _TWICE for name, count in times.items() if count > 1}
        if len(times) > _MOST_FILES:
            raise AnswerError(f"it holds {len(times):,} files: keep the notebook and its answers")

    def names(self) -> list[str]:
        """Return the paths of the files that may hold answers, sorted."""
        return sorted(filter(_may_hold, self._infos))

    def read(self, name: str) -> bytes:
        """Return a file's bytes.

        Raises:
            AnswerError: It is damaged, too large, or packed by a method whose memory has no bound.
        """
        info = self._infos[name]
        self.budget.take(info.file_size)
        if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
            raise AnswerError("it is not packed as zip archives commonly are (deflate): pack it again")
        try:
            with self._archive.open(info) as file:
                return file.read(info.file_size)  # no more, whatever the archive unpacks to
        except Exception as error:
            raise _damaged(error) from error

    def saved(self, name: str) -> str:
        """Return when a file was last written, in the time of the machine that made the archive."""
        year, month, day, hour, minute, _ = self._infos[name].date_time
        return f"{year:04}-{month:02}-{day:02} {hour:02}:{minute:02}"


_LINK = "it is a link, which is not followed: hand in the file itself"
_TWICE = "two files have this name, and neither counts"


def _damaged(error: Exception) -> AnswerError:
    return AnswerError(f"damaged archive: {error or type(error).__name__}")


def _shown(name: str) -> str:
    """Return a path as text that can be written; bytes that are not UTF-8 as their numbers."""
    return os.fsencode(name).decode("utf-8", "backslashreplace")


def _is_hidden(name: str) -> bool:
    return name.startswith((".", "__MACOSX"))


def _may_hold(name: str) -> bool:
    path = PurePosixPath(name)
    return not any(map(_is_hidden, path.parts)) and path.suffix.lower() in SUFFIXES


class Submission(NamedTuple):
    """The files of a submission, the most trusted last."""

    name: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def submissions_of(names: Iterable[str], *, mixed: bool = False) -> list[Submission]:
    """Return the submissions in the files of one or several folders, in the order of their names.

    Files with the same folder and stem belong together: `ps1.ipynb`, `ps1.html`, `ps1.answers.json`. A file
    of answers that has the name of no notebook belongs to the only notebook in its folder. Next to several
    notebooks it is a submission by itself, with a note: it may be of any of them.

    Args:
        names: The paths of the files.
        mixed: Whether files of several students may lie side by side in the outermost folder, so that a file
            of answers in it belongs only to the notebook of its name.
    """
    folders: dict[PurePosixPath, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name in names:
        path = PurePosixPath(name)
        folders[path.parent][_stem(path)].append(name)
    outermost = PurePosixPath()
    each = [_of_folder(stems, mixed=mixed and folder == outermost) for folder, stems in folders.items()]
    return sorted(chain.from_iterable(each), key=lambda submission: submission.name)


def _stem(path: PurePosixPath) -> str:
    return notebook_of(path) if is_sidecar(path) else path.stem


def _of_folder(stems: dict[str, list[str]], *, mixed: bool) -> list[Submission]:
    works = {stem: files for stem, files in stems.items() if any(not _is_sidecar(file) for file in files)}
    alone = {stem: sorted(files) for stem, files in stems.items() if stem not in works}
    makers = [
        stem for stem, files in works.items() if any(_suffix(file) in (".ipynb", ".py") for file in files)
    ]
    extra: list[str] = []
    notes: list[str] = []
    if len(makers) == 1 and not mixed:
        extra += alone.pop(NAMELESS, [])
        if len(alone) == 1 and not any(map(_is_sidecar, works[makers[0]])):
            ((_, files),) = alone.items()
            extra, alone = [*extra, *files], {}
            notes.append(
                f"{_last(files[-1])} is read, too: no notebook here has its name, so this one was renamed"
            )
    result = [
        Submission(
            min(files, key=lambda file: _TELLING.index(_suffix(file))),
            tuple(sorted([*files, *(extra if stem in makers else ())], key=_trust)),
            tuple(notes if stem in makers else ()),
        )
        for stem, files in works.items()
    ]
    unnamed = "no notebook of its folder has its name, so it counts for none: rename it to fit its notebook"
    lonely = (unnamed,) if makers else ()
    return [*result, *(Submission(files[-1], tuple(files), lonely) for files in alone.values())]


def _trust(name: str) -> tuple[int, bool]:
    return _TRUST.index(_suffix(name)), _last(name) != NAMELESS


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _last(name: str) -> str:
    return PurePosixPath(name).name


def _is_sidecar(name: str) -> bool:
    return is_sidecar(PurePosixPath(name))
