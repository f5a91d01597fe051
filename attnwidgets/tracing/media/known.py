"""Traces of pictures and sound that are in memory, by id: a map made from one is shown on its picture."""

from __future__ import annotations

from typing import TYPE_CHECKING
from weakref import WeakValueDictionary

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

_TRACES: WeakValueDictionary[str, Trace] = WeakValueDictionary()


def know(trace: Trace) -> None:
    """Let `with_media` find a trace for as long as something holds it."""
    if trace.picture is not None or trace.sound is not None:
        _TRACES[trace.id] = trace


def with_media(trace_id: str) -> Trace | None:
    """Return the trace of this id if it has a picture or a sound, and is still held by something."""
    return _TRACES.get(trace_id)
