"""Progress of long work: a bar in the notebook, or an observer in a view, which may cancel it."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    # (steps done, number of steps or None, description of the work); may raise Cancelled
    Observer = Callable[[int, int | None, str], None]

T = TypeVar("T")

_OBSERVER: ContextVar[Observer | None] = ContextVar("attnwidgets_progress", default=None)

# Shorter work shows no bar.
_DELAY_SECONDS = 1

_WIDGET = "application/vnd.jupyter.widget-view+json"


class Cancelled(Exception):  # noqa: N818 - the reader's wish, not an error
    """Raised by an observer to stop the work between two of its steps."""


def progress(items: Iterable[T], desc: str, total: int | None = None) -> Generator[T, None, None]:
    """Yield `items` under a progress bar, which appears after a second and disappears at the end.

    Inside `observing` the observer is called instead, and no bar is drawn.

    Args:
        items: The steps of the work.
        desc: A description of the work.
        total: Number of items, if `items` has no length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    observer = _OBSERVER.get()
    report = observer or _Bar()
    try:
        if observer is not None:
            observer(0, total, desc)
        for done, item in enumerate(items, 1):
            yield item
            report(done, total, desc)
    finally:
        if isinstance(report, _Bar):
            report.close()


def report(done: int, total: int | None, desc: str) -> None:
    """Tell the observer, if there is any, of a step within a step of `progress`. It may raise `Cancelled`."""
    observer = _OBSERVER.get()
    if observer is not None:
        observer(done, total, desc)


class _Bar:
    """An observer that draws tqdm's bar, created only once the work turns out to be long."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._bar: Any = None
        self._shown: Any = None

    def __call__(self, done: int, total: int | None, desc: str) -> None:
        if self._bar is not None:
            self._bar.update()
        elif done != total and monotonic() - self._began >= _DELAY_SECONDS:
            from tqdm.auto import tqdm

            # With a delay tqdm does not display itself at once, so that a notebook's bar can be given an id.
            self._bar = tqdm(desc=desc, total=total, initial=done, leave=False, delay=1e-9)
            if hasattr(self._bar, "container"):
                from IPython.display import display

                self._bar.displayed = True
                # As a bundle: ipywidgets 7 displays its widgets without an id.
                reference = {"version_major": 2, "version_minor": 0, "model_id": self._bar.container.model_id}
                bundle = {"text/plain": str(self._bar), _WIDGET: reference}
                self._shown = display(bundle, raw=True, display_id=True)
            self._bar.refresh()

    def close(self) -> None:
        """Remove the bar, with every widget it consists of and its output in the notebook's file."""
        if self._bar is None:
            return
        self._bar.total = self._bar.n  # tqdm colours a bar that ends early red, and leaves it
        self._bar.close()
        container = getattr(self._bar, "container", None)
        for part in () if container is None else (container, *container.children):
            for widget in (part.layout, getattr(part, "style", None), part):
                if widget is not None:
                    widget.close()
        if self._shown is not None:
            self._shown.update({"text/plain": ""}, raw=True)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Call `observer` at every step of `progress` in this context, instead of drawing bars.

    An observer that raises `Cancelled` stops the work at that step.
    """
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
