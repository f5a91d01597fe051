"""What can be selected: a cell of a map, a span of a text, an outcome; and each as JSON."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from typing_extensions import Self


class Cell(tuple[int, int]):  # noqa: SLOT001 - a tuple cannot have a slot for the unit
    """A cell of a map as `(query, key)`, with the unit that its indices count.

    An index of -1 means that only the other side is selected: `(3, -1)` is the token 3 as a query, `(-1, 3)`
    the same token as a key. `layer` is None, or the one layer in which the cell was chosen.
    """

    unit: str
    layer: int | None

    def __new__(cls, query: int, key: int, unit: str, layer: int | None = None) -> Self:
        """Make a cell."""
        cell = super().__new__(cls, (int(query), int(key)))
        cell.unit = unit
        cell.layer = None if layer is None else int(layer)
        return cell

    def __getnewargs__(self) -> tuple[int, int, str, int | None]:
        return self[0], self[1], self.unit, self.layer

    @property
    def query(self) -> int:
        """Row: the element that attends."""
        return self[0]

    @property
    def key(self) -> int:
        """Column: the element attended to."""
        return self[1]

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Cell) and (other.unit, other.layer) != (self.unit, self.layer):
            return False
        return tuple.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        return not self == other

    def __hash__(self) -> int:
        return tuple.__hash__(self)

    def __repr__(self) -> str:
        layer = "" if self.layer is None else f", layer={self.layer}"
        return f"Cell(query={self.query}, key={self.key}, unit={self.unit!r}{layer})"


def cell_to_json(cell: Cell | None, _: object) -> dict[str, Any] | None:
    """Return a cell as the browser reads it; for traitlets' `to_json`, like those below."""
    if cell is None:
        return None
    sent = {"unit": cell.unit, "query": cell.query, "key": cell.key}
    return sent if cell.layer is None else {**sent, "layer": cell.layer}


def cells_to_json(cells: tuple[Cell, ...], _: object) -> list[dict[str, Any] | None]:
    """Return cells as the browser reads them."""
    return [cell_to_json(cell, None) for cell in cells]


class Span(NamedTuple):
    """Consecutive elements of a text: from `start` up to, not including, `stop`, counted in `unit`.

    `side` says of which axis: `"query"` or `"key"`; both are the same text in self-attention.
    """

    start: int
    stop: int
    unit: str = "token"
    side: str = "query"


def span_to_json(chosen: Span | None, _: object) -> dict[str, Any] | None:
    """Return a span as the browser reads it."""
    return None if chosen is None else chosen._asdict()


class Outcome(NamedTuple):
    """A class or token that the model could predict: its index among the logits, and its name."""

    id: int
    label: str


def outcome_to_json(outcome: Outcome | None, _: object) -> dict[str, Any] | None:
    """Return an outcome as the browser reads it."""
    return None if outcome is None else outcome._asdict()


def outcome_from_json(sent: dict[str, Any] | None, _: object) -> Outcome | None:
    """Return the outcome that the browser sent."""
    return None if sent is None else Outcome(int(sent["id"]), str(sent["label"]))


def cell_of(name: str, value: Any, unit: str) -> Cell | None:
    """Return a cell as a reader or the browser wrote it.

    These are `(query, key)`, `(query, key, unit)`, `(query, key, unit, layer)` or a dict.

    Args:
        name: What it was given as, for the error.
        value: What was given.
        unit: The unit that its indices count, if it does not say so.

    Raises:
        ValueError: The value has none of these forms.
    """
    if value is None or isinstance(value, Cell):
        return value
    if isinstance(value, dict) and {"query", "key"} <= value.keys():
        return Cell(value["query"], value["key"], value.get("unit", unit), value.get("layer"))
    if isinstance(value, (tuple, list)) and 2 <= len(value) <= 4:  # noqa: PLR2004
        rest = list(value[2:])
        return Cell(value[0], value[1], rest[0] if rest else unit, rest[1] if len(rest) > 1 else None)
    raise ValueError(f"{name}={value!r} is neither None nor (query, key) nor (query, key, unit).")
