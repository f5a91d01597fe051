"""Views of heads: those of a layer as lines between two columns of tokens, and all as thumbnails."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.views.base.asks_why import AsksWhy
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import ColorOptions, FilterOptions
from attnwidgets.views.heads.handlers import Sorting, head_handlers, pair_handlers, source_of
from attnwidgets.views.interventions.intervention_view import Intervening
from attnwidgets.views.wire.axes import span
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.statistics.table import HeadStatistics
    from attnwidgets.views.wire.handlers import Answer

BETWEEN = ("all", "A-A", "A-B", "B-A", "B-B")
"""Queries and keys of a pair of texts that are shown: A is the first text, B the second."""

ORDERS = ("all", "within", "groups", "layers")
"""Orders by a statistic: over all heads, within each layer, in groups of similar value, or unsorted."""

_NAME = re.compile(r"L?(\*|\d+)([.\-–H](\*|\d+))?", re.IGNORECASE)


class HeadView(AsksWhy):
    """Heads of a layer as lines between two columns of tokens: queries left, keys right.

    The selected head is shown: of every token its three strongest lines, from 5 % of the strongest possible
    line on, and all lines of the token under the pointer, with its values as bars next to the tokens of the
    other side. On the side of the keys it shows who reads that key. Click to pin a token; with a pin, a token
    of the other side shows the pair. Until something is pinned, the last token that is not special is shown.
    Special tokens stand apart: as a grey bar next to every query for their share of its row. Where there is
    room, a third column shows the heads in which the pair is strongest.

    Several heads of the layer can be shown at once, each in its colour (`heads=`, or the button "several").
    They are chips: click to show or hide a head, double-click to show it alone, double-click again to show
    all. Arrow keys move between tokens, Enter pins the token, Page Up and Page Down change the layer.

    Args:
        heads: Numbers of the heads shown together; empty: the selected head.
        between: For a pair of texts, which attention is shown at first: "A-B" is from the queries of the
            first text to the keys of the second; "all", "A-A", "B-A" and "B-B" likewise.

    Raises:
        IndexError: The head is out of range.
        ValueError: `between` is unknown, or names two texts for an input that is a single text.
    """

    _VIEW = "HeadView"
    _HEIGHT = 540
    _OPTIONS = FilterOptions
    NEEDS = Needs(("heads",), all_heads=True)
    CLAIMS = True

    def __init__(
        self,
        shown: Any,
        *,
        heads: Sequence[int] = (),
        between: str = "all",
        **options: Unpack[FilterOptions],
    ) -> None:
        if between not in BETWEEN:
            near = suggest(str(between), BETWEEN)
            raise ValueError(f"between={between!r} is not one of {', '.join(map(repr, BETWEEN))}.{near}")
        self._heads = tuple(heads)
        self._between = between
        super().__init__(shown, **options)

    def _own_options(self) -> dict[str, Any]:
        main = self.content.main
        heads = tuple(int(number) for number in getattr(main, "heads", None) or ())
        for head in self._heads:
            if head not in heads:
                offered = f"the heads are {span(heads)}" if heads else "this map has no heads"
                raise IndexError(f"heads: {head!r} is out of range: {offered}.")
        axis = getattr(main, "query", None)
        if self._between != "all" and (axis is None or not any(axis.segment)):
            raise ValueError(f"between={self._between!r} needs a pair of texts, and this input is one text.")
        return {"heads": [int(head) for head in self._heads] or None, "between": self._between}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import lines_sheet

        return lines_sheet(self.presentation, theme)

    def _handlers(self) -> Mapping[str, Handler]:
        return {"token": Handler(self._token, for_page=self._for_page)} | pair_handlers(self)

    def _for_page(self) -> Iterator[dict[str, Any]]:
        """Yield the pinned token, the selected layer first: pages have it exactly, also from a large map."""
        pinned, opening = self.selection.pinned, self.selection.layer
        for source in self.sources() if pinned is not None else ():
            side = "query" if pinned.query >= 0 else "key"
            for layer in sorted(source.ready, key=lambda number: abs(number - opening)):
                is_slow = side == "key" and source.long  # the readers of a key are in every row
                if source.unit == pinned.unit and not is_slow:
                    yield {"source": source.id, "layer": layer, "side": side, "index": getattr(pinned, side)}

    def _token(self, source: str, layer: int, side: str, index: int) -> Answer:
        """Answer with the row of a query, or the column of a key: exact weights [head, element], float32."""
        shown = source_of(self, source)
        if layer in shown.layers and layer not in shown.ready:
            raise ValueError(f"layer {layer} is not computed yet.")
        weights = shown.read_across(layer, side, index)
        heads = ["-"] if shown.heads is None else list(shown.heads[: len(weights)])
        return {"heads": heads}, [np.asarray(weights, dtype="<f4").tobytes()]


class HeadGrid(AsksWhy, Intervening):
    """Thumbnails of every layer and head, max-pooled; click to select a head, point at it to enlarge it.

    They leave special tokens out, as a map does where these stand apart; `hide_special=False` shows them.

    Below or next to them are the heads that show a named pattern most (`aw.statistics.head_patterns`), or
    the heads like the selected head (`aw.statistics.similar_heads`); choosing a pattern selects its first
    head. Grids of too many heads for thumbnails of 12 px (30 x 9) are a heat table of the pattern's value,
    layers across, with the six highest as thumbnails.

    Rows are layers. A statistic of `aw.statistics.head_statistics` (mean distance, entropy, diagonal,
    previous or first token, special tokens, other sentences, ...) sorts heads in each layer, over all layers
    or into groups of similar value; a threshold on it, or a name ("3", "3.7", "*.0"), hides some. A statistic
    is computed when it is first chosen; with many layers that takes a while, shows its progress and can be
    cancelled.

    Arrow keys, Home and End move, Enter selects; `k`, or a right click, knocks a head out for all linked
    views that run the model (see `InterventionView`), and crosses it out.

    Args:
        sort: Name of the statistic that the grid opens with, such as "entropy"; empty: none. Or a table of
            heads, such as `aw.statistics.head_importance(traces)` over many texts, whose first statistic it
            opens with.
        order: How the statistic orders heads: "all" sorts them over all layers, "within" inside each layer,
            "groups" puts similar values next to each other, "layers" leaves the order of the model.
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
            orders = ", ".join(map(repr, ORDERS))
            raise ValueError(
                f"HeadGrid(order={order!r}) is not one of {orders}.{suggest(str(order), ORDERS)}"
            )
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

        return grid_sheet(self.presentation, theme)

    def _handlers(self) -> Mapping[str, Handler]:
        interventions = self._intervention_handlers(rows=False)["interventions"]
        return head_handlers(self, self._sorting) | {"interventions": interventions}
