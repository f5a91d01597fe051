"""aw.ask: questions that the reader answers by acting in a view, by keyboard, or by a line of code."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
