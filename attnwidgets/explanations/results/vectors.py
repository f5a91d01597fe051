"""From a matrix to a vector: one row, or columns or rows reduced, with or without the diagonal.

The schemes by which maps are made comparable with attributions: the row of the token that is predicted from,
how much every token is read by all (column sum or mean), how much every token draws in (row sum).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets._selecting import position
from attnwidgets.explanations.results.reductions import Reduction, reduce_first, reduction_name

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.lazy_layers import LazyLayers
    from attnwidgets.tracing.text.units import Unit

Scheme = Literal["row", "column_mean", "column_sum", "column_max", "row_sum", "row_mean", "row_max"]

# scheme -> (axis that is reduced, how)
REDUCED: dict[str, tuple[Literal["query", "key"], Literal["mean", "sum", "max"]]] = {
    "column_mean": ("query", "mean"),
    "column_sum": ("query", "sum"),
    "column_max": ("query", "max"),
    "row_sum": ("key", "sum"),
    "row_mean": ("key", "mean"),
    "row_max": ("key", "max"),
}
_CLASS_TOKENS = ("[CLS]", "<s>", "<cls>")
_PLACES = ("cls", "first", "last")


@dataclass(frozen=True)
class Vector:
    """How a matrix becomes a vector.

    Attributes:
        side: Which axis is left.
        read: Takes [query, key] in float64, returns [side].
        step: What was done, in words.
    """

    side: Literal["query", "key"]
    read: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    step: str


def chosen(source: LazyLayers, how: Scheme, query: int | str | None, *, diagonal: bool) -> Vector:
    """Return the scheme named `how`; see `MixingMap.to_attributions`."""
    if how == "row":
        return row(source, query, diagonal=diagonal)
    if how not in REDUCED:
        taken = ("row", *REDUCED)
        raise ValueError(
            f"how {how!r} is not one of {', '.join(map(repr, taken))}.{suggest(str(how), taken)}"
        )
    if query is not None:
        raise ValueError(f"query={query!r} is for how='row'; {how!r} reads all of them.")
    return reduced(source, *REDUCED[how], diagonal=diagonal)


def row(source: LazyLayers, query: int | str | None, *, diagonal: bool) -> Vector:
    """Return how to read one query's row.

    Raises:
        ValueError: Where no query is named, none or several carry the label, or there is no diagonal.
        IndexError: Where there is no such query.
    """
    place = _place(query, source.query_unit)
    if not diagonal:
        _require_diagonal(source)

    def read(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = matrix[place].copy()
        if not diagonal:
            found[place] = 0.0
        return found

    without = "" if diagonal else ", without itself"
    return Vector("key", read, f"row of {source.query_labels[place]!r}{without} (query {place})")


def reduced(source: LazyLayers, axis: Literal["query", "key"], how: Reduction, *, diagonal: bool) -> Vector:
    """Return how to reduce queries (a value a key is left) or keys (a value a query).

    Raises:
        ValueError: Where the reduction is unknown, or there is no diagonal.
    """
    name = reduction_name(how)
    if not diagonal:
        _require_diagonal(source)

    def read(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        across = matrix if axis == "query" else matrix.T
        if not diagonal:
            across = _without_diagonal(across)
        if not len(across):  # the only token there is, without itself
            return np.zeros(across.shape[1])
        found: NDArray[np.float64] = np.asarray(reduce_first(across, how), dtype=np.float64)
        if found.shape != across.shape[1:]:
            raise ValueError(
                f"the reduction {name} over {axis} returned shape {found.shape}, not {across.shape[1:]}."
            )
        return found

    spoken = {"query": "queries", "key": "keys"}[axis]
    step = f"{name} over {spoken}{'' if diagonal else ', without the diagonal'}"
    return Vector("key" if axis == "query" else "query", read, step)


def _without_diagonal(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return [n - 1, n]: every column of [n, n] without its diagonal entry, in order."""
    n = len(matrix)
    return matrix.T[~np.eye(n, dtype=bool)].reshape(n, n - 1).T


def _require_diagonal(source: LazyLayers) -> None:
    if source.query_labels != source.key_labels or source.stack == "cross":
        raise ValueError(
            "diagonal=False needs a map of a stack that attends to itself; this one goes from "
            f"{len(source.query_labels)} queries to {len(source.key_labels)} keys of another sequence."
        )


def _place(query: int | str | None, unit: Unit) -> int:
    """Return the number of the query that is meant: a number, "cls", "first", "last", or a label."""
    if query is None:
        raise ValueError(
            "how='row' needs query=: a number, 'cls', 'first', 'last', or the label of one "
            f"({', '.join(repr(label) for label in unit.labels[:3])}, ...)."
        )
    if not isinstance(query, str):
        return position(query, range(len(unit)), "query")
    found = [place for place, label in enumerate(unit.labels) if label == query]
    if len(found) == 1:
        return found[0]
    if len(found) > 1:
        raise ValueError(f"query {query!r} stands at {', '.join(map(str, found))}; name one by its number.")
    if query in {"first", "last"}:
        return 0 if query == "first" else len(unit) - 1
    classes = [place for place, label in enumerate(unit.labels) if label in _CLASS_TOKENS]
    if query == "cls" and classes:
        return classes[0]
    near = suggest(query, [*unit.labels, *_PLACES])
    message = f"query {query!r} is no label of this map, nor one of {', '.join(map(repr, _PLACES))}.{near}"
    if query == "cls":
        message = "query 'cls': no element is a class token ([CLS], <s>); name one by 'first' or its number."
    raise ValueError(message)
