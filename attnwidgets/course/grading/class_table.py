"""Grade a class: a row a student, a summary of every question, and proposed marks as a table."""

from __future__ import annotations

import csv
import hashlib
import io
import math
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets._errors import quoted, suggest
from attnwidgets._tables import Table, spreadsheet_label
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.grading.evidence import Evidence
from attnwidgets.course.grading.grade import Grades, checked_key, grade, shown
from attnwidgets.course.reading.answers import Answers, decoded
from attnwidgets.course.reading.read_answers import read_answers
from attnwidgets.course.values import canonical
from attnwidgets.figures.html_tables import LINE, cell, table, text

if TYPE_CHECKING:
    import os

    from numpy.typing import NDArray

    from attnwidgets.course.grading.grade import Mark
    from attnwidgets.course.grading.rules import Rule

_FEW = 3
"""A correlation of fewer students than this says nothing."""

_COLUMNS = ("submission", "question", "answer", "rests on", "proposed", "of", "digest", "confirmed")
_AS_PROPOSED = ("ok", "yes", "x")
_MOST_CHARACTERS = 2000


class Item(NamedTuple):
    """Statistics of a question over a class."""

    right: float
    """The mean share, from 0 to 1: how easy it was."""
    discrimination: float
    """Correlation of its points with those of all other questions, from -1 to 1 (corrected item-total
    correlation); NaN for fewer than three students, or if either is the same for all."""
    wrong: Any
    """The commonest answer whose share is below 1, other than those with a proposed mark; or None."""
    times: int
    """How many students gave it."""
    unanswered: int
    """How many have no answer that counts."""


class ClassGrades(Mapping[str, Grades], Table):
    """The grades of a class, by submission, with the statistics of each question in `.statistics`.

    Args:
        grades: The grades of every submission, by one key.
    """

    def __init__(self, grades: Mapping[str, Grades]) -> None:
        self._grades = dict(grades)
        self.questions = tuple(next(iter(self._grades.values()), {}))

    def __getitem__(self, submission: str) -> Grades:
        if submission not in self._grades:
            raise KeyError(f"no submission {submission!r}.{suggest(submission, self._grades)}")
        return self._grades[submission]

    def __iter__(self) -> Iterator[str]:
        return iter(self._grades)

    def __len__(self) -> int:
        return len(self._grades)

    @property
    def points(self) -> NDArray[np.float64]:
        """Points [submission, question]."""
        rows = [[grades[name].points for name in self.questions] for grades in self._grades.values()]
        return np.array(rows, dtype=float).reshape(len(self._grades), len(self.questions))

    @property
    def proposals(self) -> Proposals:
        """The proposed marks as a table to read, to confirm and to read back: a row for each."""
        return Proposals(self._grades)

    def confirm(self, submission: str, question: str, points: float | None = None) -> None:
        """Decide on a proposed mark, after reading the answer; see `Grades.confirm`.

        Args:
            submission: The submission.
            question: Id of the question.
            points: Points to give instead of the proposed ones; None: as proposed.

        Raises:
            KeyError: The submission or question is unknown.
            AnswerError: The points are out of range, or are missing where a person must give them.
        """
        self[submission].confirm(question, points)

    @property
    def evidence(self) -> Evidence:
        """Where each answer was read and when it was given: a table with a row for each mark."""
        return Evidence(self._grades)

    @property
    def statistics(self) -> dict[str, Item]:
        """Statistics of each question over the class, by its id."""
        points = self.points
        return {name: self._item(name, points, column) for column, name in enumerate(self.questions)}

    def _item(self, name: str, points: NDArray[np.float64], column: int) -> Item:
        marks = [grades[name] for grades in self._grades.values()]
        decided = [mark for mark in marks if mark.answer is not None and not mark.proposed]
        wrong = Counter(canonical(mark.answer) for mark in decided if mark.share < 1)
        commonest, times = min(wrong.most_common(), key=lambda pair: (-pair[1], pair[0]), default=("", 0))
        answer = next(
            (mark.answer for mark in decided if times and canonical(mark.answer) == commonest), None
        )
        return Item(
            float(np.mean([mark.share for mark in marks])) if marks else math.nan,
            _correlation(points[:, column], np.delete(points, column, axis=1).sum(axis=1)),
            answer,
            times,
            sum(mark.answer is None for mark in marks),
        )

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        grades = list(self._grades.values())
        yield {
            "submission": list(self._grades),
            **{name: [item[name].points for item in grades] for name in self.questions},
            "points": [entry.points for entry in grades],
            "of": [entry.of for entry in grades],
            "proposed": [entry.proposed for entry in grades],
            "reasons": [_reasons(entry) for entry in grades],
        }

    def __repr__(self) -> str:
        if not self._grades:
            return "no submissions"
        items = ", ".join(f"{name} {item.right:.0%}" for name, item in self.statistics.items())
        mean = float(self.points.sum(axis=1).mean())
        of = next(iter(self._grades.values())).of
        open_marks = len(self.proposals)
        note = f"; {open_marks} marks are only proposed: .proposals" if open_marks else ""
        return f"{len(self)} submissions, on average {mean:.2f} of {of:g} points; right: {items}{note}"

    def _repr_html_(self) -> str:
        rows: list[list[str]] = []
        for (name, grades), short in zip(self._grades.items(), _distinct(list(self._grades)), strict=True):
            cells = [
                cell(
                    mark.written.replace(" (proposed)", " ?"),
                    tint=mark.share,
                    title=mark.reason or canonical(mark.answer),
                )
                for mark in grades.values()
            ]
            open_points = f" ({grades.proposed:g} ?)" if grades.proposed else ""
            total = cell(f"{shown(grades.points)} of {grades.of:g}{open_points}")
            rows.append([cell(short, header=True, title=name, limit=60), *cells, total])
        statistics = list(self.statistics.values())
        for number, (name, line) in enumerate(_LINES.items()):
            style = LINE if number == 0 else ""
            cells = [cell(line(item), style=style, limit=30) for item in statistics]
            rows.append([cell(name, header=True, style=style), *cells, cell("", style=style)])
        notes = [note for grades in self._grades.values() for note in grades.notes]
        if any(grades.proposed for grades in self._grades.values()):
            notes.insert(0, "?: only proposed, until you confirm it. .proposals lists these answers.")
        return table([text(name) for name in ("submission", *self.questions, "points")], rows, notes)


