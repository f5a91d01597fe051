"""What a reader chose in one text, carried over to another: nothing may come to point at something else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._progress import Cancelled
from attnwidgets.views.base.selectable import Cell
from attnwidgets.views.wire.keys import base_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore


def carry_over(left: Selection, left_store: TileStore, to: Selection, to_store: TileStore) -> None:
    """Move a selection to the method, stack, layer, head and pins of another, as far as its text has them.

    The unit is carried over if the reader chose it. A target, a foil, interventions, heads and spans are not:
    they were chosen for the other text. A method is computed if it has to be. Pins that the text was left
    with stay.

    Args:
        left: The selection of the text that was shown.
        left_store: Its store.
        to: The selection of the text that is shown now.
        to_store: Its store.
    """
    if left is to:
        return
    opened = left.opening.unit if left.opening is not None else ""
    chosen: dict[str, Any] = {"unit": left.unit} if left.unit != opened else {}
    chosen |= {"stack": left.stack, "layer": left.layer, "head": left.head}
    with to.hold_sync():
        for name, value in {**chosen, "method": base_of(left.method)}.items():
            if getattr(to, name) == value:
                continue
            try:
                setattr(to, name, value)
            except Cancelled:
                raise
            except Exception:  # noqa: BLE001, S112 - this text or model has none, so its own stays
                continue
        if not to.pins:
            to.pins = _pins(left, left_store, to_store, to.stack)


def _pins(left: Selection, left_store: TileStore, store: TileStore, stack: str) -> list[Cell]:
    """Return the pins whose tokens are in the other text as well."""
    kept: list[Cell] = []
    for cell in left.pins:
        sources = [_map_in(one, cell.unit, stack) for one in (left_store, store)]
        if None in sources or left.stack != stack:
            continue
        before, after = (source.axes() for source in sources if source is not None)
        moved = [
            -1 if at < 0 else places(old["labels"], new["labels"])(at)
            for at, old, new in zip(cell, before, after, strict=True)
        ]
        if None not in moved:
            kept.append(Cell(moved[0] or 0, moved[1] or 0, cell.unit, cell.layer))
    return kept


def _map_in(store: TileStore, unit: str, stack: str) -> Source | None:
    maps = (one for one in store.sources() if not one.attributions)
    return next((one for one in maps if (one.unit, one.stack) == (unit, stack)), None)


def places(before: Sequence[str], after: Sequence[str]) -> Callable[[int], int | None]:
    """Return a function for the place in one text of an element of another; it returns None if there is none.

    An element is the same in a beginning and an end that the texts share, and between them at the same place
    in texts of the same length, if it has the same label.
    """
    shorter = min(len(before), len(after))
    first = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    most = shorter - first
    last = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)

    def place(at: int) -> int | None:
        if at < first:
            return at
        if at >= len(before) - last:
            return at - len(before) + len(after)
        return at if len(before) == len(after) and before[at] == after[at] else None

    return place
