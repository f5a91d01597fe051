"""Reading responses, from files and lines of text in forms (twin: js/src/views/people/payload.ts).

A payload is the JSON object of a person's responses: its rows are the answers, its digest shows whether they
were edited. `_Reader` collects payloads from files (`_take` checks them, `add` merges those of a person) and
turns them into rows (`_rows`), scored where the study is given. Files are untrusted: a payload that cannot be
read is set aside with a reason, and the other payloads count.
"""

from __future__ import annotations

import binascii
import json
import re
import warnings
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.values import canonical, require_shallow
from attnwidgets.people.kinds import KINDS, is_answer, score
from attnwidgets.people.responses import COLUMNS, Responses, digest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from attnwidgets.people.responses import Turn
    from attnwidgets.people.study import Study

_ENDINGS = (".json", ".txt", ".csv", ".md", ".html")
_LARGEST = 20_000_000

VERSION = 1
FIELDS = ("v", "study", "kind", "code", "finished", "rows", "package")
ROW = ("role", "item", "condition", "other", "position", "side", "answer", "first_ms", "ms")
"""The values of a row of a payload, in this order."""

RECEIPT = re.compile(r"\bawp(\d{1,4})\.([A-Za-z0-9_=-]+)(?:\.([0-9A-Za-z]*))?")
"""A person's line within a text, whole or cut: version, body and digest."""

ROLES = ("practice", "item", "check")
_CODE = re.compile(r"[a-z0-9]{4,16}")


def read_responses(files: str | Path | Iterable[str | Path], study: Study | None = None) -> Responses:
    """Return the responses in files that people handed in.

    Args:
        files: Files that people downloaded; text files, tables or mails with the lines that they copied
            (`awp1. ...`); a folder of these; or several.
        study: The study they answered. With it answers are scored, and responses to another study do not
            count.

    Returns:
        Responses. Each problem is a warning that names the file, and an entry of `.notes`; answers that do
        not count are in `.set_aside`. Links in a folder are not followed:

        - answers that were edited (their digest does not fit) are set aside;
        - of a person handed in twice, the copy with more answers counts;
        - two people with one code both count, the second as `code-2`, since they saw the same order;
        - an answer that the study did not ask for, or that is not valid for its question, is set aside.

    Raises:
        FileNotFoundError: The file does not exist.
        ValueError: The files contain no responses.

    Example:
        >>> aw.people.read_responses("nowhere.json")
        Traceback (most recent call last):
        ...
        FileNotFoundError: nowhere.json does not exist
    """
    reader = _Reader(study)
    roots = [files] if isinstance(files, (str, Path)) else list(files)
    for root in roots:
        for path in _files(Path(root)):
            if path.is_symlink() and path != Path(root):
                reader.notes.append(f"{path.name} is a link, which is not followed: hand in the file itself")
                continue
            try:
                reader.read(path)
            except OSError as error:
                reader.notes.append(f"{path.name} cannot be read: {error.strerror}")
    responses = reader.responses()
    if not responses.rows and not responses.set_aside:
        raise ValueError(
            f"no responses in {', '.join(map(str, roots))}. {' '.join(responses.notes)}".rstrip()
        )
    for note in responses.notes:
        warnings.warn(f"aw.people.read_responses: {note}.", stacklevel=2)
    return responses


def responses_of(payloads: Iterable[tuple[str, dict[str, Any]]], study: Study) -> Responses:
    """Return the responses of checked payloads, each with the name of its source for notes."""
    reader = _Reader(study)
    for name, payload in payloads:
        reader.add(name, payload)
    return reader.responses()


