"""The notebook that runs, if one does."""

from __future__ import annotations

import sys
import threading
from typing import Any


def running_shell() -> Any:
    """Return the IPython shell, where there is one; IPython is not imported for it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def session() -> int:
    """Return what tells one reader's notebook from another's in this process.

    A kernel serves one notebook. A marimo app serves every visitor from a thread of its own: what the
    browser of one knows, that of another does not.
    """
    return threading.get_ident() if "marimo" in sys.modules else 0
