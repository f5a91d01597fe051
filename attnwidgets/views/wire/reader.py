"""Reading an explanation in a unit: by row, matrix, block of rows, or max-pooled."""

from __future__ import annotations

import math
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.block_mixers import mixers_of
from attnwidgets.views.wire.axes import elements_of, span

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.block_mixers import BlockMixers

    Floats = NDArray[np.float32]
    Places = NDArray[np.intp]

REDUCTIONS = ("mean", "max")
"""Reductions over heads that a view can request by name."""

LAYER_VALUES = 2**22
"""Values of a layer up to which it is read whole; of a larger one only the selected matrices are read."""

OVERVIEW_VALUES = 2**27
"""Values of a source up to which it is read without a request."""

QUICK_VALUES = 2**25
"""Values of a source up to which thumbnails in units that no view opens in are not left to be requested."""

SLOW_VALUES = 2**27
"""Values beyond which reading takes so long that its progress is shown."""

TILE_VALUES = 2**21
"""Values of a matrix up to which each is sent; a larger matrix is pooled to `COARSE_SIDE` a side."""

COARSE_SIDE = 1024
_NONE: Floats = np.zeros(0, dtype=np.float32)


class Reader:
    """Reads an explanation in a unit.

    It aggregates to the unit when a number is first requested. Where a map computes rows one by one and its
    layers are large, no layer is ever read whole.

    Args:
        explanation: A MixingMap or Attributions.
        unit: An available unit of the explanation.
        name: The source's name in errors.
        whole: The attributions whose layers (`.map`) the explanation holds, if it does.
    """

    def __init__(self, explanation: Any, unit: str, name: str, whole: Any = None) -> None:
        self.explanation = explanation
        self.unit = unit
        self.id = name
        self.attributions = isinstance(explanation, Attributions)
        # The layers of attributions have targets as rows, unless they hold every pair of tokens.
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
        self.on_demand = not self.attributions and bool(explanation.on_demand)
        values_of_layer = self.weights * len(self.heads or (0,))
        knows_rows = not self.attributions and explanation.knows_rows
        self.long = bool(knows_rows) and values_of_layer > LAYER_VALUES
        self._lock = Lock()
        self._in_unit: Any = explanation if explanation.unit == unit else None
        self._counts: dict[int, int] = {}
        self._recent: dict[tuple[int, int | str], tuple[Floats, Floats]] = {}

    # -- sizes -------------------------------------------------------------------------------------

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a matrix."""
        explanation = self.explanation
        if self.attributions:
            columns = len(elements_of(explanation.axis, self.unit).labels)
            return len(np.atleast_2d(explanation.values)), columns
        rows, columns = (
            len(elements_of(axis, self.unit).labels) for axis in (explanation.query, explanation.key)
        )
        return rows, columns

    @property
    def size(self) -> int:
        """Number of values behind this source, in the unit of the explanation."""
        return math.prod(self.explanation.shape)

    @property
    def weights(self) -> int:
        """Number of values behind a matrix: pairs of tokens in every unit."""
        return self.size if self.attributions else len(self.explanation.query) * len(self.explanation.key)

    @property
    def large(self) -> bool:
        """Whether only the selected matrices are read."""
        return self.long or self.size > OVERVIEW_VALUES

    @cached_property
    def coarse(self) -> bool:
        """Whether its matrices have too many cells to send each."""
        return math.prod(self.shape) > TILE_VALUES and not self.of_targets

    @property
    def ready(self) -> tuple[int, ...]:
        """The layers that can be read without running a model."""
        return self.explanation.computed_layers if self.on_demand else self.layers

    # -- numbers -----------------------------------------------------------------------------------

    def heads_of_tiles(self, layer: int) -> tuple[int | str, ...]:
        """Return every head key that a tile of a layer can have."""
        if self.heads is None:
            return ("-",)
        return (*self.heads[: self.count(layer)], *REDUCTIONS)

    @cached_property
    def mixers(self) -> dict[int, BlockMixers]:
        """The mixers of the heads of every layer, by the number of the layer.

        {} for models of attention alone, and for values of states, which lie between the blocks.
        """
        if self.attributions or self.explanation.provenance.get("states"):
            return {}
        return mixers_of(self.explanation)

    def heads_of(self, layer: int) -> tuple[int, ...]:
        """Return the numbers of a layer's heads, as far as they are certain before the layer is read."""
        mixers = self.mixers.get(layer)
        heads = self.heads or ()
        return heads if mixers is None else tuple(head for head in heads if head < mixers.n_heads) or heads

    def count(self, layer: int) -> int:
        """Return the number of heads of a layer: fewer than `heads` if it was pruned. Raises like `layer`."""
        self._check_layer(layer)
        if layer not in self._counts:
            read = self.explanation.rows(layer, None, [0]) if self.long else self.layer(layer)
            self._counts[layer] = len(read)
        return self._counts[layer]

    def layer(self, layer: int) -> NDArray[np.float32]:
        """Return [head, query, key] of a layer; a single head without a head axis.

        A pruned layer has fewer heads than `heads`.

        Raises:
            IndexError: The layer is out of range.
        """
        self._check_layer(layer)
        aggregated = self._aggregated()
        values = aggregated.values if self.attributions else aggregated.layer(layer)
        values = np.asarray(values, dtype=np.float32)
        if self.heads is None:
            values = values.reshape(1, *self.shape)
        unreadable = self._unreadable()
        return values if unreadable is None else np.asarray(np.where(unreadable, np.float32(np.nan), values))

    def _unreadable(self) -> NDArray[np.bool_] | None:
        """Return where [target, source] a source lies beyond what a target reads, which is not zero."""
        whole = self._whole
        if whole is None or whole.reach is None:
            return None
        return whole.to(self.unit).beyond()

    def matrix(self, layer: int, head: int | str) -> NDArray[np.float32]:
        """Return [query, key] of a layer and a head or reduction.

        Raises:
            IndexError: The layer or head is out of range.
        """
        self._check(layer, head)
        if not self.long:
            values = self.layer(layer)
            return _of_heads(values, head if self.heads is None else self._index(layer, head))
        with self._lock:
            recent = None if self.coarse else self._recent.get((layer, head))
        if recent is not None:
            return recent[0]
        return np.concatenate([rows for _, rows in self.blocks(layer, head)])

    def row(self, layer: int, head: int | str, row: int) -> NDArray[np.float32]:
        """Return a row of a matrix [key], exact.

        Raises:
            IndexError: The layer, head or row is out of range.
        """
        return np.asarray(self.rows(layer, head, row, row + 1)[0])

    def rows(self, layer: int, head: int | str, first: int, last: int) -> NDArray[np.float32]:
        """Return the rows from `first` up to, not including, `last` [row, key]. Raises like `row`."""
        count = self.shape[0]
        if not 0 <= first < last <= count:
            raise IndexError(f"row {first} is out of range: the rows are 0 to {count - 1}.")
        if not self.long:
            return np.asarray(self.matrix(layer, head)[first:last])
        self._check(layer, head)
        values = self._aggregated().rows(layer, self._numbers(head), range(first, last))
        return _of_heads(values if self.heads is not None else values[None], _index_alone(head))

    def across(self, layer: int, side: str, index: int) -> NDArray[np.float32]:
        """Return a query's row, or with `side` "key" a key's column, in every head [head, element].

        Raises:
            IndexError: The layer or element is out of range.
        """
        self._check_layer(layer)
        count = self.shape[0 if side == "query" else 1]
        if not 0 <= index < count:
            raise IndexError(f"{side} {index} is out of range: there are {side} 0 to {count - 1}.")
        if not self.long:
            values = self.layer(layer)
            return np.asarray(values[:, index, :] if side == "query" else values[:, :, index])
        if side == "query":
            rows = self._aggregated().rows(layer, None, [index])
            return np.asarray((rows if self.heads is not None else rows[None])[:, 0])
        return np.concatenate([rows[..., index] for _, rows in self.blocks_of(layer, None)], axis=-1)

    def blocks(self, layer: int, head: int | str) -> Iterator[tuple[int, Floats]]:
        """Yield a matrix in blocks of rows [row, key], each with the number of its first row."""
        if not self.long:
            yield 0, self.matrix(layer, head)
            return
        for first, rows in self.blocks_of(layer, self._numbers(head)):
            yield first, _of_heads(rows, _index_alone(head))

    def blocks_of(self, layer: int, heads: Iterable[int] | None) -> Iterator[tuple[int, Floats]]:
        """Yield some heads of a layer in blocks of rows [head, row, key], each with its first row's number.

        Args:
            layer: Number of the layer.
            heads: Numbers of the heads; None: all, or the only head.
        """
        numbers = None if heads is None else list(heads)
        blocks = self._aggregated().blocks(layer, numbers)
        count = len(self.heads or (0,)) if numbers is None else len(numbers)
        if count * self.weights > SLOW_VALUES:
            blocks = progress(blocks, f"{self.explanation.method}, layer {layer}")
        for rows, values in blocks:
            yield rows.start, np.asarray(values if self.heads is not None else values[None], dtype=np.float32)

    def keep_layers(self) -> None:
        """Read every layer of a long map once and keep it, if it is small in this unit."""
        if not self.long or self.unit == self.explanation.unit:
            return
        if math.prod(self.shape) * len(self.heads or (0,)) <= LAYER_VALUES:
            for layer in progress(self.ready, desc=f"{self.explanation.method} by {self.unit}"):
                self._aggregated().layer(layer)

    @property
    def cheapest(self) -> Any:
        """The map in this unit if it holds every layer, which makes reading cheap; else the explanation."""
        computed = getattr(self._in_unit, "held_layers", ())
        return self._in_unit if set(self.layers) <= set(computed) else self.explanation

    @property
    def cells(self) -> int:
        """Number of values that are read for every matrix."""
        weights = math.prod(self.shape) if self.cheapest is self._in_unit else self.weights
        return len(self.layers) * len(self.heads or (0,)) * weights

    def reads(self, heads: Iterable[Any]) -> int:
        """Return how many values are read for the matrices of some heads or reductions."""
        count = len(self.heads or (0,))
        return self.weights * sum(1 if isinstance(head, int) else count for head in heads)

    def _numbers(self, head: int | str) -> list[int] | None:
        return [head] if isinstance(head, int) else None

    def _index(self, layer: int, head: int | str) -> int | str:
        heads = (self.heads or ())[: self.count(layer)]
        return heads.index(head) if isinstance(head, int) else head

    def _check_layer(self, layer: int) -> None:
        if layer not in self.layers:
            raise IndexError(f"layer={layer} is not in {self.id}, which has layers {span(self.layers)}.")

    def _check(self, layer: int, head: int | str) -> None:
        self._check_layer(layer)
        if self.heads is None:
            if head not in {"-", *REDUCTIONS}:
                raise IndexError(f"head={head!r} was requested, but {self.id} has no heads.")
        elif head not in REDUCTIONS and head not in self.heads[: self.count(layer)]:
            heads = f"heads {span(self.heads[: self.count(layer)])}, 'mean' and 'max'"
            raise IndexError(f"head={head!r} is not in layer {layer} of {self.id}, which has {heads}.")

    def overview(self, layer: int, head: int | str) -> tuple[Floats, Floats]:
        """Return the values of a matrix to draw and, if these are pooled, the exact means of its columns.

        A matrix with too many cells to send is pooled: each cell is the largest of a block. The last matrix
        of a long map is kept. Raises like `matrix`.
        """
        with self._lock:
            drawn = self._recent.get((layer, head))
        if drawn is None:
            drawn = self._pooled(layer, head) if self.coarse else (self.matrix(layer, head), _NONE)
            if self.long:
                with self._lock:
                    self._recent = {(layer, head): drawn}
        return drawn

    def _pooled(self, layer: int, head: int | str) -> tuple[Floats, Floats]:
        self._check(layer, head)
        rows, cols = self.shape
        pooled = Pooled((), *(np.arange(0, size, -(-size // COARSE_SIDE)) for size in (rows, cols)))
        sums = np.zeros(cols)
        for first, values in self.blocks(layer, head):
            finite = np.nan_to_num(values, nan=0.0, posinf=np.inf, neginf=-np.inf)
            pooled.add(first, finite)
            sums += finite.sum(axis=0, dtype=np.float64)
        return pooled.values, (sums / rows).astype(np.float32)

    def _aggregated(self) -> Any:
        # Two requests may arrive at once, during a running cell: aggregate once.
        with self._lock:
            if self._in_unit is None:
                self._in_unit = self.explanation.to(self.unit)
            return self._in_unit


def _of_heads(values: Floats, head: int | str) -> Floats:
    """Return [row, key] of one head, by its place, or of a reduction over all of [head, row, key]."""
    if isinstance(head, int):
        return np.asarray(values[head])
    if head == "-" or len(values) == 1:
        return np.asarray(values[0])
    return np.asarray(values.mean(axis=0) if head == "mean" else values.max(axis=0))


def _index_alone(head: int | str) -> int | str:
    """Return the place of a head among the heads that were read for it alone."""
    return 0 if isinstance(head, int) else head


def even(size: int, count: int) -> Places:
    """Return where `count` blocks of about the same size begin along an axis of `size` cells."""
    return np.arange(count) * size // count


def pool(values: NDArray[np.float32], rows: int, cols: int) -> NDArray[np.float32]:
    """Return thumbnails [..., rows, cols]: the strongest value (by magnitude) of every block.

    A mean would lose the peaks, which are the point of a thumbnail (their median falls to 0.13 at 512 -> 64).
    """
    if values.shape[-2:] == (rows, cols):
        return values
    return _strongest(values, even(values.shape[-2], rows), even(values.shape[-1], cols))


class Pooled:
    """A matrix [..., query, key], pooled as its rows arrive.

    Args:
        lead: Sizes of the axes before rows and columns.
        rows: First rows of the blocks, in order, beginning with 0.
        cols: First columns of the blocks, likewise.
    """

    def __init__(self, lead: tuple[int, ...], rows: Places, cols: Places) -> None:
        self.values: NDArray[np.float32] = np.zeros((*lead, len(rows), len(cols)), dtype=np.float32)
        self._rows = rows
        self._cols = cols

    def add(self, first: int, values: NDArray[np.floating]) -> None:
        """Add rows [..., row, key], of which the first is row `first` of the matrix."""
        blocks = np.searchsorted(self._rows, np.arange(first, first + values.shape[-2]), side="right") - 1
        starts = np.flatnonzero(np.diff(blocks, prepend=-1))
        peaks = _strongest(np.asarray(values, dtype=np.float32), starts, self._cols)
        known = self.values[..., blocks[0] : blocks[-1] + 1, :]
        np.copyto(known, peaks, where=np.abs(peaks) > np.abs(known))


def _strongest(values: NDArray[np.float32], rows: Places, cols: Places) -> NDArray[np.float32]:
    high = _reduce(np.maximum, values, rows, cols)
    if not np.any(values < 0):
        return high
    low = _reduce(np.minimum, values, rows, cols)
    return np.where(-low > high, low, high)


def _reduce(ufunc: np.ufunc, values: NDArray[np.float32], rows: Places, cols: Places) -> NDArray[np.float32]:
    pooled = ufunc.reduceat(values, rows, axis=-2)
    return np.asarray(ufunc.reduceat(pooled, cols, axis=-1), dtype=np.float32)
