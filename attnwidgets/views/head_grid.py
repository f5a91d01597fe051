"""HeadGrid: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING

from attnwidgets.views.base import View
from attnwidgets.views.head_topics import head_topics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.views.questions import Topic


class HeadGrid(View):
    """Thumbnails of every layer and head, max-pooled; a click selects one, the pointer shows it enlarged.

    Heads stand by layer. A statistic of `aw.head_statistics` (mean distance, entropy, diagonal, previous or
    first token, special tokens, other sentences, ...) sorts them in each layer, over all heads or in groups
    of like value; a threshold on it, or a name ("3", "3.7", "*.0"), leaves some out. Its values are computed
    when one is first chosen; of many layers that takes a while, shows how far it is and can be cancelled.

    Arrow keys, Home and End move, Enter selects. Arguments are those of `View`.
    """

    _VIEW = "HeadGrid"
    PARTS = ("grid",)

    def _topics(self) -> Mapping[str, Topic]:
        return head_topics(self)
