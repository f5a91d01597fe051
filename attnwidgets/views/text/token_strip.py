"""The view of a text, coloured by one row of a map or by attributions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from attnwidgets.evaluate.metrics.robustness import Robustness


class TokenStrip(View):
    """The text, highlighted by one row of a map or by attributions.

    Click a token to make it the query; signed values diverge from the background. With a `Robustness`,
    elements are hatched if their ranking does not survive: some other element is above them in one version
    and below them in another. Under the pointer they tell between which ranks they move.

    Args:
        shown: See `View`; or what `aw.evaluate.robustness` returned: its first version.
        robustness: What is known of the ranking of what is shown.
        **options: Those of `View`.

    Raises:
        TypeError: `robustness` is not a `Robustness`.
        ValueError: `robustness` ranks other elements than those shown.
    """

    _VIEW = "TokenStrip"
    _MARKS = "elements"
    _FILTERS = True
    PARTS = ("filters",)
    _KEYWORDS: ClassVar[tuple[str, ...]] = ("robustness",)

    def __init__(self, shown: Any, *, robustness: Robustness | None = None, **options: Any) -> None:
        if robustness is None and _is_robustness(shown):
            robustness, shown = shown, shown.versions[0]
        if robustness is not None and not _is_robustness(robustness):
            raise TypeError(
                f"TokenStrip(robustness=...) takes what aw.evaluate.robustness returned, "
                f"not {type(robustness).__name__}."
            )
        self._robustness = robustness
        super().__init__(shown, **options)

    def _own_options(self) -> dict[str, Any]:
        ranking = self._robustness
        if ranking is None:
            return {"ranks": None}
        unit = ranking.versions[0].unit
        main = self._explanations[0]
        elements = (getattr(main, "axis", None) or main.key).units.get(unit)
        if elements is None or elements.labels != ranking.labels:
            raise ValueError(
                f"TokenStrip(robustness=...) ranks {len(ranking.labels)} {unit}s, which are not those shown."
            )
        return {
            "ranks": {
                "unit": unit,
                "low": [float(rank) for rank in ranking.low],
                "high": [float(rank) for rank in ranking.high],
                "unsettled": [int(flag) for flag in ranking.unsettled],
                "versions": len(ranking.names),
            }
        }


def _is_robustness(given: Any) -> bool:
    return hasattr(given, "unsettled") and hasattr(given, "versions")
