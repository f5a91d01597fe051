"""The questions of a notebook, by id: two of them must not answer in each other's place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

from attnwidgets._notebook import running_shell, session
from attnwidgets.course.reading.answers import Answers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.ask.question import Question


class _Place(NamedTuple):
    question: ref[Question]
    cell: str  # its id; "" where none is sent
    number: int  # the number in its brackets, In [3]; 0 outside of a notebook


class NotebookQuestions:
    """Remembers the cell of every question's id."""

    def __init__(self) -> None:
        self._places: dict[tuple[int | str, str], _Place] = {}

    def add(self, question: Question) -> str:
        """Remember a question, in place of the same question of an earlier run.

        Returns:
            What the reader must know, or "": where no cell has an id, another question may be an earlier
            form of this one.

        Raises:
            ValueError: Another question of this id stands in another cell.
        """
        key = session(), question.id
        cell, number = _running_cell()
        before = self._places.get(key)
        earlier = before and before.question()
        note = ""
        if (
            before
            and earlier is not None
            and _is_another(earlier, question)
            and (not cell or cell != before.cell)
        ):
            where = f"cell In [{before.number}]" if before.number else "this program"
            said = f"id={question.id!r} is the question {earlier.prompt!r:.80} of {where}"
            if cell or not number:
                raise ValueError(
                    f"{said}: give each question an id of its own, or its answer would take the other's. "
                    "Nothing was changed."
                )
            note = f"{said}, too: if that is another question, give this one an id of its own."
        self._places[key] = _Place(ref(question), cell, number)
        return note

    def questions(self) -> Iterator[Question]:
        """Yield the latest question of every id of this notebook."""
        for (notebook, _), place in self._places.items():
            question = place.question()
            if notebook == session() and question is not None:
                yield question


QUESTIONS = NotebookQuestions()


def answers() -> Answers:
    """Return the answers to the questions of this notebook, whose cells have run.

    Returns:
        A dict from the id of every answered question to its record: what `aw.course.grade` takes.

    Example:
        >>> question = aw.ask.number("How many layers has the model?", id="layers")
        >>> question.answer = 6
        >>> aw.ask.answers()["layers"]["value"]
        6
    """
    return Answers((one.id, one.record) for one in QUESTIONS.questions() if one.answer is not None)


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
    """Return whether a question that still stands somewhere is not this one."""
    is_open = getattr(earlier, "comm", None) is not None
    return is_open and (earlier.kind, earlier.prompt) != (question.kind, question.prompt)


def _running_cell() -> tuple[str, int]:
    """Return the id of the running cell and its number; "" and 0 where there are none."""
    shell: Any = running_shell()
    parent: dict[str, Any] = (shell.get_parent() if hasattr(shell, "get_parent") else None) or {}
    cell = (parent.get("metadata") or {}).get("cellId") or ""
    return str(cell), int(getattr(shell, "execution_count", 0) or 0)
