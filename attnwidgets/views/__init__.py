"""Linked views of traces and explanations.

In: a trace or an explanation. Out: a widget, a page, a figure. Begin with `base/view.py`, then one view,
such as `maps/heatmap.py` with `js/src/views/maps/`; `presentation.py` decides what is shown, `wire/` what
travels, `page/` and `still/` are what is left without a kernel or a browser. A view calls methods and
implements none, and the browser decides nothing that Python does not know.
"""
