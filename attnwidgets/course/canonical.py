"""JSON that is the same bytes wherever it is written: RFC 8785, with numbers rounded to six digits.

The browser writes the same text with `JSON.stringify`, so that an answer's receipt does not depend on where
it was made.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from attnwidgets.course.errors import AnswerError

DIGITS = 6
"""Significant digits of a number: more than the numbers of two machines share."""
_LARGEST = 2**53
"""Whole numbers above this are rounded by JavaScript."""
_DEEPEST = 100
"""Lists and dicts within each other: far more than an answer has, and far fewer than Python can walk."""


def canonical(value: Any) -> str:
    """Return JSON with sorted keys, no spaces and numbers of six significant digits.

    Args:
        value: None, truth values, numbers, text, and lists and dicts of these; numpy's and torch's, too.

    Raises:
        AnswerError: The value holds something else, NaN, an infinity, text that cannot be encoded, or lists
            nested more than a hundred deep.
    """
    return _written(plain(value))


def plain(value: Any) -> Any:
    """Return a value as canonical JSON reads it: tuples and arrays as lists, numbers rounded.

    Raises:
        AnswerError: See `canonical`.
    """
    require_shallow(value)
    return _plain(value)


def require_shallow(value: Any) -> None:
    """Raise AnswerError if lists and dicts are nested so deeply that walking or printing them fails."""
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            item
            for outer in level
            if isinstance(outer, (list, tuple, Mapping))
            for item in (outer.values() if isinstance(outer, Mapping) else outer)
        ]
        if not level:
            return
    raise AnswerError(f"more than {_DEEPEST} lists within each other cannot be read")


def _plain(value: Any) -> Any:  # noqa: PLR0911 - a line for each type
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _encodable(str(value))
    if isinstance(value, int):
        return _whole(int(value))
    if isinstance(value, float):
        return rounded(value)
    if isinstance(value, Mapping):
        return {_encodable(str(name)): _plain(value[name]) for name in sorted(value, key=str)}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):  # numbers and arrays of numpy and torch, which are not imported for this
        return _plain(value.tolist())
    raise AnswerError(f"a {type(value).__name__} cannot be kept as an answer: give numbers, text or lists")


def rounded(number: float) -> int | float:
    """Return a number with six significant digits, as a whole number where it is one.

    Raises:
        AnswerError: The number is NaN or infinite.
    """
    if not math.isfinite(number):
        raise AnswerError(f"{number} is not a number that can be kept: give a finite one")
    short = float(f"{number:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < _LARGEST else short


def _whole(number: int) -> int | float:
    if abs(number) < _LARGEST:
        return number
    try:
        return rounded(float(number))
    except OverflowError as error:
        raise AnswerError("a whole number with more than 308 digits cannot be kept") from error


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AnswerError(f"the text holds half a character, at {error.start}: it cannot be kept") from error
    return text


def _written(value: Any) -> str:
    if isinstance(value, float):
        return _as_javascript(value)
    if isinstance(value, dict):
        inside = ",".join(f"{json.dumps(name, ensure_ascii=False)}:{_written(value[name])}" for name in value)
        return f"{{{inside}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    return json.dumps(value, ensure_ascii=False)


def _as_javascript(number: float) -> str:
    """Return a number as `String(number)` of JavaScript has it: 0.00001, 1e-7, 1e+21."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)  # noqa: S101 - it is finite
    text = "".join(map(str, digits))
    point = len(text) + exponent  # digits before the decimal point
    if -6 < point <= 0:  # noqa: PLR2004 - the bounds of ECMAScript's Number::toString
        shown = f"0.{'0' * -point}{text}"
    elif 0 < point <= 21:  # noqa: PLR2004
        shown = f"{text[:point]}.{text[point:]}" if point < len(text) else text.ljust(point, "0")
    else:
        shown = f"{text[0]}{'.' if text[1:] else ''}{text[1:]}e{point - 1:+d}"
    return f"-{shown}" if sign else shown