def _distinct(names: list[str]) -> list[str]:
    """Return paths without the folders at their beginning, and the file's name, that all of them share."""
    paths = [name.split("/") for name in names]
    while len(paths) > 1 and all(len(path) > 1 and path[0] == paths[0][0] for path in paths):
        paths = [path[1:] for path in paths]
    while len(paths) > 1 and all(len(path) > 1 and path[-1] == paths[0][-1] for path in paths):
        paths = [path[:-1] for path in paths]
    return ["/".join(path) for path in paths]


def _percent(item: Item) -> str:
    return "–" if math.isnan(item.right) else f"{item.right:.0%}"


def _discrimination(item: Item) -> str:
    return "–" if math.isnan(item.discrimination) else f"{item.discrimination:.2f}"


def _wrong(item: Item) -> str:
    return f"{canonical(item.wrong)} ({item.times})" if item.times else "–"


_LINES = {"share right": _percent, "discrimination": _discrimination, "commonest wrong answer": _wrong}


def _reasons(grades: Grades) -> str:
    reasons = [f"{name}: {mark.reason}" for name, mark in grades.items() if mark.reason]
    return "; ".join([*reasons, *grades.notes])


def _correlation(first: NDArray[np.float64], second: NDArray[np.float64]) -> float:
    """Return Pearson's correlation; NaN where it is not defined."""
    if len(first) < _FEW or np.ptp(first) == 0 or np.ptp(second) < 1e-9:  # noqa: PLR2004
        return math.nan
    return float(np.corrcoef(first, second)[0, 1])


def grade_class(
    answers: Mapping[str, Mapping[str, Any]] | str | os.PathLike[str],
    key: Mapping[str, Rule] | str | os.PathLike[str],
    *,
    marks: Mapping[str, Mapping[str, float]] | str | os.PathLike[str] | None = None,
) -> ClassGrades:
    """Return the grades of every submission, and statistics of the questions.

    Args:
        answers: A folder, a table or an archive of submissions (see `read_answers`), or what `read_answers`
            returned for it.
        key: A rule for every question that counts, by id; or the file of a key (`write_key`).
        marks: Shares that a person gave, by submission and question; they replace the rule's. Or the table of
            `.proposals.to_csv(path)`, in whose last column a person wrote points, or "ok" for those proposed.

    Returns:
        `ClassGrades`: a dict of `Grades` by submission, shown as a table. Marks of texts are proposed:
        `.proposals` lists them, and `.confirm(submission, question)` decides. `.statistics` has, for each
        question, the share right; its discrimination, the correlation of its points with those of all other
        questions (low or negative: those who know the rest do not know this, so look at the question again);
        and the commonest wrong answer. `.to_csv(path)`, `.to_rows()` and `.to_dataframe()` give it away.
        `.evidence` lists the answer, the file and the time that each mark rests on.

    Raises:
        TypeError: `answers` are not those of a class, or `key` holds no rules.
        KeyError: `marks` names an unknown submission.
        AnswerError: A share in `marks` is not from 0 to 1, or of a question that the key does not have; or a
            row of its table cannot be read.

    Warns:
        UserWarning: A row of the table `marks` is about an answer that was changed since: it does not count.

    Example:
        >>> made = aw.course.make_record
        >>> answers = {name: {"q1": made("q1", "head", (5, head))} for name, head in [("Ada", 9), ("Bo", 2)]}
        >>> aw.course.grade_class(answers, {"q1": aw.course.exact((5, 9))})
        2 submissions, on average 0.50 of 1 points; right: q1 50%
    """
    rules = checked_key(key)
    if not isinstance(answers, Mapping):
        read = read_answers(answers)
        answers = {Path(answers).name: read} if isinstance(read, Answers) else read
    for name, item in answers.items():
        if not isinstance(item, Mapping) or "kind" in item:
            raise TypeError(
                f"answers[{name!r}] is not a submission: aw.course.grade(answers, key) grades a single one"
            )
    by_hand = marks if isinstance(marks, Mapping) else {}
    unknown = next((name for name in by_hand if name not in answers), None)
    if unknown is not None:
        raise KeyError(f"marks names {unknown!r}, which is not a submission.{suggest(unknown, answers)}")
    graded = {name: grade(records, rules, marks=by_hand.get(name)) for name, records in answers.items()}
    if marks is not None and not isinstance(marks, Mapping):
        confirm_from(marks, graded)
    return ClassGrades(graded)


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
        confirmed = (row["confirmed"] or "").strip()
        if not confirmed:
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
            points = None if confirmed.casefold() in _AS_PROPOSED else float(confirmed.replace(",", "."))
            grades[submission].confirm(question, points)
        except ValueError as error:
            raise AnswerError(f"{where}: {quoted(confirmed)} is neither points nor 'ok' ({error})") from error


def _text(mark: Mark) -> str:
    return mark.answer if isinstance(mark.answer, str) else canonical(mark.answer)


def _digest(mark: Mark) -> str:
    """Return a hash of an answer, which a spreadsheet does not take for a number."""
    return f"#{hashlib.sha256(canonical(mark.answer).encode()).hexdigest()[:8]}"
