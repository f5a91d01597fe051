"""Cells, spans and outcomes that a selection names, with their JSON, and `Choices`, which checks them.

A view's selection may cover several stores, after `aw.link`. `Choices` accepts a layer, head, method or index
if any source of these stores has it; `views/presentation.py` then shows the nearest that each view has.
"""

from __future__ import annotations

from collections.abc import Iterable
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any, NamedTuple

from attnwidgets._errors import suggest
from attnwidgets._selecting import position
from attnwidgets.views.wire.axes import key_for_target, span, target_of
from attnwidgets.views.wire.reader import REDUCTIONS

if TYPE_CHECKING:
    from typing_extensions import Self

    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

MOST_PINS = 400
"""Largest number of pinned cells: each is drawn in every linked view."""


class Cell(tuple[int, int]):  # noqa: SLOT001 - a tuple cannot have a slot for the unit
    """A cell of a map as `(query, key)`, with the unit that its indices count.

    An index of -1 means that only the other side is selected: `(3, -1)` is the token 3 as a query, `(-1, 3)`
    the same token as a key. `layer` is None, or the layer in which the cell was chosen.
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
        name: Name of the argument or trait, for the error.
        value: The cell in one of these forms, or None.
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


class Choices:
    """The layers, heads, units, methods, elements and predictions that a selection can name.

    Every check returns the value as the selection keeps it. It raises an IndexError if a number is out of
    range, a ValueError if a name is unknown or a value has another form, and a TypeError if a list is none.

    Args:
        store: The first store; its model tells the predictions.
    """

    def __init__(self, store: TileStore) -> None:
        self._stores = [store]

    def include(self, store: TileStore) -> None:
        """Add the sources of a store."""
        if store not in self._stores:
            self._stores.append(store)

    def exclude(self, store: TileStore) -> None:
        """Leave out the sources of a store, unless it is the only store."""
        if store in self._stores and len(self._stores) > 1:
            self._stores.remove(store)

    def _sources(self) -> list[Source]:
        return [source for store in self._stores for source in store.sources()]

    # -- layers, heads and names -------------------------------------------------------------------

    def layer(self, name: str, layer: int) -> int:
        """Check the number of a layer, given as `name`; a negative one counts from the last."""
        layers = sorted({number for source in self._sources() for number in source.layers})
        return layers[position(layer, layers, name)] if layers else layer

    def head(self, head: Any) -> int | str:
        """Check the number of a head, or the name of a reduction."""
        if isinstance(head, str):
            if head not in {*REDUCTIONS, "-"}:
                raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
            return head
        if not _is_index(head):
            raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
        heads = self._heads_of_sources()
        if heads and head not in heads:
            raise IndexError(f"head={head} is out of range: the heads are {span(heads)}, 'mean' and 'max'.")
        return int(head)

    def heads(self, given: Any) -> tuple[tuple[int, int], ...]:
        """Check heads `(layer, head)` that are chosen together, and drop repetitions."""
        numbers = self._heads_of_sources()
        heads: dict[tuple[int, int], None] = {}
        for item in _listed("heads", given, "(layer, head)"):
            if not (isinstance(item, (tuple, list)) and len(item) == 2 and all(map(_is_index, item))):  # noqa: PLR2004
                raise ValueError(f"heads: {item!r} is not (layer, head), as in heads=[(3, 1), (4, 0)].")
            layer, head = self.layer("heads: layer", int(item[0])), int(item[1])
            if head not in numbers:
                has_heads = f"the heads are {span(numbers)}" if numbers else "no map has heads"
                raise IndexError(f"heads: head={head} is out of range: {has_heads}.")
            heads[layer, head] = None
        return tuple(heads)

    def _heads_of_sources(self) -> tuple[int, ...]:
        return tuple(sorted({number for source in self._sources() for number in source.heads or ()}))

    def among(self, field: str, value: str, name: str = "") -> str:
        """Check a method, stack or unit: it is that of a source."""
        values = list(dict.fromkeys(getattr(source, field) for source in self._sources()))
        if values and value not in values:
            listed, near = ", ".join(map(repr, values)), suggest(value, values)
            raise ValueError(f"{name or field}={value!r} is not one of {listed}.{near}")
        return value

    # -- methods and their targets -----------------------------------------------------------------

    def predicted(self) -> Outcome:
        """Return the class or token that the model predicts."""
        return Outcome(*self._stores[0].outcome(None, "target"))

    def outcome(self, name: str, value: Any) -> Outcome | None:
        """Check a class or token that is given by its name or its number."""
        if value is None or isinstance(value, Outcome):
            return value
        return Outcome(*self._stores[0].outcome(value, name))

    def method_about(self, method: str, target: Outcome | None, foil: Outcome | None) -> str:
        """Return the key of a method for a target, or the method itself if it takes no target."""
        if not any(store.takes_targets(method) for store in self._stores):
            return method
        return key_for_target(method, target and target.id, foil and foil.id)

    def make(self, method: str, layer: int) -> None:
        """Compute a method that was chosen from Python; the browser requests it from the store first."""
        if current_thread() is not main_thread():
            return
        for store in self._stores:
            if method in store.menu or (target_of(method) and store.takes_targets(method)):
                store.make(method, layer)

    # -- cells and spans ---------------------------------------------------------------------------

    def pin(self, name: str, value: Any, unit: str) -> Cell | None:
        """Check a cell to pin, given as `name`; it is counted in `unit` if it does not say so."""
        cell = cell_of(name, value, unit)
        if cell is None:
            return None
        if cell.layer is not None:
            cell = Cell(*cell, cell.unit, self.layer(f"{name}: layer", cell.layer))
        for side, index, size in zip(("query", "key"), cell, self._sizes(name, cell.unit), strict=False):
            if not -1 <= index < size:
                raise IndexError(
                    f"{name} {side} {index} is out of range: there are {size} {cell.unit}s, "
                    f"0 to {size - 1} (-1: none)."
                )
        return cell

    def pins(self, given: Any, unit: str) -> tuple[Cell, ...]:
        """Check cells to pin together. A cell that was chosen twice stands where it was chosen last."""
        listed = _listed("pins", given, "(query, key)")
        if len(listed) > MOST_PINS:
            raise ValueError(f"pins has {len(listed)} cells; at most {MOST_PINS} can be pinned.")
        latest = dict.fromkeys(reversed([self.pin("pins", cell, unit) for cell in listed]))
        cells = tuple(cell for cell in reversed(latest) if cell is not None)
        if len({cell.unit for cell in cells}) > 1:
            units = ", ".join(dict.fromkeys(cell.unit for cell in cells))
            raise ValueError(f"pins are counted in several units ({units}); give all of them in one.")
        return cells

    def span(self, given: Any, unit: str) -> Span | None:
        """Check a span; it is counted in `unit` if it does not say so."""
        if given is None:
            return None
        if isinstance(given, dict) and given.keys() == set(Span._fields):
            given = tuple(given[field] for field in Span._fields)
        is_span = isinstance(given, (tuple, list)) and 2 <= len(given) <= 4 and all(map(_is_index, given[:2]))  # noqa: PLR2004
        if not is_span:
            raise ValueError(
                f"span={given!r} is neither None nor (start, stop), (start, stop, unit) nor "
                "(start, stop, unit, side)."
            )
        start, stop = given[:2]
        unit = given[2] if len(given) > 2 else unit  # noqa: PLR2004
        side = given[3] if len(given) > 3 else self._side(unit)  # noqa: PLR2004
        if side not in {"query", "key"}:
            raise ValueError(f"span side {side!r} is neither 'query' nor 'key'.")
        sizes = dict(zip(("query", "key"), self._sizes("span", unit), strict=False))
        size = sizes.get(side, stop)
        if start >= stop:
            raise ValueError(
                f"span ({start}, {stop}) is empty: stop, which is not included, must be above start."
            )
        if start < 0 or stop > size:
            raise IndexError(
                f"span ({start}, {stop}) is out of range: there are {size} {unit}s, 0 to {size}."
            )
        return Span(int(start), int(stop), unit, side)

    def _sizes(self, name: str, unit: str) -> tuple[int, ...]:
        """Return the largest number of queries and of keys in a unit; empty without sources."""
        shapes = [source.pinnable for source in self._sources() if source.unit == unit]
        if not shapes:
            self.among("unit", unit, f"{name} unit")
        return tuple(max(sizes) for sizes in zip(*shapes, strict=True))

    def _side(self, unit: str) -> str:
        """Return the side of a span that does not name it: that of the text, if rows are explanations."""
        rows = [source.rows_are_texts for source in self._sources() if source.unit == unit]
        return "query" if any(rows) or not rows else "key"


def _is_index(value: object) -> bool:
    return hasattr(value, "__index__") and not isinstance(value, bool)


def _listed(name: str, given: Any, of: str) -> list[Any]:
    if isinstance(given, (str, dict, Cell)) or not isinstance(given, Iterable):
        raise TypeError(f"{name}={given!r} is not a list of {of}.")
    return list(given)
