"""The values that an answer of each kind can have (`checked`), and their canonical JSON (`canonical`).

Canonical JSON has the same bytes wherever it is written: RFC 8785, with numbers rounded to six digits. The
browser writes the same text with `JSON.stringify`, so that a receipt written there equals one of Python.
"""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import quoted, suggest
from attnwidgets.course.errors import AnswerError

if TYPE_CHECKING:
    from collections.abc import Callable

DIGITS = 6
"""Significant digits of a number: more than the numbers of two machines share."""

_LARGEST = 2**53
"""Whole numbers above this are rounded by JavaScript."""

_DEEPEST = 100
"""Levels of nested lists and dicts: more than an answer has, and far below Python's recursion limit."""

MOST_ITEMS = 10_000
MOST_CHARACTERS = 20_000


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
    raise AnswerError(f"a {type(value).__name__} cannot be an answer: give numbers, text or lists")


def rounded(number: float) -> int | float:
    """Return a number with six significant digits, as an int where it is a whole number.

    Raises:
        AnswerError: The number is NaN or infinite.
    """
    if not math.isfinite(number):
        raise AnswerError(f"{number} cannot be an answer: give a finite number")
    short = float(f"{number:.{DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < _LARGEST else short


def _whole(number: int) -> int | float:
    if abs(number) < _LARGEST:
        return number
    try:
        return rounded(float(number))
    except OverflowError as error:
        raise AnswerError("a whole number with more than 308 digits cannot be an answer") from error


def _encodable(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise AnswerError(
            f"the text holds half a character, at {error.start}: it cannot be an answer"
        ) from error
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
    """Return a number as JavaScript's `String(number)` writes it: 0.00001, 1e-7, 1e+21."""
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


def checked(kind: str, value: Any) -> Any:
    """Return a value in the form in which answers of its kind are stored.

    Args:
        kind: `"head"`: `(layer, head)`, or a list of them. `"layer"`: a number from 0, or a list of them.
            `"tokens"`: positions from 0. `"span"`: `(start, stop)` without `stop`. `"cell"`: `(query, key)`.
            `"order"`: names or numbers, the first rank first; a list in it holds ties. `"number"`: a finite
            number. `"choice"`: a name, or a list of names. `"text"`: text.
        value: The value. Sets of heads, layers, tokens and choices are sorted, and repeated ones dropped.

    Raises:
        AnswerError: The kind is unknown, or the value does not fit its kind.
    """
    if not isinstance(kind, str) or kind not in KINDS:
        near = suggest(str(kind), KINDS)
        raise AnswerError(f"kind {quoted(str(kind))} is not one of {', '.join(KINDS)}.{near}")
    items = sorted(value, key=str) if isinstance(value, (set, frozenset)) else value
    return _CHECKS[kind](plain(items))


def _count(value: Any, description: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise AnswerError(f"{description} {quoted(str(value))} is not a number that counts from 0")
    return value


def _list(value: Any, description: str, *, empty: bool = False) -> list[Any]:
    if not isinstance(value, list) or (not value and not empty):
        raise AnswerError(f"{quoted(str(value))} is not {description}")
    _few(len(value))
    return value


def _few(count: int) -> None:
    if count > MOST_ITEMS:
        raise AnswerError(f"{count:,} items are more than an answer can hold ({MOST_ITEMS:,})")


def _pair(value: Any, description: str, names: tuple[str, str]) -> list[int]:
    if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
        raise AnswerError(f"{quoted(str(value))} is not {description}")
    return [_count(number, name) for number, name in zip(value, names, strict=True)]


def _head(value: Any) -> list[Any]:
    several = isinstance(value, list) and bool(value) and isinstance(value[0], list)
    if not several:
        return _layer_and_head(value)
    return sorted(
        {
            tuple(_layer_and_head(item)): _layer_and_head(item) for item in _list(value, "a list of heads")
        }.values()
    )


def _layer_and_head(value: Any) -> list[int]:
    return _pair(value, "a head: give (layer, head), each from 0", ("layer", "head"))


def _layer(value: Any) -> int | list[int]:
    if isinstance(value, list):
        return sorted({_count(item, "layer") for item in _list(value, "a layer")})
    return _count(value, "layer")


def _tokens(value: Any) -> list[int]:
    positions = _list(value, "a list of positions: give tokens by position, from 0", empty=True)
    return sorted({_count(position, "position") for position in positions})


def _span(value: Any) -> list[int]:
    start, stop = _pair(value, "a span: give (start, stop), without stop", ("start", "stop"))
    if stop <= start:
        raise AnswerError(f"span ({start}, {stop}) is empty: stop is the first element after it")
    _few(stop - start)
    return [start, stop]


def _cell(value: Any) -> list[int]:
    return _pair(value, "a cell: give (query, key), each from 0", ("query", "key"))


def _name(value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise AnswerError(f"{quoted(str(value))} is not a name: give text")
    return _short(value)


def _order(value: Any) -> list[Any]:
    ranks: list[Any] = []
    flat: list[str | int] = []
    for rank in _list(value, "an order: give a list of names, the first place first"):
        names = [_label(item) for item in (rank if isinstance(rank, list) else [rank])]
        if not names:
            raise AnswerError("an order holds an empty place")
        ranks.append(sorted(names, key=str) if len(names) > 1 else names[0])
        flat += names
    _few(len(flat))
    counts = Counter(map(str, flat))
    if len(counts) < len(flat):
        raise AnswerError(f"{quoted(counts.most_common(1)[0][0])} appears twice in the order")
    return ranks


def _label(value: Any) -> str | int:
    return value if isinstance(value, int) and not isinstance(value, bool) else _name(value)


def _number(value: Any) -> int | float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise AnswerError(f"{quoted(str(value))} is not a number")
    return rounded(float(value))


def _choice(value: Any) -> str | list[str]:
    if isinstance(value, list):
        return sorted({_name(item) for item in _list(value, "a choice", empty=True)})
    return _name(value)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise AnswerError(f"{quoted(str(value))} is not text")
    return _short(value)


def _short(text: str) -> str:
    if len(text) > MOST_CHARACTERS:
        raise AnswerError(f"{len(text):,} characters are more than an answer can hold ({MOST_CHARACTERS:,})")
    return text


_CHECKS: dict[str, Callable[[Any], Any]] = {
    "head": _head, "layer": _layer, "tokens": _tokens, "span": _span, "cell": _cell, "order": _order,
    "number": _number, "choice": _choice, "text": _text,
}  # fmt: skip
KINDS = tuple(_CHECKS)
"""The kinds of questions."""
