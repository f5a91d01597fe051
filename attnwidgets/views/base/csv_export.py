"""CSV export of the matrix that a view shows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets._tables import csv_of

if TYPE_CHECKING:
    from attnwidgets.views.wire.store import TileStore

PART_BYTES = 2_000_000
"""Approximate size of the part of a table that is sent at once."""
_NUMBER = 13  # bytes of a number in it


def part_of_csv(
    store: TileStore, method: str, stack: str, unit: str, layer: int, head: int | str, first: int = 0
) -> dict[str, Any]:
    """Return one matrix as CSV with all digits: a row for each query (or target), a column for each key.

    Labels that a spreadsheet would run as a formula begin with an apostrophe. Of a large matrix, only the
    rows of one part are read.

    Args:
        store: The store that holds it.
        method: Key of the method.
        stack: Name of the stack.
        unit: The unit.
        layer: Number of the layer.
        head: Number of the head, or a reduction.
        first: First row of the part; the first part begins with the names of the columns.

    Returns:
        "text", and "next": the first row of the next part, or None.

    Raises:
        LookupError: The source is unknown.
        IndexError: The layer, head or row is out of range.
        ValueError: The layer is not computed yet.
    """
    wanted = (method, stack, unit)
    source = next((s for s in store.sources() if (s.method, s.stack, s.unit) == wanted), None)
    if source is None:
        raise LookupError(f"{method!r} by {unit} is no longer shown; run the cell again.")
    if layer in source.layers and layer not in source.ready:
        raise ValueError(f"layer {layer} is not computed yet; select it first.")
    query, key = source.axes()
    rows, cols = source.shape
    last = min(rows, first + max(1, PART_BYTES // (_NUMBER * max(1, cols))))
    values = source.rows(layer, head, first, last)
    lines = [["", *map(str, key["labels"])]] if first == 0 else []
    for label, row in zip(query["labels"][first:last], values, strict=True):
        lines.append([str(label), *map(str, row)])
    return {"text": csv_of(lines), "next": last if last < rows else None}
