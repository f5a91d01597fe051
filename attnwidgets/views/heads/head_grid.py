"""The view of all heads as thumbnails, sorted by a statistic."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from attnwidgets._errors import suggest
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import ColorOptions
from attnwidgets.views.heads.handlers import head_handlers
from attnwidgets.views.heads.sorting import Sorting
from attnwidgets.views.interventions.handlers import Intervening

if TYPE_CHECKING:
    from collections.abc import Mapping

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.statistics.table import HeadStatistics
    from attnwidgets.views.wire.handlers import Handler


ORDERS = ("all", "within", "groups", "layers")
"""Orders by a statistic: over all heads, within each layer, in groups of similar value, or unsorted."""
_NAME = re.compile(r"L?(\*|\d+)([.\-–H](\*|\d+))?", re.IGNORECASE)


class HeadGrid(Intervening):
    """Thumbnails of every layer and head, max-pooled; click to select one, point at one to enlarge it.

    They leave special tokens out, as a map does where these stand apart; `hide_special=False` shows them.

    Below or next to them are the heads that show a named pattern most (`aw.statistics.head_patterns`), or
    the heads like the selected one (`aw.statistics.similar_heads`); choosing a pattern selects its first
    head. Grids of too many heads for thumbnails of 12 px (30 x 9) are a heat table of the pattern's value,
    layers across, with the six highest as thumbnails.

    Rows are layers. A statistic of `aw.head_statistics` (mean distance, entropy, diagonal, previous or first
    token, special tokens, other sentences, ...) sorts heads in each layer, over all layers or into groups of
    similar value; a threshold on it, or a name ("3", "3.7", "*.0"), hides some. A statistic is computed when
    it is first chosen; with many layers that takes a while, shows its progress and can be cancelled.

    Arrow keys, Home and End move, Enter selects; `k`, or a right click, knocks a head out for all linked
    views that run the model (see `InterventionView`), and crosses it out.

    Args:
        sort: Name of the statistic that the grid opens with, such as "entropy"; empty: none. Or a table of
            heads, such as `aw.head_importance(traces)` over many texts, whose first statistic it opens with.
        order: How the statistic orders heads: "all" sorts them over all layers, "within" inside each layer,
            "groups" puts similar values next to each other, "layers" leaves each head in its place.
        lowest_first: Sort from the smallest value up.
        only: Show only heads whose value is at least this (with `lowest_first`: at most).
        heads: Show only these, by name: "3" is a layer, "3.7" a head, "*.0" head 0 of every layer.

    Raises:
        ValueError: The statistic or order is unknown (the nearest is named), this map does not have the
            statistic, a table is of other layers, heads or another model, or `heads` has another form.
        TypeError: `only` is not a number, or `sort` neither a name nor a table.
    """

    _VIEW = "HeadGrid"
    _HEIGHT = 480
    _OPTIONS = ColorOptions
    NEEDS = Needs(("grid",), thumbnails=True)
    CLAIMS = True

    def __init__(
        self,
        shown: Any,
        *,
        sort: str | HeadStatistics = "",
        order: str = "all",
        lowest_first: bool = False,
        only: float | None = None,
        heads: str = "",
        **options: Unpack[ColorOptions],
    ) -> None:
        if order not in ORDERS:
            known = ", ".join(map(repr, ORDERS))
            raise ValueError(f"HeadGrid(order={order!r}) is not one of {known}.{suggest(str(order), ORDERS)}")
        if not all(_NAME.fullmatch(name) for name in re.split(r"[\s,;]+", heads.strip()) if name):
            raise ValueError(
                f"HeadGrid(heads={heads!r}): write '3' for a layer, '3.7' for a head, '*.0', ..."
            )
        if only is not None and (isinstance(only, bool) or not isinstance(only, (int, float))):
            raise TypeError(f"HeadGrid(only={only!r}) is not a number.")
        if only is not None and isinstance(sort, str) and not sort:
            raise ValueError(f"HeadGrid(only={only!r}) is a value of a statistic: name it with sort=.")
        self._sort, self._grid = (
            sort,
            {
                "order": order,
                "lowest": bool(lowest_first),
                "only": None if only is None else float(only),
                "heads": heads.strip(),
            },
        )
        super().__init__(shown, **options)

    def _own_options(self) -> dict[str, Any]:
        self._sorting = Sorting.of(self._VIEW, self._sort, self.content.explanations)
        order = self._grid["order"] if self._sorting.name else "layers"
        return {"grid": self._grid | {"sort": self._sorting.name, "order": order}}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import grid_sheet

        return grid_sheet(self, theme)

    def _handlers(self) -> Mapping[str, Handler]:
        interventions = self._intervention_handlers(rows=False)["interventions"]
        return head_handlers(self, self._sorting) | {"interventions": interventions}
