"""The answers of a notebook: its questions by id, and the file next to it that stores them.

`find` reads an earlier answer when a question's cell runs, `keep` writes a new answer. Where the notebook's
name is unknown or was changed, answers are looked up in the other files of the folder (`_neighbours`).
`NotebookQuestions` remembers the cell of each question, so that two questions cannot share an id.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from attnwidgets._notebook import running_shell, session
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading.answers import Answers
from attnwidgets.course.sidecar import Contents, is_sidecar, read_sidecar, sidecar_of, write_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.ask.question import Question

_NOTEBOOK = ".ipynb"


class EarlierAnswer(NamedTuple):
    """An answer that was stored before the question's cell ran.

    Attributes:
        record: The record, or None.
        saved: The file that stores it, in words for the reader; "" without a record.
        problem: A message to the reader, or "".
    """

    record: dict[str, Any] | None = None
    saved: str = ""
    problem: str = ""


def notebook_path() -> Path | None:
    """Return the path of the running notebook, or None where it is unknown (Colab, nbconvert, a script)."""
    names = getattr(running_shell(), "user_ns", {})
    path = Path(str(names.get("__vsc_ipynb_file__") or os.environ.get("JPY_SESSION_NAME", "")))
    if path.suffix != _NOTEBOOK:
        return None
    # The path may be relative to the server's folder; the kernel runs in the notebook's folder.
    return path if path.is_file() else Path(path.name)


def answers_path(name: str = "") -> Path:
    """Return the path of the file of this notebook's answers, which may not exist.

    Where the notebook's name is unknown, an autograder may have put the file into the folder: it is then the
    only file with an answer to the question `name`.
    """
    notebook = notebook_path()
    path = sidecar_of(notebook).absolute()
    if notebook is not None or not name or _has(path, name):
        return path
    others = [other for other, stored in _neighbours(path) if name in stored.records]
    return others[0] if len(others) == 1 else path


def _has(path: Path, name: str) -> bool:
    try:
        return name in read_sidecar(path).records
    except (AnswerError, OSError):
        return True  # `find` and `keep` report the error


def find(name: str, kind: str, subject: str | None) -> EarlierAnswer:
    """Return an earlier answer to a question, from the file of this notebook or of a neighbour.

    Args:
        name: Id of the question.
        kind: Its kind.
        subject: Hash of the model and the text that it is about.
    """
    path = answers_path(name)
    try:
        stored = read_sidecar(path)
    except (AnswerError, OSError) as error:
        return EarlierAnswer(problem=f"{path.name} cannot be read: {error}")
    record = stored.records.get(name)
    if record is None:
        about = [note for note in stored.notes if f"'{name}'" in note]
        return EarlierAnswer(problem=about[0]) if about else _elsewhere(path, name, kind, subject)
    if record["kind"] != kind:
        was = f"{path.name} has an answer of another kind ({record['kind']}) to {name!r}"
        return EarlierAnswer(problem=f"{was}: it is kept aside when you answer.")
    if record["subject"] != subject:
        was = f"The answer to {name!r} in {path.name} is about another model or text"
        return EarlierAnswer(problem=f"{was}, so it does not count here; it is kept aside when you answer.")
    return EarlierAnswer(record, f"saved in {path.name}")


def _elsewhere(path: Path, name: str, kind: str, subject: str | None) -> EarlierAnswer:
    """Return an answer from the file of a notebook that was renamed, or of any if the name is unknown."""
    among = [
        (other, record)
        for other, stored in _neighbours(path)
        if (record := stored.records.get(name)) and record["kind"] == kind and record["subject"] == subject
    ]
    if not among:
        return EarlierAnswer()
    others = ", ".join(other.name for other, _ in among)
    if len({str(record["value"]) for _, record in among}) > 1:
        return EarlierAnswer(
            problem=f"{others} have different answers to {name!r}: rename the right one to {path.name}."
        )
    other, record = among[0]
    return EarlierAnswer(
        record,
        f"read from {other.name}",
        f"This notebook seems to have been renamed: {other.name} has this answer. Rename it to {path.name}.",
    )


def _neighbours(path: Path) -> Iterator[tuple[Path, Contents]]:
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
        Words on where it was saved, "" if it was not; and a message to the reader, or "".
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
    """Copy the file if it has an answer to another question of this id; return a note on the copy."""
    try:
        earlier = read_sidecar(path).records.get(record["id"])
    except (AnswerError, OSError):
        return []  # `write_answer` raises the error again
    if earlier is None or all(earlier[name] == record[name] for name in ("kind", "subject")):
        return []
    number = 1
    while (aside := path.with_name(f"{path.name}.earlier-{number}")).exists():
        number += 1
    shutil.copyfile(path, aside)
    return [f"The earlier answer, which is about something else, is in {aside.name}."]


class _Registered(NamedTuple):
    question: ref[Question]
    cell: str  # id of its cell; "" where the front end sends none
    number: int  # number of its cell, as in In [3]; 0 outside of a notebook


class NotebookQuestions:
    """Remembers the cell of every question's id."""

    def __init__(self) -> None:
        self._places: dict[tuple[int | str, str], _Registered] = {}

    def add(self, question: Question) -> str:
        """Register a question; it replaces the same question of an earlier run.

        Returns:
            A message to the reader, or "". Where cells have no ids, another question of this id may be an
            earlier form of this question, which only a message can tell.

        Raises:
            ValueError: Another question of this id stands in another cell.
        """
        key = session(), question.id
        cell, number = _running_cell()
        registered = self._places.get(key)
        earlier = registered and registered.question()
        note = ""
        if (
            registered
            and earlier is not None
            and _is_another(earlier, question)
            and (not cell or cell != registered.cell)
        ):
            where = f"cell In [{registered.number}]" if registered.number else "this program"
            clash = f"id={question.id!r} is the question {earlier.prompt!r:.80} of {where}"
            if cell or not number:
                raise ValueError(
                    f"{clash}: give each question an id of its own, or its answer would take the other's. "
                    "Nothing was changed."
                )
            note = f"{clash}, too: if that is another question, give this one an id of its own."
        self._places[key] = _Registered(ref(question), cell, number)
        return note

    def questions(self) -> Iterator[Question]:
        """Yield the latest question of every id of this notebook."""
        for (notebook, _), registered in self._places.items():
            question = registered.question()
            if notebook == session() and question is not None:
                yield question


