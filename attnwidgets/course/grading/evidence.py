"""Evidence of marks: which answer each rests on, in which file it was read, and when it was given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._tables import Table
from attnwidgets.course.values import canonical
from attnwidgets.figures.html_tables import cell, table, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets.course.grading.grade import Grades

_SHOWN = 500
_WORDS = 60


class Evidence(Table):
    """A row for each mark: the answer, where it was read, and when it was given.

    The columns are submission (of a class), question, answer, points, file, part, answered, saved and reason.
    `file` is the path from the folder, archive or table that was read, and `part` a cell or a row of it.
    `answered` is when the answer was given, as the file of answers has it, and `saved` when the file was last
    written; both are as easily forged as an answer.

    Args:
        grades: The grades by submission; of a single submission under "".
    """

    def __init__(self, grades: Mapping[str, Grades]) -> None:
        self._grades = grades

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        rows = [
            (submission, question, answer, mark.points, *source, mark.reason)
            for submission, grades in self._grades.items()
            for question, mark in grades.items()
            for answer in [None if mark.answer is None else canonical(mark.answer)]
            for source in [grades.sources.get(question, ("", "", "", ""))]
        ]
        names = ("submission", "question", "answer", "points", "file", "part", "answered", "saved", "reason")
        first = 1 if set(self._grades) == {""} else 0
        yield {names[column]: [row[column] for row in rows] for column in range(first, len(names))}

    def __repr__(self) -> str:
        return f"evidence of {sum(map(len, self._grades.values())):,} marks: .to_rows(), .to_csv(path)"

    def _repr_html_(self) -> str:
        rows = self.to_rows()
        names = list(rows[0]) if rows else []
        cells = (
            [cell(_written(value), left=True, limit=_WORDS) for value in row.values()]
            for row in rows[:_SHOWN]
        )
        more = f"and {len(rows) - _SHOWN:,} more: .to_csv(path)" if len(rows) > _SHOWN else ""
        return table([text(name) for name in names], cells, [more], left=range(len(names)))


def _written(value: Any) -> str:
    return "–" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
