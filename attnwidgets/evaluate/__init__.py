"""aw.evaluate: scores of explanations by what they do to the model and what people mark, as `Scorecard`s."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
