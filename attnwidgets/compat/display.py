"""Views as other tools hand them over: displayed by the call, or as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.display import display

from attnwidgets._errors import suggest
from attnwidgets._notebook import running_shell
from attnwidgets.views.page.frame import page_of

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

ACTIONS = ("view", "return")


def check_action(html_action: str) -> None:
    """Raise ValueError unless `html_action` is one that bertviz has."""
    if html_action not in ACTIONS:
        near = suggest(str(html_action), ACTIONS)
        raise ValueError(f"html_action {html_action!r} is not 'view' or 'return'.{near}")


def handed_over(view: View, html_action: str) -> Any:
    """Return a view, displayed already where there is a notebook ("view"), or its page ("return")."""
    if html_action == "return":
        page = page_of(view)
        view.close()
        return page
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
