"""The parts of explanations as JSON, for pickles and archives; and the names of rows and columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from attnwidgets.tracing.text.messages import Message
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from attnwidgets.explanations.explanation import Explanation


def plain(value: Any) -> Any:
    """Return `value` in the types of JSON; functions by their name, other objects by their repr."""
    if value is None or isinstance(value, (str, bool, int, float)):
        return value
    if isinstance(value, (np.generic, np.ndarray)):
        return plain(value.tolist())
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (Sequence, set, frozenset)) and not isinstance(value, (bytes, bytearray)):
        return [plain(item) for item in value]
    if callable(value):
        return getattr(value, "__qualname__", type(value).__qualname__)
    return repr(value)


def frozen(value: Any) -> Any:
    """Return a JSON-able value with its lists as tuples and its objects as read-only mappings."""
    if isinstance(value, Mapping):
        return MappingProxyType({key: frozen(item) for key, item in value.items()})
    if isinstance(value, (list, tuple)):
        return tuple(frozen(item) for item in value)
    return value


def describe_axis(axis: TokenAxis) -> dict[str, Any]:
    """Return a JSON-able description of an axis with all of its units."""
    return _describe_fields(axis) | {
        "units": {name: _describe_fields(unit) for name, unit in axis.units.items()},
        "messages": [_describe_fields(message) for message in axis.messages],
    }


def _describe_fields(item: TokenAxis | Unit | Message) -> dict[str, Any]:
    return {field.name: plain(getattr(item, field.name)) for field in dataclasses.fields(item)}


def restore_axis(described: Mapping[str, Any]) -> TokenAxis:
    """Return the axis that `describe_axis` described, without fields of a later version."""
    units = {name: Unit(**_fields_of(Unit, unit)) for name, unit in described["units"].items()}
    messages = tuple(Message(**_fields_of(Message, message)) for message in described.get("messages", ()))
    axis = TokenAxis(**(_fields_of(TokenAxis, described) | {"units": units, "messages": messages}))
    _check(axis)
    return axis


def _fields_of(cls: type[TokenAxis | Unit | Message], described: Mapping[str, Any]) -> dict[str, Any]:
    names = {field.name for field in dataclasses.fields(cls)}
    return {name: _tuples(value) for name, value in described.items() if name in names}


def _check(axis: TokenAxis) -> None:
    """Raise a ValueError if an axis and its units do not fit together."""
    n_tokens = len(axis)
    if not axis.units or len(axis.segment) != n_tokens:
        raise ValueError(f"an axis of {n_tokens} tokens lacks a unit to read them in, or the text each is in")
    for name, unit in axis.units.items():
        sizes = {len(unit.labels), len(unit.special), len(unit.times or unit.spans)}
        sizes |= {len(unit.cells or unit.spans), len(unit.boxes or unit.spans)}
        if sizes != {len(unit.spans)} or unit.name != name:
            raise ValueError(f"unit {name!r} has {len(unit.spans)} spans and {len(unit.labels)} labels")
        if any(not 0 <= index < n_tokens for span in unit.spans for index in span):
            raise ValueError(f"unit {name!r} names tokens outside 0 to {n_tokens - 1}")
        if unit.grid is not None and not _fills(unit):
            raise ValueError(f"unit {name!r} has other patches than its grid {unit.grid}")


def _fills(unit: Unit) -> bool:
    """Return whether every cell of a unit's grid is one of its elements."""
    rows, columns = unit.grid or (0, 0)
    if unit.cells is None:  # of an older file, in which patches follow special tokens
        return rows > 0 < columns and rows * columns <= len(unit)
    return sorted(cell for cell in unit.cells if cell is not None) == list(range(rows * columns))


def _tuples(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MappingProxyType({name: _tuples(item) for name, item in value.items()})
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


class AxisWords(NamedTuple):
    """Words for a map's rows and columns; `provenance["axes"]` stores those that differ from `READING`.

    Attributes:
        row: Noun for a row.
        column: Noun for a column.
        verb: Verb from an element of a row to an element of a column.
        back: Verb in the other direction.
        question: A question about an element {} of a row.
        question_back: A question about an element {} of a column.
    """

    row: str
    column: str
    verb: str
    back: str
    question: str
    question_back: str

    @property
    def labels(self) -> tuple[str, str]:
        """The labels of a figure's rows and columns, with the direction of attention."""
        return ("query (to)", "key (from)") if self == READING else self[:2]


READING = AxisWords("query", "key", "reads", "is read by", "Where does {} look?", "Who looks at {}?")
TARGETS = AxisWords("target", "source", "draws on", "goes to", "What does {} draw on?", "Where does {} go?")


def axis_words(shown: Explanation, default: AxisWords = READING) -> AxisWords:
    """Return the words of a map, or `default` if its provenance has none."""
    return AxisWords(*shown.provenance.get("axes", default))
