"""aw.circuits: activations replaced and patched, to find the parts of a model that make an answer."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
