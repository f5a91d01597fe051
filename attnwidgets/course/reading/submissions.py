"""Which files make one submission: exports of one notebook, and its file of answers."""

from __future__ import annotations

from collections import defaultdict
from itertools import chain
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, NamedTuple

from attnwidgets.course.sidecar import NAMELESS, is_sidecar, notebook_of

if TYPE_CHECKING:
    from collections.abc import Iterable

_TRUST = (".md", ".txt", ".htm", ".html", ".py", ".ipynb", ".json")
"""From receipts that were pasted, to what the questions themselves wrote when they were answered."""
_TELLING = (".ipynb", ".html", ".htm", ".py", ".txt", ".md", ".json")
"""Whose name a submission has."""


class Submission(NamedTuple):
    """The files of one submission, the most trusted last."""

    name: str
    files: tuple[str, ...]
    notes: tuple[str, ...] = ()


def submissions_of(names: Iterable[str], *, mixed: bool = False) -> list[Submission]:
    """Return the submissions in the files of one or several folders, in the order of their names.

    Files of one folder and one stem belong together: `ps1.ipynb`, `ps1.html`, `ps1.answers.json`. A file of
    answers that has the name of no notebook belongs to the only notebook in its folder. Next to several
    notebooks it is a submission by itself, with a note: it may be of any of them.

    Args:
        names: The paths of the files.
        mixed: Whether files of several students may lie side by side in the outermost folder, so that a file
            of answers there is only of the notebook whose name it has.
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
    found = [
        Submission(
            min(files, key=lambda file: _TELLING.index(_suffix(file))),
            tuple(sorted([*files, *(extra if stem in makers else ())], key=_trust)),
            tuple(notes if stem in makers else ()),
        )
        for stem, files in works.items()
    ]
    unnamed = "no notebook of its folder has its name, so it counts for none: rename it to fit its notebook"
    lonely = (unnamed,) if makers else ()
    return [*found, *(Submission(files[-1], tuple(files), lonely) for files in alone.values())]


def _trust(name: str) -> tuple[int, bool]:
    return _TRUST.index(_suffix(name)), _last(name) != NAMELESS


def _suffix(name: str) -> str:
    return PurePosixPath(name).suffix.lower()


def _last(name: str) -> str:
    return PurePosixPath(name).name


def _is_sidecar(name: str) -> bool:
    return is_sidecar(PurePosixPath(name))
