"""The file of answers next to the notebook, located in every front end that runs the notebook."""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._notebook import running_shell
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.sidecar import Kept, is_sidecar, read_sidecar, sidecar_of, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

_NOTEBOOK = ".ipynb"


class Found(NamedTuple):
    """An answer that was kept earlier.

    Attributes:
        record: The record, or None.
        saved: Where it is, for the reader.
        problem: What the reader must know, or "".
    """

    record: dict[str, Any] | None = None
    saved: str = ""
    problem: str = ""


def notebook_path() -> Path | None:
    """Return the path of the running notebook, or None where nobody knows it (Colab, nbconvert, a script)."""
    names = getattr(running_shell(), "user_ns", {})
    told = names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "")
    path = Path(str(told))
    if path.suffix != _NOTEBOOK:
        return None
    # A server may know the notebook by a path of its own; the kernel runs in the notebook's folder.
    return path if path.is_file() else Path(path.name)


def answers_path(name: str = "") -> Path:
    """Return the file in which answers of this notebook are kept; it need not be there.

    Where nobody knows the notebook's name, an autograder may have put its file into the folder: then it is
    the only one that has an answer to the question `name`.
    """
    notebook = notebook_path()
    path = sidecar_of(notebook).absolute()
    if notebook is not None or not name or _has(path, name):
        return path
    others = [other for other, kept in _neighbours(path) if name in kept.records]
    return others[0] if len(others) == 1 else path


def _has(path: Path, name: str) -> bool:
    try:
        return name in read_sidecar(path).records
    except (AnswerError, OSError):
        return True  # whoever reads it says so


def find(name: str, kind: str, subject: str | None) -> Found:
    """Return an earlier answer to a question, from the file of this notebook or of a neighbour.

    Args:
        name: Id of the question.
        kind: Its kind.
        subject: What it is about.
    """
    path = answers_path(name)
    try:
        own = read_sidecar(path)
    except (AnswerError, OSError) as error:
        return Found(problem=f"{path.name} cannot be read: {error}")
    record = own.records.get(name)
    if record is None:
        about = [note for note in own.notes if f"'{name}'" in note]
        return Found(problem=about[0]) if about else _elsewhere(path, name, kind, subject)
    if record["kind"] != kind:
        was = f"{path.name} has an answer of another kind ({record['kind']}) to {name!r}"
        return Found(problem=f"{was}: it is kept aside when you answer.")
    if record["subject"] != subject:
        was = f"The answer to {name!r} in {path.name} is about another model or text"
        return Found(problem=f"{was}, so it does not count here; it is kept aside when you answer.")
    return Found(record, f"saved in {path.name}")


def _elsewhere(path: Path, name: str, kind: str, subject: str | None) -> Found:
    """Look for an answer in a file whose notebook was renamed, or in one where no name can be known."""
    among = [
        (other, record)
        for other, kept in _neighbours(path)
        if (record := kept.records.get(name)) and record["kind"] == kind and record["subject"] == subject
    ]
    if not among:
        return Found()
    others = ", ".join(other.name for other, _ in among)
    if len({str(record["value"]) for _, record in among}) > 1:
        return Found(
            problem=f"{others} have different answers to {name!r}: rename the right one to {path.name}."
        )
    other, record = among[0]
    return Found(
        record,
        f"read from {other.name}",
        f"This notebook seems to have been renamed: {other.name} has this answer. Rename it to {path.name}.",
    )


def _neighbours(path: Path) -> Iterator[tuple[Path, Kept]]:
    """Yield the other files of answers in the folder that belong to no notebook of the folder."""
    is_named = notebook_path() is not None
    for other in sorted(path.parent.glob("*.json")) if path.parent.is_dir() else ():
        if other.name == path.name or not is_sidecar(other):
            continue
        owner = other.with_name(other.name.removesuffix(".answers.json") + _NOTEBOOK)
        if is_named and (other.name == "answers.json" or owner.exists()):
            continue
        try:
            yield other, read_sidecar(other)
        except (AnswerError, OSError):
            continue


def keep(record: dict[str, Any]) -> tuple[str, str]:
    """Write an answer into the file next to the notebook.

    Returns:
        Where it is saved, or "" if it is not; and what the reader must know, or "".
    """
    path = answers_path(record["id"])
    try:
        aside = _set_aside(path, record)
        notes = write_answer(path, record)
    except AnswerError as error:
        return "", str(error)
    except OSError as error:
        reason = error.strerror or str(error)
        return "", reason if "receipt" in reason else f"It could not be saved next to the notebook: {reason}."
    where = f"saved in {path.name} {time.strftime('%H:%M')}"
    return where, " ".join([*aside, *notes])


def _set_aside(path: Path, record: dict[str, Any]) -> list[str]:
    """Copy the file if it has an answer to another question of this id; return what to say of it."""
    try:
        there = read_sidecar(path).records.get(record["id"])
    except (AnswerError, OSError):
        return []  # writing says so
    if there is None or all(there[name] == record[name] for name in ("kind", "subject")):
        return []
    number = 1
    while (aside := path.with_name(f"{path.name}.earlier-{number}")).exists():
        number += 1
    shutil.copyfile(path, aside)
    return [f"The earlier answer, which is about something else, is in {aside.name}."]
