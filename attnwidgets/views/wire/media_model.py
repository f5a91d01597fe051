"""The model that carries a picture or a sound to the browser: one for every content, whatever shows it."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

from traitlets import Bytes, Dict, List

from attnwidgets._notebook import session
from attnwidgets.views.wire.media import packed
from attnwidgets.views.wire.runtime import SharedModel

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace


class MediaModel(SharedModel):
    """A picture or a sound as it travels: what it is, and its buffers one after the other.

    Stores refer to it, and keep it open. It is made when a view first asks a store for it.
    """

    media = Dict(None, allow_none=True).tag(sync=True)
    lengths: Any = List().tag(sync=True)
    data = Bytes(b"").tag(sync=True)

    _current: ClassVar[WeakValueDictionary[tuple[int | str, str], MediaModel]] = WeakValueDictionary()

    @classmethod
    def of(cls, trace: Trace) -> MediaModel | None:
        """Return the model of a trace's media in this session; None without a picture or a sound.

        Traces of the same picture share one.
        """
        media, buffers = packed(trace)
        if media is None:
            return None
        digest = hashlib.sha256(json.dumps(media, sort_keys=True).encode())
        for part in buffers:
            digest.update(part)
        key = session(), digest.hexdigest()
        held = cls._current.get(key)
        if held is None or not held.is_open:
            held = MediaModel(media=media, lengths=[len(part) for part in buffers], data=b"".join(buffers))
            cls._current[key] = held
        return held
