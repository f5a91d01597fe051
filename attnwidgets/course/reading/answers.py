"""Answers of one submission: records by id, and what could not be read."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets._tables import html_table
from attnwidgets.course.canonical import canonical
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import Record, check_record

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST = 200


class Answers(dict[str, Record]):
    """The answers of one submission: a dict from the id of a question to its `Record`.

    `record["value"]` or `record.value` is the answer. `notes` are sentences on what could not be read or was
    found in two forms, and `refused` says, by id, why an answer that is there does not count.

    Args:
        records: The records.
        notes: Sentences for the reader.
        refused: A reason by id.

    """

    def __init__(
        self,
        records: Iterable[tuple[str, Record]] | Mapping[str, Record] = (),
        notes: Iterable[str] = (),
        refused: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(records)
        self.notes: list[str] = list(notes)
        self.refused: dict[str, str] = dict(refused or {})

    def _repr_html_(self) -> str:
        rows = [
            {"question": name, "answer": canonical(record["value"]), "about": record["subject"]}
            for name, record in self.items()
        ]
        notes = "".join(f"<li>{html.escape(note)}</li>" for note in self.notes)
        table = html_table(rows, _MOST) if rows else "<p>no answers</p>"
        return f"<div style='overflow-x:auto'>{table}{f'<ul>{notes}</ul>' if notes else ''}</div>"


class Collector:
    """Puts together what the places of one submission hold, the most trusted place last."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.asked: set[str] = set()
        self.found = Answers()
        self._origin: dict[str, str] = {}

    def note(self, text: str) -> None:
        """Keep a sentence for the reader, once."""
        said = f"{self.name}: {text}" if self.name else text
        if said not in self.found.notes:
            self.found.notes.append(said)

    def refuse(self, raw: Any, where: str, error: AnswerError) -> None:
        """Keep why a record does not count."""
        name = raw.get("id") if isinstance(raw, dict) else None
        self.note(f"{where}: {error}")
        if isinstance(name, str):
            self.asked.add(name)
            self.found.refused.setdefault(name, str(error))

    def raw(self, raw: Any, where: str) -> None:
        """Add what claims to be a record."""
        try:
            self.add(check_record(raw), where)
        except AnswerError as error:
            self.refuse(raw, where, error)

    def add(self, record: Record, where: str) -> None:
        """Add a record; where it differs from one that is there, it takes its place and both are named."""
        name = record["id"]
        self.asked.add(name)
        if record["value"] is None:  # asked there, and not answered
            return
        before = self.found.get(name)
        if before is not None and _meaning(before) != _meaning(record):
            self.note(
                f"question {quoted(name)} has two answers: {_shown(record)} in {where}, which counts, and "
                f"{_shown(before)} in {self._origin[name]}"
            )
        self.found[name], self._origin[name] = record, where
        self.found.refused.pop(name, None)


def _meaning(record: Record) -> str:
    """Return what makes two records the same answer, whichever version of the package wrote them."""
    return canonical({name: value for name, value in record.items() if name != "package"})


def _shown(record: Record) -> str:
    return quoted(canonical(record["value"]), 40)
