"""aw.speech: when each word of a sound is spoken, and which part of the sound decides a word.

In: a trace of a sound. Out: `WordTimes`, and the contribution of cues. Begin with `align.py`. The times of
frames belong in `tracing/media/`; this package never computes them again.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
