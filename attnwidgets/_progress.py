"""Progress of long work: a bar in the notebook, and whoever watches from a view, who may stop it."""

from __future__ import annotations

from collections.abc import Sized
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, TypeVar

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
    """Yield `items` under a progress bar that shows after a second.

    Within `observing` the observer is told instead, and no bar is drawn.

    Args:
        items: What is worked through.
        desc: What is being done.
        total: How many there are, where `items` has no length.
    """
    if total is None and isinstance(items, Sized):
        total = len(items)
    observer = _OBSERVER.get()
    if observer is None:
        from tqdm.auto import tqdm

        with tqdm(desc=desc, total=total, delay=_DELAY_SECONDS, leave=False) as bar:
            try:
                for item in items:
                    yield item
                    bar.update()
            except GeneratorExit:
                # Whoever asked has enough (a text that ended early); the notebook would paint the bar red.
                bar.total = bar.n
                raise
        return
    observer(0, total, desc)
    for done, item in enumerate(items, 1):
        yield item
        observer(done, total, desc)


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
