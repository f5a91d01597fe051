"""TokenStrip: see the class."""

from __future__ import annotations

from attnwidgets.views.base import View


class TokenStrip(View):
    """The text, highlighted by one row of a map or by attributions.

    A click makes a token the query; signed values diverge from the background.
    Arguments are those of `View`.
    """

    _VIEW = "TokenStrip"
    _MARKS = "elements"
    _FILTERS = True
    PARTS = ("filters",)
