"""The view that shows a map or attributions best: for a text, its sentences, a picture or a sound."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.tracing.text.units import TokenAxis, Unit
from attnwidgets.views.media.handlers import pictured_of, units_on_grid
from attnwidgets.views.media.spoken import sound_of

if TYPE_CHECKING:
    from attnwidgets.evaluate.attacks.result import Attack
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
    """Return both maps as they were measured, each under its prediction (CompareView).

    A word that changed is named "old → new", so that both texts are read in one line.
    """
    from attnwidgets.views.compare.compare_view import CompareView

    explanations = attack.explanations
    if attack.by == "words":
        axis = _axis_of_both(attack.before.source_unit, attack.after.source_unit)
        explanations = {
            name: Attributions(
                shown.values, axis=axis, unit=shown.unit, method=shown.method, provenance=shown.provenance
            )
            for name, shown in explanations.items()
        }
    names = [
        f"{name}: {attack.label} {probability:.0%}"
        for name, probability in zip(explanations, attack.probability, strict=True)
    ]
    return CompareView(list(explanations.values()), names=names, **options)


def _axis_of_both(first: Unit, other: Unit) -> TokenAxis:
    """Return an axis of the words of two texts of as many words."""
    pairs = zip(first.labels, other.labels, strict=True)
    labels = tuple(old if old == new else f"{old} → {new}" for old, new in pairs)
    elements = Unit(first.name, labels, tuple((i,) for i in range(len(labels))), first.special)
    return TokenAxis(labels, {first.name: elements})


def _of_media(shown: Any, **options: Any) -> View | None:
    """Return the view of the sound or the picture that an explanation is of; None of other inputs."""
    if sound_of(shown) is not None:
        from attnwidgets.views.media.audio_view import AudioView

        return AudioView(shown, **options)
    if pictured_of(shown) is not None and units_on_grid(shown):
        from attnwidgets.views.media.image_view import ImageView

        return ImageView(shown, **options)
    return None
