"""Functions with the signatures of other tools, shown by our views: tutorials need one changed line."""

from __future__ import annotations

from attnwidgets.compat import bertviz, circuitsvis

__all__ = ["bertviz", "circuitsvis"]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
