"""aw.zoo: small models with documented circuits, to test explanations and to teach with.

In: a name. Out: a transformers model with its tokenizer and `model.truth`. Begin with `truth.py`, then a file
of `compiled/`; `train/` has the recipes of models with weights in the package. Nothing here may import the
explanations that its models test.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
