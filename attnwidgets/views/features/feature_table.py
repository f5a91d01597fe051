"""The view of the features of an SAE as a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.features.feature_view import FeatureView

if TYPE_CHECKING:
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme


class FeatureTable(FeatureView):
    """The features of an SAE as a table, to search, sort, name and choose from.

    For statistics it lists every feature with its density, its largest activation and the token on which it
    fires most. For activations on a text (with `stats=` also those columns) it lists the features that fire
    there, by their activation on the token that is pinned or under the pointer. Names are edited in place and
    kept with the statistics: `table.stats[0].save(path)`.
    """

    _VIEW = "FeatureTable"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 440
    _PARTS_SHOWN: ClassVar = {"table": True, "panel": False, "strip": True}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import table_sheet

        return table_sheet(self, theme)
