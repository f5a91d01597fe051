"""Jobs: requests that may run a model; one at a time, on the kernel's main loop, the latest first."""

from __future__ import annotations

import json
import signal
import time
from contextlib import suppress
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import running_shell
from attnwidgets._progress import Cancelled, observing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

_PROGRESS_EVERY = 0.1  # seconds between two messages of progress

_POLLIN = 1  # of ZeroMQ: readable sockets
_DELIMITER = b"<IDS|MSG>"  # of Jupyter's messages; a signature, three dictionaries and the content follow


@dataclass(eq=False)
class Job:
    """One request and its work.

    Among waiting jobs of a `kind`, only those for the last `wanted` are done: the others are out of sight.

    Args:
        number: Number of the request, which its replies carry.
        kind: Jobs of one kind replace each other.
        wanted: What the job is for, such as the layer.
        text: Its name, shown with its progress.
        work: Does it, and sends the reply.
        stopped: Whether it is to stop at its next step.
    """

    number: Any
    kind: str
    wanted: Any
    text: str
    work: Callable[[], None]
    stopped: bool = False

    def is_cancelled_by(self, messages: Iterable[Any]) -> bool:
        """Return whether one of these messages cancels this job."""
        mine = {"kind": "cancel", "job": self.number}
        return any(isinstance(sent, dict) and mine.items() <= sent.items() for sent in messages)


class Jobs:
    """The jobs of a store or view.

    Args:
        send: Sends a reply of wire.ts: progress, cancellation or an error.
    """

    def __init__(self, send: Callable[[dict[str, Any]], None]) -> None:
        self._send = send
        self._lock = Lock()
        self._waiting: list[Job] = []
        self._running: Job | None = None

    def submit(self, job: Job) -> None:
        """Do a job once no cell is running; returns immediately if one is running."""
        with self._lock:
            self._waiting.append(job)
        self._report(job, job.text, None, None)
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
        """Drop everything: the views are closed."""
        with self._lock:
            self._waiting.clear()
            if self._running is not None:
                self._running.stopped = True

    def _turn(self) -> None:
        with self._lock:
            if not self._waiting:
                return
            job = self._running = self._waiting.pop()
            # Not earlier: while a cell runs, views that request different things would drop each other.
            dropped = [
                waiting
                for waiting in self._waiting
                if waiting.kind == job.kind and waiting.wanted != job.wanted
            ]
            self._waiting = [waiting for waiting in self._waiting if waiting not in dropped]
        for waiting in dropped:
            self._cancelled(waiting, superseded=True)
        try:
            self._do(job)
        finally:
            self._running = None

    def _do(self, job: Job) -> None:
        last_report = -_PROGRESS_EVERY

        def observe(done: int, total: int | None, desc: str) -> None:
            nonlocal last_report
            now = time.monotonic()
            is_due = now - last_report >= _PROGRESS_EVERY
            if job.stopped or (is_due and job.is_cancelled_by(unheard())):
                raise Cancelled
            if is_due:
                last_report = now
                self._report(job, desc, done, total)

        try:
            with observing(observe):
                observe(0, None, job.text)
                job.work()
        except (Cancelled, KeyboardInterrupt):
            self._cancelled(job)
        except Exception as error:  # noqa: BLE001 - the view reports every error, with its message
            message = str(error) or type(error).__name__
            self._send({"kind": "error", "id": job.number, "message": message})

    def _report(self, job: Job, text: str, done: int | None, total: int | None) -> None:
        self._send({"kind": "progress", "id": job.number, "text": text, "done": done, "total": total})

    def _cancelled(self, job: Job, *, superseded: bool = False) -> None:
        self._send({"kind": "cancelled", "id": job.number, "superseded": superseded})


def on_main_loop(call: Callable[[], None]) -> None:
    """Call a function on the main thread while no cell is running; interrupting the kernel stops it.

    ipykernel 7 handles a view's messages in a separate thread, during a running cell, or in the main thread
    while an asynchronous cell awaits something. The function then waits for the lock that cells wait for.
    Elsewhere (older kernels, marimo, Solara, plain Python) messages arrive between cells, and the function is
    called immediately.
    """
    kernel = getattr(running_shell(), "kernel", None)
    # ipykernel's documented interface has no way to wait for the running cell.
    cells: Any = getattr(kernel, "_main_asyncio_lock", None)
    loop: Any = getattr(kernel, "io_loop", None)
    if cells is None or loop is None:
        call()
        return

    async def turn() -> None:
        async with cells:
            # Between cells the kernel ignores interrupts.
            before = signal.signal(signal.SIGINT, signal.default_int_handler)
            try:
                with suppress(KeyboardInterrupt):
                    call()
            finally:
                signal.signal(signal.SIGINT, before)

    loop.add_callback(turn)


def unheard() -> Iterator[Any]:
    """Yield the custom messages of views that wait until the main thread is free, in ipykernel 6.

    There, one thread receives and handles them, so that a cancellation would be heard when there is nothing
    left to cancel. They stay in the queue, and are handled in their turn.
    """
    kernel = getattr(running_shell(), "kernel", None)
    stream = getattr(kernel, "shell_stream", None)
    # The only way to look at it. Solara's kernel has a queue of another kind, which stays empty.
    waiting = getattr(getattr(kernel, "msg_queue", None), "_queue", None)
    if stream is None or waiting is None:
        return
    stream.flush(_POLLIN)
    for _, _, (*_, frames) in list(waiting):
        with suppress(ValueError, LookupError, TypeError):
            parts = [bytes(frame) for frame in frames]
            yield json.loads(parts[parts.index(_DELIMITER) + 5])["data"]["content"]
