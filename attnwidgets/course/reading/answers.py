"""Answers of a submission: records by id, from a notebook's outputs and from pasted receipts.

A `Collector` gathers the records of a submission's files, which are read in the order of trust: a later
record of a question replaces an earlier one, with a note if they differ.
"""

from __future__ import annotations

import html
import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import MIME, RECEIPT, Record, check_record, decode
from attnwidgets.course.values import canonical
from attnwidgets.figures.html_tables import first_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_MOST = 200
_MOST_NOTES = 20
_MOST_RECORDS = 2_000
"""Records and receipts of a submission."""

_TAG = re.compile(r"<[^<>]*>")


class Source(NamedTuple):
    """The file in which an answer was read, and the time of the answer."""

    file: str
    """The file, by its path from the folder, archive or table that was read."""
    part: str = ""
    """The part of it: "cell 3", "row 2"."""
    answered: str = ""
    """Time of the answer by the file of answers; "" without."""
    saved: str = ""
    """Time at which the file was last written: later than the answer, at worst the time of a download."""

    def __str__(self) -> str:
        return f"{self.file}, {self.part}" if self.part else self.file


class Answers(dict[str, Record]):
    """The answers of a submission: a dict from the id of a question to its `Record`.

    `record["value"]` or `record.value` is the answer. `notes` are sentences on parts that could not be
    read and on questions with two answers, `refused` says, by id, why an answer does not count, and
    `sources`, by id, where each answer was read.

    Args:
        records: The records.
        notes: Sentences for the reader.
        refused: A reason by id.
        sources: A `Source` by id.
    """

    def __init__(
        self,
        records: Iterable[tuple[str, Record]] | Mapping[str, Record] = (),
        notes: Iterable[str] = (),
        refused: Mapping[str, str] | None = None,
        sources: Mapping[str, Source] | None = None,
    ) -> None:
        super().__init__(records)
        self.notes: list[str] = list(notes)
        self.refused: dict[str, str] = dict(refused or {})
        self.sources: dict[str, Source] = dict(sources or {})

    def _repr_html_(self) -> str:
        rows = [
            {"question": name, "answer": canonical(record["value"]), "about": record["subject"]}
            for name, record in self.items()
        ]
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        table = first_rows(rows, _MOST) if rows else "<p>no answers</p>"
        return f"<div style='overflow-x:auto'>{table}{f'<ul>{notes}</ul>' if notes else ''}</div>"


class Collector:
    """Gathers the answers in the files of a submission, the most trusted file last.

    Attributes:
        answers: The answers that were read so far.
        file: Path of the file that is being read.
        saved: Time at which it was last written.
    """

    def __init__(self, name: str) -> None:
        self.name = self.file = name
        self.saved = ""
        self.answers = Answers()
        self._notes: set[str] = set()
        self._count = 0

    def note(self, text: str) -> None:
        """Add a sentence for the reader, once; of many, their number."""
        self._notes.add(text)
        notes, more = self.answers.notes, len(self._notes) - _MOST_NOTES
        sentence = f"{self.name}: {text if more <= 0 else f'and {more:,} more of these'}"
        if sentence not in notes:
            notes[_MOST_NOTES:] = []
            notes.append(sentence)

    def count(self, records: int = 1) -> None:
        """Count records and receipts.

        Raises:
            AnswerError: There are too many.
        """
        self._count += records
        if self._count > _MOST_RECORDS:
            raise AnswerError(f"it holds more than {_MOST_RECORDS:,} answers, and no others are read")

    def raw(self, raw: Any, part: str) -> None:
        """Add a record that was not checked yet, or the reason why it is refused."""
        try:
            self.add(check_record(raw), part)
        except AnswerError as error:
            self.note(f"{part}: {error}")
            name = raw.get("id") if isinstance(raw, dict) else None
            if isinstance(name, str):
                self.answers.refused.setdefault(name, str(error))

    def add(self, record: Record, part: str = "", answered: str = "") -> None:
        """Add a record; it replaces an earlier record of the question, with a note if they differ.

        Args:
            record: The record.
            part: The part of the file in which it was read, or "".
            answered: Time of the answer, or "".
        """
        name, source = record["id"], Source(self.file, part, answered, self.saved)
        if record["value"] is None:  # a question without an answer
            return
        before = self.answers.get(name)
        if before is not None and _meaning(before) != _meaning(record):
            self.note(
                f"question {quoted(name)} has two answers: {_shown(record)} in {_near(source)}, which "
                f"counts, and {_shown(before)} in {_near(self.answers.sources[name])}"
            )
        self.answers[name], self.answers.sources[name] = record, source
        self.answers.refused.pop(name, None)


