"""The base of the views of SAE features."""

from __future__ import annotations

from inspect import signature
from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets._errors import suggest
from attnwidgets.views.base.view import View
from attnwidgets.views.features.features import ShownFeatures, show_features

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnwidgets.sae.corpus_statistics.stats import FeatureStats
    from attnwidgets.views.wire.handlers import Handler


_OF_VIEWS = tuple(
    name
    for name, parameter in signature(View.__init__).parameters.items()
    if parameter.kind is parameter.KEYWORD_ONLY
)


class FeatureView(View):
    """A view of the features of an SAE, or of several SAEs of one model.

    Views of one trace, and views of the same statistics, share a `Selection`; `selection.feature` is the
    feature that all of them show. `aw.link` joins views of a text with views of a corpus.

    Args:
        shown: What `aw.sae_features` or `aw.feature_stats` returned, or a list of either, an SAE each: then
            the layer slider chooses among them.
        stats: What `aw.feature_stats` says of the same SAEs, beside activations on a text.
        feature: Where the shared selection goes at once.
        page: Features that a page without a kernel tells of (`aw.to_html`), beside the one that is selected
            when it is written; by default 50, those with names first.
        **options: Everything else `View` takes.

    Raises:
        TypeError, ValueError: `shown` or `stats` has another type, or they belong to different SAEs.
        IndexError: There is no such feature; the message names the range.
    """

    PARTS = ("features",)
    KEYWORDS: ClassVar[tuple[str, ...]] = ("stats", "feature", "page")
    _PARTS_SHOWN: ClassVar[Mapping[str, bool]] = {"table": False, "panel": False, "strip": False}

    def __init__(
        self,
        shown: Any,
        *,
        stats: Any = None,
        feature: int | None = None,
        page: Iterable[int] | None = None,
        **options: Any,
    ) -> None:
        for name in options:
            if name not in (*_OF_VIEWS, *self.KEYWORDS):
                known = (*self.KEYWORDS, *_OF_VIEWS)
                raise TypeError(f"{self._VIEW}() takes no keyword {name!r}.{suggest(name, known)}")
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

    def _topics(self) -> Mapping[str, Handler]:
        return self._features.handlers(self, **self._PARTS_SHOWN)
