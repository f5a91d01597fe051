"""Proposed marks as a table: a person reads the answers, fills the last column and hands the table back."""

from __future__ import annotations

import csv
import hashlib
import io
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets._tables import Table, spreadsheet_label
from attnwidgets.course.canonical import canonical
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading.read_text import decoded
from attnwidgets.figures.html_tables import cell, table

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator, Mapping

    from attnwidgets.course.grading.grade import Grades, Mark

_COLUMNS = ("submission", "question", "answer", "rests on", "proposed", "of", "digest", "confirmed")
_AS_PROPOSED = ("ok", "yes", "x")
_MOST_CHARACTERS = 2000


class Proposals(Table):
    """The marks that a person has yet to confirm: a row for each, with the answer and the basis of the mark.

    Args:
        grades: The grades of every submission.
    """

    def __init__(self, grades: Mapping[str, Grades]) -> None:
        self._rows = [
            (submission, question, mark)
            for submission, marks in grades.items()
            for question, mark in marks.items()
            if mark.proposed
        ]

    def __len__(self) -> int:
        return len(self._rows)

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        rows = [
            (submission, question, _text(mark), mark.reason, mark.points, mark.of, _digest(mark), "")
            for submission, question, mark in self._rows
        ]
        yield dict(zip(_COLUMNS, zip(*rows, strict=True) if rows else [()] * len(_COLUMNS), strict=True))

    def __repr__(self) -> str:
        return f"{len(self)} proposed marks: .to_csv(path) writes them, to be confirmed in the last column"

    def _repr_html_(self) -> str:
        rows = (
            (
                cell(submission, left=True, limit=60),
                cell(question, left=True),
                cell(_text(mark), left=True, limit=_MOST_CHARACTERS),
                cell(mark.reason, left=True, limit=_MOST_CHARACTERS),
                cell(f"{mark.written} of {mark.of:g}", tint=mark.share),
            )
            for submission, question, mark in self._rows
        )
        return table(_COLUMNS[:5], rows, [repr(self)], left=range(4))


def confirm_from(path: str | os.PathLike[str], grades: Mapping[str, Grades]) -> None:
    """Confirm the marks of a table that `Proposals.to_csv` wrote, where its last column was filled.

    Commas, semicolons and tabs separate columns, as spreadsheets of several countries save them.

    Raises:
        AnswerError: A column is missing, or a row names no submission or question, or points that cannot be.
        OSError: The file cannot be read.

    Warns:
        UserWarning: An answer was changed since the table was written: its row does not count.
    """
    text = decoded(Path(path).read_bytes())
    first = text.partition("\n")[0]
    rows = csv.DictReader(io.StringIO(text), delimiter=max(",;\t", key=first.count))
    missing = {"submission", "question", "digest", "confirmed"} - set(rows.fieldnames or ())
    if missing:
        raise AnswerError(f"{Path(path).name} has no column {', '.join(sorted(missing))}: see .proposals")
    names = {**{spreadsheet_label(name): name for name in grades}, **{name: name for name in grades}}
    for row in rows:
        given = (row["confirmed"] or "").strip()
        if not given:
            continue
        where = f"{Path(path).name}, line {rows.line_num}"
        submission, question = names.get(row["submission"] or ""), row["question"] or ""
        if submission is None or question not in grades[submission]:
            raise AnswerError(f"{where}: there is no {quoted(question)} of {quoted(str(row['submission']))}")
        if row["digest"] != _digest(grades[submission][question]):
            warnings.warn(
                f"{where}: the answer of {submission} to {question} was changed since: read it again",
                stacklevel=3,
            )
            continue
        try:
            points = None if given.casefold() in _AS_PROPOSED else float(given.replace(",", "."))
            grades[submission].confirm(question, points)
        except ValueError as error:
            raise AnswerError(f"{where}: {quoted(given)} is neither points nor 'ok' ({error})") from error


def _text(mark: Mark) -> str:
    return mark.answer if isinstance(mark.answer, str) else canonical(mark.answer)


def _digest(mark: Mark) -> str:
    """Return a hash of an answer, which a spreadsheet does not take for a number."""
    return f"#{hashlib.sha256(canonical(mark.answer).encode()).hexdigest()[:8]}"
