"""The file of answers next to a notebook, `<notebook>.answers.json`: it survives a restart and an autograder.

No answer is lost: answers that cannot be read stay in the file unchanged, a file that is not JSON is renamed
(`_existing`), and a file of a later version is not touched. A lock of the file (`_alone`) lets several
kernels write answers to it: each reads the file again before it writes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from attnwidgets._errors import quoted
from attnwidgets._files import write_bytes
from attnwidgets.course.errors import AnswerError, AnswersFileError, NewerVersionError
from attnwidgets.course.records import VERSION, Record, check_record
from attnwidgets.course.values import plain

NAMELESS = "answers.json"
"""Name of the file where the notebook's name is unknown."""
_SUFFIX = ".answers.json"
_NAME = re.compile(r"(?:(?P<stem>.+)\.)?answers(?: ?\(\d+\))?\.json")
"""A file of answers, also one that was downloaded a second time: `ps1.answers (1).json`."""
_LONGEST = 5.0
"""Seconds to wait for another kernel that has locked the file."""
_LARGEST = 20_000_000
_TIME = len("2026-01-31 12:00 UTC")


class Contents(NamedTuple):
    """The contents of a file of answers."""

    records: dict[str, Record]
    """The answers, by the id of their question."""
    notes: list[str]
    """Sentences on the parts that could not be read."""
    refused: dict[str, str]
    """Why an answer could not be read, by id."""
    answered: dict[str, str]
    """Time of each answer, by id, where the file has it."""


def sidecar_of(notebook: str | Path | None, folder: str | Path = ".") -> Path:
    """Return the file of answers of a notebook.

    Args:
        notebook: The notebook's path; None where it is unknown.
        folder: The folder of the file if the notebook is unknown.
    """
    if notebook is None:
        return Path(folder) / NAMELESS
    path = Path(notebook)
    return path.with_name(f"{path.stem}{_SUFFIX}")


def is_sidecar(path: PurePath) -> bool:
    """Return whether a file is a file of answers, by its name."""
    return _NAME.fullmatch(path.name) is not None


def notebook_of(path: PurePath) -> str:
    """Return the notebook of a file of answers, without its ending; `NAMELESS` where it is unknown."""
    result = _NAME.fullmatch(path.name)
    return (result and result["stem"]) or NAMELESS


def read_sidecar(path: str | Path) -> Contents:
    """Return the answers in a file, with notes on parts that could not be read; empty without a file.

    Raises:
        NewerVersionError: A later version wrote the file.
        AnswerError: It is not a file of answers.
        OSError: It cannot be read.
    """
    try:
        return parse_sidecar(Path(path).read_bytes(), Path(path).name)
    except FileNotFoundError:
        return Contents({}, [], {}, {})


def parse_sidecar(data: bytes, name: str) -> Contents:
    """Return the answers in the bytes of a file; see `read_sidecar`."""
    records: dict[str, Record] = {}
    notes: list[str] = []
    refused: dict[str, str] = {}
    contents = _contents(data, name)
    for key, raw in contents["answers"].items():
        try:
            record = check_record(raw)
        except AnswerError as error:
            notes.append(f"{name}, {quoted(key)}: {error}")
            refused[key] = str(error)
            continue
        if record["id"] != key:
            notes.append(f"{name}: the answer to {quoted(record['id'])} stands under {quoted(key)}")
        elif record["value"] is not None:
            records[key] = record
    answered = {key: str(when)[:_TIME] for key, when in _answered(contents).items()}
    return Contents(records, notes, refused, answered)


def write_answer(path: str | Path, record: Mapping[str, Any]) -> list[str]:
    """Put an answer into a file, along with those of other questions; a value of None removes it.

    Returns:
        Sentences on a file that had to be renamed; mostly none.

    Raises:
        NewerVersionError: A later version wrote the file, or this answer in it; it is not changed.
        AnswerError: It is not a record.
        AnswersFileError: The file cannot be written: the folder is read-only, or the disk full.
    """
    whole = check_record(record)
    target = Path(path)
    notes: list[str] = []
    try:
        with _alone(target):
            contents = _existing(target, notes)
            existing = contents["answers"].get(whole["id"])
            if (
                isinstance(existing, Mapping)
                and isinstance(existing.get("v"), int)
                and existing["v"] > VERSION
            ):
                check_record(existing)  # raises NewerVersionError
            answered = _answered(contents)
            if whole["value"] is None:
                if existing is None and not notes:
                    return notes
                contents["answers"].pop(whole["id"], None)
                answered.pop(whole["id"], None)
            elif whole != existing:
                contents["answers"][whole["id"]] = whole
                answered[whole["id"]] = time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime())
            for field, entries in (("answers", contents["answers"]), ("answered", answered)):
                contents[field] = {name: entries[name] for name in sorted(entries)}
            text = json.dumps(contents, ensure_ascii=False, indent=1) + "\n"
            write_bytes(target, text.encode("utf-8", "surrogatepass"))
    except OSError as error:
        reason = error.strerror or str(error)
        raise AnswersFileError(
            error.errno,
            f"the answer could not be written next to the notebook ({reason}): it is in the cell's output, "
            "and its receipt can be handed in",
            str(path),
        ) from error
    return notes


def _existing(path: Path, notes: list[str]) -> dict[str, Any]:
    """Return the JSON of the file that will be written; a file that is not JSON is renamed first."""
    try:
        return _contents(path.read_bytes(), path.name)
    except FileNotFoundError:
        return {"v": VERSION, "answers": {}}
    except NewerVersionError:
        raise
    except AnswerError as error:
        number = 1
        while (aside := path.with_name(f"{path.name}.broken-{number}")).exists():
            number += 1
        path.rename(aside)
        notes.append(f"{error} It is kept as {aside.name}, and a new file was begun.")
        return {"v": VERSION, "answers": {}}


def _contents(data: bytes, name: str) -> dict[str, Any]:
    """Return the JSON of a file of answers."""
    if len(data) > _LARGEST:
        raise AnswerError(f"{name} has {len(data):,} bytes: it is not a file of answers.")
    try:
        contents = json.loads(data.decode("utf-8-sig"))
    except (UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AnswerError(f"{name} is damaged: it is not JSON ({error}).") from error
    version = contents.get("v") if isinstance(contents, dict) else None
    if isinstance(version, int) and version > VERSION:
        raise NewerVersionError(
            f"{name} is of version {version}, and this attnwidgets reads version {VERSION}: "
            "pip install --upgrade attnwidgets. The file is left as it is."
        )
    if version != VERSION or not isinstance(contents.get("answers"), dict):
        raise AnswerError(f"{name} is JSON, but not a file of answers.")
    plain(contents)  # NaN and lone surrogates
    return contents


def _answered(contents: dict[str, Any]) -> dict[str, Any]:
    """Return the time of each answer, by id, where the file has it."""
    answered = contents.get("answered")
    return answered if isinstance(answered, dict) else {}


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Let no other process or thread of this user write the file within the block."""
    try:
        from filelock import FileLock, Timeout  # torch brings it
    except ModuleNotFoundError:  # in a browser, where there is one process
        yield
        return
    user = getattr(os, "getuid", lambda: "user")()
    key = hashlib.sha256(str(path.resolve()).encode("utf-8", "surrogatepass")).hexdigest()[:16]
    lock = FileLock(Path(tempfile.gettempdir()) / f"attnwidgets-{user}-{key}.lock", timeout=_LONGEST)
    try:
        with lock:
            yield
    except Timeout as error:
        raise TimeoutError(None, "another program holds the file", str(path)) from error
