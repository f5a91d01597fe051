"""The last cell of a notebook: it packs the data of the notebook's views for a page without a kernel.

It runs in the notebook's kernel, where there may be no Sphinx.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import HTML

from attnwidgets.views.base.view import View
from attnwidgets.views.page.contents import Choice
from attnwidgets.views.page.packing import Live, pack
from attnwidgets.views.page.script import json_text

if TYPE_CHECKING:
    from collections.abc import Iterator

MIME = "application/vnd.attnwidgets.views+json"
PREFIX = "cell-"
"""Prefix of the names of models in a notebook's page."""


def shown_views(budget: int, weights: str = "", files: str = "") -> HTML:
    """Return the views that this kernel's cells show, packed for a page.

    Args:
        budget: Size limit in bytes, about.
        weights: How models travel that run in the page, as for `to_html`; "": none does.
        files: The folder for these models, which all pages of a site share.
    """
    views_of = {
        model: list(_views_in(widget)) for model, widget in open_widgets().items() if _is_shown(widget)
    }
    views = list(dict.fromkeys(view for listed in views_of.values() for view in listed))
    content: dict[str, Any] = {"places": {}}
    if views:
        choice = Choice.of(views, "all", "all")
        live = Live(weights, in_files=True) if weights and any(map(_has_model, views)) else None
        try:
            packed = pack(views, choice, budget, PREFIX, live=live)
        except ValueError as error:
            if live is None:
                raise
            packed, content["refused"] = pack(views, choice, budget, PREFIX), str(error)
        for model in packed.files:
            model.write(Path(files))
        name_of = dict(zip(views, packed.state["views"], strict=True))
        names = {model: [name_of[view] for view in listed] for model, listed in views_of.items() if listed}
        content |= packed.described() | {"places": names}
    return HTML(f'<script type="{MIME}">{json_text(content)}</script>')


def _has_model(view: View) -> bool:
    return any(getattr(trace, "model", None) is not None for trace in view.traces)


def open_widgets() -> dict[str, Any]:
    """Return ipywidgets' record of the widgets that are not closed, by model id."""
    from ipywidgets.widgets import widget

    # ipywidgets 8 warns of the public name that 7 has for them.
    return widget._instances if hasattr(widget, "_instances") else widget.Widget.widgets  # noqa: SLF001


def _is_shown(widget: Any) -> bool:
    """Return whether a cell shows a widget; True for any box, of which ipywidgets does not record it."""
    return widget.was_shown if isinstance(widget, View) else hasattr(widget, "children")


def _views_in(widget: Any) -> Iterator[View]:
    """Yield a widget that is a view, or the views in a box, from top to bottom."""
    if isinstance(widget, View):
        yield widget
    else:
        for child in getattr(widget, "children", ()):
            yield from _views_in(child)
