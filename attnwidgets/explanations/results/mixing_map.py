"""MixingMap: how much of every key is in every query, layer by layer.

Layers are computed and cached in `lazy_layers.py`, and read in coarser units in `units.py`. `select` and
`reduce` derive lazy maps (`_derive`), which compute their layers from those of this map.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import element, pick, position, spoken, spoken_range
from attnwidgets.explanations.explanation import restore_common
from attnwidgets.explanations.results.arrays import (
    Array,
    Reduction,
    as_floats,
    reduce_first,
    reduced,
    reduction_name,
    require_finite,
)
from attnwidgets.explanations.results.description import describe_axis, restore_axis
from attnwidgets.explanations.results.units import ReadByUnits
from attnwidgets.tracing.text.units import TokenAxis

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from typing_extensions import Self

    from attnwidgets._tables import Columns
    from attnwidgets.explanations.results.attributions import Attributions
    from attnwidgets.explanations.results.lazy_layers import QueryKey, Readable, RowFunction

Index = int | Iterable[int] | slice | None


class MixingMap(ReadByUnits):
    """Matrices [layer, head?, query, key]: rows are queries (being built), columns are keys (drawn from).

    Args:
        values: [layer, head, query, key], [layer, query, key], or a matrix [query, key]; copied.
        query: The axis of the rows, or their labels.
        key: The axis of the columns, or their labels; the queries' by default.
        layers: Original layer numbers; 0, 1, ... by default.
        heads: Original head numbers; 0, 1, ... by default. Ignored without a head axis.
        unit: The unit of both axes.
        causal: Whether no query sees a later key; read from the numbers by default.
        stochastic: Whether rows sum to 1; read from the first layer by default.
        signed: Whether values may be negative; read from the numbers by default (with `lazy`: no).
        method: Name of the method.
        stack, provenance, trace_id, warning, predictions, dtype: See `Explanation`.

    Raises:
        ValueError: If shapes and labels do not agree, or a value is NaN or infinite.
    """

    kind = "MixingMap"
    viewed_by = "best_view:view_of_map"

    def __init__(
        self,
        values: Any,
        *,
        query: TokenAxis | Sequence[str],
        key: TokenAxis | Sequence[str] | None = None,
        layers: Sequence[int] | None = None,
        heads: Sequence[int] | None = None,
        unit: str = "token",
        causal: bool | None = None,
        stochastic: bool | None = None,
        signed: bool | None = None,
        method: str = "given",
        **common: Any,
    ) -> None:
        array = as_floats(values, common.get("dtype"))
        array = np.array(array[None] if array.ndim == len(("query", "key")) else array)
        if array.ndim not in (3, 4):
            raise ValueError(
                f"values has shape {array.shape}; accepted shapes are [layer, head, query, key], [layer, "
                "query, key] and [query, key]."
            )
        require_finite(array, "values")
        numbers = tuple(range(len(array)) if layers is None else layers)
        if len(numbers) != len(array):
            raise ValueError(
                f"layers names {len(numbers)} layers, values has {len(array)} (shape {array.shape})."
            )
        if heads is None and array.ndim == len(("layer", "head", "query", "key")):
            heads = range(array.shape[1])
        query = query if isinstance(query, TokenAxis) else TokenAxis.plain(query, name=unit)
        if key is not None and not isinstance(key, TokenAxis):
            key = TokenAxis.plain(key, name=unit)
        self._setup(
            dict(zip(numbers, array, strict=True)).__getitem__,
            query=query,
            key=key,
            layers=numbers,
            heads=heads,
            causal=causal,
            stochastic=stochastic,
            signed=bool((array < 0).any()) if signed is None else signed,
            keep=True,
            unit=unit,
            method=method,
            **(common | {"dtype": array.dtype.name}),
        )
        for number in numbers:
            self.layer(number)

    @classmethod
    def lazy(
        cls,
        layer_fn: Callable[[int], Any],
        *,
        query: TokenAxis,
        key: TokenAxis | None = None,
        layers: Sequence[int],
        heads: Sequence[int] | None = None,
        unit: str = "token",
        causal: bool | None = None,
        stochastic: bool | None = None,
        signed: bool | None = False,
        keep: bool = True,
        runs_model: bool = False,
        on_demand: bool = False,
        row_fn: RowFunction | None = None,
        sink: bool = False,
        readable: Readable | None = None,
        query_key: QueryKey | None = None,
        method: str,
        **common: Any,
    ) -> Self:
        """Return a map whose layers are computed on first use.

        Args:
            layer_fn: Takes an original layer number, returns [head, query, key] (or [query, key] if `heads`
                is None) as numpy or torch. Called once per layer and never twice at a time.
            query: The axis of the rows.
            key: The axis of the columns; the queries' by default.
            layers: Original layer numbers.
            heads: Original head numbers, or None without a head axis.
            unit: The unit of both axes.
            causal: Whether no query sees a later key; None: read from the numbers on first use.
            stochastic: Whether rows sum to 1; None: read from the first layer on first use.
            signed: Whether values may be negative; None: read from the numbers on first use.
            keep: Whether to keep computed layers; False if `layer_fn` keeps them itself.
            runs_model: Whether `layer_fn` runs the model; maps derived from it then do as well.
            on_demand: Whether `layer_fn` takes long without running the model.
            row_fn: If rows can be computed alone: takes an original layer number, original head numbers
                (None: all) and numbers of queries, returns their [head, query, key].
            sink: Whether values are shares of a row whose rest (1 less their sum) goes to no element.
            readable: Takes an original layer number, returns which keys each query may read [query, key], or
                None.
            query_key: Takes an original layer number, returns queries and keys [head, token, dim] whose
                products are the scores of its softmax, or None.
            method: Name of the method.
            **common: stack, provenance, trace_id, warning, predictions, dtype: see `Explanation`.
        """
        self = cls.__new__(cls)
        self._setup(
            layer_fn,
            query=query,
            key=key,
            layers=layers,
            heads=heads,
            causal=causal,
            stochastic=stochastic,
            signed=signed,
            keep=keep,
            runs_model=runs_model,
            on_demand=on_demand,
            rows=row_fn,
            unit=unit,
            sink=sink,
            readable=readable,
            query_key=query_key,
            method=method,
            **common,
        )
        return self

    def _derive(
        self,
        compute: Callable[[int], Any],
        step: str,
        *,
        rows: RowFunction | None = None,
        by_layer: bool = True,
        **changes: Any,
    ) -> MixingMap:
        access = {"row_fn": rows if self.knows_rows else None, "base": self if by_layer else None}
        return MixingMap.lazy(compute, **(self.arguments() | access | self._common(step) | changes))

    @property
    def map(self) -> MixingMap:
        """This map, as Attributions have the map they were computed with under `.map`."""
        return self

    @property
    def note(self) -> str:
        """Operations on the method's numbers, and the share of the first element in the computed layers."""
        return "; ".join([*self.steps, *self._taken()])

    def _taken(self) -> list[str]:
        from attnwidgets.explanations.mixing.discarding import taken_by_first

        return list(filter(None, [taken_by_first(self)]))

    def _remarks(self) -> list[str]:
        return [*self._taken(), *super()._remarks()]

    def select(self, layer: Index = None, head: Index = None) -> MixingMap:
        """Return a map of some layers and heads, with all axes: `.select(layer=3)` has one layer.

        Args:
            layer: An original layer number, several, or a slice; negative numbers count from the last.
            head: The same for heads.

        Raises:
            IndexError: If the layer or head is out of range.
        """
        layers = self.layers if layer is None else pick(layer, self.layers, "layer")
        if head is None:
            return self._derive(self.layer, "", rows=self.rows, layers=layers, keep=False)
        if self.heads is None:
            raise IndexError("head cannot be selected: this map has no head axis.")
        heads = pick(head, self.heads, "head")
        all_heads = self.heads

        def some_heads(number: int) -> Array:
            layer = self.layer(number)
            return layer[[position(head, all_heads[: len(layer)], "head") for head in heads]]

        def rows(number: int, some: Sequence[int] | None, queries: Sequence[int]) -> Array:
            return self.rows(number, heads if some is None else some, queries)

        return self._derive(some_heads, "", rows=rows, layers=layers, heads=heads, keep=False)

    @overload
    def reduce(self, axis: Literal["head", "layer"], how: Reduction) -> MixingMap: ...

    @overload
    def reduce(
        self, axis: Literal["query", "key"], how: Reduction, *, diagonal: bool = True
    ) -> Attributions: ...

    def reduce(self, axis: str, how: Reduction, *, diagonal: bool = True) -> MixingMap | Attributions:
        """Return the map reduced over an axis: a map over heads or layers, a vector over queries or keys.

        Reducing heads removes the head axis; reducing layers leaves a single layer, under the last number.
        Reducing queries leaves a value for every key, reducing keys a value for every query, in each layer.

        Args:
            axis: "head", "layer", "query" or "key".
            how: "mean", "max", "sum", or a function of [reduced, ..., query, key] (float64; of [reduced,
                remaining] over queries or keys) that removes the first axis.
            diagonal: Over queries or keys, whether to count the share that a token draws from itself.

        Raises:
            ValueError: If the axis or the reduction is unknown, the map has no heads, or several heads would
                have to become a vector.
        """
        if axis in ("query", "key"):
            return self._vectors(reduced(self, "query" if axis == "query" else "key", how, diagonal=diagonal))
        if not diagonal:
            raise ValueError(f"diagonal=False is for 'query' and 'key', not {axis!r}.")
        name = reduction_name(how)
        step = f"{name} over {axis}s"
        stochastic = self.known("stochastic") if how == "mean" else None
        sink = self.sink and how == "mean"
        if axis == "head":
            if self.heads is None:
                raise ValueError("this map has no head axis to reduce.")
            return self._derive(
                lambda number: self._require_matrix(self._over_heads(number, how), name),
                step,
                # A function may need more rows than those requested.
                rows=None if callable(how) else lambda number, _, some: self._over_heads(number, how, some),
                heads=None,
                stochastic=stochastic,
                sink=sink,
                signed=None if callable(how) else self.known("signed"),
            )
        require_choice("axis", axis, ("head", "layer", "query", "key"))
        return self._derive(
            lambda _: reduce_first(self.values, how),
            f"{step} {spoken_range(self.layers)}",
            by_layer=False,
            layers=self.layers[-1:],
            readable=None,
            stochastic=stochastic,
            sink=sink,
            signed=None if callable(how) else self.known("signed"),
        )

    def _require_matrix(self, array: Any, name: str) -> Any:
        if np.shape(array) != self.shape[-2:]:
            raise ValueError(
                f"the head reduction {name} returned shape {np.shape(array)}, not [query, key] "
                f"{self.shape[-2:]}."
            )
        return array

    def mean(self, axis: Literal["head", "layer"] = "head") -> MixingMap:
        """Return the mean over heads or layers; rows that sum to 1 still do."""
        return self.reduce(axis, "mean")

    def max(self, axis: Literal["head", "layer"] = "head") -> MixingMap:
        """Return the largest value over heads or layers."""
        return self.reduce(axis, "max")

    def sum(self, axis: Literal["head", "layer"] = "head") -> MixingMap:
        """Return the sum over heads or layers."""
        return self.reduce(axis, "sum")

    def value(
        self,
        query: int | str,
        key: int | str,
        *,
        layer: int | None = None,
        head: int | Literal["mean", "max"] | None = None,
        unit: str | None = None,
        special: Literal["show", "renormalise"] = "show",
    ) -> float:
        """Return the number that a view shows for a cell.

        If `knows_rows`, only the cell's row is computed.

        Args:
            query: Number of the row, from 0, counted in `unit`; negative numbers count from the last. Or its
                label, if it occurs once, or "first", "last" or "cls".
            key: Number of the column, likewise.
            layer: Original layer number (negative: from the last); optional if there is a single layer.
            head: Original head number, or "mean" or "max" over the heads of the layer; optional if there is a
                single head, or no head axis.
            unit: Unit of the elements, see `to`; None: the map's unit.
            special: "renormalise" divides by the row's absolute sum without special tokens, as views do
                with `hide_special="renormalise"`.

        Raises:
            IndexError: If the layer, head, query or key is out of range.
            ValueError: If a layer or head must be named, the unit is unknown, or no element or several have a
                label (the message names their positions).

        Example:
            >>> attention = aw.attention(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> attention.value(2, 1, layer=0, head=3) == attention.layer(0)[3, 2, 1].item()
            True
            >>> attention.value("cat", "the", layer=0, head=3) == attention.value(2, 1, layer=0, head=3)
            True
        """
        require_choice("special", special, ("show", "renormalise"))
        shown = self if unit is None else self.to(unit)
        if layer is None and len(self.layers) > 1:
            raise ValueError(f"layer is missing: there {spoken(self.layers, 'layer')}.")
        number = self.layers[0 if layer is None else position(layer, self.layers, "layer")]
        row = [element(query, shown.query_labels, "query")]
        index = element(key, shown.key_labels, "key")
        if self.heads is None:
            if head is not None and not isinstance(head, str):
                raise IndexError(f"head={head} cannot be chosen: this map has no head axis.")
            values = shown.rows(number, None, row)[0]
        elif isinstance(head, str):
            require_choice("head", head, ("mean", "max"))
            rows = shown.rows(number, None, row)
            values = (rows.mean(axis=0) if head == "mean" else rows.max(axis=0))[0]
        elif head is None and len(self.heads) > 1:
            raise ValueError(f"head is missing: there {spoken(self.heads, 'head')}; or give 'mean' or 'max'.")
        else:
            values = shown.rows(number, [self.heads[0] if head is None else head], row)[0, 0]
        if special == "show":
            return float(values[index])
        content = ~np.asarray(shown.key_unit.special, dtype=bool)
        return float(values[index] / np.abs(values[content]).sum(dtype=np.float64))

    def figure(
        self,
        layer: int | None = None,
        head: int | Literal["mean", "max", "sum"] | None = None,
        query: int | None = None,
        *,
        ax: Axes | None = None,
        title: str | None = None,
        cmap: str | Colormap | None = None,
        vmin: float | None = None,
        vmax: float | None = None,
    ) -> Figure:
        """Return a matplotlib figure: a heatmap of a matrix, a grid of several, or a row as a strip.

        Args:
            layer: Original layer number. Without a head axis, the last layer by default, else all.
            head: Original head number, or a reduction over heads; all by default.
            query: Number of the row to show as a strip.
            ax: Axes to draw a heatmap or strip into, instead of a new figure.
            title: Heading; by default the method and the operations on its numbers.
            cmap: Colour map; by default paper to ink; for signed values orange (for) and violet (against).
            vmin: Value of the first colour; by default zero, or -vmax for signed values.
            vmax: Value of the last colour; by default the largest.

        Raises:
            IndexError: If the layer, head or query is out of range.
        """
        from attnwidgets.explanations.results.pictures import plot_map

        return plot_map(self, layer, head, query, ax=ax, title=title, cmap=cmap, vmin=vmin, vmax=vmax)

    def _columns(self) -> Iterator[Columns]:
        """Yield layer, head (if any), query_index, query, key_index, key, value: a part for every layer.

        Where a layer does not compare queries with all keys, or all but later keys, there is a column
        `compared` as well: if it is False, the value of 0 is not a weight.
        """
        query, key = (np.asarray(names, dtype=object) for names in (self.query_labels, self.key_labels))
        tells = any(self.compared(number) is not None for number in self.layers)
        for number in self.layers:
            values = self.layer(number)
            index = np.indices(values.shape).reshape(values.ndim, -1)
            columns: dict[str, Any] = {"layer": np.full(values.size, number)}
            if self.heads is not None:
                columns["head"] = np.asarray(self.heads)[index[0]]
            columns |= {"query_index": index[-2], "query": query[index[-2]]}
            columns |= {"key_index": index[-1], "key": key[index[-1]], "value": values.reshape(-1)}
            if tells:
                allowed = self.readable(number)
                columns["compared"] = np.broadcast_to(
                    True if allowed is None else allowed, values.shape
                ).reshape(-1)
            yield columns

    def to_bertviz(self, view: Literal["head", "model"] = "head", *, force: bool = False) -> dict[str, Any]:
        """Return the arguments of bertviz' views: `head_view(**m.to_bertviz())`; refuses large maps.

        Args:
            view: bertviz' view: "head" or "model".
            force: Whether to return more than bertviz can show in reasonable time.

        See `attnwidgets.explanations.results.bertviz.to_bertviz` for the returned arguments and the errors.
        """
        from attnwidgets.explanations.results.bertviz import to_bertviz

        return to_bertviz(self, view, force=force)

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and an array per layer; lazy layers are computed."""
        described = self._describe_common() | {
            "layers": list(self.layers),
            "heads": None if self.heads is None else list(self.heads),
            "query": describe_axis(self.query),
            "key": None if self.key is self.query else describe_axis(self.key),
            "causal": self.causal,
            "stochastic": self.stochastic,
            "signed": self.signed,
            "sink": self.sink,
        }
        return described, {f"layer.{number}": self.layer(number) for number in self.layers}

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the map that `to_description` described."""
        names = ("layers", "heads", "causal", "stochastic", "signed")
        self = cls.lazy(
            lambda number: arrays[f"layer.{number}"],
            query=restore_axis(described["query"]),
            key=None if described["key"] is None else restore_axis(described["key"]),
            **{name: described[name] for name in names},
            sink=described.get("sink", False),  # files of earlier versions have none
            **restore_common(described),
        )
        for number in self.layers:
            self.layer(number)
        return self
