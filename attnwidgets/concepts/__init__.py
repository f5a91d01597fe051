"""aw.concepts: models explained by more than the tokens of one input: concepts, training texts, templates."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
