"""Viewable, the base of results that open in a widget by `.view()`."""

from __future__ import annotations

from typing import Any, ClassVar


class Viewable:
    """A result that a view can show.

    Attributes:
        kind: Name of the kind of result, which determines its view.
    """

    kind: ClassVar[str]

    def view(self, **options: Any) -> Any:
        """Return the widget that shows this result best.

        Args:
            **options: Options of the widget: `aw.Heatmap` for maps, `aw.TokenStrip` or `aw.RelevanceMap`
                for attributions, `aw.ScorecardView` for scores, `aw.FeatureStrip` or `aw.FeatureTable` for
                features, `aw.ConceptView`, `aw.InfluenceView` or `aw.ShapeView` for what many texts say.

        Raises:
            TypeError: If no view shows this kind of result.
        """
        from attnwidgets.views import view_of

        return view_of(self, **options)
