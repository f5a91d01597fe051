"""The kernel's main loop: the only place where a view may run a model."""

from __future__ import annotations

import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import running_shell

if TYPE_CHECKING:
    from collections.abc import Callable


def on_main_loop(call: Callable[[], None]) -> None:
    """Call a function on the main thread while no cell is running; interrupting the kernel stops it.

    ipykernel 7 handles a view's messages in a separate thread, beside a running cell, or in the main thread
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
