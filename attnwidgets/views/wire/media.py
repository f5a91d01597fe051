"""A picture or sound as it travels to the browser: small, in a model that all its views share."""

from __future__ import annotations

import hashlib
import json
from io import BytesIO
from math import ceil, gcd
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakValueDictionary

import numpy as np
from traitlets import Bytes, Dict, List

from attnwidgets._notebook import session
from attnwidgets.views.wire.runtime import SharedModel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.tracing.media.picture import Picture
    from attnwidgets.tracing.media.sound import Sound
    from attnwidgets.tracing.trace import Trace

PICTURE_BYTES = 150_000
"""The largest picture that is sent."""

SIDE = 1024
"""Pixels of the longer side of a picture that is sent, at most."""

RATE = 16_000
"""Samples that are sent of a second, at most: two bytes each."""

_QUALITIES = (85, 70, 55, 40)  # of JPEG; below, a smaller picture looks better
_DRAWN = 128  # pixels of the longer side of a picture whose pixels are seen one by one
_LARGEST = 2**15 - 1


def packed(trace: Trace) -> tuple[dict[str, Any] | None, list[bytes]]:
    """Return the Media of wire.ts, and its bytes; None without a picture or a sound.

    A picture is one buffer, a JPEG. A sound is its samples, int16, and its spectrogram as the model reads it
    [bin, frame], uint8, which is empty if the model reads samples.
    """
    if trace.picture is not None:
        return _picture(trace.picture)
    if trace.sound is not None:
        features = trace.inputs.get("input_features")
        return _sound(trace.sound, None if features is None else np.asarray(features[0], dtype=np.float32))
    return None, []


def _picture(picture: Picture) -> tuple[dict[str, Any] | None, list[bytes]]:
    from PIL import Image

    pixels = picture.given if picture.given is not None else picture.seen
    if pixels is None:
        return None, []
    image = Image.fromarray(pixels)
    limit, data = SIDE, b""
    while not data or len(data) > PICTURE_BYTES:
        image.thumbnail((limit, limit), Image.Resampling.LANCZOS)
        for quality in (95,) if max(image.size) <= _DRAWN else _QUALITIES:
            out = BytesIO()
            # Without subsampling, the colour of a pixel stays in it.
            options = {"subsampling": 0} if max(image.size) <= _DRAWN else {}
            image.save(out, "JPEG", quality=quality, optimize=True, **options)
            data = out.getvalue()
            if len(data) <= PICTURE_BYTES:
                break
        limit = max(image.size) * 3 // 4
    ratio = (image.height / pixels.shape[0], image.width / pixels.shape[1])
    result = {
        "kind": "picture",
        "size": [image.height, image.width],
        "seen": None if picture.seen is None else list(picture.seen.shape[:2]),
        "scale": None,
        "shift": None,
    }
    if picture.scale is not None:
        result["scale"] = [scale * factor for scale, factor in zip(picture.scale, ratio, strict=True)]
        result["shift"] = [shift * factor for shift, factor in zip(picture.shift, ratio, strict=True)]
    return result, [data]


def _sound(sound: Sound, features: NDArray[np.float32] | None) -> tuple[dict[str, Any], list[bytes]]:
    wave, rate = sound.wave[: ceil(sound.heard * sound.rate)], sound.rate
    if rate > RATE:
        from scipy.signal import resample_poly

        shared = gcd(rate, RATE)
        wave, rate = resample_poly(wave, RATE // shared, rate // shared), RATE
    samples = np.round(wave.clip(-1, 1) * _LARGEST).astype("<i2")
    spectrogram, data = None, b""
    if features is not None and sound.hop is not None:
        # [bin, frame]: Speech2Text's frames come first.
        bins = features if features.shape[1] >= features.shape[0] else features.T
        bins = bins[:, : ceil(sound.heard * sound.rate / sound.hop)]
        low, high = float(bins.min()), float(bins.max())
        data = np.round((bins - low) / (high - low or 1.0) * 255).astype(np.uint8).tobytes()
        spectrogram = {"bins": len(bins), "frames": bins.shape[1], "step": sound.hop / sound.rate}
    result = {"kind": "sound", "rate": rate, "heard": sound.heard, "spectrogram": spectrogram}
    return result, [samples.tobytes(), data]


class MediaModel(SharedModel):
    """A picture or a sound as it travels: its description and its buffers in order.

    Stores refer to it, and keep it open. It is made when a view first asks a store for it.
    """

    media = Dict(None, allow_none=True).tag(sync=True)
    lengths: Any = List().tag(sync=True)
    data = Bytes(b"").tag(sync=True)

    _current: ClassVar[WeakValueDictionary[tuple[int | str, str], MediaModel]] = WeakValueDictionary()

    @classmethod
    def of(cls, trace: Trace) -> MediaModel | None:
        """Return the model of a trace's media in this session; None without a picture or a sound.

        Traces of the same picture share a model.
        """
        media, buffers = packed(trace)
        if media is None:
            return None
        digest = hashlib.sha256(json.dumps(media, sort_keys=True).encode())
        for part in buffers:
            digest.update(part)
        key = session(), digest.hexdigest()
        model = cls._current.get(key)
        if model is None or not model.is_open:
            model = MediaModel(media=media, lengths=[len(part) for part in buffers], data=b"".join(buffers))
            cls._current[key] = model
        return model
