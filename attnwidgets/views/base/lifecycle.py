"""Views end with the output they were shown in: ipywidgets would keep every one of them for ever."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol
from weakref import WeakKeyDictionary

from attnwidgets._notebook import running_shell

if TYPE_CHECKING:
    from collections.abc import MutableMapping


class Shown(Protocol):
    """What is tracked."""

    def close(self) -> None:
        """End it."""

    def follow_registry(self) -> None:
        """Take up what a cell may have registered."""


class Cells:
    """Remembers which cell made or showed a view, and closes views that no cell shows any more.

    A view is marked by the cell that makes it and by every cell that shows it. When a cell has run again, its
    marks on views of earlier runs are gone; a view without marks is closed.
    """

    def __init__(self) -> None:
        self._marks: MutableMapping[Shown, dict[str, str]] = WeakKeyDictionary()
        self._shell: Any = None

    def mark(self, view: Shown) -> None:
        """Tie a view to the cell that runs now, where there is a notebook with cells."""
        shell = running_shell()
        place = _place(shell)
        if place is None:
            return
        if shell is not self._shell:
            shell.events.register("post_run_cell", self._after_cell)
            self._shell = shell
        self._marks.setdefault(view, {})[place[0]] = place[1]

    def forget(self, view: Shown) -> None:
        """Stop tracking a view that was closed."""
        self._marks.pop(view, None)

    def _after_cell(self, _result: object = None) -> None:
        place = _place(running_shell())
        if place is None:
            return
        cell, run = place
        for view, marks in list(self._marks.items()):
            if marks.get(cell, run) != run:
                del marks[cell]
                if not marks:
                    view.close()
        for view in list(self._marks):
            view.follow_registry()


CELLS = Cells()


def _place(shell: Any) -> tuple[str, str] | None:
    """Return the running cell's id and this run's id; None outside notebooks that send cell ids."""
    if shell is None or not hasattr(shell, "get_parent"):
        return None
    parent = shell.get_parent() or {}
    cell = (parent.get("metadata") or {}).get("cellId")
    run = (parent.get("header") or {}).get("msg_id")
    return (str(cell), str(run)) if cell and run else None
