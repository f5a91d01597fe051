"""aw.results: the classes of what functions return, for annotations and `isinstance`.

Nobody constructs one in order to use this package: each function says what it returns, and `load` reads what
`.save` wrote. They are listed here, apart from the functions, so that completion shows what can be called.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
