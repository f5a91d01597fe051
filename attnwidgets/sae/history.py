"""History: what was measured while an SAE was trained, and with which options."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from attnwidgets.explanations.description import plain

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd


@dataclass
class History:
    """Measurements of a training run, in order.

    Args:
        options: How it was trained (JSON-able).
        rows: One a measurement: step; loss, mse and penalty of the batch (of scaled states); l0,
            explained_variance and dead (a share of the features) on tokens that are not trained on.
        note: What a reader must know ("stopped at step 300 of 1500"), or "".
    """

    options: dict[str, Any] = field(default_factory=dict)
    rows: list[dict[str, float]] = field(default_factory=list)
    note: str = ""

    @property
    def last(self) -> Mapping[str, float]:
        """The last measurement, or nothing."""
        return self.rows[-1] if self.rows else {}

    def to_dataframe(self) -> pd.DataFrame:
        """Return one measurement a row."""
        from attnwidgets.explanations.explanation import pandas

        return pandas().DataFrame(self.rows)

    def to_dict(self) -> dict[str, Any]:
        """Return a JSON-able description."""
        return {"options": plain(self.options), "rows": plain(self.rows), "note": self.note}

    @staticmethod
    def from_dict(described: Mapping[str, Any]) -> History:
        """Return the history that `to_dict` described."""
        rows = [dict(row) for row in described["rows"]]
        return History(dict(described["options"]), rows, described["note"])

    def __str__(self) -> str:
        shown = ", ".join(f"{name} {value:.4g}" for name, value in self.last.items())
        return "; ".join(part for part in (shown, self.note) if part) or "no measurements"

    def __repr__(self) -> str:
        return f"<History of {len(self.rows)} measurements; {self}>"
