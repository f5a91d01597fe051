"""Head statistics of several texts as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.explanations.results.description import plain
from attnwidgets.statistics.row_shares import divided
from attnwidgets.statistics.table import HeadStatistics

if TYPE_CHECKING:
    from collections.abc import Sequence


def averaged(tables: Sequence[HeadStatistics]) -> HeadStatistics:
    """Return the mean over texts, each counting alike: `averaged([aw.head_statistics(t) for t in traces])`.

    Statistics that one of the texts does not have are left out. NaN stays only where every text has it.

    Args:
        tables: Of the same model, in the same unit.

    Raises:
        ValueError: Where layers, heads or units differ, or no statistic is in all of them.
    """
    if not tables:
        raise ValueError("tables is empty: give at least one.")
    first = tables[0]
    for place, table in enumerate(tables):
        for what in ("layers", "heads", "unit"):
            own, other = getattr(table, what), getattr(first, what)
            if own != other:
                raise ValueError(f"tables[{place}] has {what} {own!r}, the first has {other!r}.")
    names = [name for name in first.names if all(name in table for table in tables)]
    if not names:
        raise ValueError("no statistic is in all of the tables.")
    stack = np.array([[table[name] for name in names] for table in tables])
    known = ~np.isnan(stack)
    missing = {name: reason for table in tables for name, reason in table.left_out.items()}
    history = plain(first.provenance)
    history["steps"] = [*history["steps"], f"mean over {len(tables)} texts"]
    return HeadStatistics(
        divided(np.where(known, stack, 0.0).sum(axis=0), known.sum(axis=0)),
        names=names,
        layers=first.layers,
        heads=first.heads,
        left_out={name: f"{reason} (in one of the texts)" for name, reason in missing.items()},
        method=first.method,
        unit=first.unit,
        stack=first.stack,
        provenance=history | {"text": ""},
    )
