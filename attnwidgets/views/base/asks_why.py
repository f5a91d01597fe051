"""Views that open below them why the shown head reads the pinned key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.base.opens_below import OpensBelow

if TYPE_CHECKING:
    from attnwidgets.circuits.scores.cell import Cell
    from attnwidgets.views.base.view import View


class AsksWhy(OpensBelow):
    """A view that opens below it why the shown head reads the pinned key: a `WhyView`."""

    BELOW = "WhyView"

    def _opened(self, stack: str, layer: int, head: int, query: int, key: int) -> View:
        from attnwidgets.circuits.scores.why import why

        result = why(self.content.trace, query, key, layer=layer, head=head, stack=stack)
        return result.view(**self._features_for(result.cell))

    def _features_for(self, cell: Cell) -> dict[str, Any]:
        """Return the SAE of the states that a cell's head reads, as options of the view below, if any."""
        del cell
        return {}
