"""Receipts: a record as one line of text, to paste into any form: `aw1.<base64url>.<6 hexadecimal digits>`.

The last six digits are a checksum, so that a receipt that was cut or mistyped is
noticed. It is not a signature: who can read the record can write another.
"""

from __future__ import annotations

import binascii
import json
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted
from attnwidgets.course.canonical import canonical
from attnwidgets.course.errors import AnswerError, NewerVersionError
from attnwidgets.course.records import VERSION, Record, check_record

if TYPE_CHECKING:
    from collections.abc import Mapping

RECEIPT = re.compile(r"\baw(\d{1,4})\.([A-Za-z0-9_=-]+)(?:\.([0-9A-Za-z]*))?")
"""Where a receipt may stand in a text, whole or not."""
_WHOLE = 6


def encode(record: Mapping[str, Any]) -> str:
    """Return a record as a receipt.

    Raises:
        AnswerError: It is not a record, or its question is not answered yet.
    """
    found = check_record(record)
    if found["value"] is None:
        raise AnswerError(f"{found['id']} is not answered yet: there is nothing to hand in")
    body = urlsafe_b64encode(canonical(found).encode()).decode().rstrip("=")
    return f"aw{VERSION}.{body}.{checksum(body)}"


def receipt(record: Mapping[str, Any]) -> str:
    """Return the receipt of a record: one line of text, to paste into any form.

    Args:
        record: A record, as `question.record` and `read_answers` have it.

    Returns:
        `aw1.<base64url>.<6 hexadecimal digits>`, at most a third longer than the record's JSON. Equal records
        have equal receipts.

    Raises:
        AnswerError: It is not a record, or its question is not answered yet.

    Example:
        >>> text = aw.course.receipt(aw.course.make_record("q1", "head", (5, 9)))
        >>> aw.course.decode(text)["value"]
        [5, 9]
    """
    return encode(record)


def decode(receipt: str) -> Record:
    """Return the record that a receipt holds.

    Args:
        receipt: A receipt, as a question shows it; spaces and line breaks that a form put into it are
            ignored.

    Returns:
        The record: a dict with `v`, `id`, `kind`, `value`, `unit`, `subject` and `package`.

    Raises:
        AnswerError: The text lacks a receipt, or the receipt was cut or changed; the message says which.
        NewerVersionError: A later version of attnwidgets made it (an AnswerError, too).

    Example:
        >>> record = aw.course.decode("aw1.eyJpZCI6InExIiwia2luZCI6ImhlYWQifQ.000000")
        Traceback (most recent call last):
        ...
        attnwidgets.course.errors.AnswerError: the receipt was changed: ...
    """
    if not isinstance(receipt, str):
        raise AnswerError(f"receipt is a {type(receipt).__name__}, not text")
    found = RECEIPT.search(re.sub(r"\s+", "", receipt))
    if not found:
        raise AnswerError(f"{quoted(receipt)} holds no receipt: it begins with aw{VERSION}.")
    version, body, check = int(found[1]), found[2], found[3]
    if version > VERSION:
        raise NewerVersionError(
            f"the receipt is of version {version}, and this attnwidgets reads version {VERSION}: "
            "pip install --upgrade attnwidgets"
        )
    if version < 1:
        raise AnswerError(
            f"the receipt names version {version}, which does not exist: copy the receipt again"
        )
    if check is None or len(check) < _WHOLE:
        raise AnswerError("the receipt was cut: its end with six digits is missing; copy all of it again")
    if check[:_WHOLE].lower() != checksum(body):
        raise AnswerError(
            "the receipt was changed: its last six digits do not fit the rest; copy all of it again"
        )
    try:
        record = json.loads(urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (binascii.Error, UnicodeDecodeError, ValueError, RecursionError) as error:
        raise AnswerError("the receipt holds no record: copy it again from the question") from error
    return check_record(record)


def checksum(body: str) -> str:
    """Return the last 24 bits of a text's CRC-32 as six hexadecimal digits: eight lines in any language."""
    return f"{zlib.crc32(body.encode('ascii')) & 0xFFFFFF:06x}"
