"""aw.ask: questions that the reader answers by acting in a view, by keyboard, or by a line of code.

In: a prompt and, for most kinds, a view. Out: a `Question`, whose answer is a record of `course`. Begin
with `asking.py`, then `kinds.py`. Keys and marks are not here: a notebook in a student's hands holds
neither.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
