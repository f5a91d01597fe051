"""The texts of a view: the trace shown, the change to another, and the choices carried over to it."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from attnwidgets._progress import Cancelled
from attnwidgets.explanations.results.trace_protocol import is_trace
from attnwidgets.views.base.selectable import Cell
from attnwidgets.views.wire.axes import base_of
from attnwidgets.views.wire.header import model_name, prediction_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from attnwidgets.views.base.selection import Selection
    from attnwidgets.views.base.view import View
    from attnwidgets.views.wire.sources import Source
    from attnwidgets.views.wire.store import TileStore

MOST_TYPED = 20
"""Number of typed texts that a view keeps; the oldest is let go first."""

_BEGINNING = 80  # characters of a text in the list
_CHOSEN: dict[str, Any] = {"layer": None, "head": None, "unit": None, "marks": ()}  # these were for one text
_STAYS = (TypeError, ValueError, LookupError)  # then a linked view stays with the text that it shows
_VIEWS: WeakSet[View] = WeakSet()


class Texts:
    """The traces that a view can show, and the number of the shown trace.

    Args:
        traces: The traces of the view; the first is shown.

    Attributes:
        traces: The traces of the view, then those of other texts.
        shown: Index of the trace that is shown.
        previous: Index of the trace that was shown before, or None.
    """

    def __init__(self, traces: Sequence[Any]) -> None:
        self.traces = list(traces)
        self.shown = 0
        self.previous: int | None = None
        self._given = len(self.traces)
        self._models: dict[str, tuple[TileStore, Selection]] = {}

    @property
    def trace(self) -> Any:
        """The trace that is shown."""
        return self.traces[self.shown]

    @property
    def base(self) -> Any:
        """The first trace of the view: views of the same trace go to another text together."""
        return self.traces[0]

    def index(self, trace: Any) -> int:
        """Return the index of a trace, which is added if it is new."""
        index = next((at for at, item in enumerate(self.traces) if item is trace), None)
        if index is None:
            self.traces.append(trace)
            index = len(self.traces) - 1
        return index

    def go(self, index: int) -> None:
        """Show another trace, and drop the oldest typed text if there are too many."""
        if index != self.shown:
            self.previous, self.shown = self.shown, index
        spare = (n for n in range(self._given, len(self.traces)) if n not in {self.shown, self.previous})
        oldest = next(spare, None)
        if oldest is None or len(self.traces) - self._given <= MOST_TYPED:
            return
        del self.traces[oldest]
        self.shown -= self.shown > oldest
        if self.previous is not None:
            self.previous -= self.previous > oldest

    def hold(self, trace_id: str, store: TileStore, selection: Selection) -> None:
        """Keep the models of a text that is left, with its computed explanations."""
        self._models[trace_id] = store, selection

    def selection(self, trace_id: str) -> Selection | None:
        """Return the selection with which a text was left."""
        models = self._models.get(trace_id)
        return models[1] if models and models[1].is_open else None

    def dropped(self) -> list[tuple[TileStore, Selection]]:
        """Return the models of texts that were removed, and forget them."""
        remaining = {str(trace.id) for trace in self.traces}
        return [self._models.pop(name) for name in [*self._models] if name not in remaining]

    def let_go(self) -> list[tuple[TileStore, Selection]]:
        """Return the models of all texts that were left, and keep them no more."""
        models = [*self._models.values()]
        self._models.clear()
        return models

    def describe(self, refusal: str, shown: int | None = None) -> dict[str, Any]:
        """Return the `Texts` of wire.ts.

        Args:
            refusal: Why no other text can be typed, or "".
            shown: Index of the shown trace; None: as it is.
        """
        index = self.shown if shown is None else shown
        text = given_text(self.traces[index])
        return {
            "items": [_item(trace) for trace in self.traces] if len(self.traces) > 1 else [],
            "shown": index,
            "previous": self.previous if index == self.shown else self.shown,
            "text": None if text == self.traces[index].text else text,
            "refusal": refusal,
        }


def given_text(trace: Any) -> str:
    """Return a trace's text as it was given, without a continuation."""
    request = getattr(trace, "asked", None)
    return str((request and request.text) or trace.text)


def _item(trace: Any) -> dict[str, Any]:
    """Return the `TextItem` of wire.ts; no model runs for it."""
    text = given_text(trace)
    best = next(iter(trace.predictions(1)), None) if trace.answer.predicts else None
    return {
        "text": text if len(text) <= _BEGINNING else text[: _BEGINNING - 1] + "…",
        "tokens": len(trace.axes()[0]),
        "model": model_name(trace.model_id),
        "prediction": None if best is None else prediction_of(best, ""),
    }


def show(view: View, text: Any) -> None:
    """Let a view, and the views linked with it, show another text; see `View.show_text`."""
    texts = view._texts  # noqa: SLF001
    if texts is None:
        raise TypeError(f"this {view.name} was given no trace, so it shows no other text; give it the trace.")
    trace = _trace_of(texts, text)
    if trace is texts.trace:
        return
    before = texts.trace
    _show(view, trace)
    for other in _linked(view, texts.base, before):
        with suppress(*_STAYS):
            _show(other, trace)


def _trace_of(texts: Texts, text: Any) -> Any:
    from attnwidgets.tracing.retrace import retraced

    if is_trace(text):
        return text
    if isinstance(text, str):
        typed = (
            trace for trace in texts.traces if given_text(trace) == text and trace.model is texts.trace.model
        )
        return next(typed, None) or retraced(texts.trace, text)
    if isinstance(text, bool) or not hasattr(text, "__index__"):
        raise TypeError(f"show_text() takes a text, a place in traces or a trace, not {text!r:.80}.")
    if not -len(texts.traces) <= text < len(texts.traces):
        raise IndexError(f"text {text} is out of range: the texts are 0 to {len(texts.traces) - 1}.")
    return texts.traces[text]


