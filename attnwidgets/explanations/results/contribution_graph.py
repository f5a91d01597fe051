"""ContributionGraph: of what every state of a stack is made, head by head, and routes to a token."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._selecting import position
from attnwidgets.explanations.mixing.routes import Routes, Sums, find_routes
from attnwidgets.explanations.results.aggregation import mean_groups, regroup, token_counts
from attnwidgets.explanations.results.arrays import Array, as_floats, read_only, require_finite
from attnwidgets.explanations.results.mixing_map import Index, MixingMap

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from typing_extensions import Self

    from attnwidgets.explanations.results.map_units import Given

_SIDES = ("residual", "mlp", "mlp_residual")


class ContributionGraph(MixingMap):
    """A map of every head's reading of every token, with the other parts of the same sums.

    The state of a token after attention is made of what heads read (this map) and of the residual connection
    (`residual`): a row summed over heads and keys, and its residual, are one. The state after the
    feed-forward layer is made of that layer (`mlp`) and of what it is added to (`mlp_residual`): they are
    one, too.

    Args:
        values: [layer, head, query, key]; copied.
        residual, mlp, mlp_residual: [layer, query]; copied.
        parallel: Whether the feed-forward layer reads a block's input beside attention (GPT-NeoX) rather than
            what comes of it.
        **common: see `MixingMap`; both axes are the same tokens.

    Raises:
        ValueError: Where shapes and labels do not agree, or a value is NaN or infinite.
    """

    kind = "ContributionGraph"
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
        super().__init__(values, stochastic=False, signed=False, **common)
        n_layers, n_queries = self.shape[0], self.shape[-2]
        if self.heads is None:
            raise ValueError(f"values has shape {self.shape}; a graph takes [layer, head, query, key].")
        found = {}
        for name, given in zip(_SIDES, (residual, mlp, mlp_residual), strict=True):
            found[name] = np.array(as_floats(given, self.dtype))
            if found[name].shape != (n_layers, n_queries):
                raise ValueError(
                    f"{name} has shape {found[name].shape}; one number is taken for every layer and query, "
                    f"{(n_layers, n_queries)}."
                )
            require_finite(found[name], name)
        stacked = np.stack([found[name] for name in _SIDES], axis=1)
        self._set(
            _others={number: read_only(rows) for number, rows in zip(self.layers, stacked, strict=True)},
            _order={"parallel": parallel},
        )

    @classmethod
    def lazy(cls, layer_fn: Callable[[int], Any], **options: Any) -> Self:
        """Return a graph whose layers are computed when first asked for.

        Args:
            layer_fn: Takes an original layer number, returns something with `attention` [head, query, key],
                `residual`, `mlp` and `mlp_residual` [query], and `parallel`.
            **options: see `MixingMap.lazy`.
        """
        others: dict[int, Array] = {}
        order: dict[str, bool] = {}

        def attention(number: int) -> Any:
            found = layer_fn(number)
            others[number] = read_only(
                np.stack([as_floats(getattr(found, name), self.dtype) for name in _SIDES])
            )
            order["parallel"] = bool(found.parallel)
            return found.attention

        self = super().lazy(attention, **({"stochastic": False} | options))
        self._set(_others=others, _order=order)
        return self

    def _side(self, name: str) -> Array:
        return read_only(np.stack([self.others(number)[_SIDES.index(name)] for number in self.layers]))

    def others(self, layer: int) -> Array:
        """Return the residual, the feed-forward layer and its residual of one layer [3, query]."""
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
        """Shares of what the feed-forward layers are added to [layer, query]."""
        return self._side("mlp_residual")

    @property
    def parallel(self) -> bool:
        """Whether feed-forward layers read their block's input beside attention."""
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
        """Return the edges above a threshold over which something reaches a token.

        Followed from the token's last state downwards: the information flow routes to its prediction.

        Args:
            target: The token, by its place in this graph's unit (negative: from the end) or its label where
                only one has it; by default the last one, which predicts the next.
            threshold: Edges count that are above it, 0 to 1.
            renormalize: Whether the threshold is taken to single parts (a head's reading of a token), what is
                left of every sum is made to sum to one, and every edge that is left counts; so does the
                authors' tool unless told otherwise. Without it the threshold is taken to edges.
            per_head: Whether every head has an edge of its own; else heads are summed, as by the authors.
            layer: From whose output to follow; the last one by default.

        Returns:
            Routes, with `nodes` (states of tokens), `edges`, and `.to_dataframe()` with one edge a row.

        Raises:
            IndexError: Where there is no such token or layer.
            ValueError: Where the label is several tokens', the threshold is no share, layers have gaps, or
                keys are not the queries.
        """
        n_queries, n_keys = self.shape[-2:]
        if n_queries != n_keys:
            raise ValueError(f"routes follow tokens, and there are {n_keys} keys for {n_queries} of them.")
        if not 0 <= threshold < 1:
            raise ValueError(f"threshold is a share from 0 up to, not with, 1; not {threshold}.")
        last = self.layers[-1 if layer is None else position(layer, self.layers, "layer")]
        followed = self.layers[: self.layers.index(last) + 1]
        if list(followed) != list(range(followed[0], last + 1)):
            raise ValueError(f"routes need consecutive layers, not {', '.join(map(str, followed))}.")
        return find_routes(
            [(number, self._sums(number)) for number in followed],
            self._token(target),
            labels=self.query_labels,
            threshold=threshold,
            renormalize=renormalize,
            per_head=per_head,
            parallel=self.parallel,
        )

    def _sums(self, number: int) -> Sums:
        rows = self.others(number).astype(np.float64)
        return Sums(self.layer(number).astype(np.float64), *rows)

    def _token(self, target: int | str | None) -> int:
        labels = self.query_labels
        if not isinstance(target, str):
            return position(-1 if target is None else target, range(len(labels)), self.unit)
        places = [place for place, label in enumerate(labels) if label == target]
        places = places or [place for place, label in enumerate(labels) if label.strip() == target.strip()]
        if len(places) != 1:
            found = f"is {len(places)} {self.unit}s ({', '.join(map(str, places))})" if places else "is none"
            raise ValueError(
                f"target {target!r} {found} of this graph; name it by its place, 0 to {len(labels) - 1}."
            )
        return places[0]

    def to(self, unit: str | Given | tuple[Given, Given]) -> MixingMap:
        """Return the graph in a coarser unit: sum over the pieces of a key, mean over those of a query.

        Raises:
            ValueError: see `MixingMap.to`.
        """
        found = super().to(unit)
        if found is self or found.heads is None:
            return found
        groups = regroup(self.query_unit, found.query_unit)
        weights = token_counts(self.query_unit)
        if groups is None:  # unreachable where the map could be aggregated; what is left is still a map
            return found
        return self._around(found, lambda rows: mean_groups(rows, groups, weights))

    def select(self, layer: Index = None, head: Index = None) -> MixingMap:
        """Return some layers, as a graph, or some heads, as a map.

        Raises:
            IndexError: see `MixingMap.select`.
        """
        found = super().select(layer, head)
        return found if head is not None else self._around(found, lambda rows: rows)

    def _around(self, found: MixingMap, change: Callable[[Any], Any]) -> ContributionGraph:
        """Return a graph of a map that was derived from this one's, and of the other parts."""

        def measure(number: int) -> _Shares:
            return _Shares(found.layer(number), change(self.others(number)), parallel=self.parallel)

        return ContributionGraph.lazy(
            measure,
            query=found.query,
            key=found.key,
            layers=found.layers,
            heads=found.heads,
            causal=found.known("causal"),
            runs_model=found.runs_model,
            **found._common(),  # noqa: SLF001 - of one's own class
        )

    def to_description(self) -> tuple[dict[str, Any], dict[str, Array]]:
        """Return a JSON-able description and the arrays: a layer of the map and its other parts."""
        described, arrays = super().to_description()
        others = {f"others.{number}": np.asarray(self.others(number)) for number in self.layers}
        return described | {"parallel": self.parallel}, arrays | others

    @classmethod
    def from_description(cls, described: Mapping[str, Any], arrays: Mapping[str, Array]) -> Self:
        """Return the graph that `to_description` described."""
        found = MixingMap.from_description(described, arrays)
        layers = found.layers
        sides = np.stack([arrays[f"others.{number}"] for number in layers], axis=1)
        return cls(
            found.values,
            **dict(zip(_SIDES, sides, strict=True)),
            parallel=bool(described["parallel"]),
            query=found.query,
            key=None if found.key is found.query else found.key,
            layers=layers,
            heads=found.heads,
            causal=found.causal,
            **found._common(),  # noqa: SLF001 - of one's own class
        )


class _Shares:
    """One layer's parts, as `ContributionGraph.lazy` reads them."""

    def __init__(self, attention: Any, rows: Any, *, parallel: bool) -> None:
        self.attention = attention
        self.residual, self.mlp, self.mlp_residual = rows
        self.parallel = parallel
