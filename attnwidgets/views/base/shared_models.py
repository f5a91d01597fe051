"""Models that the views of one trace share: a store and a selection."""

from __future__ import annotations

from typing import Generic, TypeVar
from weakref import WeakValueDictionary

from attnwidgets.views.base.selection import Selection
from attnwidgets.views.wire.store import TileStore

Model = TypeVar("Model", TileStore, Selection)


class Shared(Generic[Model]):
    """Models by session and trace; the views that use one keep it alive."""

    def __init__(self) -> None:
        self._models: WeakValueDictionary[tuple[int | str, str], Model] = WeakValueDictionary()

    def get(self, key: tuple[int | str, str]) -> Model | None:
        """Return the model of a session's trace, unless it is closed."""
        model = self._models.get(key)
        return model if model is not None and model.is_open else None

    def keep(self, key: tuple[int | str, str], model: Model) -> Model:
        """Make a model that of a session's trace, and return it."""
        self._models[key] = model
        return model


STORES: Shared[TileStore] = Shared()
SELECTIONS: Shared[Selection] = Shared()
