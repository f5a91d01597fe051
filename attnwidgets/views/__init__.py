"""Linked views of traces and explanations.

In: a trace or an explanation. Out: a widget, a page, a figure. Begin with `base/view.py`, then one view,
such as `maps/heatmap.py` with `js/src/views/maps/`; `presentation.py` decides what is shown, `wire/` what
travels, `page/` and `still/` are what is left without a kernel or a browser. A view calls methods and
implements none, and the browser decides nothing that Python does not know.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.circuits.claim_view import ClaimView
from attnwidgets.views.circuits.lens_view import LensView
from attnwidgets.views.circuits.patch_view import PatchView
from attnwidgets.views.circuits.sentence_view import SentenceView, has_arcs
from attnwidgets.views.concepts.concept_view import ConceptView
from attnwidgets.views.concepts.influence_view import InfluenceView
from attnwidgets.views.concepts.shape_view import ShapeView
from attnwidgets.views.evaluate.scorecard_view import ScorecardView
from attnwidgets.views.features.feature_view import FeatureStrip, FeatureTable
from attnwidgets.views.maps.heatmap import Heatmap, RelevanceMap
from attnwidgets.views.media.audio_view import AudioView
from attnwidgets.views.media.handlers import pictured_of, units_on_grid
from attnwidgets.views.media.image_view import ImageView
from attnwidgets.views.media.spoken import sound_of
from attnwidgets.views.text.token_strip import TokenStrip

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.explanations.viewable import Viewable
    from attnwidgets.views.base.view import View


def _of_map(shown: MixingMap, **options: Any) -> View:
    """Return a Heatmap; between sentences, a SentenceView; an ImageView or AudioView of what is in memory."""
    if has_arcs(shown):
        return SentenceView(shown, **options)
    if sound_of(shown) is not None:
        return AudioView(shown, **options)
    return (ImageView if pictured_of(shown) is not None and units_on_grid(shown) else Heatmap)(
        shown, **options
    )


def _of_attributions(attributions: Attributions, **options: Any) -> View:
    """Return a TokenStrip; for several targets, or values by layer, a RelevanceMap; or as `_of_map`."""
    if pictured_of(attributions) is not None and units_on_grid(attributions):
        return ImageView(attributions, **options)
    if sound_of(attributions) is not None:
        return AudioView(attributions, **options)
    is_matrix = attributions.map is not None or len(attributions.shape) > 1
    return (RelevanceMap if is_matrix else TokenStrip)(attributions, **options)


# The view that shows a kind of result best, by `Viewable.kind`.
_VIEWS: dict[str, Callable[..., View]] = {
    "MixingMap": _of_map,
    "ContributionGraph": Heatmap,
    "Attributions": _of_attributions,
    "Scorecard": ScorecardView,
    "Comparison": ScorecardView,
    "FeatureActivations": FeatureStrip,
    "FeatureStats": FeatureTable,
    "ClaimReport": ClaimView,
    "Lens": LensView,
    "Patching": PatchView,
    "ConceptScores": ConceptView,
    "Influence": InfluenceView,
    "Additive": ShapeView,
}


def view_of(result: Viewable, **options: Any) -> View:
    """Return the view that shows a result best; see `Viewable.view`."""
    if result.kind not in _VIEWS:
        raise TypeError(f"{result.kind} has no widget; display the result itself, or call .figure().")
    return _VIEWS[result.kind](result, **options)
