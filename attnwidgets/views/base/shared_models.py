"""What the views of one trace share: one store and one selection, for as long as a view shows the trace."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from attnwidgets.views.base.selection import Selection
from attnwidgets.views.wire.store import TileStore

Model = TypeVar("Model", TileStore, Selection)


class Shared(Generic[Model]):
    """Models by session and trace; whoever shows one holds it."""

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[int, str], Model] = WeakValueDictionary()

    def get(self, of: tuple[int, str]) -> Model | None:
        """Return the model of a trace, if the browser may still know it."""
        found = self._models.get(of)
        return found if found is not None and found.is_open else None

    def keep(self, of: tuple[int, str], model: Model) -> Model:
        """Make a model that of a trace, and return it."""
        self._models[of] = model
        return model


STORES: Shared[TileStore] = Shared()
SELECTIONS: Shared[Selection] = Shared()
