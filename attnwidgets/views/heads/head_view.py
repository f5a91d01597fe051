"""The view of heads of one layer, as lines between two columns of tokens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View
from attnwidgets.views.heads.handlers import source_of
from attnwidgets.views.heads.pair_handlers import pair_handlers
from attnwidgets.views.wire.axes import span
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.wire.handlers import Answer

BETWEEN = ("all", "A-A", "A-B", "B-A", "B-B")
"""Queries and keys of a pair of texts that are shown: A is the first text, B the second."""


class HeadView(View):
    """Heads of one layer as lines between two columns of tokens: queries left, keys right.

    One head is shown: of every token its three strongest lines, from 5 % of the strongest possible one on,
    and all lines of the token under the pointer, with its values as bars next to the tokens of the other
    side. On the side of the keys it shows who reads that key. Click to pin a token; with one pinned, a token
    of the other side shows the pair. Until something is pinned, the last token that is not a special one is
    shown. Special tokens stand apart: as a grey bar next to every query for what it gives to them. Where
    there is room, a third column shows the heads in which the pair is strongest.

    Several heads of the layer can be shown at once, each in its own colour (`heads=`, or the button
    "several"). They are chips: click to show or hide one, double-click to show it alone, double-click again
    to show all. Arrow keys move between tokens, Enter pins one, Page Up and Page Down change the layer.

    Args:
        heads: Numbers of the heads shown together; empty: the selected head.
        between: For a pair of texts, which attention is shown at first: "A-B" is what the first text reads
            in the second; "all", "A-A", "B-A" and "B-B" likewise.

    Raises:
        IndexError: The head is out of range.
        ValueError: `between` is unknown, or names two texts for an input that is one text.
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
        known = tuple(int(number) for number in getattr(main, "heads", None) or ())
        for head in self._heads:
            if head not in known:
                offered = f"the heads are {span(known)}" if known else "this map has no heads"
                raise IndexError(f"heads: {head!r} is out of range: {offered}.")
        axis = getattr(main, "query", None)
        if self._between != "all" and (axis is None or not any(axis.segment)):
            raise ValueError(f"between={self._between!r} needs a pair of texts, and this input is one text.")
        return {"heads": [int(head) for head in self._heads] or None, "between": self._between}

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.matrices import lines_sheet

        return lines_sheet(self, theme)

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
        """Answer with what a query reads, or who reads a key: exact weights [head, element], float32."""
        shown = source_of(self, source)
        if layer in shown.layers and layer not in shown.ready:
            raise ValueError(f"layer {layer} is not computed yet.")
        weights = shown.across(layer, side, index)
        heads = ["-"] if shown.heads is None else list(shown.heads[: len(weights)])
        return {"heads": heads}, [np.asarray(weights, dtype="<f4").tobytes()]
