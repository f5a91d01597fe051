"""ContributionGraph: the parts of every state of a stack, head by head, and the routes to a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import element, position
from attnwidgets.explanations.mixing.routes import Routes, Sums, find_routes
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only, require_finite
from attnwidgets.explanations.results.mixing_map import Index, MixingMap
from attnwidgets.explanations.results.units import mean_groups, regroup, token_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from attnwidgets.explanations.results.units import Given

_SIDES = ("residual", "mlp", "mlp_residual")


class ContributionGraph(MixingMap):
    """A map of every head's reading of every token, with the other parts of the same sums.

    The state of a token after attention consists of the heads' reading (this map) and the residual connection
    (`residual`): a row summed over heads and keys, plus its residual, is 1. The state after the
    feed-forward layer consists of that layer (`mlp`) and of the state before it (`mlp_residual`): they sum to
    1, too.

    Args:
        values: [layer, head, query, key]; copied.
        residual, mlp, mlp_residual: [layer, query]; copied.
        parallel: Whether the feed-forward layer reads a block's input, as attention does (GPT-NeoX), rather
            than attention's output.
        **common: See `MixingMap`; both axes are the same tokens.

    Raises:
        ValueError: If shapes and labels do not agree, or a value is NaN or infinite.
    """

    kind = "ContributionGraph"
    viewed_by = "maps.heatmap:Heatmap"
    _others: dict[int, Array]
    _order: dict[str, bool]

    def __init__(
        self,
        values: Any,
        *,
        residual: Any,
        mlp: Any,
        mlp_residual: Any,
        parallel: bool = False,
        **common: Any,
    ) -> None:
        super().__init__(values, **({"stochastic": False, "signed": False} | common))
        n_layers, n_queries = self.shape[0], self.shape[-2]
        if self.heads is None:
            raise ValueError(f"values has shape {self.shape}; a graph needs [layer, head, query, key].")
        sides = []
        for name, shares in zip(_SIDES, (residual, mlp, mlp_residual), strict=True):
            array = as_floats(shares, self.dtype)
            if array.shape != (n_layers, n_queries):
                raise ValueError(
                    f"{name} has shape {array.shape}, and needs one number for every layer and query, "
                    f"{(n_layers, n_queries)}."
                )
            require_finite(array, name)
            sides.append(array)
        stacked = np.stack(sides, axis=1)
        self._set(
            _others={number: read_only(rows) for number, rows in zip(self.layers, stacked, strict=True)},
            _order={"parallel": parallel},
        )

    @classmethod
    def lazy(cls, layer_fn: Callable[[int], Any], **options: Any) -> Self:
        """Return a graph whose layers are computed on first use.

        Args:
            layer_fn: Takes an original layer number, returns an object with `attention` [head, query, key],
                `residual`, `mlp` and `mlp_residual` [query], and `parallel`.
            **options: See `MixingMap.lazy`.
        """
        others: dict[int, Array] = {}
        order: dict[str, bool] = {}

        def attention(number: int) -> Any:
            layer = layer_fn(number)
            rows = np.stack([as_floats(getattr(layer, name), self.dtype) for name in _SIDES])
            others[number] = read_only(rows)
            order["parallel"] = bool(layer.parallel)
            return layer.attention

        self = super().lazy(attention, **({"stochastic": False} | options))
        self._set(_others=others, _order=order)
        return self

    def _side(self, name: str) -> Array:
        return read_only(np.stack([self.others(number)[_SIDES.index(name)] for number in self.layers]))

    def others(self, layer: int) -> Array:
        """Return the residual, the feed-forward layer and its residual of a layer [3, query]."""
        number = self.layers[position(layer, self.layers, "layer")]
        self.layer(number)
        return self._others[number]

    @property
    def residual(self) -> Array:
        """Shares of the residual connection in the states after attention [layer, query]."""
        return self._side("residual")

    @property
    def mlp(self) -> Array:
        """Shares of the feed-forward layers in their blocks' outputs [layer, query]."""
        return self._side("mlp")

    @property
    def mlp_residual(self) -> Array:
        """Shares of the states that the feed-forward layers are added to [layer, query]."""
        return self._side("mlp_residual")

    @property
    def parallel(self) -> bool:
        """Whether feed-forward layers read their block's input, parallel to attention."""
        if "parallel" not in self._order:
            self.layer(self.layers[0])
        return self._order["parallel"]

    def routes(
        self,
        target: int | str | None = None,
        threshold: float = 0.04,
        *,
        renormalize: bool = True,
        per_head: bool = False,
        layer: int | None = None,
    ) -> Routes:
        """Return the edges above a threshold that lead to a token.

        Followed from the token's last state downwards: the information flow routes to its prediction.

        Args:
            target: The token, by its position in this graph's unit (negative: from the end) or its label if
                it occurs once, or "first" or "cls"; by default the last token, which predicts the next.
            threshold: Smallest share of an edge, 0 to 1.
            renormalize: Whether the threshold applies to single parts (a head's reading of a token), the rest
                of every sum is scaled to 1, and every remaining edge counts; the default of the authors'
                tool. Otherwise the threshold applies to edges.
            per_head: Whether every head has a separate edge; else heads are summed, as the authors do.
            layer: Layer from whose output to follow; the last by default.

        Returns:
            Routes, with `nodes` (states of tokens), `edges`, and `.to_dataframe()` with an edge in every row.

        Raises:
            IndexError: If the token or layer is out of range.
            ValueError: If several tokens have the label, the threshold is not a share, layers have gaps, or
                keys are not the queries.
        """
        n_queries, n_keys = self.shape[-2:]
        if n_queries != n_keys:
            raise ValueError(f"routes need the same queries and keys, not {n_queries} and {n_keys}.")
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold must be a share, 0 <= threshold < 1, not {threshold}.")
        last = self.layers[-1 if layer is None else position(layer, self.layers, "layer")]
        followed = self.layers[: self.layers.index(last) + 1]
        if list(followed) != list(range(followed[0], last + 1)):
            raise ValueError(f"routes need consecutive layers, not {', '.join(map(str, followed))}.")
        return find_routes(
            [(number, self._sums(number)) for number in followed],
            element(-1 if target is None else target, self.query_labels, self.unit),
            labels=self.query_labels,
            threshold=threshold,
            renormalize=renormalize,
            per_head=per_head,
            parallel=self.parallel,
        )

    def _sums(self, number: int) -> Sums:
        rows = self.others(number).astype(np.float64)
        return Sums(self.layer(number).astype(np.float64), *rows)

    def to(self, unit: str | Given | tuple[Given, Given]) -> MixingMap:
        """Return the graph in a coarser unit: sum over the pieces of a key, mean over those of a query.

        Raises:
            ValueError: See `MixingMap.to`.
        """
        coarser = super().to(unit)
        groups = regroup(self.query_unit, coarser.query_unit)
        if coarser is self or coarser.heads is None or groups is None:
            return coarser
        weights = token_counts(self.query_unit)
        return self._around(coarser, lambda rows: mean_groups(rows, groups, weights))

    def select(self, layer: Index = None, head: Index = None) -> MixingMap:
        """Return some layers, as a graph, or some heads, as a map.

        Raises:
            IndexError: See `MixingMap.select`.
        """
        selected = super().select(layer, head)
        return selected if head is not None else self._around(selected, lambda rows: rows)

    def _around(self, derived: MixingMap, change: Callable[[Any], Any]) -> ContributionGraph:
        """Return a graph of a map derived from this graph, with the other parts changed in the same way."""

        def measure(number: int) -> _Shares:
            return _Shares(derived.layer(number), change(self.others(number)), parallel=self.parallel)

        arguments = derived.arguments() | derived._common()  # noqa: SLF001 - the same class
        return ContributionGraph.lazy(measure, **arguments)

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays: every layer of the map and its other parts."""
        described, arrays = super().to_description()
        others = {f"others.{number}": np.asarray(self.others(number)) for number in self.layers}
        return described | {"parallel": self.parallel}, arrays | others

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the graph that `to_description` described."""
        attention = MixingMap.from_description(described, arrays)
        sides = np.stack([arrays[f"others.{number}"] for number in attention.layers], axis=1)
        return cls(
            attention.values,
            **dict(zip(_SIDES, sides, strict=True)),
            parallel=bool(described["parallel"]),
            query=attention.query,
            key=None if attention.key is attention.query else attention.key,
            layers=attention.layers,
            heads=attention.heads,
            causal=attention.causal,
            **attention._common(),  # noqa: SLF001 - the same class
        )


class _Shares:
    """The parts of a layer, as `ContributionGraph.lazy` reads them."""

    def __init__(self, attention: Any, rows: Any, *, parallel: bool) -> None:
        self.attention = attention
        self.residual, self.mlp, self.mlp_residual = rows
        self.parallel = parallel
