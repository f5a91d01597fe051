"""Grade a submission by a key, with points and reasons; and keys as files, which are not run when read."""

from __future__ import annotations

import ast
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from attnwidgets._errors import quoted, suggest
from attnwidgets._files import write_bytes
from attnwidgets._tables import Table
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.grading.evidence import Evidence
from attnwidgets.course.grading.rules import RULES, Rule, Verdict
from attnwidgets.course.reading.answers import Answers, Source
from attnwidgets.course.records import check_record
from attnwidgets.course.values import canonical
from attnwidgets.figures.html_tables import cell, table

_LONGEST = 500

_VERSION = 1


def shown(points: float) -> str:
    """Return points with two decimals at most, as people read them; tables that are written have all."""
    return f"{round(points, 2):g}"


class Mark(NamedTuple):
    """The points of an answer."""

    share: float
    """From 0 to 1."""
    points: float
    of: float
    """The points of a share of 1."""
    answer: Any
    """The value, or None without an answer that counts."""
    reason: str = ""
    """Why it counts nothing, or the basis of a proposed share."""
    proposed: bool = False
    """Whether a person has yet to confirm it: the mark of a text (see `rubric`)."""
    unread: float = 0.0
    """Points of criteria that only a person can judge: they come on top of `points`."""

    @property
    def written(self) -> str:
        """The points: "1 (proposed)", or "1 to 1.5 (proposed)" where a person must read a criterion."""
        most = f" to {shown(self.points + self.unread)}" if self.unread else ""
        return f"{shown(self.points)}{most}{' (proposed)' if self.proposed else ''}"


