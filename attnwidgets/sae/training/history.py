"""History: measurements and options of the training of an SAE."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import running_shell
from attnwidgets._tables import Table
from attnwidgets.explanations.results.description import plain

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets._tables import Columns


@dataclass
class History(Table):
    """Measurements of a training run, in order.

    Args:
        options: Options of the training (JSON-able).
        rows: A dict per measurement: step; loss, mse and penalty of the batch (of scaled states); l0,
            explained_variance and dead (a share of the features) on held-out tokens.
        note: A caveat ("stopped at step 300 of 3000"), or "".
    """

    options: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    note: str = ""

    @property
    def last(self) -> Mapping[str, float]:
        """The last measurement, or an empty mapping."""
        return self.rows[-1] if self.rows else {}

    def _columns(self) -> Iterator[Columns]:
        """Yield a row per measurement."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        yield {name: [row.get(name) for row in self.rows] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return {"options": plain(self.options), "rows": plain(self.rows), "note": self.note}

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> History:
        """Return the history described by `to_dict`."""
        rows = [dict(row) for row in described["rows"]]
        return History(dict(described["options"]), rows, described["note"])

    def __str__(self) -> str:
        shown = in_words(self.last) if self.rows else "no measurements"
        return f"{shown}; {self.note}" if self.note else shown

    def __repr__(self) -> str:
        return f"<History of {len(self.rows)} measurements; {self}>"


class Live:
    """A line of a notebook cell with the latest measurement; does nothing outside notebooks.

    Args:
        steps: Total number of steps.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._handle: Any = None

    def show(self, history: History) -> None:
        """Show the last measurement in place of the previous one."""
        line = f"step {history.last['step']:g} of {self.steps}: {in_words(history.last)}"
        if self._handle is not None:
            self._handle.update({"text/plain": line}, raw=True)
            return
        shell = running_shell()
        if shell is None or not hasattr(shell, "kernel"):
            return
        from IPython.display import display

        self._handle = display({"text/plain": line}, raw=True, display_id=True)


def in_words(row: Mapping[str, float]) -> str:
    """Return a measurement in words."""
    loss = f"loss {row['loss']:.4g}, " if "loss" in row else ""
    variance = f"explained variance {row['explained_variance']:.3f}"
    return f"{loss}L0 {row['l0']:.1f}, {variance}, dead features {row['dead']:.2%}"
