"""aw.vision: what is particular to pictures: Grad-CAM, the norms of tokens, and registers."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
