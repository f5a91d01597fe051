"""The kernel's main loop: the only place where a view may run a model."""

from __future__ import annotations

import json
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import running_shell

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_POLLIN = 1  # of ZeroMQ: what can be read
_DELIMITER = b"<IDS|MSG>"  # of Jupyter's messages; a signature, three dictionaries and the content follow


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
