"""HeadView: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.views.base.options import FilterOptions
from attnwidgets.views.base.view import View
from attnwidgets.views.wire.axes import span
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from matplotlib.figure import Figure
    from typing_extensions import Unpack

BETWEEN = ("all", "A-A", "A-B", "B-A", "B-B")
"""Which queries and keys of a pair of texts are shown: A is the first text, B the second."""


class HeadView(View):
    """Heads of one layer as lines between two columns of tokens: queries left, keys right.

    A token under the pointer shows all its lines, of every active head in the head's colour, and behind each
    token of the other side a bar for each head; on the side of the keys it shows who reads that key. A click
    pins it; with a token pinned, one of the other side shows the pair head by head. With no token looked at,
    the strongest lines of all tokens are drawn, and what share of the mass they hold is said.

    Heads are chips: a click shows or hides one, a double click shows it alone, another double click all
    again. Arrow keys move the token looked at, Enter pins it, Page Up and Page Down change the layer.

    Args:
        heads: Numbers of the heads shown at first; empty: all.
        between: For a pair of texts, which attention is shown at first: "A-B" is what the first text reads
            in the second; "all", "A-A", "B-A" and "B-B" likewise.

    Raises:
        IndexError: A head that there is not.
        ValueError: Another `between`, or one between texts of an input that has but one.
    """

    _VIEW = "HeadView"
    _OPTIONS = FilterOptions
    _ALL_HEADS = True
    PARTS = ("heads", "filters")

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
        main = self._explanations[0]
        known = tuple(int(number) for number in getattr(main, "heads", None) or ())
        for head in self._heads:
            if head not in known:
                there = f"the heads are {span(known)}" if known else "this map has no heads"
                raise IndexError(f"heads: {head!r} is out of range: {there}.")
        axis = getattr(main, "query", None)
        if self._between != "all" and (axis is None or not any(axis.segment)):
            raise ValueError(f"between={self._between!r} is for a pair of texts, and this input is one text.")
        heads = [int(head) for head in self._heads]
        return {"heads": heads or None, "between": self._between}

    def _figure(self) -> Figure:
        from attnwidgets.views.still.figures import lines_figure

        return lines_figure(self)

    def _handlers(self) -> Mapping[str, Handler]:
        return {"token": Handler(self._token, for_page=self._for_page)}

    def _for_page(self) -> Iterator[dict[str, Any]]:
        """Yield the pinned token, the selected layer first: a page tells it exactly, also of a large map."""
        pinned, opening = self.selection.pinned, self.selection.layer
        for source in self.sources() if pinned is not None else ():
            side = "query" if pinned.query >= 0 else "key"
            for layer in sorted(source.ready, key=lambda number: abs(number - opening)):
                is_slow = side == "key" and source.long  # who reads it is known when all has been read
                if source.unit == pinned.unit and not is_slow:
                    yield {"source": source.id, "layer": layer, "side": side, "index": getattr(pinned, side)}

    def _token(self, source: str, layer: int, side: str, index: int) -> tuple[Any, list[bytes]]:
        """Answer what a query reads, or who reads a key, in every head: exact float32 [head, element]."""
        found = next((one for one in self.sources() if one.id == source), None)
        if found is None:
            raise LookupError(f"{source!r} is no longer shown; run the cell again.")
        if layer in found.layers and layer not in found.ready:
            raise ValueError(f"layer {layer} is not computed yet.")
        chosen = found.across(layer, side, index)
        heads = ["-"] if found.heads is None else list(found.heads[: len(chosen)])
        return {"heads": heads}, [np.ascontiguousarray(chosen, dtype="<f4").tobytes()]
