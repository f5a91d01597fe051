"""The view of attributions from the input up, layers by tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme


class RelevanceMap(View):
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

        return layers_sheet(self, theme)
