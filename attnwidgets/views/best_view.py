"""The view that shows a map or attributions best: for a text, its sentences, a picture or a sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.media.handlers import pictured_of, units_on_grid
from attnwidgets.views.media.spoken import sound_of

if TYPE_CHECKING:
    from attnwidgets.evaluate.attacks.result import Attack
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.mixing_map import MixingMap
    from attnwidgets.views.base.view import View


def view_of_map(shown: MixingMap, **options: Any) -> View:
    """Return a Heatmap; between sentences, a SentenceView; of a picture or sound in memory, its view."""
    from attnwidgets.views.circuits.sentence_view import SentenceView, has_arcs
    from attnwidgets.views.maps.heatmap import Heatmap

    if has_arcs(shown):
        return SentenceView(shown, **options)
    return _of_media(shown, **options) or Heatmap(shown, **options)


def view_of_attributions(attributions: Attributions, **options: Any) -> View:
    """Return a TokenStrip; for several targets, or values by layer, a RelevanceMap; or as `view_of_map`."""
    from attnwidgets.views.maps.heatmap import RelevanceMap
    from attnwidgets.views.text.token_strip import TokenStrip

    is_matrix = attributions.map is not None or len(attributions.shape) > 1
    best = RelevanceMap if is_matrix else TokenStrip
    return _of_media(attributions, **options) or best(attributions, **options)


def view_of_attack(attack: Attack, **options: Any) -> View:
    """Return both texts where words changed (TwoTexts); where embeddings did, both maps (CompareView)."""
    from attnwidgets.views.compare.compare_view import CompareView
    from attnwidgets.views.compare.two_texts import TwoTexts

    if attack.by == "words":
        return TwoTexts(list(attack.traces), names=("before", "after"), **options)
    return CompareView(attack.explanations, **options)


def _of_media(shown: Any, **options: Any) -> View | None:
    """Return the view of the sound or the picture that an explanation is of; None of other inputs."""
    if sound_of(shown) is not None:
        from attnwidgets.views.media.audio_view import AudioView

        return AudioView(shown, **options)
    if pictured_of(shown) is not None and units_on_grid(shown):
        from attnwidgets.views.media.image_view import ImageView

        return ImageView(shown, **options)
    return None
