"""The base of the views of SAE features."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View
from attnwidgets.views.features.features import ShownFeatures, show_features

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from typing_extensions import Unpack

    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.sae.feature_activations import FeatureActivations
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions
    from attnwidgets.views.wire.handlers import Handler


class FeatureView(View):
    """A view of the features of an SAE, or of several SAEs of one model.

    Views of one trace, and views of the same statistics, share a `Selection`; `selection.feature` is the
    feature that all of them show. `aw.link` joins views of a text with views of a corpus.

    Args:
        shown: The result of `aw.sae_features` or `aw.feature_stats`, or a list of either, one for each SAE;
            the layer slider then chooses among them.
        stats: The result of `aw.feature_stats` for the same SAEs, in addition to activations on a text.
        feature: Feature that the shared selection moves to; None: the most telling one.
        page: Features included in a page without a kernel (`aw.to_html`), besides the one that is selected
            when it is written; by default 50, those with names first.
        **options: The options of every view.

    Raises:
        TypeError, ValueError: `shown` or `stats` has another type, or they belong to different SAEs.
        IndexError: The feature is out of range; the message names the range.
    """

    NEEDS = Needs(("features",))
    _PARTS_SHOWN: ClassVar[Mapping[str, bool]] = {"table": False, "panel": False, "strip": False}

    def __init__(
        self,
        shown: Any,
        *,
        stats: Any = None,
        feature: int | None = None,
        page: Iterable[int] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        self._features = ShownFeatures(self._VIEW, shown, stats, page)
        super().__init__(self._features.main(feature), **options)
        show_features(self, self._features, feature, **self._feature_options())

    def _feature_options(self) -> dict[str, Any]:
        """Return the options that the browser gets besides the SAEs."""
        return {}

    @property
    def stats(self) -> tuple[FeatureStats, ...]:
        """The statistics of the view, with the names typed by the reader: `view.stats[0].save(path)`."""
        return tuple(sae.stats for sae in self._features.saes if sae.stats is not None)

    @property
    def activations(self) -> tuple[FeatureActivations, ...]:
        """The activations on the text, one for each SAE that was run on it."""
        return tuple(sae.activations for sae in self._features.saes if sae.activations is not None)

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"activation": self._activation_paths, "density": self._density_paths}

    def _activation_paths(self, sae: int, feature: int, token: int, unit: str) -> Iterator[Path]:
        held = self._features.saes[sae].activations
        if held is None:
            raise LookupError("this SAE was not run on a text.")
        to = "" if unit == held.unit else f".to({str(unit)!r})"
        tail = f"{to}.feature({int(feature)}).value({int(token)})"
        yield held, tail
        yield self, f".activations[{self.activations.index(held)}]{tail}"

    def _density_paths(self, sae: int, feature: int) -> Iterator[Path]:
        held = self._features.saes[sae].stats
        if held is None:
            raise LookupError("statistics of this SAE are missing.")
        tail = f".feature({int(feature)}).density"
        yield held, tail
        yield self, f".stats[{self.stats.index(held)}]{tail}"

    def _handlers(self) -> Mapping[str, Handler]:
        return self._features.handlers(self, **self._PARTS_SHOWN)
