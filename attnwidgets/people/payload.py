"""One person's responses as a file and as a line of text; the twin of js/src/views/people/payload.ts."""

from __future__ import annotations

import binascii
import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from attnwidgets.course.canonical import canonical, require_shallow
from attnwidgets.course.errors import AnswerError
from attnwidgets.people.kinds import KINDS
from attnwidgets.people.schedule import digest

VERSION = 1
FIELDS = ("v", "study", "kind", "code", "finished", "rows", "package")
ROW = ("role", "item", "condition", "other", "position", "side", "answer", "first_ms", "ms")
"""What a row of the file holds, in this order."""
RECEIPT = re.compile(r"\bawp(\d{1,4})\.([A-Za-z0-9_=-]+)(?:\.([0-9A-Za-z]*))?")
"""Where a person's line may stand in a text, whole or not."""
ROLES = ("practice", "item", "check")
_CODE = re.compile(r"[a-z0-9]{4,16}")


class PayloadError(ValueError):
    """What is wrong with a person's responses; `.payload` is what could be read of them, or None."""

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
    """Return the responses that a line holds, with their digest, not yet checked.

    Raises:
        PayloadError: The line was cut, or holds nothing.
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
    """Return a person's responses, if they are whole.

    Raises:
        PayloadError: They are not of this package, of a later version, malformed, or edited.
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
    """Return what is wrong with the form of responses."""
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
        texts = all(isinstance(one, str) for one in (item, condition, other))
        times = all(one is None or isinstance(one, (int, float)) for one in (first, ms))
        if role not in ROLES or not texts or not times or not isinstance(position, int) or side not in (0, 1):
            return f"it has a malformed row: {str(row)[:80]}"
    return None
