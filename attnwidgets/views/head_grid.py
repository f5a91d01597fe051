"""HeadGrid: see the class."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from attnwidgets.views.head_topics import head_topics
from attnwidgets.views.wire_topics import Wired
from attnwidgets.views.wires import Wires

if TYPE_CHECKING:
    from collections.abc import Mapping

    from attnwidgets.views.questions import Topic


class HeadGrid(Wired):
    """Thumbnails of every layer and head, max-pooled; a click selects one, the pointer shows it enlarged.

    Heads stand by layer. A statistic of `aw.head_statistics` (mean distance, entropy, diagonal, previous or
    first token, special tokens, other sentences, ...) sorts them in each layer, over all heads or in groups
    of like value; a threshold on it, or a name ("3", "3.7", "*.0"), leaves some out. Its values are computed
    when one is first chosen; of many layers that takes a while, shows how far it is and can be cancelled.

    Arrow keys, Home and End move, Enter selects; `k`, or a right click, knocks a head out for all linked
    views that ask the model (see `InterventionView`), and crosses it out. Arguments are those of `View`.
    """

    _VIEW = "HeadGrid"
    PARTS = ("grid",)

    def __init__(self, shown: Any, **options: Any) -> None:
        self._wires = Wires.of(shown)
        super().__init__(shown, **options)

    def _topics(self) -> Mapping[str, Topic]:
        wires = self._wire_topics(rows=False)
        return head_topics(self) | {"wires": wires["wires"]}
