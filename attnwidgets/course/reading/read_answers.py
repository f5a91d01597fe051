"""Read answers without a kernel: nothing that a student wrote is run."""

from __future__ import annotations

import csv
import io
import warnings
from collections import Counter
from itertools import chain, islice
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from attnwidgets._errors import quoted
from attnwidgets._progress import progress
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading.answers import (
    Answers,
    Collector,
    decoded,
    is_notebook,
    read_notebook,
    read_receipts,
    text_of_page,
)
from attnwidgets.course.reading.folders import SUFFIXES, Folder, Submission, Zip, submissions_of
from attnwidgets.course.sidecar import is_sidecar, parse_sidecar

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Iterator

    from attnwidgets.course.reading.folders import Files

_MOST_INSIDE = 100
"""Largest number of submissions in an archive among other files."""
_MOST_ROWS = 10_000
_LARGEST_CELL = 10_000_000
"""Characters."""


def read_answers(path: str | os.PathLike[str]) -> Answers | dict[str, Answers]:
    """Return the answers in a file, or those of every submission in a folder; nothing is run.

    A notebook's answers are stored three times: in `<notebook>.answers.json` next to it, in the outputs of
    its cells, and in receipts that were pasted into its text. Where they differ, the file next to it counts,
    for a question writes it at every answer, while outputs are saved with the notebook; then the outputs;
    then receipts. A record holds no time: an old file of answers next to a newer notebook wins, and a warning
    names both answers.

    Args:
        path: A notebook; a page that nbconvert or a browser saved (.html), text (.txt, .md) with receipts; a
            script that nbconvert wrote (.py), whose answers are in the file next to it; a file of answers
            (.json); a table with a row for each student (.csv); an archive (.zip); or a folder with any of
            these.

    Returns:
        `Answers`, a dict from the id of a question to its record: `answers["q1"]["value"]`. Of a folder, a
        table, or an archive with several submissions: a dict of `Answers`, by path or by a row's first
        column; rows of a table in a folder by the path of the table and that. Files of one folder with one
        stem are a submission. A file that cannot be read is named in `.notes` and does not affect
        other submissions; `.sources` has the file and the time of each answer. Links are not followed.

    Warns:
        UserWarning: Something could not be read, or a question has two answers; the message names it.

    Raises:
        FileNotFoundError: The file does not exist.
        AnswerError: It is a kind of file that holds no answers, or damaged as a whole (a ValueError).

    Example:
        >>> from pathlib import Path
        >>> receipt = aw.course.receipt(aw.course.make_record("q1", "head", (5, 9)))
        >>> _ = Path("ada.txt").write_text(f"My answer is {receipt}")
        >>> aw.course.read_answers("ada.txt")["q1"]["value"]
        [5, 9]
    """
    source = Path(path)
    if not source.exists():
        raise FileNotFoundError(f"file {str(source)!r} does not exist")
    if source.is_dir():
        read: Answers | dict[str, Answers] = _by_name(_of_files(Folder(source)))
    else:
        suffix = source.suffix.lower()
        if suffix not in SUFFIXES:
            raise AnswerError(
                f"{source.name} cannot hold answers: give a folder, or one of {', '.join(sorted(SUFFIXES))}"
            )
        try:
            read = _of_file(source, suffix)
        except AnswerError as error:
            raise type(error)(f"{source.name}: {error}") from error
    submissions = [read] if isinstance(read, Answers) else read.values()
    for note in chain.from_iterable(answers.notes for answers in submissions):
        warnings.warn(note, UserWarning, stacklevel=2)
    return read


def _of_file(path: Path, suffix: str) -> Answers | dict[str, Answers]:
    folder = Folder(path.parent, deep=False)
    names = folder.names()
    if suffix == ".csv":
        return _by_name(_of_table(folder, path.name, root=""))
    if suffix == ".zip":
        inside = _by_name(_of_files(Zip(folder.read(path.name), "", folder.budget)))
        return next(iter(inside.values())) if len(inside) == 1 else inside
    if suffix == ".json":
        return _gathered(folder, Submission(path.name, (path.name,)), strict=True)
    whole = next(
        submission for submission in submissions_of(_plain(names, path.name)) if path.name in submission.files
    )
    files = tuple(name for name in whole.files if name == path.name or is_sidecar(Path(name)))
    return _gathered(folder, whole._replace(name=path.name, files=files), strict=True)


def _plain(names: list[str], always: str = "") -> list[str]:
    """Return files that belong to a submission by their name: other JSON does not."""
    return [
        name
        for name in dict.fromkeys([*names, *([always] if always else [])])
        if not _is_several(name) and (not name.lower().endswith(".json") or is_sidecar(PurePosixPath(name)))
    ]


