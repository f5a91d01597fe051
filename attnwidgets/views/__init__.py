"""aw.views: views of single results, which their `.view()` returns; the others are at the top.

In: a trace or an explanation. Out: a widget, a page, a figure. Begin with `base/view.py`, then one view,
such as `maps/heatmap.py` with `js/src/views/maps/`; `presentation.py` decides what is shown, `wire/` what
travels, `page/` and `still/` are what is left without a kernel or a browser. A view calls methods and
implements none, and the browser decides nothing that Python does not know.
"""

from __future__ import annotations

from attnwidgets._facade import attach

__getattr__, __dir__, __all__ = attach(__name__, __file__)
