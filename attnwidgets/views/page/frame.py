"""A standalone page in a frame, for front ends that cannot display widgets or link them."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from IPython.display import HTML

if TYPE_CHECKING:
    from attnwidgets.views.base.view import View

HEIGHT = 640
_MOST_WORDS = 200


class Page(HTML):
    """A standalone page (`.data`), displayed in a frame so that it cannot affect the notebook.

    Args:
        data: The page as HTML.
        height: Height of the frame in pixels; a longer page scrolls.
    """

    def __init__(self, data: str, height: int = HEIGHT) -> None:
        super().__init__(data)  # type: ignore[no-untyped-call] # IPython has no types
        self.height = height

    def __repr__(self) -> str:
        return f"<Page of {len(str(self.data)):,} characters; the last line of a cell shows it in a frame>"

    def _repr_html_(self) -> str:
        return (
            f'<iframe srcdoc="{html.escape(str(self.data))}" sandbox="allow-scripts allow-downloads" '
            f'title="attnwidgets" style="width:100%;height:{self.height}px;border:0"></iframe>'
        )


def page_of(view: View, height: int = HEIGHT) -> Page:
    """Return a view as a page in a frame: the page that `to_html` writes."""
    with tempfile.TemporaryDirectory() as folder:
        return Page(view.to_html(Path(folder) / "view.html").read_text(encoding="utf-8"), height)


def copy_of(view: View, why: str) -> str:
    """Return the HTML of a copy in a frame, with a note that it is a copy.

    Args:
        view: The view that could not be displayed.
        why: The reason that the browser gave.
    """
    reason = html.escape(why[:_MOST_WORDS].removeprefix("Error: ").rstrip(". ") or "it did not arrive")
    note = (
        f"A copy of this {view.name}, linked to no other view, because the view itself could not be shown "
        f"here ({reason}). Run the cell again for the view itself."
    )
    return f'<span role="status">{note}</span>{page_of(view)._repr_html_()}'