def _is_several(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in (".csv", ".zip")


def _by_name(pairs: Iterable[tuple[str, Answers]]) -> dict[str, Answers]:
    """Return submissions by their name; of two that share a name, neither counts."""
    read: dict[str, Answers] = {}
    for name, answers in pairs:
        if name in read:
            files = " and ".join(
                str(next(iter(each.sources.values()), name)) for each in (read[name], answers)
            )
            note = f"{name}: two submissions have this name ({files}), and neither counts"
            read[name] = Answers(notes=[note])
        else:
            read[name] = answers
    return read


def _of_files(files: Files) -> Iterator[tuple[str, Answers]]:
    """Yield every submission, whatever the others raise; only notebooks may have no answers."""
    names = files.names()
    outermost = not files.root
    works: list[Submission | str] = [
        *submissions_of(_plain(names), mixed=isinstance(files, Folder)),
        *filter(_is_several, names),
    ]
    for name, reason in files.skipped.items():
        yield f"{files.root}{name}", Answers(notes=[f"{files.root}{name}: {reason}"])
    for work in progress(works, "reading submissions") if outermost else works:
        if outermost:
            files.budget.begin()
        if isinstance(work, str):
            yield from _inside(files, work)
            continue
        answers = _gathered(files, work)
        if answers or answers.notes or work.name.lower().endswith((".ipynb", ".json")):
            yield f"{files.root}{work.name}", answers


def _inside(files: Files, name: str) -> Iterator[tuple[str, Answers]]:
    """Yield the submissions in a table, or in an archive that lies in the outermost folder or archive."""
    path = f"{files.root}{name}"
    is_table = name.lower().endswith(".csv")
    if not is_table and files.root:
        return
    try:
        if is_table:
            inside = list(_of_table(files, name, root=f"{path}/"))
        else:
            archive = Zip(files.read(name), f"{path}/", files.budget)
            inside = _few(_of_files(archive))
            if len(inside) == 1 or not any(answers for _, answers in inside):
                notes = chain.from_iterable(answers.notes for _, answers in inside)
                inside = [(path, inside[0][1] if len(inside) == 1 else Answers(notes=notes))]
    except Exception as error:  # noqa: BLE001 - whatever it raises, the other submissions count
        inside = [(path, Answers(notes=[f"{path}: {_reason(error)}"]))]
    yield from inside


def _few(submissions: Iterable[tuple[str, Answers]]) -> list[tuple[str, Answers]]:
    """Return the submissions of an archive among others, if a person can hand in that many."""
    inside = list(islice(submissions, _MOST_INSIDE + 1))
    if not inside:
        raise AnswerError("it holds no notebook and no answers; an archive in it is not opened")
    if len(inside) > _MOST_INSIDE:
        raise AnswerError(f"it holds more than {_MOST_INSIDE} submissions: read it by itself")
    return inside


def _gathered(files: Files, submission: Submission, *, strict: bool = False) -> Answers:
    """Return the answers of a submission.

    Args:
        files: The folder or archive of its files.
        submission: The names of its files.
        strict: Raise where its main file cannot be read, instead of noting it.

    Raises:
        AnswerError: See `strict`.
    """
    into = Collector(f"{files.root}{submission.name}")
    for note in submission.notes:
        into.note(note)
    for name in submission.files:
        try:
            into.file, into.saved = f"{files.root}{name}", files.saved(name)
            _add(files.read(name), name, into)
        except Exception as error:  # noqa: PERF203 - a damaged file must not cost the others
            if strict and name == submission.name:
                if isinstance(error, AnswerError):
                    raise
                raise AnswerError(_reason(error)) from error
            into.note(f"{PurePosixPath(name).name} cannot be read: {_reason(error)}")
    return into.answers


def _reason(error: Exception) -> str:
    """Return why a file cannot be read: our message, that of the system, or the error's name."""
    if isinstance(error, AnswerError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"it is damaged ({type(error).__name__}: {error})"


def _add(data: bytes, name: str, into: Collector) -> None:
    path = PurePosixPath(name)
    suffix = path.suffix.lower()
    if suffix == ".ipynb" or (suffix == ".json" and not is_sidecar(path) and is_notebook(data)):
        read_notebook(data, into)
    elif suffix == ".json":
        _add_sidecar(data, path.name, into)
    elif b"aw" not in data.replace(b"\0", b""):  # in UTF-16, too
        return
    elif suffix in (".html", ".htm"):
        read_receipts(text_of_page(data), into)
    else:
        read_receipts(decoded(data), into)


def _add_sidecar(data: bytes, name: str, into: Collector) -> None:
    read = parse_sidecar(data, name)
    for note in read.notes:
        into.note(note)
    for key, reason in read.refused.items():
        into.answers.refused.setdefault(key, reason)
    for key, record in read.records.items():
        into.add(record, answered=read.answered.get(key, ""))


def _of_table(files: Files, name: str, root: str) -> Iterator[tuple[str, Answers]]:
    """Yield the receipts in each row of a table, under the row's first cell.

    Raises:
        AnswerError: It is damaged, or has too many rows.
    """
    text = decoded(files.read(name))
    first = text.split("\n", 1)[0]
    delimiter = max(",;\t", key=first.count)
    table, saved = f"{files.root}{name}", files.saved(name)
    rows: list[tuple[int, str, Answers]] = []
    before = csv.field_size_limit(_LARGEST_CELL)
    try:
        for number, row in enumerate(csv.reader(io.StringIO(text, newline=""), delimiter=delimiter), 1):
            into = Collector(f"{table}, row {number}")
            into.file, into.saved = table, saved
            for cell in row:
                read_receipts(cell, into, f"row {number}")
            if into.answers or into.answers.notes:
                label = row[0].strip() if "aw1." not in row[0] else ""
                rows.append((number, label or f"(row {number})", into.answers))
            if len(rows) > _MOST_ROWS:
                raise AnswerError(f"it has more than {_MOST_ROWS:,} rows")
    except csv.Error as error:
        raise AnswerError(f"damaged table: {error}") from error
    finally:
        csv.field_size_limit(before)
    while doubled := {label for label, count in Counter(label for _, label, _ in rows).items() if count > 1}:
        for at, (number, label, answers) in enumerate(rows):
            if label in doubled:
                answers.notes.append(f"{table}, row {number}: another row begins with {quoted(label)}, too")
                rows[at] = number, f"{label} (row {number})", answers
    for _, label, answers in rows:
        yield f"{root}{label}", answers
