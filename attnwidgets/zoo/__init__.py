"""aw.zoo: small transformers whose circuits are known, to test explanations and to teach with."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
