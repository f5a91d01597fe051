"""Models that views of a trace share, how long they live, and the stand-in for a kernel that is gone."""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar
from weakref import WeakKeyDictionary, WeakValueDictionary

from traitlets import Bytes, Dict

from attnwidgets._notebook import running_shell, session
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.wire.runtime import Part, Runtime, SharedModel
from attnwidgets.views.wire.store import TileStore

if TYPE_CHECKING:
    from collections.abc import MutableMapping

    from attnwidgets.views.wire.handlers import Answer

Model = TypeVar("Model", TileStore, Selection)

_PART = "standin"
_LEVEL = 6  # of compression, at which a notebook does not wait


class Shared(Generic[Model]):
    """Models by session and trace; a model lives as long as a view uses it."""

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


class Displayed(Protocol):
    """A view that is tracked."""

    def close(self) -> None:
        """Remove it."""

    def follow_cell(self) -> None:
        """Follow the methods that a cell may have registered, and the selection that it may have made."""


class Cells:
    """Remembers which cell made or showed a view, and closes views that no cell shows any more.

    A view is marked by the cell that makes it and by every cell that shows it. When a cell has run again, its
    marks on views of earlier runs are gone; a view that loses its last mark is closed.
    """

    def __init__(self) -> None:
        self._marks: MutableMapping[Displayed, dict[str, str]] = WeakKeyDictionary()
        self._shell: Any = None

    def mark(self, view: Displayed) -> None:
        """Tie a view to the running cell, if there is a notebook, and follow all cells from now on."""
        shell = running_shell()
        if shell is None or not hasattr(shell, "get_parent"):
            return
        if shell is not self._shell:
            shell.events.register("post_run_cell", self._after_cell)
            self._shell = shell
        marks = self._marks.setdefault(view, {})
        marks.update([cell_run] if (cell_run := _cell_run(shell)) else [])

    def forget(self, view: Displayed) -> None:
        """Stop tracking a closed view."""
        self._marks.pop(view, None)

    def _after_cell(self, _result: object = None) -> None:
        cell, run = _cell_run(running_shell()) or ("", "")
        for view, marks in list(self._marks.items()):
            if marks.get(cell, run) != run:
                del marks[cell]
                if not marks:
                    view.close()
        for view in list(self._marks):
            view.follow_cell()


CELLS = Cells()


def _cell_run(shell: Any) -> tuple[str, str] | None:
    """Return the ids of the running cell and of this run; None where no cell ids are sent."""
    parent = shell.get_parent() or {}
    cell = (parent.get("metadata") or {}).get("cellId")
    run = (parent.get("header") or {}).get("msg_id")
    return (str(cell), str(run)) if cell and run else None


def may_stand_in(trace: Any) -> bool:
    """Return whether a trace's model is small enough to run in the browser; cheap, runs no model."""
    from attnwidgets.tracing.retrace import refusal
    from attnwidgets.views.page.live.weights import MOST_PARAMETERS

    if trace is None or refusal(trace):
        return False
    from attnwidgets.tracing.recording.borrow import unwrap  # torch is here, since there is a model

    return sum(parameter.numel() for parameter in unwrap(trace.model).parameters()) <= MOST_PARAMETERS


def offer_stand_in(store: TileStore, trace: Any) -> None:
    """Let the browser ask for the model of a trace, if it is small."""
    if store.stand_in is None and may_stand_in(trace):
        store.stand_in = {}


class LiveModel(SharedModel):
    """A model with its weights in the browser: the `PackedLive` of js/src/live/session.ts."""

    packed = Dict().tag(sync=True)
    weights = Bytes(b"").tag(sync=True)

    _current: ClassVar[WeakValueDictionary[tuple[int | str, str], LiveModel]] = WeakValueDictionary()

    @classmethod
    def get(cls, packed: dict[str, Any], weights: bytes) -> LiveModel:
        """Return this kernel's widget of a model, made on first use; another model is another widget."""
        key = session(), sha256(repr(packed).encode() + weights).hexdigest()
        model = cls._current.get(key)
        if model is None or model.comm is None:
            data = zlib.compress(weights, _LEVEL)
            model = cls._current[key] = LiveModel(packed=packed, weights=data)
        return model


def send_stand_in(store: TileStore, trace: Any) -> Answer:
    """Send the browser the model and the code that answer for a store without a kernel. Runs the model once.

    Raises:
        ValueError: The model or the tokenizer cannot run in the browser; the message says why.
    """
    from attnwidgets.tracing.predictions import read_ids
    from attnwidgets.tracing.recording.borrow import unwrap
    from attnwidgets.views.page.live.packing import described, require_computable
    from attnwidgets.views.page.live.weights import layout_of

    if store.stand_in:
        return None, []
    require_computable(trace)
    packed = described([trace], layout_of(unwrap(trace.model)))
    model = LiveModel.get(packed, packed.pop("weights"))
    code = Part.get(_PART, Runtime.get().layout)
    store.stand_in = {
        "model": f"anywidget:{model.model_id}",
        "code": f"anywidget:{code.model_id}",
        "ids": read_ids(trace),
    }
    return None, []
