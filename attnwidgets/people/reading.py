"""Reading what people handed in: files of responses, and lines of text in forms; nothing is lost."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets.people.kinds import is_answer, score
from attnwidgets.people.payload import RECEIPT, ROW, PayloadError, checked, payload_of_line
from attnwidgets.people.responses import COLUMNS, Responses

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attnwidgets.people.schedule import Turn
    from attnwidgets.people.study import Study

_ENDINGS = (".json", ".txt", ".csv", ".md", ".html")
_LARGEST = 20_000_000


def read_responses(files: str | Path | Iterable[str | Path], study: Study | None = None) -> Responses:
    """Return what people answered.

    Args:
        files: Files that people downloaded; text files, tables or mails with the lines that they copied
            (`awp1. ...`); a folder of these; or several.
        study: The study they answered. With it answers are scored, and responses to another study do not
            count.

    Returns:
        Responses. What is wrong is a warning that names the file, and is kept in `.notes`; what does not
        count is kept in `.set_aside`. Links in a folder are not followed:

        - answers that were edited (their digest does not fit) are set aside;
        - of a person handed in twice, the copy with more answers counts;
        - two people with one code both count, the second as `code-2`, since they saw the same order;
        - an answer that the study did not ask for, or that is not valid for its question, is set aside.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: No responses were found.

    Example:
        >>> aw.people.read_responses("nowhere.json")
        Traceback (most recent call last):
        ...
        FileNotFoundError: nowhere.json does not exist
    """
    reader = _Reader(study)
    several = [files] if isinstance(files, (str, Path)) else list(files)
    for given in several:
        for path in _found(Path(given)):
            if path.is_symlink() and path != Path(given):
                reader.notes.append(f"{path.name} is a link, which is not followed: hand in the file itself")
                continue
            try:
                reader.read(path)
            except OSError as error:
                reader.notes.append(f"{path.name} cannot be read: {error.strerror}")
    responses = reader.responses()
    if not responses.rows and not responses.set_aside:
        raise ValueError(
            f"no responses in {', '.join(map(str, several))}. {' '.join(responses.notes)}".rstrip()
        )
    for note in responses.notes:
        warnings.warn(f"aw.people.read_responses: {note}.", stacklevel=2)
    return responses


def responses_of(payloads: Iterable[tuple[str, dict[str, Any]]], study: Study) -> Responses:
    """Return the responses of checked payloads, each with the name of where it comes from."""
    reader = _Reader(study)
    for name, payload in payloads:
        reader.add(name, payload)
    return reader.responses()


def _found(path: Path) -> list[Path]:
    if path.is_dir():
        inside = (file for file in path.rglob("*") if file.suffix.lower() in _ENDINGS)
        return sorted(file for file in inside if file.is_symlink() or file.is_file())
    if not path.exists():
        raise FileNotFoundError(f"{path} does not exist")
    return [path]


class _Reader:
    def __init__(self, study: Study | None) -> None:
        self.study = study
        self.notes: list[str] = []
        self.aside: list[dict[str, Any]] = []
        self.people: dict[str, tuple[str, dict[str, Any]]] = {}

    def read(self, path: Path) -> None:
        """Read one file."""
        if path.stat().st_size > _LARGEST:
            self.notes.append(f"{path.name} is larger than {_LARGEST // 1_000_000} MB and was not read")
            return
        text = path.read_bytes().decode("utf-8", errors="replace")
        try:
            whole = json.loads(text) if path.suffix.lower() == ".json" else None
        except (ValueError, RecursionError):
            whole = None
        if whole is not None:
            for payload in whole if isinstance(whole, list) else [whole]:
                self._take(path.name, lambda payload=payload: payload)
            return
        lines = list(RECEIPT.finditer(text))
        if not lines:
            self.notes.append(f"{path.name} holds no responses")
        for line in lines:
            self._take(path.name, lambda line=line: payload_of_line(line[1], line[2], line[3]))

    def _take(self, name: str, read: Any) -> None:
        """Take one person's responses, or say what is wrong with them."""
        try:
            payload = checked(read())
        except PayloadError as error:
            self.notes.append(f"{name}: {error}; set aside")
            rows = [] if error.payload is None else error.payload["rows"]
            self._put_aside(name, str(error), (error.payload or {}).get("code", ""), rows)
            return
        except Exception as error:  # noqa: BLE001 - whatever a person's responses raise, the others count
            self._put_aside(name, self._damaged(name, error), "", [])
            return
        if self.study is not None and payload["study"] != self.study.hash:
            why = f"it answers another study, {quoted(str(payload['study']))} instead of {self.study.hash!r}"
            self.notes.append(f"{name}: {why}; set aside")
            self._put_aside(name, why, payload["code"], payload["rows"])
            return
        others = {one["study"] for _, one in self.people.values()} - {payload["study"]}
        if others:
            self.notes.append(f"{name} answers another study than the files before it: read each study alone")
        self.add(name, payload)

    def add(self, name: str, payload: dict[str, Any]) -> None:
        """Add a person, who may have handed in before."""
        code = payload["code"]
        same = [key for key in self.people if key == code or key.startswith(f"{code}-")]
        for key in same:
            before, one = self.people[key]
            shorter, longer = sorted((one["rows"], payload["rows"]), key=len)
            if longer[: len(shorter)] == shorter:  # the same person, later
                self.notes.append(f"{before} and {name} are of one person, {code}: the longer one counts")
                self.people[key] = (name if longer is payload["rows"] else before, {**one, "rows": longer})
                return
        if same:
            key = f"{code}-{len(same) + 1}"
            self.notes.append(
                f"{self.people[code][0]} and {name} have one code, {code}, and different answers: two people "
                f"shared it; the second is called {key}"
            )
        else:
            key = code
        self.people[key] = (name, payload)

    def _damaged(self, name: str, error: Exception) -> str:
        """Note that responses are damaged in a way of which no check knows; return the reason."""
        why = f"it is damaged ({type(error).__name__}: {error})"
        self.notes.append(f"{name}: {why}; set aside")
        return why

    def _put_aside(self, name: str, why: str, code: str, rows: Sequence[Sequence[Any]]) -> None:
        empty = dict.fromkeys(COLUMNS)
        for row in rows or [()]:
            self.aside.append(
                {**empty, **dict(zip(ROW, row, strict=False)), "person": code, "file": name, "why": why}
            )

    def responses(self) -> Responses:
        """Return all that was read."""
        rows: list[dict[str, Any]] = []
        for key, (name, payload) in self.people.items():
            try:
                rows += list(self._rows(key, name, payload))
            except Exception as error:  # noqa: BLE001, PERF203 - see `_take`
                self._put_aside(name, self._damaged(name, error), key, payload["rows"])
        kinds = [payload["kind"] for _, payload in self.people.values()]
        self._require_items(rows)
        return Responses(
            rows, study=self.study, kind=kinds[0] if kinds else "", notes=self.notes, set_aside=self.aside
        )

    def _rows(self, person: str, name: str, payload: dict[str, Any]) -> Iterator[dict[str, Any]]:
        turns = {} if self.study is None else self._turns(payload["code"])
        seen: set[tuple[str, str]] = set()
        for row in payload["rows"]:
            one = {**dict.fromkeys(COLUMNS), **dict(zip(ROW, row, strict=True)), "person": person}
            why = "it was answered twice" if (one["role"], one["item"]) in seen else ""
            seen.add((one["role"], one["item"]))
            if self.study is not None and not why:
                why = self._score(self.study, one, turns)
            if why:
                self.notes.append(f"{name}: {one['role']} {quoted(one['item'])} does not count: {why}")
                self.aside.append({**one, "file": name, "why": why})
            else:
                yield one

    def _turns(self, code: str) -> dict[str, Turn]:
        assert self.study is not None  # noqa: S101 - set before this call
        return {self.study.ids[turn.item]: turn for turn in self.study.turns(code)}

    def _score(  # noqa: PLR0911 - a reason a line
        self, study: Study, row: dict[str, Any], turns: dict[str, Turn]
    ) -> str:
        """Score an answer; return why it does not count, or ""."""
        if row["role"] == "practice":
            return ""
        if row["role"] == "check":
            place = row["item"].removeprefix("check ")
            if not place.isdecimal() or int(place) >= len(study.checks):
                return "the check is not in the study"
            row["passed"] = row["answer"] == study.checks[int(place)]
            return ""
        turn = turns.get(row["item"])
        if turn is None:
            return "the item is not in the study"
        if (*study.cell_names(turn.cell), turn.side) != (row["condition"], row["other"], row["side"]):
            return "this code does not lead to this condition"
        if not is_answer(study.kind, row["answer"], study.labels, len(study.words[turn.item])):
            return f"{quoted(str(row['answer']))} is not an answer"
        row["score"] = score(study.kind, study.truths[turn.item], row["answer"], row["side"])
        return ""

    def _require_items(self, rows: Sequence[dict[str, Any]]) -> None:
        """Note who did not answer everything."""
        if self.study is None:
            return
        for key, (name, _) in self.people.items():
            count = sum(row["person"] == key and row["role"] == "item" for row in rows)
            if count < len(self.study.items):
                self.notes.append(f"{name}: {key} answered {count} of {len(self.study.items)} items")
