"""LazyLayers, the base of MixingMap: layers that are computed on first use.

A function computes a layer by its number; layers are cached under a lock, so that each is computed once. If
rows can be computed alone, large layers are read in blocks of rows, which are not cached. Facts that a method
does not state (causal, stochastic, signed) are read from the values when they are needed first.
"""

from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import listed, position, spoken_range
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.results.arrays import (
    Array,
    Reduction,
    as_floats,
    read_only,
    reduce_first,
    require_finite,
    vector_of,
)
from attnwidgets.explanations.results.description import TARGETS, axis_words
from attnwidgets.tracing.free_memory import require_room
from attnwidgets.tracing.row_selection import BLOCK_BYTES, blocks, numbers, positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.arrays import Scheme, Vector
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.tracing.text.units import TokenAxis, Unit

    RowFunction = Callable[[int, Sequence[int] | None, Sequence[int]], Any]
    """Takes a layer's number, numbers of heads (None: all) and of queries; returns [head?, query, key]."""
    Readable = Callable[[int], Any]
    """Takes a layer's number; returns which keys each query may read [query, key], or None if unknown."""
    QueryKey = Callable[[int], tuple[Any, Any] | None]
    """Takes a layer's number; returns queries and keys [head, token, dim] or None: `LazyLayers.query_key`."""

_LARGE = 2**25  # bytes from which a layer is read in blocks rather than cached
_ROWS_SUM_TO_ONE = 1e-2  # rows in bfloat16 sum to 1 within a few thousandths


