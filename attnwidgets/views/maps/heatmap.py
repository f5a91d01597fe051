"""A matrix of one layer and head, as a heatmap."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.wire.store import TileStore

_FEW = 8  # rows whose cells are larger than others
_TALLEST = 566  # CSS pixels


class Heatmap(View):
    """One layer and head (or a reduction) as a matrix: query labels left, key labels on top.

    Point at a cell to read it; click to pin it and fetch its exact row. Arrow keys move through layers and
    heads.

    Args:
        marks: Outlined cells `(query, key)`, counted in the displayed unit.
    """

    _VIEW = "Heatmap"
    _MARKS = "cells"
    CLAIMS = True
    _OPTIONS = FilterOptions

    def _likely_height(self, store: TileStore) -> int:
        rows = int(store.sources()[0].content[0].sum())
        return 101 + 43 * rows if rows <= _FEW else min(_TALLEST, 132 + 28 * rows)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import matrix_sheet

        return matrix_sheet(self, theme)
