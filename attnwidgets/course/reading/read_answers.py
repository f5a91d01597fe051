"""Read answers without a kernel: nothing that a student wrote is run."""

from __future__ import annotations

import csv
import io
import warnings
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading.answers import Answers, Collector
from attnwidgets.course.reading.folders import SUFFIXES, Folder, Zip
from attnwidgets.course.reading.read_text import (
    decoded,
    is_notebook,
    read_notebook,
    read_receipts,
    text_of_page,
)
from attnwidgets.course.reading.submissions import Submission, submissions_of
from attnwidgets.course.sidecar import is_sidecar, parse_sidecar

if TYPE_CHECKING:
    import os
    from collections.abc import Iterator

    from attnwidgets.course.reading.folders import Files


def read_answers(path: str | os.PathLike[str]) -> Answers | dict[str, Answers]:
    """Return the answers in a file, or those of every submission in a folder; nothing is run.

    A notebook's answers stand in three places: `<notebook>.answers.json` beside it, the outputs of its
    cells, and receipts that were pasted into its text. Where they differ, the file beside it counts, for a
    question writes it at every answer, while outputs are saved with the notebook; then the outputs; then
    receipts. A record holds no time: an old file of answers beside a newer notebook wins, and a warning names
    both answers.

    Args:
        path: A notebook; a page that nbconvert or a browser saved (.html), text (.txt, .md) with receipts; a
            script that nbconvert wrote (.py), whose answers are in the file beside it; a file of answers
            (.json); a table with a row a student (.csv); an archive (.zip); or a folder with any of these.

    Returns:
        `Answers`, a dict from the id of a question to its record: `answers["q1"]["value"]`. Of a folder, a
        table, or an archive with several submissions: a dict of `Answers`, by path or by a row's first
        column. Files of one folder with one stem are one submission. What could not be read is in `.notes`.

    Warns:
        UserWarning: Something could not be read, or a question has two answers; the message names it.

    Raises:
        FileNotFoundError: There is no such file.
        AnswerError: It is a kind of file that holds no answers, or damaged as a whole (a ValueError).

    Example:
        >>> from pathlib import Path
        >>> receipt = aw.course.receipt(aw.course.make_record("q1", "head", (5, 9)))
        >>> _ = Path("ada.txt").write_text(f"My answer is {receipt}")
        >>> aw.course.read_answers("ada.txt")["q1"]["value"]
        [5, 9]
    """
    place = Path(path)
    if not place.exists():
        raise FileNotFoundError(f"there is no file {str(place)!r}")
    if place.is_dir():
        class_ = dict(_of_files(Folder(place)))
        _warn([note for answers in class_.values() for note in answers.notes])
        return class_
    suffix = place.suffix.lower()
    if suffix not in SUFFIXES:
        raise AnswerError(
            f"{place.name} cannot hold answers: give a folder, or one of {', '.join(sorted(SUFFIXES))}"
        )
    try:
        found = _of_file(place, suffix)
    except AnswerError as error:
        raise type(error)(f"{place.name}: {error}") from error
    each = [found] if isinstance(found, Answers) else list(found.values())
    _warn([note for answers in each for note in answers.notes])
    return found


def _of_file(place: Path, suffix: str) -> Answers | dict[str, Answers]:
    if suffix == ".csv":
        return dict(_of_table(place.read_bytes(), place.name))
    if suffix == ".zip":
        inside = dict(_of_files(Zip(place.read_bytes())))
        return next(iter(inside.values())) if len(inside) == 1 else inside
    folder = Folder(place.parent, deep=False)
    if suffix == ".json":
        data = folder.read(place.name)
        if is_notebook(data):
            return _gathered(folder, Submission(place.name, (place.name,)), strict=True)
        kept = parse_sidecar(data, place.name)
        return Answers(kept.records, kept.notes)
    whole = next(one for one in submissions_of(_plain(folder.names(), place.name)) if place.name in one.files)
    files = tuple(name for name in whole.files if name == place.name or is_sidecar(Path(name)))
    return _gathered(folder, whole._replace(name=place.name, files=files), strict=True)


