"""What a notebook keeps of a small model, so that its views compute when the kernel is gone."""

from __future__ import annotations

import zlib
from hashlib import sha256
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from traitlets import Bytes, Dict

from attnwidgets._notebook import session
from attnwidgets.views.wire.runtime import Part, Runtime, SharedModel

if TYPE_CHECKING:
    from attnwidgets.views.wire.handlers import Answer
    from attnwidgets.views.wire.store import TileStore

_PART = "standin"
_LEVEL = 6  # of compression, at which a notebook does not wait


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
        held = cls._current.get(key)
        if held is None or held.comm is None:
            data = zlib.compress(weights, _LEVEL)
            held = cls._current[key] = LiveModel(packed=packed, weights=data)
        return held


def send_stand_in(store: TileStore, trace: Any) -> Answer:
    """Send the browser what it needs to answer for a store without a kernel. Runs the model once.

    Raises:
        ValueError: The model or the tokenizer cannot run in the browser; the message says why.
    """
    from attnwidgets.tracing.top_logits import read_ids
    from attnwidgets.views.page.live.packing import described, require_computable

    if store.stand_in:
        return None, []
    require_computable(trace)
    packed = described(trace)
    model = LiveModel.get(packed, packed.pop("weights"))
    code = Part.get(_PART, Runtime.get().layout)
    store.stand_in = {
        "model": f"anywidget:{model.model_id}",
        "code": f"anywidget:{code.model_id}",
        "ids": read_ids(trace),
    }
    return None, []
