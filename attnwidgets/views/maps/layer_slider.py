"""Controls of the shared selection."""

from __future__ import annotations

from attnwidgets.views.base.view import View


class LayerSlider(View):
    """Controls of the shared selection: layer, head or reduction, unit; plays through the layers.

    It draws no values itself: show it with a Heatmap or TokenStrip of the same trace.
    """

    _VIEW = "LayerSlider"
