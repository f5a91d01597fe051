"""What can be selected in the stores of a selection, and the check of what was given for it."""

from __future__ import annotations

from collections.abc import Iterable
from threading import current_thread, main_thread
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets._selecting import position
from attnwidgets.views.base.selectable import Cell, Outcome, Span, cell_of
from attnwidgets.views.wire.axes import span
from attnwidgets.views.wire.keys import key_for_target, target_of
from attnwidgets.views.wire.reader import REDUCTIONS

if TYPE_CHECKING:
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

MOST_PINS = 400
"""Largest number of pinned cells: each is drawn in every linked view."""


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
        """Leave out the sources of a store, unless it is the only one."""
        if store in self._stores and len(self._stores) > 1:
            self._stores.remove(store)

    def _sources(self) -> list[Source]:
        return [source for store in self._stores for source in store.sources()]

    # -- layers, heads and names -------------------------------------------------------------------

    def layer(self, name: str, layer: int) -> int:
        """Check the number of a layer, given as `name`; a negative one counts from the last."""
        known = sorted({number for source in self._sources() for number in source.layers})
        return known[position(layer, known, name)] if known else layer

    def head(self, head: Any) -> int | str:
        """Check the number of a head, or the name of a reduction."""
        if isinstance(head, str):
            if head not in {*REDUCTIONS, "-"}:
                raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
            return head
        if not _is_index(head):
            raise ValueError(f"head={head!r} is not a head number, 'mean', 'max' or '-'.")
        known = self._known_heads()
        if known and head not in known:
            raise IndexError(f"head={head} is out of range: the heads are {span(known)}, 'mean' and 'max'.")
        return int(head)

    def heads(self, given: Any) -> tuple[tuple[int, int], ...]:
        """Check heads `(layer, head)` that are chosen together; each is kept once."""
        known = self._known_heads()
        heads: dict[tuple[int, int], None] = {}
        for item in _listed("heads", given, "(layer, head)"):
            if not (isinstance(item, (tuple, list)) and len(item) == 2 and all(map(_is_index, item))):  # noqa: PLR2004
                raise ValueError(f"heads: {item!r} is not (layer, head), as in heads=[(3, 1), (4, 0)].")
            layer, head = self.layer("heads: layer", int(item[0])), int(item[1])
            if head not in known:
                has_heads = f"the heads are {span(known)}" if known else "no map has heads"
                raise IndexError(f"heads: head={head} is out of range: {has_heads}.")
            heads[layer, head] = None
        return tuple(heads)

    def _known_heads(self) -> tuple[int, ...]:
        return tuple(sorted({number for source in self._sources() for number in source.heads or ()}))

    def among(self, field: str, value: str, name: str = "") -> str:
        """Check a method, stack or unit: it is that of a source."""
        known = list(dict.fromkeys(getattr(source, field) for source in self._sources()))
        if known and value not in known:
            listed, near = ", ".join(map(repr, known)), suggest(value, known)
            raise ValueError(f"{name or field}={value!r} is not one of {listed}.{near}")
        return value

    # -- methods and what they explain -------------------------------------------------------------

    def predicted(self) -> Outcome:
        """Return what the model predicts."""
        return Outcome(*self._stores[0].outcome(None, "target"))

    def outcome(self, name: str, value: Any) -> Outcome | None:
        """Check a class or token that is given by its name or its number."""
        if value is None or isinstance(value, Outcome):
            return value
        return Outcome(*self._stores[0].outcome(value, name))

    def method_about(self, method: str, target: Outcome | None, foil: Outcome | None) -> str:
        """Return the key of a method for a target, if it takes one."""
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
        """Return the largest number of queries and of keys in a unit; empty if nothing is known of it."""
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
