"""aw.concepts: models explained by more than the tokens of one input: concepts, training texts, templates.

In: a model and many texts. Out: states, concept scores, influences, additive models. Begin with
`states.py`; `tcav.py`, `influence.py` and `distill.py` are the methods built on it. Texts run through
`batches.py`, which keeps within the memory and shows progress; do not loop over a model.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
