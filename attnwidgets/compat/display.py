"""Display of views as in other tools: by the call itself, or returned as HTML."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from IPython.display import display

from attnwidgets._errors import require_choice
from attnwidgets._notebook import running_shell
from attnwidgets.views.page.frame import page_of

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

ACTIONS = ("view", "return")


def check_action(html_action: str) -> None:
    """Raise ValueError unless `html_action` is one of bertviz'."""
    require_choice("html_action", html_action, ACTIONS)


def handed_over(view: View, html_action: str) -> Any:
    """Return a view, already displayed if in a notebook ("view"), or its page ("return")."""
    if html_action == "return":
        page = page_of(view)
        view.close()
        return page
    shell = running_shell()
    if shell is None or not hasattr(shell, "kernel"):
        return view
    display(view)
    cell = shell.execution_count

    # As the last line of the same cell the view would be shown twice; in later cells it is shown.
    def later() -> None:
        if shell.execution_count != cell:
            view.__dict__.pop("_ipython_display_", None)
            display(view)

    view.__dict__["_ipython_display_"] = later
    return view
