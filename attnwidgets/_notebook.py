"""The running notebook, if there is one."""

from __future__ import annotations

import sys
import threading
from typing import Any


def running_shell() -> Any:
    """Return the running IPython shell, or None; IPython is not imported for this."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def session() -> int | str:
    """Return what identifies one reader's notebook among those that this process serves.

    A kernel serves one notebook. Apps serve every visitor from one process, and their browsers share nothing:
    marimo from a thread of its own, Solara in a context of its own.
    """
    if "marimo" in sys.modules:
        return threading.get_ident()
    contexts = sys.modules.get("solara.server.kernel_context")
    return contexts.get_current_context().id if contexts and contexts.has_current_context() else 0
