"""Functions with the signatures of other tools, shown by our views: tutorials need a single changed line.

In: the arguments of bertviz and CircuitsVis. Out: views of this package. Begin with `bertviz.py`. Names and
signatures are theirs; an argument without effect is documented as such.
"""

from __future__ import annotations

from attnwidgets.compat import bertviz, circuitsvis

__all__ = ["bertviz", "circuitsvis"]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
