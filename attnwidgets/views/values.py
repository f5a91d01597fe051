"""The numbers that a view shows, as a table to take along."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

from attnwidgets.explanations.tables import spreadsheet_label

if TYPE_CHECKING:
    from attnwidgets.views.wire.store import TileStore


def to_csv(store: TileStore, method: str, stream: str, unit: str, layer: int, head: int | str) -> str:
    """Return one matrix as CSV: a row for each query (or target), a column for each key, all digits.

    Labels that a spreadsheet would run as a formula begin with an apostrophe.

    Raises:
        LookupError: There is no such source.
        IndexError: There is no such layer or head.
        ValueError: The layer is not computed yet.
    """
    wanted = (method, stream, unit)
    source = next((s for s in store.sources() if (s.method, s.stream, s.unit) == wanted), None)
    if source is None:
        raise LookupError(f"{method!r} by {unit} is no longer shown; run the cell again.")
    if layer in source.layers and layer not in source.ready:
        raise ValueError(f"layer {layer} is not computed yet; look at it first.")
    values = source.matrix(layer, head)
    query, key = source.axes()
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(["", *map(spreadsheet_label, map(str, key["labels"]))])
    for label, row in zip(map(spreadsheet_label, map(str, query["labels"])), values, strict=True):
        writer.writerow([label, *map(str, row)])
    return out.getvalue()
