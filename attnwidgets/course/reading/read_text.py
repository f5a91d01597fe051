"""Answers in the text of one file: a notebook's outputs, and receipts wherever they were pasted."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from attnwidgets.course.errors import AnswerError
from attnwidgets.course.receipts import RECEIPT, decode
from attnwidgets.course.records import MIME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.course.reading.answers import Collector

_TAG = re.compile(r"<[^<>]*>")


def read_notebook(data: bytes, into: Collector) -> None:
    """Add the answers of a notebook: receipts in its text cells first, then what its outputs hold.

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
        if not records:  # a front end that keeps only HTML
            for bundle in bundles:
                read_receipts(_joined(bundle.get("text/html")), into, f"the output of cell {number}")


def read_receipts(text: str, into: Collector, part: str = "") -> None:
    """Add every receipt of a text, and say of those that cannot be read why.

    Raises:
        AnswerError: There are too many.
    """
    for found in RECEIPT.finditer(text):
        if len(found[2]) < _SHORTEST and not found[3]:  # a word like "aw1.x"
            continue
        into.count()
        try:
            into.add(decode(found[0]), part)
        except AnswerError as error:
            into.note(f"{part or into.file.rpartition('/')[2]}: {error} (it begins {found[0][:24]}…)")


_SHORTEST = 40
"""Characters of the shortest record's receipt."""


_MOST_VALUES = 10_000_000
"""Values in a notebook: JSON of a few bytes each takes thirty times the memory of its file."""


def text_of_page(data: bytes) -> str:
    """Return the text of an HTML page in which receipts are looked for, without tags and with them.

    No page escapes the characters of a receipt.
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
    """Return a record from an output; some front ends keep JSON as text or as a list of lines."""
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
