"""The last cell of a notebook: what a page without a kernel holds for the views that the notebook shows.

It runs in the notebook's kernel, where there may be no Sphinx.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from attnwidgets.views.base.view import View
from attnwidgets.views.page.contents import Choice
from attnwidgets.views.page.packing import pack
from attnwidgets.views.page.script import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

MIME = "application/vnd.attnwidgets.views+json"
PREFIX = "cell-"
"""What the names of models that come from cells begin with."""


def shown_views(budget: int) -> HTML:
    """Return the views that this kernel's cells show, packed for a page.

    Args:
        budget: How many bytes they may take, about.
    """
    places = {model: list(_views_in(widget)) for model, widget in open_widgets().items() if _is_shown(widget)}
    views = list(dict.fromkeys(view for listed in places.values() for view in listed))
    written: dict[str, Any] = {"places": {}}
    if views:
        held = pack(views, Choice.of(views, "all", "all"), budget, PREFIX)
        name_of = dict(zip(views, held.state["views"], strict=True))
        named = {model: [name_of[view] for view in listed] for model, listed in places.items() if listed}
        written = held.described() | {"places": named}
    return HTML(f'<script type="{MIME}">{json_text(written)}</script>')


def open_widgets() -> dict[str, Any]:
    """Return ipywidgets' own record of the widgets that are not closed, by model id."""
    from ipywidgets.widgets import widget

    # ipywidgets 8 warns of the public name that 7 has for them.
    return widget._instances if hasattr(widget, "_instances") else widget.Widget.widgets  # noqa: SLF001


def _is_shown(widget: Any) -> bool:
    """Return whether a cell shows a widget. Of other people's widgets nobody knows: any may be shown."""
    return widget.was_shown if isinstance(widget, View) else hasattr(widget, "children")


def _views_in(widget: Any) -> Iterator[View]:
    """Yield a widget that is a view, or the views in a box, from top to bottom."""
    if isinstance(widget, View):
        yield widget
    else:
        for child in getattr(widget, "children", ()):
            yield from _views_in(child)
