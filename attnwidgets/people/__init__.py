"""aw.people: studies in which people say what they make of an explanation, and what follows from them."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
