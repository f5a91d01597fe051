"""Reading one explanation in one unit: a row, a matrix or a block at a time where layers are too large."""

from __future__ import annotations

import math
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.views.wire.axes import elements_of, span
from attnwidgets.views.wire.pooling import Pooled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

REDUCTIONS = ("mean", "max")
"""Reductions over heads a view may ask for by name."""
LAYER_VALUES = 2**22
"""Values of a layer up to which it is read whole; of a larger one only what is looked at."""
OVERVIEW_VALUES = 2**27
"""Values behind a source up to which it is read without being asked for."""
SLOW_VALUES = 2**27
"""Values that are read beyond which it takes so long that it is shown."""
TILE_VALUES = 2**21
"""Values of a matrix up to which they travel one by one; a larger one is pooled to `COARSE_SIDE` a side."""
COARSE_SIDE = 1024
_NONE: Floats = np.zeros(0, dtype=np.float32)


def is_attributions(explanation: Any) -> bool:
    """Return whether an explanation holds values per token rather than token by token."""
    return not hasattr(explanation, "query")


class Reader:
    """Reads one explanation in one unit.

    Aggregation to the unit happens when a number is first asked for. Where a map's rows are computed alone
    and its layers are large, no layer is ever read whole.

    Args:
        explanation: A MixingMap, or Attributions.
        unit: One of the explanation's available units.
        name: What it is called in errors.
        whole: The attributions of which the explanation is what they say of every layer.
    """

    def __init__(self, explanation: Any, unit: str, name: str, whole: Any = None) -> None:
        self.explanation = explanation
        self.unit = unit
        self.id = name
        self.attributions = is_attributions(explanation)
        # What attributions say of a layer has their targets as rows, unless it is of every pair of tokens.
        self.of_targets = self.attributions or (
            whole is not None
            and explanation.query != explanation.key
            and len(explanation.query) == len(whole.targets)
        )
        self._whole = explanation if self.attributions else whole if self.of_targets else None
        self.layers: tuple[int, ...] = (
            (0,) if self.attributions else tuple(int(n) for n in explanation.layers)
        )
        heads = None if self.attributions else explanation.heads
        self.heads: tuple[int, ...] | None = None if heads is None else tuple(int(n) for n in heads)
        self.on_demand = bool(getattr(explanation, "on_demand", False))
        layer = self.weights * len(self.heads or (0,))
        self.long = bool(getattr(explanation, "knows_rows", False)) and layer > LAYER_VALUES
        self._lock = Lock()
        self._in_unit: Any = explanation if explanation.unit == unit else None
        self._counts: dict[int, int] = {}
        self._recent: dict[tuple[int, int | str], tuple[Floats, Floats]] = {}

    # -- how much there is -------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a matrix."""
        one = self.explanation
        if self.attributions:
            return len(np.atleast_2d(one.values)), len(elements_of(one.axis, self.unit).labels)
        return len(elements_of(one.query, self.unit).labels), len(elements_of(one.key, self.unit).labels)

    @property
    def size(self) -> int:
        """How many values lie behind this source, in the unit that they were given in."""
        return math.prod(self.explanation.shape)

    @property
    def weights(self) -> int:
        """How many values lie behind one matrix: of pairs of tokens, whatever the unit."""
        return self.size if self.attributions else len(self.explanation.query) * len(self.explanation.key)

    @property
    def large(self) -> bool:
        """Whether no more of it is read than what is looked at."""
        return self.long or self.size > OVERVIEW_VALUES

    @cached_property
    def coarse(self) -> bool:
        """Whether its matrices have more cells than travel one by one."""
        return math.prod(self.shape) > TILE_VALUES and not self.of_targets

    @property
    def ready(self) -> tuple[int, ...]:
        """The layers that can be read at once, without running a model."""
        return self.explanation.computed_layers if self.on_demand else self.layers

    # -- numbers -----------------------------------------------------------------------------------

    def heads_of_tiles(self, layer: int) -> tuple[int | str, ...]:
        """Return every head key a tile of a layer can have."""
        if self.heads is None:
            return ("-",)
        return (*self.heads[: self.count(layer)], *REDUCTIONS)

    def count(self, layer: int) -> int:
        """Return how many heads a layer has: a pruned one fewer than `heads` counts. Raises like `layer`."""
        if not self.long:
            return len(self.layer(layer))
        self._check(layer)
        if layer not in self._counts:
            self._counts[layer] = len(self.explanation.rows(layer, None, [0]))
        return self._counts[layer]

    def layer(self, layer: int) -> NDArray[np.float32]:
        """Return [head, query, key] of one layer; one head where there is no head axis.

        A pruned layer has fewer heads than `heads` counts.

        Raises:
            IndexError: The layer is not one of this source's.
        """
        self._check(layer)
        held = self._aggregated()
        values = held.values if self.attributions else held.layer(layer)
        values = np.asarray(values, dtype=np.float32)
        if self.heads is None:
            values = values.reshape(1, *self.shape)
        beyond = self._beyond()
        # What comes after what a target was read from is no zero.
        return values if beyond is None else np.asarray(np.where(beyond, np.float32(np.nan), values))

    def _check(self, layer: int) -> None:
        if layer not in self.layers:
            raise IndexError(f"layer={layer} is not in {self.id}, which has layers {span(self.layers)}.")

    def _beyond(self) -> NDArray[np.bool_] | None:
        """Return which cells [target, source] stand for sources that a target cannot read; None for none."""
        whole = self._whole
        if whole is None or getattr(whole, "reach", None) is None:
            return None
        return whole.to(self.unit).beyond()

    def matrix(self, layer: int, head: int | str) -> NDArray[np.float32]:
        """Return [query, key] of one layer and one head or reduction.

        Raises:
            IndexError: There is no such layer or head.
        """
        self._check(layer)
        self._check_head(layer, head)
        if not self.long:
            values = self.layer(layer)
            return _of_heads(values, head if self.heads is None else self._place(layer, head))
        with self._lock:
            kept = None if self.coarse else self._recent.get((layer, head))
        if kept is not None:
            return kept[0]
        return np.concatenate([rows for _, rows in self.blocks(layer, head)])

    def row(self, layer: int, head: int | str, row: int) -> NDArray[np.float32]:
        """Return one row of a matrix [key], exact.

        Raises:
            IndexError: There is no such layer, head or row.
        """
        return np.asarray(self.rows(layer, head, row, row + 1)[0])

    def rows(self, layer: int, head: int | str, first: int, last: int) -> NDArray[np.float32]:
        """Return the rows from `first` up to, not including, `last` [row, key]. Raises like `row`."""
        rows = self.shape[0]
        if not 0 <= first < last <= rows:
            raise IndexError(f"row {first} is out of range: the rows are 0 to {rows - 1}.")
        if not self.long:
            return np.asarray(self.matrix(layer, head)[first:last])
        self._check(layer)
        self._check_head(layer, head)
        found = self._aggregated().rows(layer, self._numbers(head), range(first, last))
        return _of_heads(found if self.heads is not None else found[None], _first_of(head))

    def across(self, layer: int, side: str, index: int) -> NDArray[np.float32]:
        """Return what a query reads, or with `side` "key" who reads a key, in every head [head, element].

        Raises:
            IndexError: There is no such layer or element.
        """
        self._check(layer)
        count = self.shape[0 if side == "query" else 1]
        if not 0 <= index < count:
            raise IndexError(f"{side} {index} is out of range: there are {side} 0 to {count - 1}.")
        if not self.long:
            values = self.layer(layer)
            return np.asarray(values[:, index, :] if side == "query" else values[:, :, index])
        if side == "query":
            rows = self._aggregated().rows(layer, None, [index])
            return np.asarray((rows if self.heads is not None else rows[None])[:, 0])
        parts = [rows[..., index] for _, rows in self.blocks_of(layer, None)]
        return np.concatenate(parts, axis=-1)

    def blocks(self, layer: int, head: int | str) -> Iterator[tuple[int, Floats]]:
        """Yield a matrix in blocks of rows [row, key], each with the number of its first row."""
        if not self.long:
            yield 0, self.matrix(layer, head)
            return
        for first, rows in self.blocks_of(layer, self._numbers(head)):
            yield first, _of_heads(rows, _first_of(head))

    def blocks_of(self, layer: int, heads: Iterable[int] | None) -> Iterator[tuple[int, Floats]]:
        """Yield some heads of a layer in blocks of rows [head, row, key], each with its first row's number.

        None: all heads, or the one there is.
        """
        some = None if heads is None else list(heads)
        found = self._aggregated().blocks(layer, some)
        count = len(self.heads or (0,)) if some is None else len(some)
        if count * self.weights > SLOW_VALUES:
            found = progress(found, f"{self.explanation.method}, layer {layer}")
        for rows, values in found:
            yield rows.start, np.asarray(values if self.heads is not None else values[None], dtype=np.float32)

    def keep_layers(self) -> None:
        """Read every layer once and keep it, where it is small in this unit: all of it is to be read."""
        if not self.long or self.unit == self.explanation.unit:
            return
        if math.prod(self.shape) * len(self.heads or (0,)) <= LAYER_VALUES:
            for layer in progress(self.ready, desc=f"{self.explanation.method} by {self.unit}"):
                self._aggregated().layer(layer)

    def reads(self, heads: Iterable[Any]) -> int:
        """Return how many values are read for the matrices of some heads or reductions."""
        every = len(self.heads or (0,))
        return self.weights * sum(1 if isinstance(head, int) else every for head in heads)

    def _numbers(self, head: int | str) -> list[int] | None:
        return [head] if isinstance(head, int) else None

    def _place(self, layer: int, head: int | str) -> int | str:
        heads = (self.heads or ())[: self.count(layer)]
        return heads.index(head) if isinstance(head, int) else head

    def _check_head(self, layer: int, head: int | str) -> None:
        if self.heads is None:
            if head not in {"-", *REDUCTIONS}:
                raise IndexError(f"head={head!r} was asked for, but {self.id} has no heads.")
        elif head not in REDUCTIONS and head not in self.heads[: self.count(layer)]:
            offered = f"heads {span(self.heads[: self.count(layer)])}, 'mean' and 'max'"
            raise IndexError(f"head={head!r} is not in layer {layer} of {self.id}, which has {offered}.")

    def overview(self, layer: int, head: int | str) -> tuple[Floats, Floats]:
        """Return what is drawn of a matrix, and the exact means of its columns where that is not the matrix.

        Of a matrix with more cells than travel at once: the largest of every block of cells. Of a long map
        what was read last is kept. Raises like `matrix`.
        """
        at = layer, head
        with self._lock:
            found = self._recent.get(at)
        if found is None:
            found = self._pooled(layer, head) if self.coarse else (self.matrix(layer, head), _NONE)
            if self.long:
                with self._lock:
                    self._recent = {at: found}
        return found

    def _pooled(self, layer: int, head: int | str) -> tuple[Floats, Floats]:
        self._check(layer)
        self._check_head(layer, head)
        rows, cols = self.shape
        pooled = Pooled((), *(np.arange(0, size, -(-size // COARSE_SIDE)) for size in (rows, cols)))
        sums = np.zeros(cols)
        for first, values in self.blocks(layer, head):
            known = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
            pooled.add(first, known)
            sums += known.sum(axis=0, dtype=np.float64)
        return pooled.values, (sums / rows).astype(np.float32)

    def _aggregated(self) -> Any:
        # Two requests may arrive at once, beside a running cell: aggregate once.
        with self._lock:
            if self._in_unit is None:
                self._in_unit = self.explanation.to(self.unit)
            return self._in_unit


def _of_heads(values: Floats, head: int | str) -> Floats:
    """Return [row, key] of one head, by its place, or of all heads together [head, row, key]."""
    if isinstance(head, int):
        return np.asarray(values[head])
    if head == "-" or len(values) == 1:
        return np.asarray(values[0])
    return np.asarray(values.mean(axis=0) if head == "mean" else values.max(axis=0))


def _first_of(head: int | str) -> int | str:
    """Return where a head is found among the heads that were read for it alone."""
    return 0 if isinstance(head, int) else head
