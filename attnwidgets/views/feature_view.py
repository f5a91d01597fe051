"""FeatureView: what the views of SAE features have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base import View
from attnwidgets.views.features import Features, follow_names

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from attnwidgets.sae.stats import FeatureStats
    from attnwidgets.views.questions import Topic


class FeatureView(View):
    """A view of the features of an SAE, or of several SAEs of one model.

    Views of one trace, and views of the same statistics, share a `Selection`; `selection.feature` is the
    feature that all of them look at. `aw.link` joins views of a text with views of a corpus.

    Args:
        shown: What `aw.sae_features` or `aw.feature_stats` returned, or a list of either, an SAE each: then
            the layer slider chooses among them.
        stats: What `aw.feature_stats` says of the same SAEs, beside activations on a text.
        feature: Where the shared selection goes at once.
        page: Features that a page without a kernel tells of (`aw.to_html`); by default 50, those with names
            first.
        **options: Everything else `View` takes.

    Raises:
        TypeError, ValueError: What is given is no features, or belongs to another SAE.
        IndexError: There is no such feature; the message names the range.
    """

    PARTS = ("features",)
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
        self._features = Features(self._VIEW, shown, stats, page)
        super().__init__(self._features.main(feature), **options)
        self._options |= self._about_features()
        self.options = dict(self._options)
        self.selection.d_sae = max(look.d_sae for look in self._features.saes)
        if feature is not None or self.selection.feature is None:
            self.selection.feature = self._features.first if feature is None else feature
        follow_names(self)

    def _about_features(self) -> dict[str, Any]:
        """Return what the browser is told of the SAEs."""
        return {"saes": self._features.describe()}

    @property
    def stats(self) -> tuple[FeatureStats, ...]:
        """The statistics that are shown, with the names that the reader gave: `view.stats[0].save(path)`."""
        return tuple(look.stats for look in self._features.saes if look.stats is not None)

    def _topics(self) -> Mapping[str, Topic]:
        return self._features.topics(**self._PARTS_SHOWN)

    def names_changed(self, stats: FeatureStats) -> None:
        """Show new names, where they are of what is shown."""
        if self.comm is not None and any(found is stats for found in self.stats):
            self._options |= self._about_features()
            self.options = dict(self._options)
