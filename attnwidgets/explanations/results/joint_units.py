"""Units whose tokens a method treats as one while it computes, rather than in the finished map."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets.explanations.results.aggregation import add_units, check_partition, keeps_order, mean_groups

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.trace_protocol import TraceLike
    from attnwidgets.tracing.text.units import TokenAxis, Unit


@dataclass(frozen=True)
class Grid:
    """Rows and columns of a map in the unit in which it is computed.

    Args:
        query: The axis of the rows.
        key: The axis of the columns.
        name: The unit of both.
        causal: Whether no row draws from a later column.
    """

    query: TokenAxis
    key: TokenAxis
    name: str
    causal: bool

    @property
    def spans(self) -> tuple[tuple[int, ...], ...] | None:
        """The tokens of every column; None if each is one token, in order."""
        spans = self.key.units[self.name].spans
        return None if _single(spans) else spans

    def rows(
        self, values: NDArray[np.floating], how: Literal["mean", "max"] = "mean"
    ) -> NDArray[np.floating]:
        """Return rows of tokens [..., token, column] as rows of the unit; a row without tokens is zero."""
        spans = self.query.units[self.name].spans
        if _single(spans):
            return values
        if how == "mean":
            return mean_groups(values, spans, [1.0] * values.shape[-2], axis=-2)
        rows = np.zeros((*values.shape[:-2], len(spans), values.shape[-1]))
        for row, span in enumerate(spans):
            if span:
                rows[..., row, :] = values[..., list(span), :].max(axis=-2)
        return rows


def _single(spans: tuple[tuple[int, ...], ...]) -> bool:
    return all(span == (token,) for token, span in enumerate(spans))


def unit_grid(trace: TraceLike, stack: str, unit: str | Unit | tuple[Unit, Unit] | None) -> Grid:
    """Return a stack's rows and columns in a unit; by default tokens.

    Raises:
        ValueError: If the unit is unknown or does not divide the tokens.
    """
    query, key = trace.axes(stack)
    if unit is None:
        name = next(iter(query.units))
    elif isinstance(unit, str):
        name = unit
        require_choice("unit", unit, [shared for shared in query.units if shared in key.units])
    else:
        pair = unit if isinstance(unit, tuple) else (unit, unit)
        check_partition(pair[0], len(query), "query")
        check_partition(pair[1], len(key), "key")
        query, key = add_units(query, key, pair)
        name = pair[0].name
    causal = trace.is_causal(stack) and keeps_order(query.units[name], key.units[name])
    return Grid(query, key, name, causal)
