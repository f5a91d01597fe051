"""Views that open below them why the shown head reads the pinned key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.view import View
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.views.wire.handlers import Answer


class AsksWhy(View):
    """A view of a trace's attention, with a button next to the pinned value, and the key w.

    The view that opens below follows the pinned cell. It closes with this one, and when another text is
    shown.
    """

    def _begin(self, layout: Any) -> None:
        self._close_below()
        self._options["asksWhy"] = getattr(self.content.trace, "model", None) is not None
        super()._begin(layout)

    def _all_handlers(self) -> dict[str, Handler]:
        return super()._all_handlers() | {"why_below": Handler(self._why_below, runs_model=True)}

    def _why_below(self, stack: str, layer: int, head: int, query: int, key: int) -> Answer:
        """Open a view of the score of a cell below this one."""
        if not self._options["asksWhy"]:
            raise ValueError("a score is split by its model, and this view was given no trace with one.")
        from attnwidgets.circuits.scores.why import why

        trace, cell = self.content.trace, (int(query), int(key))
        result = why(trace, *cell, layer=int(layer), head=int(head), stack=str(stack))
        opened = result.view(**self._features_for(result.cell))
        self._close_below()
        self.inner = (opened,)
        opened.stand_ready()
        self.add_options(inner=[opened.inside()])
        return {}, []

    def _features_for(self, cell: Cell) -> dict[str, Any]:
        """Return the SAE of the states that a cell's head reads, as options of the view below, if any."""
        del cell
        return {}

    def _close_below(self) -> None:
        for view in self.inner:
            view.close()
        self.inner = ()

    def close(self) -> None:
        """Remove this view, and the one below it, from the browser."""
        if self.comm is None:
            return
        self._close_below()
        self._options.pop("inner", None)
        self.options = {name: value for name, value in self.options.items() if name != "inner"}
        super().close()
