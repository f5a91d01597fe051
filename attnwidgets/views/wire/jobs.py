"""Jobs: what views ask for that may run a model; one at a time, on the main loop, the latest first."""

from __future__ import annotations

import time
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from attnwidgets._progress import Cancelled, observing
from attnwidgets.views.wire.main_loop import on_main_loop

if TYPE_CHECKING:
    from collections.abc import Callable

_TELL_EVERY = 0.1  # seconds between two messages of progress


@dataclass(eq=False)
class Job:
    """One request: its number, what it is for, and the work.

    Of the jobs of one `kind` that wait, only those for what was last asked for are done: nobody looks at the
    others any more.
    """

    number: Any
    kind: str
    wanted: Any
    text: str
    work: Callable[[], None]
    stopped: bool = False


class Jobs:
    """The jobs of one store. What becomes of them is told with the replies of wire.ts.

    Args:
        send: Takes a reply.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: list[Job] = []
        self._running: Job | None = None

    def submit(self, job: Job) -> None:
        """Do a job as soon as no cell is running; returns before that, except where nothing runs beside."""
        with self._lock:
            self._waiting.append(job)
        self._tell(job, job.text, None, None)
        on_main_loop(self._turn)

    def cancel(self, number: Any) -> None:
        """Drop a waiting job; stop a running one at its next step."""
        with self._lock:
            dropped = [job for job in self._waiting if job.number == number]
            self._waiting = [job for job in self._waiting if job.number != number]
            if self._running is not None and self._running.number == number:
                self._running.stopped = True
        for job in dropped:
            self._cancelled(job)

    def close(self) -> None:
        """Drop everything: nobody looks any more."""
        with self._lock:
            self._waiting.clear()
            if self._running is not None:
                self._running.stopped = True

    def _turn(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            job = self._running = self._waiting.pop()
            dropped = [it for it in self._waiting if it.kind == job.kind and it.wanted != job.wanted]
            self._waiting = [it for it in self._waiting if it not in dropped]
        # Only now: while a cell runs, views that want different things must not drop each other in turns.
        for other in dropped:
            self._cancelled(other, superseded=True)
        try:
            self._do(job)
        finally:
            self._running = None

    def _do(self, job: Job) -> None:
        told = -_TELL_EVERY

        def observe(done: int, total: int | None, desc: str) -> None:
            nonlocal told
            if job.stopped:
                raise Cancelled
            now = time.monotonic()
            if now - told >= _TELL_EVERY:
                told = now
                self._tell(job, desc, done, total)

        try:
            with observing(observe):
                observe(0, None, job.text)
                job.work()
        except (Cancelled, KeyboardInterrupt):
            self._cancelled(job)
        except Exception as error:  # noqa: BLE001 - whatever a method raises is told in the view, in words
            message = str(error) or type(error).__name__
            self._send({"kind": "error", "id": job.number, "message": message})

    def _tell(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        self._send({"kind": "progress", "id": job.number, "text": text, "done": done, "total": total})

    def _cancelled(self, job: Job, *, superseded: bool = False) -> None:
        self._send({"kind": "cancelled", "id": job.number, "superseded": superseded})