class LazyLayers(Explanation):
    """Layers [head?, query, key] by their original numbers, computed once, safe in threads.

    Attributes:
        query: The axis of the rows.
        key: The axis of the columns.
        layers: Original layer numbers.
        heads: Original head numbers, or None without a head axis.
        runs_model: Whether computing a layer runs the model.
        on_demand: Whether a layer runs the model or takes long, so that views compute it only to show it.
    """

    query: TokenAxis
    key: TokenAxis
    layers: tuple[int, ...]
    heads: tuple[int, ...] | None
    runs_model: bool
    on_demand: bool

    _lock: threading.RLock
    _compute: Callable[[int], Any]
    _rows: RowFunction | None
    _readable: Readable | None
    _query_key: QueryKey | None
    _cache: dict[int, Array]
    _keep: bool
    _facts: dict[str, bool]
    _base: LazyLayers | None
    _done: set[int]

    def _setup(
        self,
        compute: Callable[[int], Any],
        *,
        query: TokenAxis,
        key: TokenAxis | None,
        layers: Sequence[int],
        heads: Sequence[int] | None,
        causal: bool | None,
        stochastic: bool | None,
        signed: bool | None,
        keep: bool,
        unit: str,
        sink: bool = False,
        readable: Readable | None = None,
        query_key: QueryKey | None = None,
        runs_model: bool = False,
        on_demand: bool = False,
        rows: RowFunction | None = None,
        base: LazyLayers | None = None,
        **common: Any,
    ) -> None:
        key = query if key is None else key
        for side, axis in (("query", query), ("key", key)):
            if unit not in axis.units:
                raise ValueError(f"unit {unit!r} is not on the {side} axis, which has {listed(axis.units)}.")
        if not layers:
            raise ValueError("layers is empty: a map needs at least one layer.")
        facts = {"causal": causal, "stochastic": stochastic, "signed": signed, "sink": sink}
        self._set_common(unit=unit, **common)
        self._set(
            query=query,
            key=key,
            layers=tuple(int(number) for number in layers),
            heads=None if heads is None else tuple(int(number) for number in heads),
            runs_model=runs_model,
            on_demand=runs_model or on_demand,
            _base=base,
            _done=set(),
            _compute=compute,
            _rows=rows,
            _readable=readable,
            _query_key=query_key,
            _keep=keep,
            _cache={},
            _lock=threading.RLock(),
            _facts={name: fact for name, fact in facts.items() if fact is not None},
        )

    @property
    def n_layers(self) -> int:
        """Number of layers in this map."""
        return len(self.layers)

    @property
    def query_unit(self) -> Unit:
        """The elements of the rows."""
        return self.query.units[self.unit]

    @property
    def key_unit(self) -> Unit:
        """The elements of the columns."""
        return self.key.units[self.unit]

    @property
    def query_labels(self) -> tuple[str, ...]:
        """Display strings of the rows."""
        return self.query_unit.labels

    @property
    def key_labels(self) -> tuple[str, ...]:
        """Display strings of the columns."""
        return self.key_unit.labels

    @property
    def axis_names(self) -> tuple[str, ...]:
        """("layer", "head", "query", "key"), without "head" if heads are averaged."""
        return ("layer", "query", "key") if self.heads is None else ("layer", "head", "query", "key")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; computes no layer."""
        heads = () if self.heads is None else (len(self.heads),)
        return (len(self.layers), *heads, len(self.query_unit), len(self.key_unit))

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key."""
        if "causal" not in self._facts:
            n_queries, n_keys = self.shape[-2:]
            # A map of zeros alone does not count as causal.
            self._facts["causal"] = (
                n_queries == n_keys > 1
                and not any(np.triu(self.layer(number), 1).any() for number in self.layers)
                and any(self.layer(number).any() for number in self.layers)
            )
        return self._facts["causal"]

    @property
    def stochastic(self) -> bool:
        """Whether values are shares: not negative, and rows sum to 1 (checked in a single layer)."""
        if "stochastic" not in self._facts:
            first = self.layer((self.computed_layers or self.layers)[0])
            errors = np.abs(first.sum(axis=-1, dtype=np.float64) - 1.0)
            self._facts["stochastic"] = bool(
                first.min(initial=0.0) >= 0 and errors.max(initial=0.0) <= _ROWS_SUM_TO_ONE
            )
        return self._facts["stochastic"]

    @property
    def signed(self) -> bool:
        """Whether values may be negative: colours then diverge from zero."""
        if "signed" not in self._facts:
            self._facts["signed"] = any(bool((self.layer(number) < 0).any()) for number in self.layers)
        return self._facts["signed"]

    @property
    def sink(self) -> bool:
        """Whether values are shares of a row whose rest (1 less their sum) goes to no element."""
        return self._facts["sink"]

    def readable(self, layer: int) -> NDArray[np.bool_] | None:
        """Return which keys each query of a layer may read, as booleans [query, key]; None if unknown.

        The others were not compared: that their value is zero says nothing about them.
        """
        return None if self._readable is None else self._readable(layer)

    def compared(self, layer: int) -> NDArray[np.bool_] | None:
        """Return `readable`; None also where a query reads all keys, or all but later keys."""
        allowed = self.readable(layer)
        if allowed is None:
            return None
        most = np.arange(len(allowed)) + 1 if self.known("causal") else allowed.shape[1]
        return None if (allowed.sum(axis=1) == most).all() else allowed

    def query_key(self, layer: int) -> tuple[Array, Array] | None:
        """Return queries and keys [head, token, dim]; a layer is the softmax of their products and a mask.

        None if no such products are known.
        """
        return None if self._query_key is None else self._query_key(layer)

    def known(self, fact: str) -> bool | None:
        """Return "causal", "stochastic", "signed" or "sink"; None if undecided. Computes no layer."""
        return self._facts.get(fact)

    def arguments(self) -> dict[str, Any]:
        """Return the arguments of `MixingMap.lazy` for a map with the same axes and facts."""
        names = ("query", "key", "layers", "heads", "unit", "runs_model", "on_demand")
        facts = ("causal", "stochastic", "signed", "sink")
        arguments = {name: getattr(self, name) for name in names} | {"readable": self._readable}
        return arguments | {fact: self.known(fact) for fact in facts}

    @property
    def computed_layers(self) -> tuple[int, ...]:
        """The layers that are available at once; all, if the map is not `on_demand`."""
        if not self.on_demand:
            return self.layers
        available = {*self._done, *(() if self._base is None else self._base.computed_layers)}
        return tuple(number for number in self.layers if number in available)

    @property
    def held_layers(self) -> tuple[int, ...]:
        """The layers that this map has computed already."""
        return tuple(number for number in self.layers if number in self._done)

    def layer(self, layer: int) -> Array:
        """Return a layer [head?, query, key] (read-only), computed on first use. Safe in threads.

        Raises:
            IndexError: If the layer is out of range; negative numbers count from the last.
            ValueError: If the layer does not fit into memory.
        """
        number = self.layers[position(layer, self.layers, "layer")]
        values = self._cache.get(number)
        if values is None:
            with self._lock:
                values = self._cache.get(number)
                if values is None:
                    self._require_room(number)
                    values = self._require_fit(number, as_floats(self._compute(number), self.dtype))
                    if self._keep:
                        self._cache[number] = values
                    self._done.add(number)
        return values

    def _require_room(self, number: int) -> None:
        """Raise ValueError if a layer does not fit into memory, before it is computed."""
        size = np.dtype(self.dtype).itemsize * math.prod(self.shape[1:])
        if size < _LARGE:
            return
        coarse = self.unit != "sentence" and all("sentence" in axis.units for axis in (self.query, self.key))
        coarser = ", take a coarser unit (.to('sentence'))" if coarse else ""
        sizes = " x ".join(f"{count:,}" for count in self.shape[1:])
        require_room(
            f"layer {number} of {self.method}, {sizes} numbers,",
            size,
            None,
            f"Read some rows with .rows(layer, heads, queries){coarser}",
            can_force=False,
        )

    @property
    def knows_rows(self) -> bool:
        """Whether some rows of some heads can be computed without the rest of their layer: see `rows`."""
        return self._rows is not None

    def rows(
        self, layer: int, heads: Iterable[int] | None = None, queries: Iterable[int] | slice | None = None
    ) -> Array:
        """Return some rows of some heads [head?, query, key] (read-only).

        They equal those of `layer(layer)`. If `knows_rows` and that layer is not cached, only these rows are
        computed; otherwise the whole layer is computed and cached.

        Args:
            layer: Original layer number; negative numbers count from the last.
            heads: Original head numbers, in the order of the result; all by default. Only with a head axis.
            queries: Rows in the order of the result, or a slice; all by default.

        Raises:
            IndexError: If the layer, head or row is out of range.
        """
        number = self.layers[position(layer, self.layers, "layer")]
        rows = positions(queries, self.shape[-2], "query")
        if heads is not None and self.heads is None:
            raise IndexError("heads cannot be chosen: this map has no head axis.")
        all_heads = self.heads or ()
        chosen_heads = (
            None if heads is None else [all_heads[position(head, all_heads, "head")] for head in heads]
        )
        if self._rows is not None and number not in self._cache:
            values = as_floats(self._rows(number, chosen_heads, numbers(rows)), self.dtype)
            return self._require_fit(number, values, len(numbers(rows)))
        values = self.layer(number)
        if chosen_heads is not None:
            present = [position(head, all_heads[: len(values)], "head") for head in chosen_heads]
            values = values[present[0] : present[0] + 1] if len(present) == 1 else values[present]
        return read_only(values[..., rows, :])

    def blocks(
        self, layer: int, heads: Iterable[int] | None = None, limit: int = BLOCK_BYTES
    ) -> Iterator[tuple[slice, Array]]:
        """Yield a layer in blocks of rows; if `knows_rows`, a single block is in memory at a time.

        Args:
            layer: Original layer number.
            heads: Original head numbers; all by default.
            limit: Approximate size of a block in bytes; none has fewer than 16 rows.

        Yields:
            The rows' slice, and their values [head?, query, key].

        Raises:
            IndexError: If the layer or head is out of range.
        """
        chosen_heads = None if heads is None else list(heads)
        whole = self.layer(layer) if chosen_heads is None and not self._large else None
        for rows in blocks(self.shape[-2], self._row_bytes(chosen_heads), limit):
            yield rows, self.rows(layer, chosen_heads, rows) if whole is None else whole[..., rows, :]

    @property
    def _large(self) -> bool:
        """Whether a layer should be read in blocks rather than computed whole and cached."""
        return self.knows_rows and self.shape[-2] * self._row_bytes() > _LARGE

    def _row_bytes(self, heads: Sequence[int] | None = None) -> int:
        """Return the bytes of a row of some heads; of all heads by default."""
        count = len((self.heads or (0,)) if heads is None else heads)
        return count * self.shape[-1] * np.dtype(self.dtype).itemsize

    def _over_heads(self, layer: int, how: Reduction, queries: Sequence[int] | None = None) -> Any:
        """Return a layer reduced over heads [query, key], or only some of its rows."""
        if callable(how) or (queries is None and not self._large):
            return reduce_first(self.layer(layer), how)
        rows = range(self.shape[-2]) if queries is None else queries
        parts = blocks(len(rows), self._row_bytes())
        return np.concatenate([reduce_first(self.rows(layer, None, rows[part]), how) for part in parts])

    def _require_fit(self, number: int, array: Array, n_queries: int | None = None) -> Array:
        expected = self.shape[1:] if n_queries is None else (*self.shape[1:-2], n_queries, self.shape[-1])
        # Layers may have different numbers of heads (pruned models); the map counts the largest.
        fits = array.ndim == len(expected) and array.shape[-2:] == expected[-2:]
        if not fits or (self.heads is not None and not 1 <= len(array) <= len(self.heads)):
            raise ValueError(
                f"layer {number} of {self.method!r} has shape {array.shape}, but the labels "
                f"[{', '.join(self.axis_names[1:])}] need {expected}."
            )
        require_finite(array, f"layer {number} of {self.method!r}")
        return read_only(array)

    @property
    def values(self) -> Array:
        """All layers [layer, head?, query, key] (read-only); lazy layers are computed.

        Raises:
            ValueError: If layers have different numbers of heads; read them with `.layer(number)`.
        """
        values: Array | None = vars(self).get("_values")
        if values is None:
            layers = [self.layer(number) for number in self.layers]
            if len({layer.shape for layer in layers}) > 1:
                counts = ", ".join(str(len(layer)) for layer in layers)
                raise ValueError(
                    f"layers have different numbers of heads ({counts}); read each with .layer(number)."
                )
            values = read_only(np.stack(layers))
            with self._lock:  # the layers become views of the stack: one copy in memory
                self._set(_values=values, _cache=dict(zip(self.layers, values, strict=True)))
        return values

    def matrix(
        self, layer: int | None = None, head: int | Literal["mean", "max", "sum"] | None = None
    ) -> Array:
        """Return a matrix [query, key].

        Args:
            layer: Original layer number; optional for a map of a single layer.
            head: Original head number or a reduction over heads; optional for a single head.

        Raises:
            IndexError: If the layer or head is out of range.
            ValueError: If there are several to choose from.
        """
        if layer is None:
            if len(self.layers) > 1:
                raise ValueError(f"layer is needed: this map has layers {spoken_range(self.layers)}.")
            layer = self.layers[0]
        if self.heads is None:
            if isinstance(head, int):
                raise IndexError(f"head {head} is out of range: this map has no head axis.")
            return self.layer(layer)
        if isinstance(head, str):
            return as_floats(self._over_heads(layer, head), self.dtype)
        if head is None and len(self.heads) > 1:
            heads = spoken_range(self.heads)
            raise ValueError(f"head is needed: this map has heads {heads}; a number, 'mean', 'max' or 'sum'.")
        return self.rows(layer, [self.heads[0] if head is None else head])[0]

    def to_attributions(
        self, how: Scheme = "column_mean", *, query: int | str | None = None, diagonal: bool = True
    ) -> Attributions:
        """Return the map as a vector for every layer, for comparison with attributions.

        With A [query, key] of n tokens:

            row          A[q, j]: how much the chosen query draws from every token
            column_mean  1/n sum_i A[i, j]: how much every token is read, on average (also _sum, _max)
            row_sum      sum_j A[i, j]: how much every token draws in (also _mean, _max); 1 if rows are
                         shares, so that without the diagonal it is the part from other tokens

        Args:
            how: Name of the scheme.
            query: For "row": a number (negative from the end), "cls", "first", "last", or a label.
            diagonal: Whether to count the share that a token draws from itself. Without it, that entry is
                zero, means are over the other n - 1 tokens, and a single token gives zero; rows are not
                rescaled.

        Returns:
            Attributions [source] for a map with a single layer, else [layer, source] with a target "layer l"
            for each; use `.select(layer=-1)` first for a single layer. Sources are keys, or queries for
            "row_...". The unit is the map's; lazy layers are computed.

        Raises:
            ValueError: For an unknown scheme; a query that is missing, unknown, ambiguous or given to another
                scheme; a map with several heads; `diagonal=False` for a map between two sequences.
            IndexError: If the query is out of range.
        """
        return self._vectors(vector_of(self, how, query, diagonal=diagonal))

    def _vectors(self, vector: Vector) -> Attributions:
        """Return a vector for every layer, as `vector` reads it."""
        from attnwidgets.explanations.results.attributions import Attributions

        if self.heads is not None and len(self.heads) > 1:
            heads = spoken_range(self.heads)
            raise ValueError(
                f"this map has heads {heads}: reduce them first, .mean('head'), or .select(head=...) one."
            )
        rows = [vector.read(np.asarray(self.matrix(number), dtype=np.float64)) for number in self.layers]
        several = len(rows) > 1
        common = self._common(vector.step)
        # Vectors are labelled by their layers; their target is that of the map, or of the row.
        about = vector.query if axis_words(self).row == TARGETS.row else self.provenance.get("target", "")
        common["provenance"] = {**common["provenance"], "target": about}
        return Attributions(
            np.stack(rows) if several else rows[0],
            axis=self.key if vector.side == "key" else self.query,
            target=[f"layer {number}" for number in self.layers] if several else None,
            **common,
        )
