"""aw.vision: methods for pictures: Grad-CAM, the norms of tokens, and registers.

In: a trace of a picture. Out: maps of patches, norms of tokens, registers. Begin with `token_norms.py`. The
layout of a model's patches belongs in `tracing/media/patches.py`.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
