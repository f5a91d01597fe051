"""Functions with the signatures of other tools, shown by our views, and logs of other programs.

In: the arguments of bertviz and CircuitsVis, or a log. Out: views of this package, or messages. Begin with
`bertviz.py`. Names and signatures are theirs, so that tutorials need a single changed line; an argument
without effect is documented as such.
"""

from __future__ import annotations

from attnwidgets.compat import bertviz, circuitsvis
from attnwidgets.compat.logs.conversation import Conversation
from attnwidgets.compat.logs.reading import read_log

__all__ = ["Conversation", "bertviz", "circuitsvis", "read_log"]


def __dir__() -> list[str]:
    """List the public names."""
    return sorted(__all__)
