"""aw.course: answers of students, read without a kernel, graded by a key, and handed to other graders."""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
