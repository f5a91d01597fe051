"""Arrays from any library as numpy, without torch; reductions over heads, layers, rows and columns.

A matrix [query, key] becomes a vector by a single row, or by a reduction of its rows or columns, with or
without the diagonal. Vectors make maps comparable with attributions: the row of the token that predicts, how
much every token is read by all others (column sum or mean), how much every token draws in (row sum).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from attnwidgets._errors import require_choice, suggest
from attnwidgets._selecting import element
from attnwidgets._tensors import as_array

if TYPE_CHECKING:
    from attnwidgets.explanations.results.lazy_layers import LazyLayers
    from attnwidgets.tracing.text.units import Unit

Array = NDArray[np.floating]
"""float32, or float64 if the numbers were computed or given in it."""

Reduction = Literal["mean", "max", "sum"] | Callable[[Any], Any]

Scheme = Literal["row", "column_mean", "column_sum", "column_max", "row_sum", "row_mean", "row_max"]
# scheme -> (reduced axis, reduction)
REDUCED: dict[str, tuple[Literal["query", "key"], Literal["mean", "sum", "max"]]] = {
    "column_mean": ("query", "mean"),
    "column_sum": ("query", "sum"),
    "column_max": ("query", "max"),
    "row_sum": ("key", "sum"),
    "row_mean": ("key", "mean"),
    "row_max": ("key", "max"),
}


def as_floats(array: Any, dtype: str | None = None) -> Array:
    """Return numpy floats of a numpy array, a nested sequence or a torch tensor on any device.

    Args:
        array: The numbers; an array or CPU tensor that has the dtype already is not copied.
        dtype: "float32" or "float64"; by default float64 if the numbers are float64 already (as Python's
            floats are), else float32.
    """
    array = as_array(array)
    if dtype is None:
        dtype = "float64" if array.dtype == np.float64 else "float32"
    return np.asarray(array, dtype=dtype)


def read_only(array: Array) -> Array:
    """Return a read-only view; the array itself stays writable."""
    view: Array = array.view()
    view.flags.writeable = False
    return view


def require_finite(array: Array, name: str) -> None:
    """Raise ValueError if `array` holds NaN or infinity; the message counts them and names the first."""
    finite = np.isfinite(array)
    if not finite.all():
        bad = np.argwhere(~finite)
        index = ", ".join(str(int(i)) for i in bad[0])
        raise ValueError(
            f"{name} holds {len(bad)} values that are NaN or infinite (first at [{index}]); "
            "check the model's output or mask before explaining it."
        )


def reduce_first(array: Any, how: Reduction) -> Any:
    """Return `array` reduced over its first axis, in float64."""
    if callable(how):
        return how(np.asarray(array, dtype=np.float64))
    reduction, array = reduction_name(how), np.asarray(array)
    if reduction == "max":
        return array.max(axis=0).astype(np.float64)
    # Summed in float64, without a copy of the whole array in it.
    return getattr(array, reduction)(axis=0, dtype=np.float64)


def reduction_name(how: Reduction) -> str:
    """Return the name of a reduction.

    Raises:
        ValueError: If it is neither a reduction's name nor a function.
    """
    if callable(how):
        return str(getattr(how, "__name__", type(how).__name__))
    if how not in ("mean", "max", "sum"):
        near = suggest(str(how), ("mean", "max", "sum"))
        raise ValueError(f"reduction {how!r} is not 'mean', 'max', 'sum' or a function.{near}")
    return str(how)


@dataclass(frozen=True)
class Vector:
    """How a matrix becomes a vector.

    Attributes:
        side: The remaining axis.
        read: Takes [query, key] in float64, returns [side].
        step: The operation in words.
        query: The label of the row that is read; "" if several are.
    """

    side: Literal["query", "key"]
    read: Callable[[NDArray[np.float64]], NDArray[np.float64]]
    step: str
    query: str = ""


def vector_of(source: LazyLayers, how: Scheme, query: int | str | None, *, diagonal: bool) -> Vector:
    """Return the scheme named `how`; see `MixingMap.to_attributions`."""
    if how == "row":
        return row(source, query, diagonal=diagonal)
    require_choice("how", how, ("row", *REDUCED))
    if query is not None:
        raise ValueError(f"query={query!r} is for how='row'; {how!r} reads all of them.")
    return reduced(source, *REDUCED[how], diagonal=diagonal)


def row(source: LazyLayers, query: int | str | None, *, diagonal: bool) -> Vector:
    """Return the vector that reads the row of a query.

    Raises:
        ValueError: If no query is named, none or several have the label, or the matrix has no diagonal.
        IndexError: If the query is out of range.
    """
    number = _query_number(query, source.query_unit)
    if not diagonal:
        _require_diagonal(source)

    def read(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        values: NDArray[np.float64] = matrix[number].copy()
        if not diagonal:
            values[number] = 0.0
        return values

    without = "" if diagonal else ", without itself"
    label = source.query_labels[number]
    return Vector("key", read, f"row of {label!r}{without} (query {number})", label)


def reduced(source: LazyLayers, axis: Literal["query", "key"], how: Reduction, *, diagonal: bool) -> Vector:
    """Return the vector that reduces queries (a value for every key) or keys (a value for every query).

    Raises:
        ValueError: If the reduction is unknown, or the matrix has no diagonal.
    """
    name = reduction_name(how)
    if not diagonal:
        _require_diagonal(source)

    def read(matrix: NDArray[np.float64]) -> NDArray[np.float64]:
        across = matrix if axis == "query" else matrix.T
        if not diagonal:
            across = _without_diagonal(across)
        if not len(across):  # a single token, without itself
            return np.zeros(across.shape[1])
        values = np.asarray(reduce_first(across, how), dtype=np.float64)
        if values.shape != across.shape[1:]:
            raise ValueError(
                f"the reduction {name} over {axis} returned shape {values.shape}, not {across.shape[1:]}."
            )
        return values

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


def _query_number(query: int | str | None, unit: Unit) -> int:
    """Return the number of a query, named by its number, "cls", "first", "last", or its label."""
    if query is None:
        raise ValueError(
            "how='row' needs query=: a number, 'cls', 'first', 'last', or the label of one "
            f"({', '.join(repr(label) for label in unit.labels[:3])}, ...)."
        )
    return element(query, unit.labels, "query")
