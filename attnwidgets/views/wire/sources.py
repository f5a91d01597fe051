"""A source: one method in one unit and one stream, described for the browser and read tile by tile."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.views.sums import sums_of, verdict_of
from attnwidgets.views.wire.axes import axis, span, target_axis
from attnwidgets.views.wire.codec import GAMMA, encode, scale_of
from attnwidgets.views.wire.keys import is_by_layer
from attnwidgets.views.wire.pooling import Pooled

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from numpy.typing import NDArray

    from attnwidgets.views.wire.codec import Codec

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
_SAMPLE = 16  # rows by which it is told whether those of a long map are shares
_SUM_TO_ONE = 1e-2  # bfloat16 rows miss one by a few thousandths


@dataclass(frozen=True)
class Tile:
    """One encoded matrix and what wire.ts calls its TileMeta; `whole` is the shape behind a Coarse one."""

    source: str
    layer: int
    head: int | str
    rows: int
    cols: int
    codec: Codec
    scale: float
    data: bytes
    whole: tuple[int, int] | None = None

    def meta(self) -> dict[str, Any]:
        """Return what the browser needs to read the bytes."""
        described = {
            "source": self.source,
            "layer": self.layer,
            "head": self.head,
            "rows": self.rows,
            "cols": self.cols,
            "codec": self.codec,
            "gamma": GAMMA,
            "scale": self.scale,
        }
        return described if self.whole is None else described | {"whole": list(self.whole)}


_FINEST = {"token", "patch", "frame"}
_NONE: Floats = np.zeros(0, dtype=np.float32)


def is_attributions(explanation: Any) -> bool:
    """Return whether an explanation holds values per token rather than token by token."""
    return not hasattr(explanation, "query")


class Source:
    """Reads one explanation in one unit.

    Aggregation to the unit happens when a number is first asked for; describing a source costs nothing. Where
    a map's rows are computed alone and its layers are large, no layer is ever read whole.

    Args:
        explanation: A MixingMap, or Attributions.
        method: Key the browser selects it by.
        unit: One of the explanation's available units.
        targets: Whether the method can be asked about another target.
        whole: The attributions of which the explanation is what they say of every layer.
    """

    def __init__(
        self, explanation: Any, method: str, unit: str, *, targets: bool = False, whole: Any = None
    ) -> None:
        self.explanation = explanation
        self.method = method
        self.unit = unit
        self.targets = targets
        self.attributions = is_attributions(explanation)
        # What attributions say of a layer has their targets as rows, unless it is of every pair of tokens.
        self.of_targets = self.attributions or (
            whole is not None
            and explanation.query != explanation.key
            and len(explanation.query) == len(whole.targets)
        )
        self._whole = explanation if self.attributions else whole if self.of_targets else None
        self.stream: str = getattr(explanation, "stream", "") or "self"
        self.id = f"{method}/{unit}/{self.stream}"
        self.layers: tuple[int, ...] = (
            (0,) if self.attributions else tuple(int(n) for n in explanation.layers)
        )
        heads = None if self.attributions else explanation.heads
        self.heads: tuple[int, ...] | None = None if heads is None else tuple(int(n) for n in heads)
        self.on_demand = bool(getattr(explanation, "on_demand", False))
        layer = self.weights * len(self.heads or (0,))
        self.long = bool(getattr(explanation, "knows_rows", False)) and layer > LAYER_VALUES
        # What would have to be computed to be known: room for a sign costs a bit of precision.
        self.signed = self._fact("signed", unknown=True, absent=self.attributions)
        self.stochastic = bool(self.ready) and self._holds_shares()
        self._lock = Lock()
        self._in_unit: Any = explanation if explanation.unit == unit else None
        self._counts: dict[int, int] = {}
        self._recent: dict[tuple[int, int | str], tuple[Floats, Floats]] = {}

    def _holds_shares(self) -> bool:
        if not self.long:
            return bool(getattr(self.explanation, "stochastic", False))
        known: bool | None = self.explanation.known("stochastic")
        if known is None:  # as the map itself does, but from some rows of its first layer
            count = self.explanation.shape[-2]
            rows = self.explanation.rows(
                self.layers[0], None, sorted({*range(0, count, -(-count // _SAMPLE))})
            )
            off = np.abs(rows.sum(axis=-1, dtype=np.float64) - 1.0)
            known = bool(rows.min(initial=0.0) >= 0 and off.max(initial=0.0) <= _SUM_TO_ONE)
        return known

    def _fact(self, name: str, *, unknown: bool, absent: bool = False) -> bool:
        if not self.on_demand and not self.long:
            return bool(getattr(self.explanation, name, absent))
        known = self.explanation.known(name)
        return unknown if known is None else bool(known)

    # -- what the browser is told ------------------------------------------------------------------

    def axes(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the query and the key Axis of wire.ts."""
        if self.attributions:
            return target_axis(self.explanation), axis(self.explanation.axis, self.unit)
        return axis(self.explanation.query, self.unit), axis(self.explanation.key, self.unit)

    @property
    def shape(self) -> tuple[int, int]:
        """Rows and columns of a tile."""
        query, key = self.axes()
        return len(query["labels"]), len(key["labels"])

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

    @property
    def parts(self) -> bool:
        """Whether its thumbnails come a few heads at a time."""
        return self.large and self.heads is not None and not self.on_demand

    @cached_property
    def coarse(self) -> bool:
        """Whether its matrices have more cells than travel one by one."""
        return math.prod(self.shape) > TILE_VALUES and not self.of_targets

    @property
    def pinnable(self) -> tuple[int, int]:
        """Rows and columns that a pin may name; where rows are explanations, columns are queries too."""
        rows, cols = self.shape
        return (cols if self.explanation.method == "comparison" else rows), cols

    @property
    def causal(self) -> bool:
        """Whether nothing looks ahead, as far as that is known before a layer is read."""
        return self._fact("causal", unknown=False)

    @property
    def title(self) -> str:
        """The method and what was done to its numbers, as people read it."""
        title = str(getattr(self.explanation, "title", self.explanation.method)).replace("_", " ")
        if not is_by_layer(self.method):
            return title
        rows = self.explanation.query_labels
        about = f" for {rows[0]!r}" if len(rows) == 1 < len(self.explanation.key_labels) else ""
        return f"{title}{about}, by layer"

    @property
    def ready(self) -> tuple[int, ...]:
        """The layers that can be read at once, without running a model."""
        return self.explanation.computed_layers if self.on_demand else self.layers

    def describe(self, query: str, key: str) -> dict[str, Any]:
        """Return the Source of wire.ts; `query` and `key` name its axes in the header."""
        return {
            "id": self.id,
            "method": self.method,
            "title": self.title,
            "unit": self.unit,
            "stream": self.stream,
            "query": query,
            "key": key,
            "layers": list(self.layers),
            "computed": list(self.ready) if self.on_demand else None,
            "heads": None if self.heads is None else list(self.heads),
            "coarse": self.coarse,
            "parts": self.parts,
            "causal": self.causal,
            "signed": self.signed,
            "stochastic": self.stochastic,
            "kind": "attributions" if self.of_targets else "map",
            "note": self._note(),
            "warning": str(getattr(self.explanation, "warning", "") or ""),
            "targets": self.targets,
            "sums": self._sums(),
            "verdict": "" if self._whole is None else verdict_of(self._whole),
        }

    def _sums(self) -> list[str]:
        """Return what attributions sum to, also where it is shown what they say of a layer."""
        if self._whole is None:
            return []
        said = sums_of(self._whole)
        return said if self.attributions else [f"at the input: {line}" for line in said]

    def _note(self) -> str:
        if self.attributions:
            return "" if self.unit in _FINEST else f"sum over the pieces of a {self.unit}"
        rows, cols = self.shape
        tokens = f"{max(len(self.explanation.query), len(self.explanation.key)):,} tokens"
        if self.coarse:
            block = f"{-(-rows // COARSE_SIDE)} × {-(-cols // COARSE_SIDE)}"
            what = f"{max(rows, cols):,} {self.unit}s"
            return (
                f"{what}: each cell drawn is the largest of {block}; a pin asks the kernel for its exact row"
            )
        if self.unit in _FINEST:
            return ""
        aggregated = "sum over key pieces, mean over query pieces"
        if self.weights <= TILE_VALUES:
            return aggregated
        return f"{tokens}: shown by {self.unit}s; choose tokens for single ones · {aggregated}"

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
        found: NDArray[np.bool_] = whole.to(self.unit).beyond()
        return found

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
        rows = self.shape[0]
        if not 0 <= row < rows:
            raise IndexError(f"row {row} is out of range: the rows are 0 to {rows - 1}.")
        if not self.long:
            return np.asarray(self.matrix(layer, head)[row])
        self._check(layer)
        self._check_head(layer, head)
        found = self._aggregated().rows(layer, self._numbers(head), [row])
        kept = found if self.heads is not None else found[None]
        return np.asarray(_of_heads(kept, _first_of(head))[0])

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
        is_slow = count * self.weights > SLOW_VALUES
        for rows, values in progress(found, desc=f"{self.title}, layer {layer}") if is_slow else found:
            yield rows.start, np.asarray(values if self.heads is not None else values[None], dtype=np.float32)

    def keep_layers(self) -> None:
        """Read every layer once and keep it, where it is small in this unit: all of it is to be read."""
        if not self.long or self.unit == self.explanation.unit:
            return
        if math.prod(self.shape) * len(self.heads or (0,)) <= LAYER_VALUES:
            for layer in progress(self.ready, desc=f"{self.title} by {self.unit}"):
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

    def tile(self, layer: int, head: int | str) -> Tile:
        """Return one encoded matrix. Raises like `matrix`."""
        values, means = self.overview(layer, head)
        scale = scale_of(values, stochastic=self.stochastic)
        data, codec = encode(values, scale=scale, signed=self.signed, causal=self.causal)
        rows, cols = values.shape
        if not self.coarse:
            return Tile(self.id, layer, head, rows, cols, codec, scale, data)
        data += means.astype("<f4").tobytes()
        return Tile(self.id, layer, head, rows, cols, codec, scale, data, self.shape)

    @property
    def tile_bytes(self) -> int:
        """How many bytes a tile may have."""
        rows, cols = self.shape
        if not self.coarse:
            return rows * cols
        return min(rows, COARSE_SIDE) * min(cols, COARSE_SIDE) + 4 * cols

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
