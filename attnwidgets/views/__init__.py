"""aw.views: views of single results, which their `.view()` returns; the others are at the top.

In: a trace or an explanation. Out: a widget, a page, a figure. Begin with `base/view.py`, then a view, such
as `maps/heatmap.py` with `js/src/views/maps/`. `presentation.py` chooses the map to show, `wire/` sends
numbers to the browser, `page/` serves views without a kernel and `still/` draws them without a browser. A
view calls methods and implements none, and the state of the browser is that of Python.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
