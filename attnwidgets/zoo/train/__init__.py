"""Training of the models of `aw.zoo.trained`: a recipe per file, and a loop that all of them share."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
