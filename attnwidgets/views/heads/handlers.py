"""What a grid of heads asks: which statistics its map has, and their values for every head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator

    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

PAGE_CELLS = 20_000_000
"""Attention weights of a map beyond which a page is written without its statistics: that would take long."""


def head_topics(view: View) -> dict[str, Handler]:
    """Return the topics of a view that shows a grid of heads.

    "statistics" lists, at once, what can be said of the heads of a source, with the reason where something
    cannot; "head_statistics" are the values [statistic, layer, head], as a job that shows its progress: every
    layer is read. Neither runs a model, except for maps whose layers do.
    """

    def described(source: str) -> Answer:
        return statistics_of(_source(view, source)), []

    def measured(source: str) -> Answer:
        from attnwidgets.statistics.head_statistics import head_statistics

        found = _source(view, source)
        stats = head_statistics(found.explanation, unit=found.unit)
        values = np.ascontiguousarray(stats.values, dtype="<f4")
        return {"names": list(stats.names), "heads": len(stats.heads or (0,))}, [values.tobytes()]

    return {
        "statistics": Handler(described, for_page=lambda: _for_page(view)),
        "head_statistics": Handler(measured, runs_model=True, for_page=lambda: _for_page(view)),
    }


def statistics_of(source: Source) -> list[dict[str, Any]]:
    """Return every statistic with its definition, and why the heads of a source do not have it."""
    if source.attributions or source.signed:
        return []  # what is no share of a row has no statistics
    from attnwidgets.statistics.row_shares import Roles
    from attnwidgets.statistics.statistic import named

    roles = Roles(source.explanation.to(source.unit))
    return [
        {
            "name": one.name,
            "title": one.title,
            "definition": one.definition,
            "high": one.high,
            "refusal": one.refusal(roles),
        }
        for one in named(None)
    ]


def _source(view: View, name: str) -> Source:
    """Return a source of a view by its id.

    Raises:
        LookupError: The view has no such source.
    """
    for source in view.sources():
        if source.id == name:
            return source
    raise LookupError(f"this view shows no {name!r}.")


def _for_page(view: View) -> Iterator[dict[str, Any]]:
    """Yield the sources whose statistics a page holds: those that are there, and not too large."""
    for source in view.sources():
        cells = len(source.layers) * len(source.heads or (0,)) * source.weights
        if cells <= PAGE_CELLS and set(source.ready) == set(source.layers) and statistics_of(source):
            yield {"source": source.id}