QUESTIONS = NotebookQuestions()


def answers() -> Answers:
    """Return the answers to the questions of this notebook, whose cells have run.

    Returns:
        A dict from the id of every answered question to its record, which `aw.course.grade` takes.

    Example:
        >>> question = aw.ask.number("How many layers has the model?", id="layers")
        >>> question.answer = 6
        >>> aw.ask.answers()["layers"]["value"]
        6
    """
    return Answers(
        (question.id, question.record) for question in QUESTIONS.questions() if question.answer is not None
    )


def summary() -> str:
    """Return how many questions of this notebook are answered: "1 of 2 answered; not yet: n_heads".

    Example:
        >>> layers = aw.ask.number("How many layers has the model?", id="n_layers")
        >>> heads = aw.ask.number("How many heads has a layer?", id="n_heads")
        >>> layers.answer = 6
        >>> "n_heads" in aw.ask.summary()
        True
    """
    questions = list(QUESTIONS.questions())
    left = [question.id for question in questions if question.answer is None]
    rest = f"; not yet: {', '.join(left)}" if left else ""
    return f"{len(questions) - len(left)} of {len(questions)} answered{rest}"


def _is_another(earlier: Question, question: Question) -> bool:
    """Return whether a question that is still displayed differs from a question of the same id."""
    is_open = getattr(earlier, "comm", None) is not None
    return is_open and (earlier.kind, earlier.prompt) != (question.kind, question.prompt)


def _running_cell() -> tuple[str, int]:
    """Return the id of the running cell and its number; "" and 0 outside of a notebook."""
    shell: Any = running_shell()
    parent: dict[str, Any] = (shell.get_parent() if hasattr(shell, "get_parent") else None) or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    return str(cell), int(getattr(shell, "execution_count", 0) or 0)
