"""Two explanations of two texts, read by the columns in which the texts are aligned."""

from __future__ import annotations

from functools import cached_property
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import quoted
from attnwidgets._selecting import listed
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.description import plain
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.explanations.results.units import aggregate_map, sum_groups
from attnwidgets.tracing.text.alignment import align
from attnwidgets.tracing.text.units import TokenAxis, Unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from attnwidgets.tracing.text.alignment import Alignment

    Float = NDArray[np.float64]

_SINGLE_TEXT = ("conservation", "parts", "change")
"""Entries of the provenance that describe the numbers of a single text."""


class Aligned:
    """Two explanations by one method, of two texts.

    Args:
        first: A MixingMap or Attributions.
        other: A result of the same kind, of another text.

    Raises:
        TypeError: They are of different kinds.
        ValueError: Methods, units, stacks, targets, layers or heads differ, or the texts cannot be aligned.
    """

    def __init__(self, first: Any, other: Any) -> None:
        if not isinstance(other, type(first)):
            raise TypeError(f"other is {type(other).__name__}; a {first.kind} is compared with another one.")
        for name, trait, other_trait in _traits(first, other):
            if trait != other_trait:
                raise ValueError(
                    f"other has the {name} {_spoken(other_trait)}, this one {_spoken(trait)}{_hint(name)}."
                )
        self.sides = (first, other)
        self._by: Any = "character" if _models(first) != _models(other) else "element"

    @cached_property
    def keys(self) -> Alignment:
        """The columns: sources of attributions, keys of maps."""
        first, other = (side.axis if isinstance(side, Attributions) else side.key for side in self.sides)
        return align(first, other, self.sides[0].unit, by=self._by)

    @cached_property
    def queries(self) -> Alignment:
        """The columns of the queries of maps."""
        first, other = self.sides
        if first.query is first.key and other.query is other.key:
            return self.keys
        return align(first.query, other.query, first.unit, by=self._by)

    def vectors(self) -> tuple[Float, Float]:
        """Return the values of two attributions by column [target?, column]; 0 where a text lacks one."""
        first, other = (
            sum_groups(item.values, self.keys.groups(side)) for side, item in enumerate(self.sides)
        )
        return first, other

    def rows(self, layer: int, heads: Sequence[int] | None, columns: Sequence[int]) -> tuple[Float, Float]:
        """Return rows of two maps by column [head?, column of queries, column of keys].

        Key pieces of a column are summed and its query pieces averaged, as in a coarser unit.

        Args:
            layer: Original layer number.
            heads: Original head numbers; None: all.
            columns: Numbers of columns of the queries.
        """
        first, other = (self._rows(side, layer, heads, columns) for side in range(len(self.sides)))
        return first, other

    def _rows(self, side: int, layer: int, heads: Sequence[int] | None, columns: Sequence[int]) -> Float:
        groups = self.queries.groups(side)
        members = [i for column in columns for i in groups[column]]
        ends = np.cumsum([0, *(len(groups[column]) for column in columns)]).tolist()
        pieces = tuple(tuple(range(*span)) for span in pairwise(ends))
        # Without a query in these columns, row 0 gives the shape.
        values = self.sides[side].rows(layer, heads, members or [0])
        if not members:
            values = values[..., :0, :]
        return aggregate_map(values, pieces, [1.0] * len(members), self.keys.groups(side))

    def difference(self) -> Any:
        """Return the first less the other, as an explanation whose elements are the columns."""
        first, other = self.sides
        history = plain(first.provenance)
        for name in _SINGLE_TEXT:
            history.pop(name, None)
        if all("conservation" in side.provenance for side in self.sides):
            history["conservation"] = {}
        text = str(other.provenance.get("text") or "")
        history["steps"] = [*history["steps"], f"minus that of {quoted(text) if text else 'the other text'}"]
        common: dict[str, Any] = {
            "unit": first.unit,
            "method": first.method,
            "stack": first.stack,
            "provenance": history,
            "warning": "; ".join(dict.fromkeys(side.warning for side in self.sides if side.warning)),
            "dtype": "float64" if "float64" in (first.dtype, other.dtype) else "float32",
        }
        keys = axis_of(self.keys)
        if isinstance(first, Attributions):
            values, other_values = self.vectors()
            rests = (first.residual, other.residual)
            has_residuals = None not in rests
            return Attributions(
                values - other_values,
                axis=keys,
                target=first.target,
                foil=first.foil,
                residual=np.subtract(*map(np.asarray, rests)).tolist() if has_residuals else None,
                **common,
            )

        def rows(layer: int, heads: Sequence[int] | None, columns: Sequence[int]) -> Float:
            values, other_values = self.rows(layer, heads, columns)
            return values - other_values

        everything = range(len(self.queries))
        queries = keys if self.queries is self.keys else axis_of(self.queries)
        return MixingMap.lazy(
            lambda layer: rows(layer, None, everything),
            query=queries,
            key=keys,
            layers=first.layers,
            heads=first.heads,
            causal=None,
            stochastic=False,
            signed=True,
            runs_model=any(side.on_demand for side in self.sides),
            row_fn=rows if all(side.knows_rows for side in self.sides) else None,
            **common,
        )


def axis_of(alignment: Alignment) -> TokenAxis:
    """Return the columns of an alignment as an axis: "keys − key" where the texts differ."""
    columns = range(len(alignment))
    labels = tuple(_label(alignment, column) for column in columns)
    special = tuple(alignment.special(column) for column in columns)
    unit = Unit(alignment.units[0].name, labels, tuple((i,) for i in columns), special)
    return TokenAxis(labels, {unit.name: unit})


def _label(alignment: Alignment, column: int) -> str:
    first, other = (alignment.label(column, side) for side in (0, 1))
    if alignment.columns[column].same or not other:
        return first
    return f"{first} − {other}".strip()


def _traits(first: Any, other: Any) -> list[tuple[str, Any, Any]]:
    """Return the properties in which two explanations must agree, as (name, of the first, of the other)."""
    names = ["method", "unit", "stack"]
    names += ["targets", "foil"] if isinstance(first, Attributions) else ["layers", "heads"]
    return [(name.rstrip("s"), getattr(first, name), getattr(other, name)) for name in names]


def _spoken(value: Any) -> str:
    return listed(value) if isinstance(value, tuple) else repr(value)


def _hint(name: str) -> str:
    if name in {"target", "foil"}:
        return f"; explain the same in both, by {name}=..."
    return "; read both by one, with .to(unit)" if name == "unit" else ""


def _models(explanation: Any) -> str:
    return str(explanation.provenance.get("model") or "")
