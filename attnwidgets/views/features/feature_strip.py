"""The view of a text, coloured by a feature of an SAE."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.needs import Needs
from attnwidgets.views.features.feature_view import FeatureView

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.options import ViewOptions

_WITH_STATISTICS = 540  # CSS pixels of a strip next to the statistics of the feature


class FeatureStrip(FeatureView):
    """A text coloured by a feature of an SAE, and the features that fire on each of its tokens.

    Features are tabs above the text, each with its activation on the token under the pointer, or its largest
    one. Below are the features that fire most on that token; click one to add it as a tab. With SAEs of
    several layers, the layer slider chooses among them. With `stats=`, all statistics of the
    feature stand next to them.

    Args:
        shown: The result of `aw.sae_features`, or a list of them for several layers.
        tabs: Features shown as tabs at first; by default the five with the largest activations in the text.
    """

    _VIEW = "FeatureStrip"
    NEEDS = Needs(typed_texts=False)
    _HEIGHT = 440
    _PARTS_SHOWN: ClassVar = {"table": False, "panel": True, "strip": True}

    def __init__(
        self,
        shown: Any,
        *,
        tabs: Sequence[int] | None = None,
        stats: Any = None,
        feature: int | None = None,
        page: Iterable[int] | None = None,
        **options: Unpack[ViewOptions],
    ) -> None:
        if stats is not None:
            options.setdefault("height", _WITH_STATISTICS)
        self._tabs = None if tabs is None else [int(number) for number in tabs]
        super().__init__(shown, stats=stats, feature=feature, page=page, **options)

    def _feature_options(self) -> dict[str, Any]:
        sae = self._features.saes[0]
        if sae.activations is None:
            raise TypeError(
                "FeatureStrip() shows features on a text, which aw.sae_features(trace, sae) returns; for "
                "statistics use aw.FeatureTable or aw.FeaturePanel."
            )
        return {} if self._tabs is None else {"tabs": [sae.check_feature(n, "tabs: ") for n in self._tabs]}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.features import strip_sheet

        return strip_sheet(self, theme)
