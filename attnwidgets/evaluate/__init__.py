"""aw.evaluate: scores of explanations, by their effect on the model and by people's marks, as `Scorecard`s.

In: traces or a data set, and explanations by name. Out: a `Scorecard` [example, metric, method, x]. Begin
with `metrics/` for a single score, then `scoring.py` for a data set. Elements are removed in `removals/`
alone, and a cached result is identified by the content of all that it depends on.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
