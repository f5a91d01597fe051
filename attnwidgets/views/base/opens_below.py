"""Views that open another view below them, about the pinned cell of a head."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.view import View
from attnwidgets.views.wire.handlers import Handler

if TYPE_CHECKING:
    from attnwidgets.views.wire.handlers import Answer


class OpensBelow(View):
    """A view of a trace's attention, with a button next to the pinned value, and a key.

    The view that opens below follows the pinned cell. It closes with this view, and when another text is
    shown.
    """

    BELOW: ClassVar[str]  # name of the view that opens; its question is in `QUESTIONS` of opensBelow.ts

    def _opened(self, stack: str, layer: int, head: int, query: int, key: int) -> View:
        """Return the view of a cell that opens below."""
        raise NotImplementedError

    def _begin(self, layout: Any) -> None:
        self._close_below()
        self._options["below"] = self.BELOW if getattr(self.content.trace, "model", None) is not None else ""
        super()._begin(layout)

    def _all_handlers(self) -> dict[str, Handler]:
        return super()._all_handlers() | {"below": Handler(self._open_below, runs_model=True)}

    def _open_below(self, stack: str, layer: int, head: int, query: int, key: int) -> Answer:
        """Open the view of a cell below this view."""
        if not self._options["below"]:
            raise ValueError("a score is split by its model, and this view was given no trace with one.")
        opened = self._opened(str(stack), int(layer), int(head), int(query), int(key))
        self._close_below()
        self.inner = (opened,)
        if isinstance(opened, OpensBelow) and opened.BELOW == self._VIEW:  # it stands above
            opened.add_options(below="")
        opened.stand_ready()
        self.add_options(inner=[opened.inside()])
        return {}, []

    def _close_below(self) -> None:
        for view in self.inner:
            view.close()
        self.inner = ()

    def close(self) -> None:
        """Remove this view, and the view below it, from the browser."""
        if self.comm is None:
            return
        self._close_below()
        self._options.pop("inner", None)
        self.options = {name: value for name, value in self.options.items() if name != "inner"}
        super().close()
