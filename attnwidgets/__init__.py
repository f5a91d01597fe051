"""Linked Jupyter widgets for looking at attention and token mixing in transformers.

Trace a model once, explain what its layers did, look at it::

    import attnwidgets as aw

    trace = aw.trace(model, tokenizer, "The capital of France is")
    aw.Explorer(trace)

Names are loaded on first use: importing the package loads neither torch, transformers nor matplotlib. The
public names, listed in `__init__.pyi`:
"""

from __future__ import annotations

from typing import Any

import lazy_loader

from attnwidgets._facade import groups, in_words

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
__doc__ = f"{__doc__}\n{in_words(groups())}"


def __getattr__(name: str) -> Any:
    """Load a public name on first use."""
    if name in __all__:
        return _load(name)
    from attnwidgets._errors import suggest

    raise AttributeError(f"module 'attnwidgets' has no attribute {name!r}.{suggest(name, __all__)}")
