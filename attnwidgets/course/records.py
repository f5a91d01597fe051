"""The record of an answer as JSON: question, answer, model and text; and its receipt, a line of text.

A receipt is the record as a line to paste into any form: `aw1.<base64url>.<6 hexadecimal digits>`. The last
six digits are a checksum, by which a cut or mistyped receipt is noticed. It is not a signature: anybody who
can read the record can write another.
"""

from __future__ import annotations

import binascii
import hashlib
import json
import re
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from attnwidgets._errors import quoted
from attnwidgets._version import __version__
from attnwidgets.course.errors import AnswerError, NewerVersionError
from attnwidgets.course.values import KINDS, canonical, checked, require_shallow

VERSION = 1
"""The version of records, receipts and files of answers."""

MIME = "application/vnd.attnwidgets.answer+json"
"""The MIME type under which an output holds a record."""

FIELDS = ("v", "id", "kind", "value", "unit", "subject", "package")
_ID = re.compile(r"\w[\w.-]{0,63}")
_UNIT = 40
_SUBJECT = re.compile(r"[0-9a-f]{8,64}")
_LARGEST = 1_000_000

RECEIPT = re.compile(r"\baw(\d{1,4})\.([A-Za-z0-9_=-]+)(?:\.([0-9A-Za-z]*))?")
"""A receipt in a text, possibly cut."""

_WHOLE = 6


class Record(dict[str, Any]):
    """The record of an answer: a dict with the keys `FIELDS`, which can be read as attributes."""

    __slots__ = ()

    def __getattr__(self, name: str) -> Any:
        if name in FIELDS:
            return self[name]
        raise AttributeError(f"a record has no {name!r}: it has {', '.join(FIELDS)}")


def make_record(
    id: str,  # noqa: A002 - the field's name
    kind: str,
    value: Any,
    *,
    unit: str | None = None,
    subject: str | None = None,
) -> Record:
    """Return the record of an answer.

    Args:
        id: Id of the question, unique in its notebook: letters, digits, "_", "-" and ".".
        kind: One of `KINDS`.
        value: The answer, checked by its kind (see `values.checked`); None: not answered yet.
        unit: Unit of the value ("token", "word", "nats"); None without.
        subject: Hash of the model and text that the question is about (`subject_of`); None without.

    Returns:
        A `Record`, equal wherever the same answer is given by the same version.

    Raises:
        AnswerError: An argument is not valid.

    Example:
        >>> aw.course.make_record("q1", "tokens", {6, 5, 11})["value"]
        [5, 6, 11]
    """
    return check_record(
        {
            "v": VERSION,
            "id": id,
            "kind": kind,
            "value": None if value is None else checked(kind, value),
            "unit": unit,
            "subject": subject,
            "package": __version__,
        }
    )


def check_record(record: Any) -> Record:
    """Return a record after checks of its fields.

    Raises:
        NewerVersionError: A later version wrote it.
        AnswerError: It is not a record, or its value does not fit its kind.
    """
    require_shallow(record)
    if not isinstance(record, Mapping):
        raise AnswerError(f"{quoted(str(record))} is not the record of an answer")
    version = record.get("v")
    if isinstance(version, bool) or not isinstance(version, int) or version < 1:
        raise AnswerError(f"the record has no version that counts from 1, but {quoted(str(version))}")
    name = record.get("id")
    if version > VERSION:
        raise NewerVersionError(
            f"the answer to {quoted(str(name))} is of version {version}, and attnwidgets {__version__} reads "
            f"version {VERSION}: pip install --upgrade attnwidgets"
        )
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise AnswerError(f"id {quoted(str(name))} is not 1 to 64 letters, digits, '_', '-' or '.'")
    kind, value, unit, subject = (record.get(field) for field in ("kind", "value", "unit", "subject"))
    if kind not in KINDS:
        checked(str(kind), None)  # raises an error that lists the kinds
    if unit is not None and (not isinstance(unit, str) or not 0 < len(unit) <= _UNIT):
        raise AnswerError(f"unit {quoted(str(unit))} is not a word of at most {_UNIT} characters")
    check_subject(subject)
    package = record.get("package")
    if not isinstance(package, str) or not 0 < len(package) <= _UNIT:
        raise AnswerError(f"package {quoted(str(package))} is not a version of attnwidgets")
    whole = {**record, "value": None if value is None else checked(str(kind), value)}
    return Record((field, whole.get(field)) for field in FIELDS)


def check_subject(subject: Any) -> str | None:
    """Return a hash of a model and text, or None.

    Raises:
        AnswerError: It is neither.
    """
    if subject is None or (isinstance(subject, str) and _SUBJECT.fullmatch(subject)):
        return subject
    raise AnswerError(f"subject {quoted(str(subject))} is not a hash (8 to 64 hexadecimal digits)")


def subject_of(*parts: Any) -> str:
    """Return the hash of a question's subject, the model and text that it is about: 16 hexadecimal digits.

    Args:
        parts: Data that the right answer depends on, as text, numbers and lists: a fingerprint of the model,
            and the ids or the text of its tokens. Numbers count with six digits.

    Raises:
        AnswerError: A part is something else.

    Example:
        >>> aw.course.subject_of("a model's fingerprint", [101, 1996, 102])
        'bfcee769367ec02f'
    """
    return hashlib.sha256(canonical(list(parts)).encode()).hexdigest()[:16]


def encode(record: Mapping[str, Any]) -> str:
    """Return a record as a receipt.

    Raises:
        AnswerError: It is not a record, or its question is not answered yet.
    """
    result = check_record(record)
    if result["value"] is None:
        raise AnswerError(f"{result['id']} is not answered yet: there is nothing to hand in")
    body = urlsafe_b64encode(canonical(result).encode()).decode().rstrip("=")
    return f"aw{VERSION}.{body}.{checksum(body)}"


def receipt(record: Mapping[str, Any]) -> str:
    """Return the receipt of a record: a line of text to paste into any form.

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
    result = RECEIPT.search(re.sub(r"\s+", "", receipt))
    if not result:
        raise AnswerError(f"{quoted(receipt)} holds no receipt: it begins with aw{VERSION}.")
    version, body, check = int(result[1]), result[2], result[3]
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
