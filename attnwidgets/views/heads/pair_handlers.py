"""Handler of one pair of query and key: its weight in every layer and head."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from attnwidgets.views.heads.handlers import source_of
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.handlers import Answer


def pair_handlers(view: View) -> dict[str, Handler]:
    """Return the handler "pair" (source, query, key): buffer values [layer, head] (float32).

    Layers that are yet to be computed, and heads that a layer does not have, are NaN; nothing is computed.
    """
    return {"pair": Handler(partial(_pair, view), for_page=tuple)}


def _pair(view: View, source: str, query: int, key: int) -> Answer:
    shown = source_of(view, source)
    rows, columns = shown.shape
    if not (0 <= int(query) < rows and 0 <= int(key) < columns):
        raise IndexError(
            f"pair ({query}, {key}) is out of range: there are {rows} queries and {columns} keys."
        )
    values = np.full((len(shown.layers), len(shown.heads or (0,))), np.nan, dtype="<f4")
    for place, layer in enumerate(shown.layers):
        if layer in shown.ready:
            weights = shown.across(layer, "query", int(query))[:, int(key)]
            values[place, : len(weights)] = weights
    return {}, [values.tobytes()]
