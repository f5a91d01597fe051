"""The running notebook, if there is any."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

from traitlets.config import MultipleInstanceError

_IDLE = 0.2
"""Seconds after a cell's request for it in which the kernel begins to import; a running cell comes first."""
_NEEDED = (
    "attnwidgets.views.explorer",
    "attnwidgets.views.still.matrices",
    "attnwidgets.figures.pens.on_pixels",
)
"""Modules for the first view of a notebook and its static picture, which take most of its time."""


def running_shell() -> Any:
    """Return the running IPython shell, or None; IPython is not imported for this."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def prepare_views() -> None:
    """Import the modules of views between two cells of a notebook, so that its first view comes sooner."""
    if running_shell() is None or all(name in sys.modules for name in _NEEDED):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no kernel runs the cells
        return
    loop.call_later(_IDLE, _import_needed)


def _import_needed() -> None:
    with suppress(ImportError):  # Pillow may be missing, as on a page in the browser
        for name in _NEEDED:
            import_module(name)


def session() -> int | str:
    """Return an identifier of a reader's notebook among those that this process serves.

    Every reader has a kernel: a process of their own in Jupyter and Voila, an object among others in the same
    process in Solara and Panel, which make the running reader's kernel the current one. marimo has a thread
    for each instead.
    """
    kernels = getattr(sys.modules.get("ipykernel.kernelbase"), "Kernel", None)
    if kernels is not None and kernels.initialized():
        with suppress(MultipleInstanceError):  # Panel, outside of any reader's session
            return str(kernels.instance().ident)
    return threading.get_ident() if "marimo" in sys.modules else 0


def draws_no_views() -> bool:
    """Return whether this is Colab with third-party widgets turned off."""
    manager = getattr(sys.modules.get("google.colab.output"), "_widgets", None)
    return manager is not None and getattr(manager, "_installed_url", None) is None
