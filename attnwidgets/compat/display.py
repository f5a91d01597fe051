"""Views as other tools hand them over: displayed by the call, or as HTML."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from IPython.display import HTML, display

from attnwidgets._errors import suggest
from attnwidgets._notebook import running_shell

if TYPE_CHECKING:
    from attnwidgets.views.base import View

ACTIONS = ("view", "return")
_HEIGHT = 640


class Page(HTML):
    """A standalone page (`.data`), shown in a frame of its own so that it cannot touch the notebook."""

    def __init__(self, data: str) -> None:
        super().__init__(data)  # type: ignore[no-untyped-call] # IPython has no types

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(str(self.data))}" sandbox="allow-scripts" title="attnwidgets" '
            f'style="width:100%;height:{_HEIGHT}px;border:0"></iframe>'
        )


def check_action(html_action: str) -> None:
    """Raise ValueError unless `html_action` is one that bertviz has."""
    if html_action not in ACTIONS:
        near = suggest(str(html_action), ACTIONS)
        raise ValueError(f"html_action {html_action!r} is not 'view' or 'return'.{near}")


def handed_over(view: View, html_action: str) -> Any:
    """Return a view, displayed already where there is a notebook ("view"), or its page ("return")."""
    if html_action == "return":
        with tempfile.TemporaryDirectory() as folder:
            page = view.to_html(Path(folder) / "view.html").read_text(encoding="utf-8")
        view.close()
        return Page(page)
    shell = running_shell()
    if shell is None or not hasattr(shell, "kernel"):
        return view
    display(view)
    cell = shell.execution_count

    # As the last line of the same cell the view would be shown twice; in a later cell it is meant to be.
    def later() -> None:
        if shell.execution_count != cell:
            view.__dict__.pop("_ipython_display_", None)
            display(view)

    view.__dict__["_ipython_display_"] = later
    return view