def _plain(names: list[str], always: str = "") -> list[str]:
    """Return files that belong to a submission by their name: other JSON is none of ours."""
    of_others = {".csv", ".zip"}
    return [
        name
        for name in dict.fromkeys([*names, *([always] if always else [])])
        if PurePosixPath(name).suffix.lower() not in of_others
        and (not name.lower().endswith(".json") or is_sidecar(PurePosixPath(name)))
    ]


def _of_files(files: Files) -> Iterator[tuple[str, Answers]]:
    """Yield every submission; a file without answers that is not a notebook is none."""
    names = files.names()
    for submission in submissions_of(_plain(names)):
        answers = _gathered(files, submission)
        if answers or answers.notes or submission.name.endswith(".ipynb"):
            yield submission.name, answers
    for name in names:
        suffix = PurePosixPath(name).suffix.lower()
        try:
            if suffix == ".csv":
                inside = list(_of_table(files.read(name), name))
            elif suffix == ".zip" and not isinstance(files, Zip):  # an archive in an archive is left alone
                inside = list(_of_files(Zip(files.read(name))))
                inside = (
                    [(name, inside[0][1])] if len(inside) == 1 else [(f"{name}/{k}", v) for k, v in inside]
                )
            else:
                continue
        except (AnswerError, OSError) as error:
            inside = [(name, Answers(notes=[f"{name}: {error}"]))]
        yield from inside


def _gathered(files: Files, submission: Submission, *, strict: bool = False) -> Answers:
    """Return the answers of one submission.

    Args:
        files: Where its files are.
        submission: Which they are.
        strict: Raise where its main file cannot be read, instead of noting it.
    """
    into = Collector(submission.name)
    for note in submission.notes:
        into.note(note)
    for name in (*submission.files, *submission.shared):
        try:
            _add(files.read(name), name, into, only=set(into.asked) if name in submission.shared else None)
        except (AnswerError, OSError) as error:  # noqa: PERF203 - one that cannot be read hides no other
            if strict and name == submission.name:
                raise
            into.note(f"{PurePosixPath(name).name} cannot be read: {error}")
    return into.found


def _add(data: bytes, name: str, into: Collector, only: set[str] | None) -> None:
    suffix = PurePosixPath(name).suffix.lower()
    if suffix == ".ipynb" or (suffix == ".json" and not is_sidecar(PurePosixPath(name))):
        read_notebook(data, into)
    elif suffix == ".json":
        _add_sidecar(data, name, into, only)
    elif suffix in (".html", ".htm"):
        read_receipts(text_of_page(data), into, PurePosixPath(name).name)
    else:
        read_receipts(decoded(data), into, PurePosixPath(name).name)


def _add_sidecar(data: bytes, name: str, into: Collector, only: set[str] | None) -> None:
    kept = parse_sidecar(data, PurePosixPath(name).name)
    for note in kept.notes:
        into.note(note)
    for key, reason in kept.refused.items():
        into.found.refused.setdefault(key, reason)
    for key, record in kept.records.items():
        if only is None or key in only:
            into.add(record, PurePosixPath(name).name)


def _of_table(data: bytes, name: str) -> Iterator[tuple[str, Answers]]:
    """Yield the receipts in each row of a table, under the row's first cell."""
    text = decoded(data)
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    csv.field_size_limit(10_000_000)
    seen: set[str] = set()
    for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
        into = Collector(f"{name}, row {number}")
        for cell in row:
            read_receipts(cell, into, "a cell")
        if not into.found and not into.found.notes:
            continue
        label = row[0].strip() if row and "aw1." not in row[0] else ""
        if not label or label in seen:
            label = f"{label} (row {number})".strip()
        seen.add(label)
        yield label, into.found


def _warn(notes: list[str]) -> None:
    for note in notes:
        warnings.warn(note, UserWarning, stacklevel=3)
