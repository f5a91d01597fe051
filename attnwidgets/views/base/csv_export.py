"""The numbers that a view shows, as a table to take along."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.tables import spreadsheet_label

if TYPE_CHECKING:
    from attnwidgets.views.wire.store import TileStore

PART_BYTES = 2_000_000
"""Bytes of a table that are sent at once, about."""
_NUMBER = 13  # bytes of a number in it


def part_of_csv(
    store: TileStore, method: str, stack: str, unit: str, layer: int, head: int | str, first: int = 0
) -> dict[str, Any]:
    """Return one matrix as CSV: a row for each query (or target), a column for each key, all digits.

    Labels that a spreadsheet would run as a formula begin with an apostrophe. Of a large matrix as many rows
    are read and returned as are sent at once.

    Args:
        store: Where it is.
        method: Key of the method.
        stack: Name of the stack.
        unit: The unit.
        layer: Number of the layer.
        head: Number of the head, or a reduction.
        first: The row that the part begins with; the first part has the names of the columns.

    Returns:
        "text", and "next": the row that the next part begins with, or None.

    Raises:
        LookupError: There is no such source.
        IndexError: There is no such layer, head or row.
        ValueError: The layer is not computed yet.
    """
    wanted = (method, stack, unit)
    source = next((s for s in store.sources() if (s.method, s.stack, s.unit) == wanted), None)
    if source is None:
        raise LookupError(f"{method!r} by {unit} is no longer shown; run the cell again.")
    if layer in source.layers and layer not in source.ready:
        raise ValueError(f"layer {layer} is not computed yet; look at it first.")
    query, key = source.axes()
    rows, cols = source.shape
    last = min(rows, first + max(1, PART_BYTES // (_NUMBER * max(1, cols))))
    values = source.rows(layer, head, first, last)
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    if first == 0:
        writer.writerow(["", *(spreadsheet_label(str(label)) for label in key["labels"])])
    for label, row in zip(query["labels"][first:last], values, strict=True):
        writer.writerow([spreadsheet_label(str(label)), *map(str, row)])
    return {"text": out.getvalue(), "next": last if last < rows else None}
