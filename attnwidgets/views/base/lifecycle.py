"""The life of views: one that no cell shows any more is closed, which ipywidgets would keep for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from attnwidgets._notebook import running_shell

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class Displayed(Protocol):
    """A view that is tracked."""

    def close(self) -> None:
        """Remove it."""

    def follow_cell(self) -> None:
        """Follow what a cell may have registered or selected."""


class Cells:
    """Remembers which cell made or showed a view, and closes views that no cell shows any more.

    A view is marked by the cell that makes it and by every cell that shows it. When a cell has run again, its
    marks on views of earlier runs are gone; a view that loses its last mark is closed.
    """

    def __init__(self) -> None:
        self._marks: MutableMapping[Displayed, dict[str, str]] = WeakKeyDictionary()
        self._shell: Any = None

    def mark(self, view: Displayed) -> None:
        """Tie a view to the running cell, if that is known, and follow all cells from now on."""
        shell = running_shell()
        if shell is None or not hasattr(shell, "get_parent"):
            return
        if shell is not self._shell:
            shell.events.register("post_run_cell", self._after_cell)
            self._shell = shell
        marks = self._marks.setdefault(view, {})
        marks.update([cell_run] if (cell_run := _cell_run(shell)) else [])

    def forget(self, view: Displayed) -> None:
        """Stop tracking a closed view."""
        self._marks.pop(view, None)

    def _after_cell(self, _result: object = None) -> None:
        cell, run = _cell_run(running_shell()) or ("", "")
        for view, marks in list(self._marks.items()):
            if marks.get(cell, run) != run:
                del marks[cell]
                if not marks:
                    view.close()
        for view in list(self._marks):
            view.follow_cell()


CELLS = Cells()


def _cell_run(shell: Any) -> tuple[str, str] | None:
    """Return the ids of the running cell and of this run; None where no cell ids are sent."""
    parent = shell.get_parent() or {}
    cell = (parent.get("metadata") or {}).get("cellId")
    run = (parent.get("header") or {}).get("msg_id")
    return (str(cell), str(run)) if cell and run else None
