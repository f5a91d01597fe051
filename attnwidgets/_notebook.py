"""The running notebook, if there is one."""

from __future__ import annotations

import asyncio
import sys
import threading
from contextlib import suppress
from importlib import import_module
from typing import Any

_IDLE = 0.2
"""Seconds after a cell's request for it in which the kernel begins to import; a running cell comes first."""
_NEEDED = ("matplotlib.figure", "matplotlib.backends.backend_agg", "attnwidgets.views")
"""What the first view of a notebook and its static picture need: most of the time that they take."""


def running_shell() -> Any:
    """Return the running IPython shell, or None; IPython is not imported for this."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def prepare_views() -> None:
    """Import what views need between two cells of a notebook, so that its first view comes sooner."""
    if running_shell() is None or all(name in sys.modules for name in _NEEDED):
        return
    try:
        loop = asyncio.get_running_loop()
    except RuntimeError:  # no kernel runs the cells
        return
    loop.call_later(_IDLE, _import_needed)


def _import_needed() -> None:
    with suppress(ImportError):  # matplotlib may be missing, as on a page in the browser
        for name in _NEEDED:
            import_module(name)


def session() -> int | str:
    """Return what identifies one reader's notebook among those that this process serves.

    A kernel serves one notebook. Apps serve every visitor from one process, and their browsers share nothing:
    marimo from a thread of its own, Solara in a context of its own.
    """
    if "marimo" in sys.modules:
        return threading.get_ident()
    contexts = sys.modules.get("solara.server.kernel_context")
    return contexts.get_current_context().id if contexts and contexts.has_current_context() else 0


def draws_no_views() -> bool:
    """Return whether this is Colab with widgets turned off that are not Jupyter's own."""
    manager = getattr(sys.modules.get("google.colab.output"), "_widgets", None)
    return manager is not None and getattr(manager, "_installed_url", None) is None
