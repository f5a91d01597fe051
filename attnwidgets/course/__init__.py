"""aw.course: answers of students, read without a kernel, graded by a key, and handed to other graders.

In: notebooks, archives and tables that students hand in, and a key. Out: grades, each with its evidence.
Begin with `records.py`, then `reading/` and `grading/`. It runs without a kernel, torch or the code of a
submission. Whatever a submission raises becomes a note for that student and never stops the class.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
