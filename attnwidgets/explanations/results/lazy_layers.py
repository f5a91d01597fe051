"""Layers that are computed when first asked for: what a MixingMap is underneath."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._selecting import listed, position, spoken_range
from attnwidgets.explanations.explanation import Explanation
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only, require_finite
from attnwidgets.explanations.results.reductions import Reduction, reduce_first
from attnwidgets.explanations.results.vectors import chosen
from attnwidgets.tracing.row_selection import BLOCK_BYTES, blocks, numbers, positions

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.vectors import Scheme, Vector
    from attnwidgets.tracing.text.units import TokenAxis, Unit

    RowFunction = Callable[[int, Sequence[int] | None, Sequence[int]], Any]
    """Takes a layer's number, numbers of heads (None: all) and of queries; returns [head?, query, key]."""

_LARGE = 2**25  # bytes of a layer that is gone through in blocks rather than kept
_ROWS_SUM_TO_ONE = 1e-2  # bfloat16 rows miss one by a few thousandths


class LazyLayers(Explanation):
    """Layers [head?, query, key] by their original numbers, computed once, safe in threads.

    Attributes:
        query: The axis of the rows.
        key: The axis of the columns.
        layers: Original layer numbers.
        heads: Original head numbers, or None where there is no head axis.
        runs_model: Whether computing a layer runs the model.
        on_demand: Whether a layer runs the model or takes long: a view then computes only what is looked at.
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
        facts = {"causal": causal, "stochastic": stochastic, "signed": signed}
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
        """("layer", "head", "query", "key"), without "head" where there is no head axis."""
        return ("layer", "query", "key") if self.heads is None else ("layer", "head", "query", "key")

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes; no layer is computed for it."""
        heads = () if self.heads is None else (len(self.heads),)
        return (len(self.layers), *heads, len(self.query_unit), len(self.key_unit))

    @property
    def causal(self) -> bool:
        """Whether no query sees a later key."""
        if "causal" not in self._facts:
            n_queries, n_keys = self.shape[-2:]
            square = n_queries == n_keys and n_queries > 1
            # Of nothing but zeros nobody can tell.
            self._facts["causal"] = (
                square
                and not any(np.triu(self.layer(number), 1).any() for number in self.layers)
                and any(self.layer(number).any() for number in self.layers)
            )
        return self._facts["causal"]

    @property
    def stochastic(self) -> bool:
        """Whether values are shares: not negative, and rows sum to one (looked up in one layer)."""
        if "stochastic" not in self._facts:
            first = self.layer((self.computed_layers or self.layers)[0])
            off = np.abs(first.sum(axis=-1, dtype=np.float64) - 1.0)
            self._facts["stochastic"] = bool(
                first.min(initial=0.0) >= 0 and off.max(initial=0.0) <= _ROWS_SUM_TO_ONE
            )
        return self._facts["stochastic"]

    @property
    def signed(self) -> bool:
        """Whether values may be negative: colours then diverge from zero."""
        if "signed" not in self._facts:
            self._facts["signed"] = any(bool((self.layer(number) < 0).any()) for number in self.layers)
        return self._facts["signed"]

    def known(self, fact: str) -> bool | None:
        """Return "causal", "stochastic" or "signed" as far as it is known; no layer is computed for it."""
        return self._facts.get(fact)

    @property
    def computed_layers(self) -> tuple[int, ...]:
        """The layers that can be had at once; of a map that is not `on_demand` these are all."""
        if not self.on_demand:
            return self.layers
        held = {*self._done, *(() if self._base is None else self._base.computed_layers)}
        return tuple(number for number in self.layers if number in held)

    @property
    def held_layers(self) -> tuple[int, ...]:
        """The layers that were computed already, here."""
        return tuple(number for number in self.layers if number in self._done)

    def layer(self, layer: int) -> Array:
        """Return one layer [head?, query, key] (read-only), computed on first use. Safe in threads.

        Raises:
            IndexError: Where this map has no such layer; negative numbers count from the last one.
        """
        number = self.layers[position(layer, self.layers, "layer")]
        found = self._cache.get(number)
        if found is None:
            with self._lock:
                found = self._cache.get(number)
                if found is None:
                    found = self._checked(number, as_floats(self._compute(number), self.dtype))
                    if self._keep:
                        self._cache[number] = found
                    self._done.add(number)
        return found

    @property
    def knows_rows(self) -> bool:
        """Whether some rows of some heads are computed without the rest of their layer: see `rows`."""
        return self._rows is not None

    def rows(
        self, layer: int, heads: Iterable[int] | None = None, queries: Iterable[int] | slice | None = None
    ) -> Array:
        """Return some rows of some heads [head?, query, key] (read-only).

        What `layer(layer)` has there; where `knows_rows` and that layer is not kept, only these rows are
        computed. Any other map computes and keeps the layer.

        Args:
            layer: Original layer number; negative ones count from the last.
            heads: Original head numbers in the order wanted; all by default. Not taken without a head axis.
            queries: Rows in the order wanted, or a slice; all by default.

        Raises:
            IndexError: Where the map has no such layer, head or row.
        """
        number = self.layers[position(layer, self.layers, "layer")]
        rows = positions(queries, self.shape[-2], "query")
        if heads is not None and self.heads is None:
            raise IndexError("heads cannot be chosen: this map has no head axis.")
        known = self.heads or ()
        some = None if heads is None else [position(head, known, "head") for head in heads]
        if self._rows is not None and number not in self._cache:
            wanted = None if some is None else [known[place] for place in some]
            found = as_floats(self._rows(number, wanted, numbers(rows)), self.dtype)
            return self._checked(number, found, len(numbers(rows)))
        whole = self.layer(number)
        if some is not None:
            present = [position(known[place], known[: len(whole)], "head") for place in some]
            whole = whole[present[0] : present[0] + 1] if len(present) == 1 else whole[present]
        return read_only(whole[..., rows, :])

    def blocks(
        self, layer: int, heads: Iterable[int] | None = None, limit: int = BLOCK_BYTES
    ) -> Iterator[tuple[slice, Array]]:
        """Go through a layer in blocks of rows; where `knows_rows`, only one block is in memory at a time.

        Args:
            layer: Original layer number.
            heads: Original head numbers; all by default.
            limit: About how many bytes a block has; none has fewer than 16 rows.

        Yields:
            Which rows, and their values [head?, query, key].

        Raises:
            IndexError: Where the map has no such layer or head.
        """
        some = None if heads is None else list(heads)
        held = self.layer(layer) if some is None and not self._large else None
        for rows in blocks(self.shape[-2], self._row_bytes(some), limit):
            yield rows, self.rows(layer, some, rows) if held is None else held[..., rows, :]

    @property
    def _large(self) -> bool:
        """Whether a layer is better gone through in blocks than computed whole and kept."""
        return self.knows_rows and self.shape[-2] * self._row_bytes() > _LARGE

    def _row_bytes(self, heads: Sequence[int] | None = None) -> int:
        """Return the bytes of one row of some heads, by default of all."""
        count = len((self.heads or (0,)) if heads is None else heads)
        return count * self.shape[-1] * np.dtype(self.dtype).itemsize

    def _over_heads(self, layer: int, how: Reduction, queries: Sequence[int] | None = None) -> Any:
        """Return a layer reduced over heads [query, key], of some rows where they are given."""
        if callable(how) or (queries is None and not self._large):
            return reduce_first(self.layer(layer), how)
        wanted = range(self.shape[-2]) if queries is None else queries
        parts = blocks(len(wanted), self._row_bytes())
        return np.concatenate([reduce_first(self.rows(layer, None, wanted[part]), how) for part in parts])

    def _checked(self, number: int, array: Array, n_queries: int | None = None) -> Array:
        expected = self.shape[1:] if n_queries is None else (*self.shape[1:-2], n_queries, self.shape[-1])
        # Layers may have different numbers of heads (pruned models); the map then counts the largest.
        fits = array.ndim == len(expected) and array.shape[-2:] == expected[-2:]
        if not fits or (self.heads is not None and not 1 <= len(array) <= len(self.heads)):
            raise ValueError(
                f"layer {number} of {self.method!r} has shape {array.shape}, but the labels "
                f"[{', '.join(self.axis_names[1:])}] ask for {expected}."
            )
        require_finite(array, f"layer {number} of {self.method!r}")
        return read_only(array)

    @property
    def values(self) -> Array:
        """All layers [layer, head?, query, key] (read-only); what is lazy is computed.

        Raises:
            ValueError: Where layers have different numbers of heads; take them by `.layer(number)`.
        """
        found: Array | None = vars(self).get("_values")
        if found is None:
            stack = [self.layer(number) for number in self.layers]
            if len({layer.shape for layer in stack}) > 1:
                counts = ", ".join(str(len(layer)) for layer in stack)
                raise ValueError(
                    f"layers have different numbers of heads ({counts}); take each with .layer(number)."
                )
            found = read_only(np.stack(stack))
            with self._lock:  # the layers become views of the stack: one copy in memory
                self._set(_values=found, _cache=dict(zip(self.layers, found, strict=True)))
        return found

    def matrix(
        self, layer: int | None = None, head: int | Literal["mean", "max", "sum"] | None = None
    ) -> Array:
        """Return one matrix [query, key].

        Args:
            layer: Original layer number; may be left out where there is one layer.
            head: Original head number or a reduction over heads; may be left out where there is one head.

        Raises:
            IndexError: Where the map has no such layer or head.
            ValueError: Where there are several to choose from.
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
        """Return the map as one vector a layer: the schemes by which maps are compared with attributions.

        With A [query, key] of n tokens:

            row          A[q, j]: what the chosen query draws from every token
            column_mean  1/n sum_i A[i, j]: how much every token is read, on average (also _sum, _max)
            row_sum      sum_j A[i, j]: how much every token draws in (also _mean, _max); 1 where rows are
                         shares, so that without the diagonal it is what comes from others

        Args:
            how: One of these.
            query: For "row": a number (negative from the end), "cls", "first", "last", or a label.
            diagonal: Whether what a token draws from itself counts. Without it, the row's own entry is zero,
                means are over the other n - 1 tokens, and a single token gives zero; nothing is divided anew.

        Returns:
            Attributions [source] of a map with one layer, else [layer, source] with a target "layer l" for
            each; take one by `.select(layer=-1)` before. Sources are keys, for "row_..." queries. In the unit
            of the map; what is lazy is computed.

        Raises:
            ValueError: For an unknown scheme, a query that is missing, unknown, ambiguous or given to another
                scheme, a map with several heads, or `diagonal=False` of one between two sequences.
            IndexError: Where there is no such query.
        """
        return self._vectors(chosen(self, how, query, diagonal=diagonal))

    def _vectors(self, vector: Vector) -> Attributions:
        """Return one vector a layer, as `vector` reads it."""
        from attnwidgets.explanations.results.attributions import Attributions

        if self.heads is not None and len(self.heads) > 1:
            heads = spoken_range(self.heads)
            raise ValueError(
                f"this map has heads {heads}: reduce them first, .mean('head'), or .select(head=...) one."
            )
        found = [vector.read(np.asarray(self.matrix(number), dtype=np.float64)) for number in self.layers]
        several = len(found) > 1
        return Attributions(
            np.stack(found) if several else found[0],
            axis=self.key if vector.side == "key" else self.query,
            target=[f"layer {number}" for number in self.layers] if several else None,
            **self._common(vector.step),
        )
