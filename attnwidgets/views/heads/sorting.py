"""How a grid orders its heads: by a statistic of its map, or by a table of heads (their importance)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._selecting import spoken
from attnwidgets.explanations.explanation import Explanation

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray
    from typing_extensions import Self

    from attnwidgets.views.wire.sources import Source

_PREFIX = "table "  # before the names of a table's statistics, which the map may have as well
_LONGEST = 40
START = {"order": "all", "lowest": False, "only": None, "heads": ""}
"""Options of a grid that is sorted: over all heads, highest first, without filters."""


@dataclass(frozen=True)
class Sorting:
    """The order of the heads of a view.

    Attributes:
        name: Name of the statistic; "": none.
        table: The HeadStatistics that was given; None: statistics of the map alone.
    """

    name: str
    table: Any = None

    @classmethod
    def of(cls, view: str, sort: Any, explanations: Sequence[Any]) -> Self:
        """Return what `sort=` names, checked against the maps of the view.

        Raises:
            TypeError: It is neither a name nor a table of heads.
            ValueError: The statistic is unknown or not defined here, or the table is of other layers, heads,
                another stack or another model.
        """
        if isinstance(sort, str):
            if sort:
                _require_statistic(view, sort, explanations[0])
            return cls(sort)
        if not isinstance(sort, Explanation) or sort.kind != "HeadStatistics":
            raise TypeError(
                f"{view}(sort=...) takes the name of a statistic or a table of heads, such as "
                f"aw.head_importance(traces), not {type(sort).__name__}."
            )
        table: Any = sort
        _require_alike(view, table, explanations)
        return cls(f"{_PREFIX}{table.names[0]}", table)

    def described(self, source: Source) -> list[dict[str, Any]]:
        """Return the table's statistics as the browser lists them; none if it is not about this source."""
        if not self._fits(source):
            return []
        text, shown = (str(each.provenance.get("text", "")) for each in (self.table, source.explanation))
        of = self.table.note or ("" if text == shown else quoted(text, _LONGEST)[1:-1])
        of = of and f" ({of})"
        return [
            {
                "name": f"{_PREFIX}{statistic.name}",
                "title": f"{statistic.title}{of}",
                "definition": statistic.definition,
                "high": statistic.high,
                "refusal": "",
            }
            for statistic in self.table.statistics
        ]

    def values(self, source: Source) -> NDArray[np.float32]:
        """Return the table's numbers in the order of a source's layers and heads [statistic, layer, head]."""
        layers, heads = source.layers, source.heads or ()
        if not self._fits(source):
            return np.empty((0, len(layers), len(heads) or 1), dtype="<f4")
        rows = [self.table.layers.index(layer) for layer in layers]
        columns = [self.table.heads.index(head) for head in heads]
        return np.asarray(self.table.values, dtype="<f4")[:, rows][:, :, columns]

    def _fits(self, source: Source) -> bool:
        return (
            self.table is not None
            and source.stack == self.table.stack
            and {*source.layers} <= {*self.table.layers}
            and {*(source.heads or ())} <= {*(self.table.heads or ())}
            and source.heads is not None
        )


def _require_statistic(view: str, name: str, main: Any) -> None:
    from attnwidgets.statistics.row_shares import Roles
    from attnwidgets.statistics.statistic import named

    [statistic] = named(name)
    has_rows = hasattr(main, "query") and not main.known("signed")
    refusal = statistic.refusal(Roles(main)) if has_rows else "statistics need rows of shares"
    if refusal:
        raise ValueError(f"{view}(sort={statistic.name!r}): {refusal}.")


def _require_alike(view: str, table: Any, explanations: Sequence[Any]) -> None:
    """Raise ValueError unless a table is about heads that the view shows."""
    alike = [each for each in explanations if (each.stack or "self") == table.stack]
    if not alike:
        raise ValueError(f"{view}(sort=...): the table is of stack {table.stack!r}, which is not shown.")
    main = alike[0]
    model, other = main.provenance.get("model"), table.provenance.get("model")
    if model and other and model != other:
        raise ValueError(f"{view}(sort=...): the table is of {other}, and the view of {model}.")
    for axis in ("layer", "head"):
        shown, there = getattr(main, f"{axis}s", None), getattr(table, f"{axis}s")
        if not shown or not there or not {*shown} <= {*there}:
            of_table, of_view = (
                f"there {spoken(each, axis)}" if each else f"are no {axis}s" for each in (there, shown)
            )
            raise ValueError(f"{view}(sort=...): in the table {of_table}, in the view {of_view}.")
