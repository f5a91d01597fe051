"""A sound and its words, by tiny random models."""

from __future__ import annotations

from typing import Any

import numpy as np

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_frames import Bins
from tests.tracing.test_speech import said, speaker

RATE = 16_000


def tones(seconds: float = 0.75) -> np.ndarray:
    """Return three tones, each higher than the last [time]."""
    at = np.arange(round(seconds * RATE)) / RATE
    pitch = np.choose(np.minimum((at / seconds * 3).astype(int), 2), (220, 440, 880))
    return (0.5 * np.sin(2 * np.pi * pitch * at)).astype(np.float32)


def spoken(**options: Any) -> Any:
    """Return the trace of a decoder that reads "he ate a pear", over tones of three quarters of a second."""
    return trace(speaker(), said([1, 2]), audio=tones(), target_text="he ate a pear", **options)


def heard() -> Any:
    """Return the words of a sound whose times were given, by a model that wrote nothing."""
    result = trace(tiny.whisper(), Bins(first=True), audio=tones())
    return aw.speech.align(
        result, intervals=[("low", 0.0, 0.25), ("<b>mid</b>", 0.25, 0.5), ("high", 0.5, 0.75)]
    )