def _files(path: Path) -> list[Path]:
    """Return a file, or the files and links of a folder whose endings can hold responses."""
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
        """Read the payloads of a file: a JSON file with one or a list of them, or lines in a text."""
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
        """Add the payload that `read` returns, or note its problem and set its rows aside."""
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
        others = {item["study"] for _, item in self.people.values()} - {payload["study"]}
        if others:
            self.notes.append(f"{name} answers another study than the files before it: read each study alone")
        self.add(name, payload)

    def add(self, name: str, payload: dict[str, Any]) -> None:
        """Add the payload of a person, who may have handed in before."""
        code = payload["code"]
        same = [key for key in self.people if key == code or key.startswith(f"{code}-")]
        for key in same:
            before, earlier = self.people[key]
            shorter, longer = sorted((earlier["rows"], payload["rows"]), key=len)
            if longer[: len(shorter)] == shorter:  # the same person, later
                self.notes.append(f"{before} and {name} are of one person, {code}: the longer one counts")
                longer_name = name if longer is payload["rows"] else before
                self.people[key] = (longer_name, {**earlier, "rows": longer})
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
        """Note that responses are damaged in a way that no check covers; return the reason."""
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
        """Return the responses of all payloads."""
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
            answer = {**dict.fromkeys(COLUMNS), **dict(zip(ROW, row, strict=True)), "person": person}
            why = "it was answered twice" if (answer["role"], answer["item"]) in seen else ""
            seen.add((answer["role"], answer["item"]))
            if self.study is not None and not why:
                why = self._score(self.study, answer, turns)
            if why:
                self.notes.append(f"{name}: {answer['role']} {quoted(answer['item'])} does not count: {why}")
                self.aside.append({**answer, "file": name, "why": why})
            else:
                yield answer

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
            number = row["item"].removeprefix("check ")
            if not number.isdecimal() or int(number) >= len(study.checks):
                return "the check is not in the study"
            row["passed"] = row["answer"] == study.checks[int(number)]
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


class PayloadError(ValueError):
    """A problem in a person's responses; `.payload` is the part that could be read, or None."""

    def __init__(self, message: str, payload: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.payload = payload


def digest_of(payload: Mapping[str, Any]) -> str:
    """Return the digest of responses: 16 hexadecimal digits."""
    return digest(canonical({name: payload.get(name) for name in FIELDS}))


def as_line(payload: Mapping[str, Any]) -> str:
    """Return responses as one line of text, to paste into any form."""
    body = (
        urlsafe_b64encode(canonical({name: payload[name] for name in FIELDS}).encode()).decode().rstrip("=")
    )
    return f"awp{VERSION}.{body}.{digest_of(payload)}"


def payload_of_line(version: str, body: str, check: str | None) -> dict[str, Any]:
    """Return the payload of a line, with its digest, not yet checked.

    Raises:
        PayloadError: The line was cut, or contains no JSON object.
    """
    if int(version) > VERSION:
        raise PayloadError(f"its version is {version}: pip install --upgrade attnwidgets")
    try:
        payload = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (binascii.Error, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise PayloadError("the line was cut or changed: ask for all of it again") from error
    if not isinstance(payload, dict):
        raise PayloadError("the line holds no responses")
    return {**payload, "digest": (check or "").lower()}


def checked(payload: Any) -> dict[str, Any]:
    """Return a person's payload as a dict, after its form and its digest were checked.

    Raises:
        PayloadError: The payload is not of this package, of a later version, malformed, or edited.
    """
    try:
        require_shallow(payload)
    except AnswerError as error:
        raise PayloadError(str(error)) from error
    if not isinstance(payload, Mapping) or not {"study", "code", "rows", "digest"} <= set(payload):
        raise PayloadError("it holds no responses of a study")
    if not isinstance(payload.get("v"), int) or payload["v"] > VERSION:
        raise PayloadError(f"its version is {payload.get('v')!r}: pip install --upgrade attnwidgets")
    readable = _malformed(payload) is None
    try:
        same = digest_of(payload) == payload["digest"]
    except AnswerError:
        same = False
    if not same:
        raise PayloadError(
            "its answers were edited or cut: the digest does not fit them",
            dict(payload) if readable else None,
        )
    wrong = _malformed(payload)
    if wrong:
        raise PayloadError(wrong)
    return dict(payload)


def _malformed(payload: Mapping[str, Any]) -> str | None:
    """Return the first problem in the form of a payload, as a message; None if it is well formed."""
    if payload.get("kind") not in KINDS:
        return f"its kind is {payload.get('kind')!r}"
    if not isinstance(payload["study"], str):
        return "its study is not named by a text"
    if not isinstance(payload["code"], str) or not _CODE.fullmatch(payload["code"]):
        return "its code is not 4 to 16 small letters and digits"
    rows = payload["rows"]
    if not isinstance(rows, list) or not all(isinstance(row, list) and len(row) == len(ROW) for row in rows):
        return f"its rows do not hold {len(ROW)} values each"
    for row in rows:
        role, item, condition, other, position, side, _, first, ms = row
        texts = all(isinstance(entry, str) for entry in (item, condition, other))
        times = all(time is None or isinstance(time, (int, float)) for time in (first, ms))
        if role not in ROLES or not texts or not times or not isinstance(position, int) or side not in (0, 1):
            return f"it has a malformed row: {str(row)[:80]}"
    return None
