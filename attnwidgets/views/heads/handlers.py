"""Handlers of a grid of heads: which statistics its map has, and their values for every head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PAGE_CELLS = 20_000_000
"""Attention weights of a map above which a page leaves out its statistics: they would take long."""


def head_handlers(view: View) -> dict[str, Handler]:
    """Return the handlers of a view that shows a grid of heads. Both requests name a source.

    - "statistics", answered at once: every statistic with name, title, definition, high (what a high value
      means) and refusal (why the source does not have it, or "").
    - "head_statistics", a job with progress, since every layer is read: names, and the number of heads;
      buffer values [statistic, layer, head] (float32). It runs a model only for maps whose layers do.
    """

    def described(source: str) -> Answer:
        return statistics_of(source_of(view, source)), []

    def measured(source: str) -> Answer:
        from attnwidgets.statistics.head_statistics import head_statistics

        requested = source_of(view, source)
        statistics = head_statistics(requested.explanation, unit=requested.unit)
        values = np.asarray(statistics.values, dtype="<f4")
        return {"names": list(statistics.names), "heads": len(statistics.heads or (0,))}, [values.tobytes()]

    for_page = partial(_for_page, view)
    return {
        "statistics": Handler(described, for_page=for_page),
        "head_statistics": Handler(measured, runs_model=True, for_page=for_page),
    }


def statistics_of(source: Source) -> list[dict[str, Any]]:
    """Return every statistic with its definition, and why the heads of a source do not have it."""
    if source.attributions or source.signed:
        return []  # statistics are defined for rows of shares
    from attnwidgets.statistics.row_shares import Roles
    from attnwidgets.statistics.statistic import named

    roles = Roles(source.explanation.to(source.unit))
    return [
        {
            "name": statistic.name,
            "title": statistic.title,
            "definition": statistic.definition,
            "high": statistic.high,
            "refusal": statistic.refusal(roles),
        }
        for statistic in named(None)
    ]


def source_of(view: View, name: str) -> Source:
    """Return a source of a view by its id.

    Raises:
        LookupError: The view has no such source.
    """
    source = next((source for source in view.sources() if source.id == name), None)
    if source is None:
        raise LookupError(f"this view shows no {name!r}; run the cell again.")
    return source


def _for_page(view: View) -> Iterator[dict[str, Any]]:
    """Yield the sources whose statistics a page holds: fully computed, and not too large."""
    for source in view.sources():
        cells = len(source.layers) * len(source.heads or (0,)) * source.weights
        if cells <= PAGE_CELLS and set(source.ready) == set(source.layers) and statistics_of(source):
            yield {"source": source.id}