class Grades(Mapping[str, Mark], Table):
    """The marks of one submission, by the id of the question; `.points` of `.of` in all.

    Args:
        marks: The marks.
        notes: Sentences for the teacher, on parts that could not be read.
        sources: Where each answer was read, by the id of the question.
    """

    def __init__(
        self,
        marks: Mapping[str, Mark],
        notes: tuple[str, ...] = (),
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        self._marks = MappingProxyType(dict(marks))
        self.notes = notes
        self.sources = MappingProxyType(dict(sources or {}))

    def __getitem__(self, question: str) -> Mark:
        if question not in self._marks:
            raise KeyError(f"no question {question!r} in the key.{suggest(question, self._marks)}")
        return self._marks[question]

    def __iter__(self) -> Iterator[str]:
        return iter(self._marks)

    def __len__(self) -> int:
        return len(self._marks)

    @property
    def points(self) -> float:
        """All points."""
        return round(sum(mark.points for mark in self._marks.values()), 6)

    @property
    def of(self) -> float:
        """The points of an answer to every question."""
        return round(sum(mark.of for mark in self._marks.values()), 6)

    @property
    def proposed(self) -> float:
        """The points of the questions whose mark a person has yet to confirm, out of `.of`."""
        return round(sum(mark.of for mark in self._marks.values() if mark.proposed), 6)

    @property
    def total(self) -> str:
        """All points in words: "21.5 of 23 points, 2 of the 23 only proposed"."""
        open_points = f", {self.proposed:g} of the {self.of:g} only proposed" if self.proposed else ""
        return f"{shown(self.points)} of {self.of:g} points{open_points}"

    def confirm(self, question: str, points: float | None = None) -> None:
        """Decide on the mark of an answer, after reading it.

        Args:
            question: Id of the question.
            points: Points to give instead of the rule's, from 0 to those of the question; None: as proposed.

        Raises:
            KeyError: The question is not in the key.
            AnswerError: The points are out of range, or are missing where the rubric leaves a criterion to
                the reader.

        Example:
            >>> criteria = {"names the feature": "plural", "gives a reason": None}
            >>> key = {"q1": aw.course.rubric(criteria, points=2)}
            >>> grades = aw.course.grade({"q1": aw.course.make_record("q1", "text", "Plural nouns.")}, key)
            >>> grades
            1 of 2 points, 2 of the 2 only proposed: q1 1 to 2 (proposed) of 2
            >>> grades.confirm("q1", 1.5)
            >>> grades
            1.5 of 2 points: q1 1.5 of 2
        """
        mark = self[question]
        if points is None and mark.unread:
            raise AnswerError(f"{question}: give points=, as a criterion is left to you ({mark.reason})")
        decided = mark.points if points is None else points
        if not 0 <= decided <= mark.of:
            raise AnswerError(f"{question}: {decided} points are not from 0 to {mark.of:g}")
        reason = "confirmed" if decided == mark.points else "by hand"
        confirmed = Mark(round(decided / mark.of, 6), float(decided), mark.of, mark.answer, reason)
        self._marks = MappingProxyType({**self._marks, question: confirmed})

    @property
    def evidence(self) -> Evidence:
        """Where each answer was read and when it was given: a table."""
        return Evidence({"": self})

    def _columns(self) -> Iterator[Mapping[str, Any]]:
        marks = list(self._marks.values())
        yield {
            "question": list(self._marks),
            "answer": [None if mark.answer is None else canonical(mark.answer) for mark in marks],
            "share": [mark.share for mark in marks],
            "points": [mark.points for mark in marks],
            "of": [mark.of for mark in marks],
            "proposed": [mark.proposed for mark in marks],
            "reason": [mark.reason for mark in marks],
        }

    def __repr__(self) -> str:
        each = ", ".join(f"{name} {mark.written} of {mark.of:g}" for name, mark in self._marks.items())
        return f"{self.total}: {each}"

    def _repr_html_(self) -> str:
        rows = (
            (
                cell(name, header=True),
                cell("–" if mark.answer is None else canonical(mark.answer), left=True, limit=60),
                cell(f"{mark.share:.2f}", tint=mark.share),
                cell(mark.written),
                cell(f"{mark.of:g}"),
                cell(mark.reason, left=True, limit=300),
            )
            for name, mark in self._marks.items()
        )
        head = ("question", "answer", "share", "points", "of", "reason")
        return table(head, rows, [self.total, *self.notes], left=(0, 1, 5))


def grade(
    answers: Mapping[str, Any],
    key: Mapping[str, Rule] | str | os.PathLike[str],
    *,
    marks: Mapping[str, float] | None = None,
) -> Grades:
    """Return the share and the points of every question of a key.

    Args:
        answers: The answers of one submission, as `read_answers` returns them.
        key: A rule for every question that counts, by id (`exact`, `any_of`, `overlap`, `kendall`, `near` or
            `rubric`); or the file of a key (`write_key`).
        marks: Shares that a person gave, from 0 to 1, by the id of the question; they replace the rule's.

    Returns:
        `Grades`: a `Mark` for every question of the key, in its order, with share, points and reason. The
        share is 0, and the reason says why, where an answer is missing, was refused as it was read, is about
        another model or text, or is of another kind. The mark of a text is proposed, until a person confirms
        it (`Grades.confirm`, or `marks`).

    Raises:
        TypeError: `answers` are those of several submissions (see `grade_class`), or `key` holds no rules.
        AnswerError: A share in `marks` is not from 0 to 1, or names no question of the key (a ValueError).

    Example:
        >>> key = {"q1": aw.course.exact((5, 9), points=2), "q2": aw.course.near(0.5, full=0.01, none=0.1)}
        >>> answers = {"q1": aw.course.make_record("q1", "head", (5, 9))}
        >>> aw.course.grade(answers, key)
        2 of 3 points: q1 2 of 2, q2 0 of 1
    """
    rules = checked_key(key)
    by_hand = _checked_marks(marks or {}, rules)
    if any(isinstance(answer, Answers) for answer in answers.values()):
        raise TypeError(
            "answers are those of several submissions: aw.course.grade_class(answers, key) grades them"
        )
    refused = getattr(answers, "refused", {})
    graded = {
        name: _mark(answers.get(name), rule, refused.get(name, ""), by_hand.get(name))
        for name, rule in rules.items()
    }
    return Grades(graded, tuple(getattr(answers, "notes", ())), getattr(answers, "sources", None))


def checked_key(key: Mapping[str, Rule] | str | os.PathLike[str]) -> dict[str, Rule]:
    """Return a valid key, or the key in a file.

    Raises:
        TypeError: It is not, or a question of it has no rule.
        AnswerError, OSError: See `read_key`.
    """
    if isinstance(key, (str, os.PathLike)):
        return read_key(key)
    if not isinstance(key, Mapping) or not key:
        raise TypeError("key is a dict from the id of a question to a rule, such as aw.course.exact((5, 9))")
    for name, rule in key.items():
        if not isinstance(rule, Rule):
            raise TypeError(
                f"the key of {name!r} is {quoted(str(rule))}, not a rule such as aw.course.exact(...)"
            )
    return dict(key)


def _checked_marks(marks: Mapping[str, float], rules: Mapping[str, Rule]) -> dict[str, float]:
    for name, share in marks.items():
        if name not in rules:
            raise AnswerError(f"marks names {name!r}, which the key does not have.{suggest(name, rules)}")
        if not 0 <= share <= 1:
            raise AnswerError(f"the mark of {name!r} is {share}, not a share from 0 to 1")
    return {name: float(share) for name, share in marks.items()}


def _mark(raw: Any, rule: Rule, refused: str, by_hand: float | None) -> Mark:
    def made(share: float, answer: Any, reason: str, *, proposed: bool = False, unread: float = 0.0) -> Mark:
        points, open_points = (round(part * rule.points, 6) for part in (share, unread))
        return Mark(round(share, 6), points, rule.points, answer, reason[:_LONGEST], proposed, open_points)

    if raw is None or (isinstance(raw, Mapping) and raw.get("value") is None):
        return made(by_hand or 0.0, None, refused or "not answered")
    try:
        record = check_record(raw)
        if by_hand is not None:
            return made(by_hand, record["value"], "by hand")
        verdict = _judged(record, rule)
    except AnswerError as error:
        return made(by_hand or 0.0, None, str(error))
    except Exception as error:  # noqa: BLE001 - a function of a rubric may raise anything
        why = f"to be marked by hand: its rule cannot mark it ({type(error).__name__}: {error})"
        return made(0.0, record["value"], why, proposed=True, unread=1.0)
    unread = sum(criterion.weight for criterion in verdict.criteria if criterion.share is None)
    proposed = bool(verdict.criteria) or record["kind"] == "text"
    return made(verdict.share, record["value"], verdict.reason, proposed=proposed, unread=unread)


def _judged(record: Mapping[str, Any], rule: Rule) -> Verdict:
    if rule.subject is not None and record["subject"] != rule.subject:
        about = "does not say about which" if record["subject"] is None else "is about another"
        raise AnswerError(
            f"the answer {about} model and text: run the notebook as it was handed out, and answer again"
        )
    if rule.unit is not None and record["unit"] != rule.unit:
        raise AnswerError(
            f"the answer is in {record['unit'] or 'no unit'}, but the question needs {rule.unit}"
        )
    return rule.judge(record["kind"], record["value"])


def write_key(key: Mapping[str, Rule], path: str | os.PathLike[str]) -> Path:
    """Write a key to a file, which `grade` and `grade_class` accept instead of it.

    Args:
        key: A rule for every question that counts, by id.
        path: The file, by convention `<assignment>.key.json`. It contains all answers: keep it to yourself.

    Returns:
        The path.

    Raises:
        AnswerError: A rule contains a function, which no file can.
        OSError: The file cannot be written.

    Example:
        >>> path = aw.course.write_key({"q1": aw.course.exact((5, 9), points=2)}, "ps1.key.json")
        >>> answers = {"q1": aw.course.make_record("q1", "head", (5, 9))}
        >>> aw.course.grade(answers, path)
        2 of 2 points: q1 2 of 2
    """
    rules = {name: rule.code for name, rule in key.items()}
    text = json.dumps({"v": _VERSION, "key": rules}, ensure_ascii=False, indent=1)
    write_bytes(Path(path), f"{text}\n".encode())
    return Path(path)


def read_key(path: str | os.PathLike[str]) -> dict[str, Rule]:
    """Return the key in a file that `write_key` wrote: a rule for every question, by id. It runs nothing.

    Args:
        path: The file.

    Raises:
        AnswerError: It is not the file of a key; the message names the question.
        OSError: The file cannot be read.

    Example:
        >>> path = aw.course.write_key({"q1": aw.course.exact((5, 9), points=2)}, "ps1.key.json")
        >>> aw.course.read_key(path)
        {'q1': exact((5, 9), points=2)}
    """
    name = Path(path).name
    try:
        content = json.loads(Path(path).read_text(encoding="utf-8"))
        rules = dict(content["key"]) if content["v"] == _VERSION else {}
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise AnswerError(f"{name} is not the file of a key: aw.course.write_key writes it") from error
    if not rules:
        raise AnswerError(f"{name} has no key of version {_VERSION}")
    return {question: _rule_of(str(code), f"{name}, {question}") for question, code in rules.items()}


def _rule_of(code: str, where: str) -> Rule:
    """Return the rule that an expression of constants makes."""
    try:
        call = ast.parse(code, mode="eval").body
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Name):
            raise AnswerError("it is not a call")
        arguments = [ast.literal_eval(argument) for argument in call.args]
        options = {str(option.arg): ast.literal_eval(option.value) for option in call.keywords}
        made = RULES[call.func.id](*arguments, **options)
    except (ValueError, SyntaxError, TypeError, KeyError, RecursionError, MemoryError) as error:
        raise AnswerError(f"{where}: {quoted(code)} is not a rule ({error})") from error
    return made
