"""aw.people: studies in which people judge explanations or use them, and the analysis of their responses.

In: items and conditions. Out: a study page, then responses and their analysis. Begin with `study.py`;
`kinds.py` lists the questions, `analysis.py` the intervals. Files and lines that people send are untrusted:
they are read in `reading.py` alone.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