def _near(source: Source) -> str:
    """Return the part of a source, or else the name of its file, for a note on the submission."""
    return source.part or source.file.rpartition("/")[2]


def _meaning(record: Record) -> str:
    """Return a record as text without the version of the package: equal for the same answer."""
    return canonical({name: value for name, value in record.items() if name != "package"})


def _shown(record: Record) -> str:
    return quoted(canonical(record["value"]), 40)


def read_notebook(data: bytes, into: Collector) -> None:
    """Add the answers of a notebook: receipts in its text cells first, then records in its outputs.

    Raises:
        AnswerError: It is not a notebook, or holds too much.
    """
    into.count(data.count(MIME.encode()))  # before they are parsed
    cells = _cells(data)
    for number, cell in enumerate(cells, 1):
        if cell.get("cell_type") != "code":
            read_receipts(_joined(cell.get("source")), into, f"the text of cell {number}")
    for number, cell in enumerate(cells, 1):
        bundles = list(_bundles(cell))
        records = [bundle[MIME] for bundle in bundles if MIME in bundle]
        for raw in records:
            into.count()
            into.raw(_parsed(raw), f"the output of cell {number}")
        if not records:  # some front ends save only HTML
            for bundle in bundles:
                read_receipts(_joined(bundle.get("text/html")), into, f"the output of cell {number}")


def read_receipts(text: str, into: Collector, part: str = "") -> None:
    """Add every receipt of a text, or a note on why it cannot be read.

    Raises:
        AnswerError: There are too many.
    """
    for result in RECEIPT.finditer(text):
        if len(result[2]) < _SHORTEST and not result[3]:  # a word like "aw1.x"
            continue
        into.count()
        try:
            into.add(decode(result[0]), part)
        except AnswerError as error:
            into.note(f"{part or into.file.rpartition('/')[2]}: {error} (it begins {result[0][:24]}…)")


_SHORTEST = 40
"""Characters of the shortest record's receipt."""

_MOST_VALUES = 10_000_000
"""Values in a notebook: JSON of a few bytes each takes thirty times the memory of its file."""


def text_of_page(data: bytes) -> str:
    """Return the text of an HTML page without tags, followed by the page with tags.

    Receipts are searched in both, as a tag may divide a receipt and an attribute may contain one. None of a
    receipt's characters is escaped in HTML.
    """
    text = decoded(data)
    return f"{_TAG.sub('', text)}\n{text}"


def decoded(data: bytes) -> str:
    """Return the text of a file in UTF-8, or in UTF-16 as Windows saves it."""
    if data[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return data.decode("utf-16", "replace")
    return data.decode("utf-8-sig", "replace")


def is_notebook(data: bytes) -> bool:
    """Return whether JSON is a notebook, by its cells."""
    try:
        return bool(isinstance(_cells(data), list))
    except AnswerError:
        return False


def _cells(data: bytes) -> list[dict[str, Any]]:
    if sum(map(data.count, (b"[", b"{", b","))) > _MOST_VALUES:
        raise AnswerError(f"it holds more than {_MOST_VALUES:,} values: clear its outputs")
    try:
        notebook = json.loads(decoded(data))
    except (ValueError, RecursionError) as error:
        raise AnswerError(
            f"it is not JSON, or only a part of it ({error}): export the notebook again"
        ) from error
    cells = notebook.get("cells") if isinstance(notebook, dict) else None
    if not isinstance(cells, list):
        raise AnswerError("it is JSON without the cells of a notebook (format 4)")
    return [cell for cell in cells if isinstance(cell, dict)]


def _bundles(cell: dict[str, Any]) -> Iterator[dict[str, Any]]:
    outputs = cell.get("outputs")
    for output in outputs if isinstance(outputs, list) else []:
        data = output.get("data") if isinstance(output, dict) else None
        if isinstance(data, dict):
            yield data


def _parsed(raw: Any) -> Any:
    """Return a record from an output; some front ends save JSON as text or as a list of lines."""
    if isinstance(raw, (str, list)):
        try:
            return json.loads(_joined(raw))
        except (ValueError, RecursionError):
            return raw
    return raw


def _joined(text: Any) -> str:
    if isinstance(text, list):
        return "".join(part for part in text if isinstance(part, str))
    return text if isinstance(text, str) else ""
