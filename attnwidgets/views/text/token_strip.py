"""The view of a text, coloured by one row of a map or by attributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.text.forgetting import forgetting_panel, forgotten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import numpy as np
    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.evaluate.metrics.robustness import Robustness
    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

_PER_LINE = 85  # characters


class TokenStrip(AsksWhy):
    """The text, highlighted by one row of a map or by attributions.

    Click a token to make it the query; signed values diverge from the background. With a `Robustness`,
    elements are hatched if their ranking does not survive: some other element is above them in one version
    and below them in another. Under the pointer they tell between which ranks they move.

    Args:
        shown: A MixingMap, Attributions (or a list of them) or a trace; or the result of
            `aw.evaluate.robustness`, whose first version is shown.
        robustness: The result of `aw.evaluate.robustness` for the explanation that is shown.
        marks: Indices of outlined elements, counted in the displayed unit.

    Raises:
        TypeError: `robustness` is not a `Robustness`.
        ValueError: `robustness` ranks other elements than those shown.
    """

    _VIEW = "TokenStrip"
    _MARKS = "elements"
    _OPTIONS = FilterOptions
    NEEDS = Needs(("filters",))

    def __init__(
        self,
        shown: Any,
        *,
        robustness: Robustness | None = None,
        marks: Sequence[int] = (),
        **options: Unpack[FilterOptions],
    ) -> None:
        if robustness is None and _is_robustness(shown):
            robustness, shown = shown, shown.versions[0]
        if robustness is not None and not _is_robustness(robustness):
            raise TypeError(
                f"TokenStrip(robustness=...) takes the result of aw.evaluate.robustness, "
                f"not {type(robustness).__name__}."
            )
        self._robustness = robustness
        self.panels = (forgetting_panel(self),)
        super().__init__(shown, marks=marks, **options)

    def _likely_height(self, store: TileStore) -> int:
        labels = store.sources()[0].axes()[1]["labels"]
        lines = sum(len(label) + 1 for label in labels) // _PER_LINE + 1
        return 124 + 27 * min(10, lines)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import strip_sheet

        return strip_sheet(self.presentation, theme)

    def _forgotten(self, source: Source, layer: int, head: int | str) -> Mapping[str, NDArray[np.float64]]:
        return forgotten(self, source, layer, head)

    def _own_options(self) -> dict[str, Any]:
        ranking = self._robustness
        common = super()._own_options()
        if ranking is None:
            return {**common, "ranks": None}
        unit = ranking.versions[0].unit
        main = self.content.main
        elements = (getattr(main, "axis", None) or main.key).units.get(unit)
        if elements is None or elements.labels != ranking.labels:
            raise ValueError(
                f"TokenStrip(robustness=...) ranks {len(ranking.labels)} {unit}s, which are not those shown."
            )
        return {
            **common,
            "ranks": {
                "unit": unit,
                "low": [float(rank) for rank in ranking.low],
                "high": [float(rank) for rank in ranking.high],
                "unsettled": [int(flag) for flag in ranking.unsettled],
                "versions": len(ranking.names),
            },
        }


def _is_robustness(given: Any) -> bool:
    return hasattr(given, "unsettled") and hasattr(given, "versions")
