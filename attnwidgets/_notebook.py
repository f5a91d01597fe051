"""The running notebook, if there is one."""

from __future__ import annotations

import sys
import threading
from typing import Any


def running_shell() -> Any:
    """Return the running IPython shell, or None; IPython is not imported for this."""
    get_ipython = getattr(sys.modules.get("IPython"), "get_ipython", None)
    return None if get_ipython is None else get_ipython()


def session() -> int:
    """Return a number that identifies one reader's notebook among those that this process serves.

    A kernel serves one notebook. A marimo app serves every visitor from a thread of its own, and their
    browsers share nothing.
    """
    return threading.get_ident() if "marimo" in sys.modules else 0


def draws_no_views() -> bool:
    """Return whether this is Colab with widgets turned off that are not Jupyter's own."""
    manager = getattr(sys.modules.get("google.colab.output"), "_widgets", None)
    return manager is not None and getattr(manager, "_installed_url", None) is None
