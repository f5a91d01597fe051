"""History: what was measured while an SAE was trained, and with which options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets._notebook import running_shell
from attnwidgets.explanations.results.description import plain
from attnwidgets.explanations.results.tables import Table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from attnwidgets.explanations.results.tables import Columns


@dataclass
class History(Table):
    """Measurements of a training run, in order.

    Args:
        options: How it was trained (JSON-able).
        rows: One a measurement: step; loss, mse and penalty of the batch (of scaled states); l0,
            explained_variance and dead (a share of the features) on tokens that are not trained on.
        note: What a reader must know ("stopped at step 300 of 3000"), or "".
    """

    options: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    note: str = ""

    @property
    def last(self) -> Mapping[str, float]:
        """The last measurement, or nothing."""
        return self.rows[-1] if self.rows else {}

    def _columns(self) -> Iterator[Columns]:
        """Yield one measurement a row."""
        names = dict.fromkeys(name for row in self.rows for name in row)
        yield {name: [row.get(name) for row in self.rows] for name in names}

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return {"options": plain(self.options), "rows": plain(self.rows), "note": self.note}

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> History:
        """Return the history that `to_dict` described."""
        rows = [dict(row) for row in described["rows"]]
        return History(dict(described["options"]), rows, described["note"])

    def __str__(self) -> str:
        shown = measured(self.last) if self.rows else "no measurements"
        return f"{shown}; {self.note}" if self.note else shown

    def __repr__(self) -> str:
        return f"<History of {len(self.rows)} measurements; {self}>"


class Live:
    """One line of a notebook's cell that says how training goes; nothing where no notebook is running.

    Args:
        steps: How many there will be.
    """

    def __init__(self, steps: int) -> None:
        self.steps = steps
        self._handle: Any = None

    def show(self, history: History) -> None:
        """Put the last measurement in the place of the one before."""
        line = f"step {history.last['step']:g} of {self.steps}: {measured(history.last)}"
        if self._handle is not None:
            self._handle.update({"text/plain": line}, raw=True)
            return
        shell = running_shell()
        if shell is None or not hasattr(shell, "kernel"):
            return
        from IPython.display import display

        self._handle = display({"text/plain": line}, raw=True, display_id=True)


def measured(row: Mapping[str, float]) -> str:
    """Return a measurement in words."""
    parts = []
    if "loss" in row:
        parts.append(f"loss {row['loss']:.4g}")
    parts += [f"L0 {row['l0']:.1f}", f"explained variance {row['explained_variance']:.3f}"]
    return ", ".join([*parts, f"dead features {row['dead']:.2%}"])