def follow(view: View) -> None:
    """Let a view follow linked views to another text."""
    _VIEWS.add(view)


def _linked(view: View, base: Any, shown: Any) -> Iterable[View]:
    """Return the other open views of the same trace that show the same text."""
    for other in list(_VIEWS):
        texts = other._texts  # noqa: SLF001
        is_alike = texts is not None and texts.base is base and texts.trace is shown
        if is_alike and other is not view and other.comm is not None:
            yield other


def options_for_another(view: View) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments of a view after its trace, for the same view of another trace."""
    rest, named = view._made_with  # noqa: SLF001
    return rest, named | {name: value for name, value in _CHOSEN.items() if name in named}


def _show(view: View, trace: Any) -> None:
    """Let a view show another trace; if that fails, it stays as it is."""
    texts: Texts = view._texts  # type: ignore[assignment]  # noqa: SLF001 - it has several, or is of a trace
    if view.comm is None:
        view._reopen()  # noqa: SLF001
    left = vars(texts).copy() | {"traces": list(texts.traces)}
    models = {name: getattr(view, name) for name in ("store", "selection", "options", "opening")}
    state = vars(view).copy()
    current = view._current_options()  # noqa: SLF001
    opened = {name: view._options.get(name) for name in current}  # noqa: SLF001
    rest, named = options_for_another(view)
    texts.hold(view.content.trace_id, view.store, view.selection)
    texts.go(texts.index(trace))
    try:
        with view.hold_sync():
            type(view).__init__(view, trace, *rest, **named)
            linked = texts.selection(view.content.trace_id)
            if linked is not None and linked is not view.selection:
                view.selection = linked  # by `aw.link`
            carry_over(models["selection"], models["store"], view.selection, view.store)
            # Options that the reader changed stay, unless this text began with other values.
            same = {name for name, value in opened.items() if view._options.get(name) == value}  # noqa: SLF001
            view.options = dict(view.options) | {name: current[name] for name in same}
            view.opening = view.requests.opening()
    except BaseException:
        vars(texts).update(left)
        for name in view.__dict__.keys() - state.keys():
            del view.__dict__[name]
        view.__dict__.update(state)
        for name, value in models.items():
            setattr(view, name, value)
        view.requests.replace(view._all_handlers())  # noqa: SLF001
        raise
    for store, selection in texts.dropped():
        selection.release(view._holder)  # noqa: SLF001
        store.release(view._holder)  # noqa: SLF001


def carry_over(left: Selection, left_store: TileStore, to: Selection, to_store: TileStore) -> None:
    """Move a selection to the method, stack, layer, head and pins of another, as far as its text has them.

    The unit is carried over if the reader chose it. A target, a foil, interventions, heads and spans are not:
    they were chosen for the other text. A method is computed if it has to be. Pins that the text was left
    with stay.

    Args:
        left: The selection of the text that was shown.
        left_store: Its store.
        to: The selection of the text that is shown now.
        to_store: Its store.
    """
    if left is to:
        return
    opened = left.opening.unit if left.opening is not None else ""
    chosen: dict[str, Any] = {"unit": left.unit} if left.unit != opened else {}
    chosen |= {"stack": left.stack, "layer": left.layer, "head": left.head}
    with to.hold_sync():
        for name, value in {**chosen, "method": base_of(left.method)}.items():
            if getattr(to, name) == value:
                continue
            try:
                setattr(to, name, value)
            except Cancelled:
                raise
            except Exception:  # noqa: BLE001, S112 - this text or model has none, so the selection stays
                continue
        if not to.pins:
            to.pins = _pins(left, left_store, to_store, to.stack)


def _pins(left: Selection, left_store: TileStore, store: TileStore, stack: str) -> list[Cell]:
    """Return the pins whose tokens are in the other text as well."""
    pins: list[Cell] = []
    for cell in left.pins:
        sources = [_map_in(item, cell.unit, stack) for item in (left_store, store)]
        if None in sources or left.stack != stack:
            continue
        before, after = (source.axes() for source in sources if source is not None)
        moved = [
            -1 if at < 0 else corresponding(old["labels"], new["labels"])(at)
            for at, old, new in zip(cell, before, after, strict=True)
        ]
        if None not in moved:
            pins.append(Cell(moved[0] or 0, moved[1] or 0, cell.unit, cell.layer))
    return pins


def _map_in(store: TileStore, unit: str, stack: str) -> Source | None:
    maps = (source for source in store.sources() if not source.attributions)
    return next((item for item in maps if (item.unit, item.stack) == (unit, stack)), None)


def corresponding(before: Sequence[str], after: Sequence[str]) -> Callable[[int], int | None]:
    """Return a function from an element of a text to the same element of another, or None.

    An element is the same in a beginning and an end that the texts share, and between them at the same
    position in texts of the same length, if it has the same label.
    """
    shorter = min(len(before), len(after))
    first = next((n for n in range(shorter) if before[n] != after[n]), shorter)
    most = shorter - first
    last = next((n for n in range(most) if before[-1 - n] != after[-1 - n]), most)

    def element(at: int) -> int | None:
        if at < first:
            return at
        if at >= len(before) - last:
            return at - len(before) + len(after)
        return at if len(before) == len(after) and before[at] == after[at] else None

    return element
