"""The numbers that a view shows, as a table to take along."""

from __future__ import annotations

import csv
import io
import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from attnwidgets.views.wire.store import TileStore

_FORMULA = re.compile(r"^[=+@-](?![\d.]*$)")


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
    writer.writerow(["", *spreadsheet_labels(key["labels"])])
    for label, row in zip(spreadsheet_labels(query["labels"]), values, strict=True):
        writer.writerow([label, *map(str, row)])
    return out.getvalue()


def spreadsheet_labels(labels: Sequence[Any]) -> list[str]:
    """Return labels of which a spreadsheet runs none: formulas begin with an apostrophe."""
    return ["'" + label if _FORMULA.match(label) else label for label in map(str, labels)]
