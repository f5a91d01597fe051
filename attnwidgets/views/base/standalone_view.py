"""Views of numbers that belong to no text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from attnwidgets.views.base.accepts import Content
from attnwidgets.views.base.link import Link
from attnwidgets.views.base.options import PLAIN_OPTIONS, TitleOptions, checked_height
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.base.view import View
from attnwidgets.views.wire.eager import Pack
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.header import describe
from attnwidgets.views.wire.store import TileStore

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from typing_extensions import Unpack

    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source


class StandaloneView(View):
    """A view without a trace: its store holds no matrices, and it shares its selection with no other view.

    Its data are among its options, so that it needs no kernel. A subclass returns them as options
    (`_own_options`), as a table (`_table`) and as a figure (`_still`).

    Raises:
        TypeError: An unknown keyword.
    """

    _OPTIONS: ClassVar[type[TitleOptions]] = TitleOptions

    def __init__(self, **options: Unpack[TitleOptions]) -> None:
        given = self._with_defaults(options)
        self.content = Content(trace_id=self._holder)
        self._start = {}
        self._options = PLAIN_OPTIONS | {
            "title": str(given["title"]),
            "height": checked_height(self._VIEW, given["height"]) or self._HEIGHT,
        }
        self._options |= self._own_options()
        self._begin(given["layout"])

    def _join(self, start: Mapping[str, Any]) -> Link:
        del start
        store = TileStore()
        store.header = describe((), Pack((), (0, "-")), {})
        store.acquire(self._holder)
        selection = self._selection_in(store)
        selection.acquire(self._holder)
        return Link(store, selection)

    def _selection_in(self, store: TileStore) -> Selection:
        """Return the selection that this view joins."""
        return Selection(store)

    def sources(self) -> list[Source]:
        """Return the matrices that this view offers: none."""
        return []

    def complete(self, layers: Collection[int] | None = None) -> None:
        """Compute what is missing: nothing."""

    def _handlers(self) -> Mapping[str, Handler]:
        return {"csv": Handler(self._csv, for_page=lambda: ({},), prefetched=tuple)}

    def _csv(self, **_: Any) -> Answer:
        return self._table(), []

    def _table(self) -> str:
        """Return the data as CSV."""
        raise NotImplementedError

    def _png(self) -> bytes:
        from attnwidgets.figures.maps import small_png

        return small_png(self.figure())
