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
    """Return the mean of head statistics over texts, all with equal weight.

    Statistics that are not defined for one of the texts are left out. A value is NaN only if it is NaN for
    every text.

    Args:
        tables: Head statistics of the same model, in the same unit; one for each text.

    Returns:
        HeadStatistics [statistic, layer, head]; range and meaning are those of each statistic.

    Raises:
        TypeError: If they are not tables, but traces, say (`aw.head_statistics` makes tables of these).
        ValueError: If layers, heads or units differ, or no statistic is in all tables.

    Example:
        >>> model, tokenizer = aw.demo_model("encoder")
        >>> texts = ("The cat sat on the mat.", "It rained all day.")
        >>> tables = [aw.head_statistics(aw.trace(model, tokenizer, text), "entropy") for text in texts]
        >>> aw.statistics.averaged(tables).steps
        ('mean over 2 texts',)
    """
    if not tables:
        raise ValueError("tables is empty: pass at least one.")
    first = tables[0]
    for number, table in enumerate(tables):
        if not isinstance(table, HeadStatistics):
            raise TypeError(
                f"tables[{number}] is a {type(table).__name__}, not a table of heads: average "
                "aw.head_statistics(traces), or aw.head_importance(traces), which averages by itself."
            )
        for what in ("layers", "heads", "unit"):
            here, expected = getattr(table, what), getattr(first, what)
            if here != expected:
                raise ValueError(f"tables[{number}] has {what} {here!r}, but the first has {expected!r}.")
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
