"""Linked Jupyter widgets for looking at attention and token mixing in transformers.

Trace a model once, explain what its layers did, look at it::

    import attnwidgets as aw

    trace = aw.trace(model, tokenizer, "The capital of France is")
    aw.Explorer(trace)

Names are loaded on first use: importing the package loads neither torch, transformers nor matplotlib. The
public names, listed in `__init__.pyi`:
"""

from __future__ import annotations

from attnwidgets._facade import attach, groups, in_words

__getattr__, __dir__, __all__ = attach(__name__, __file__)
__doc__ = f"{__doc__}\n{in_words(groups())}"
