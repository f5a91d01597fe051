"""TokenStrip: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from attnwidgets.evaluate.metrics.robustness import Robustness


class TokenStrip(View):
    """The text, highlighted by one row of a map or by attributions.

    A click makes a token the query; signed values diverge from the background. With a `Robustness`, elements
    are hatched whose ranking does not survive: some other one is above them in one version and below them in
    another. Pointed at, they say from which rank to which they move.

    Args:
        shown: See `View`; or what `aw.evaluate.robustness` returned: its first version.
        robustness: What is known of the ranking of what is shown.
        **options: Those of `View`.

    Raises:
        TypeError: `robustness` is something else.
        ValueError: It is of other elements.
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
        found = self._robustness
        if found is None:
            return {"ranks": None}
        unit = found.versions[0].unit
        main = self._explanations[0]
        elements = (getattr(main, "axis", None) or main.key).units.get(unit)
        if elements is None or elements.labels != found.labels:
            raise ValueError(
                f"TokenStrip(robustness=...) ranks {len(found.labels)} {unit}s, which are not those "
                "of what is shown."
            )
        return {
            "ranks": {
                "unit": unit,
                "low": [float(rank) for rank in found.low],
                "high": [float(rank) for rank in found.high],
                "unsettled": [int(one) for one in found.unsettled],
                "versions": len(found.names),
            }
        }


def _is_robustness(given: Any) -> bool:
    return hasattr(given, "unsettled") and hasattr(given, "versions")
