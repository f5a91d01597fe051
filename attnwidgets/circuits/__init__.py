"""aw.circuits: activations replaced and patched, to find the parts of a model that make an answer.

In: one or two traces of a model. Out: results [layer, token], [layer, head] or graphs, with their figures.
Begin with `patch.py` and `patching.py`; `claims/` checks sentences about heads, `sentences/` reads long
answers. An estimate (`estimate.py`) is marked as one and comes with exact cells to compare.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
