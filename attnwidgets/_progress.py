"""Progress of long work: a bar in the notebook, and whoever watches from a view, who may stop it."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    # (steps done, steps in all or None, what is being done); may raise Cancelled
    Observer = Callable[[int, int | None, str], None]

T = TypeVar("T")

_OBSERVER: ContextVar[Observer | None] = ContextVar("attnwidgets_progress", default=None)

# Work that is over sooner is not announced.
_DELAY_SECONDS = 1


class Cancelled(Exception):  # noqa: N818 - a wish of the reader, not a fault
    """Raised by an observer to stop the work between two of its steps."""


def progress(items: Iterable[T], desc: str, total: int | None = None) -> Generator[T, None, None]:
    """Yield `items`; once a second has passed, under a progress bar that goes away at the end.

    Within `observing` the observer is told instead, and no bar is drawn.

    Args:
        items: What is worked through.
        desc: What is being done.
        total: How many there are, where `items` has no length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    observer = _OBSERVER.get()
    told = observer or _Bar()
    try:
        if observer is not None:
            observer(0, total, desc)
        for done, item in enumerate(items, 1):
            yield item
            told(done, total, desc)
    finally:
        if isinstance(told, _Bar):
            told.close()


class _Bar:
    """An observer that draws tqdm's bar, made only when the work turns out to be long."""

    def __init__(self) -> None:
        self._began = monotonic()
        self._bar: Any = None
        self._shown: Any = None

    def __call__(self, done: int, total: int | None, desc: str) -> None:
        if self._bar is not None:
            self._bar.update()
        elif done != total and monotonic() - self._began >= _DELAY_SECONDS:
            from tqdm.auto import tqdm

            # With a delay tqdm does not display itself at once: a notebook's bar gets an id to be removed by.
            self._bar = tqdm(desc=desc, total=total, initial=done, leave=False, delay=1e-9)
            if hasattr(self._bar, "container"):
                from IPython.display import display

                self._bar.displayed = True
                self._shown = display(self._bar.container, display_id=True)
            self._bar.refresh()

    def close(self) -> None:
        """Take the bar away, with every widget it is made of and with its place in the notebook's file."""
        if self._bar is None:
            return
        self._bar.total = self._bar.n  # tqdm paints what ends early red, and leaves it
        self._bar.close()
        container = getattr(self._bar, "container", None)
        for part in () if container is None else (container, *container.children):
            for own in (part.layout, getattr(part, "style", None), part):
                if own is not None:
                    own.close()
        if self._shown is not None:
            self._shown.update({"text/plain": ""}, raw=True)


@contextmanager
def observing(observer: Observer) -> Iterator[None]:
    """Tell `observer` of every step of `progress` in this context, instead of drawing bars.

    An observer that raises `Cancelled` stops the work there.
    """
    token = _OBSERVER.set(observer)
    try:
        yield
    finally:
        _OBSERVER.reset(token)
