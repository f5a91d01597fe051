"""HeadGrid: see the class."""

from __future__ import annotations

from attnwidgets.views.base import View


class HeadGrid(View):
    """Thumbnails of every layer and head, max-pooled; a click selects one.

    Arrow keys move the selection.
    Arguments are those of `View`.
    """

    _VIEW = "HeadGrid"
