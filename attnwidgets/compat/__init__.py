"""The calls of other tools with their arguments, answered by our views: a tutorial changes one line."""

from __future__ import annotations

from attnwidgets.compat import bertviz, circuitsvis

__all__ = ["bertviz", "circuitsvis"]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
