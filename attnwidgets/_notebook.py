"""The notebook that runs, if one does."""

from __future__ import annotations

import sys
from typing import Any


def running_shell() -> Any:
    """Return the IPython shell, where there is one; IPython is not imported for it."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()
