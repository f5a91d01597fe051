"""Views of a matrix: a heatmap, attributions by layers and tokens, and the controls of a selection."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.wire.store import TileStore

_FEW = 8  # rows whose cells are larger than others
_TALLEST = 566  # CSS pixels


class Heatmap(AsksWhy):
    """One layer and head (or a reduction) as a matrix: query labels left, key labels on top.

    Point at a cell to read it; click to pin it and fetch its exact row. Arrow keys move through layers and
    heads. **Why?** next to a pinned weight of attention, or w, opens below what the query asks for and what
    the key offers (`aw.why`).

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

        return matrix_sheet(self.presentation, theme)


class LayerSlider(View):
    """Controls of the shared selection: layer, head or reduction, unit; plays through the layers.

    It draws no values itself: show it with a Heatmap or TokenStrip of the same trace.
    """

    _VIEW = "LayerSlider"


class RelevanceMap(AsksWhy):
    """Attributions as coloured text, and what every layer says of the tokens, layers by tokens.

    Above are the attributions as coloured text, with their sum; for several targets also as a matrix, targets
    by sources. Below are the layers, if the method has values for them (`.map`). Click a layer to select it;
    a token under the pointer is marked in all layers. A MixingMap is shown as one row in every layer: that of
    the pinned query.
    """

    _VIEW = "RelevanceMap"
    NEEDS = Needs(("layers", "filters"), attribution_layers=True)
    _HEIGHT = 520
    _OPTIONS = FilterOptions

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import layers_sheet

        return layers_sheet(self.presentation, theme)
