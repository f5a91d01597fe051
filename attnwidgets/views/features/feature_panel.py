"""The view of one feature of an SAE."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.features.feature_view import FeatureView

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme


class FeaturePanel(FeatureView):
    """One feature of an SAE: where it fires, how often, what it promotes, and which features are near it.

    It shows a histogram of the feature's activations, its density, the contexts in which it fires most and
    some from every interval of its activations, the tokens whose logits it raises and lowers (if the model
    has an unembedding), the features with the nearest directions, and those that fire together with it.
    Another feature, by number, from a list or from a linked view, is loaded when it is selected. A name typed
    here is kept with the statistics.

    Args:
        shown: The result of `aw.feature_stats`, or a list of them, one for each SAE.
    """

    _VIEW = "FeaturePanel"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 520
    _PARTS_SHOWN: ClassVar = {"table": False, "panel": True, "strip": False}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import panel_sheet

        return panel_sheet(self, theme)
