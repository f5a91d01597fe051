"""aw.speech: when each word of a sound is spoken, and which part of the sound decides a word."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
