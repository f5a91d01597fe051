"""Views of numbers that belong to no text, or to many: a text opens in the views of a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from attnwidgets.views.base.accepts import Content
from attnwidgets.views.base.link import Link
from attnwidgets.views.base.options import PLAIN_OPTIONS, TitleOptions, checked_height
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.base.view import View
from attnwidgets.views.wire.handlers import Handler
from attnwidgets.views.wire.header import Pack, describe
from attnwidgets.views.wire.store import TileStore

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from typing_extensions import Unpack

    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.sources import Source

LONGEST = 500
"""Characters of a text that are sent to the browser; the rest is cut off."""


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
        """Compute missing explanations: there are none."""

    def _handlers(self) -> Mapping[str, Handler]:
        return {"csv": Handler(self._csv, for_page=lambda: ({},), prefetched=tuple)}

    def _csv(self, **_: Any) -> Answer:
        return self._table(), []

    def _table(self) -> str:
        """Return the data as CSV."""
        raise NotImplementedError


class TextsView(StandaloneView):
    """A view of many texts, which open in the views of a trace.

    Args:
        linked: A view of a trace of the same model, such as `aw.Explorer(trace)`. Its layer is this view's,
            and a text that is opened is shown in it, and in the views that are linked with it. None: opening
            a text copies the line of Python that does.

    Raises:
        TypeError: `linked` is not a view of a trace.
    """

    _HEIGHT = 540
    _linked: View | None = None

    def __init__(self, linked: Any, **options: Unpack[TitleOptions]) -> None:
        if linked is not None and not (isinstance(linked, View) and linked.traces):
            raise TypeError(
                f"{self._VIEW}(linked=...) takes a view of a trace, such as aw.Explorer(trace), not a "
                f"{type(linked).__name__}."
            )
        self._linked = linked
        super().__init__(**options)
        if linked is not None:
            linked.observe(self._follow, "selection")

    def _own_options(self) -> dict[str, Any]:
        return {"opens": self._opens_in(), "layers": self._linked_layers()}

    def _opens_in(self) -> str:
        """Return where texts open: "linked" views, or "": a line of code is copied."""
        return "" if self._linked is None else "linked"

    def _linked_layers(self) -> list[int]:
        """Return the layers that the linked views can show; none without such views."""
        sources = [] if self._linked is None else self._linked.sources()
        return sorted({layer for source in sources for layer in source.layers})

    def _selection_in(self, store: TileStore) -> Selection:
        # No second selection is made where it is not needed: closed at once, it would be an error in the
        # browser.
        if self._linked is None or self._linked.comm is None:
            return super()._selection_in(store)
        return self._linked.selection

    def _follow(self, change: Any) -> None:
        """Move to the selection of the text that the linked view shows now."""
        if self.comm is None or change["new"] is self.selection:
            return
        change["new"].acquire(self._holder)
        left, self.selection = self.selection, change["new"]
        left.release(self._holder)

    def close(self) -> None:
        """Remove this view from the browser, and stop following the linked view."""
        if self._linked is not None and self.comm is not None:
            self._linked.unobserve(self._follow, "selection")
        super().close()

    def _reopen(self) -> None:
        super()._reopen()
        if self._linked is not None:
            self._linked.observe(self._follow, "selection")

    def _handlers(self) -> Mapping[str, Handler]:
        opens = {"open": Handler(self._open, runs_model=True)} if self._opens_in() else {}
        return {**super()._handlers(), **opens}

    def _open(self, at: int) -> Answer:
        """Show the text with this number in the linked views."""
        if self._linked is None:
            raise LookupError("no view is linked: give linked=aw.Explorer(trace).")
        text = self._text(int(at))
        self._linked.show_text(text)
        return {"text": cut(text)}, []

    def _text(self, at: int) -> str:
        """Return the text with a number.

        Raises:
            IndexError: There is none.
        """
        raise NotImplementedError


def cut(text: str, longest: int = LONGEST) -> str:
    """Return a text of at most so many characters, with an ellipsis where it is cut off."""
    return text if len(text) <= longest else text[: longest - 1] + "…"


def number(value: float) -> float | None:
    """Return a number as JSON has it: None where it is not finite."""
    return float(value) if np.isfinite(value) else None


def numbers(values: Iterable[float]) -> list[float | None]:
    """Return numbers as JSON has them; see `number`."""
    return [number(value) for value in values]


def said(notes: Sequence[str]) -> list[str]:
    """Return the notes for readers, each cut to the length of a line or two."""
    return [cut(note) for note in notes]
