"""The view of where tokens come from, as a graph of tokens by layers, in shares."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets._selecting import position
from attnwidgets.explanations.mixing.layer_product import (
    DEFAULT_WEIGHT,
    mix_residual,
    require_share,
    shares,
    source_map,
)
from attnwidgets.explanations.results.contribution_graph import ContributionGraph
from attnwidgets.explanations.results.mixing_map import MixingMap
from attnwidgets.views.base.expressions import listed
from attnwidgets.views.base.needs import Needs
from attnwidgets.views.base.view import View

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray
    from typing_extensions import Unpack

    from attnwidgets.figures.sheet import Sheet
    from attnwidgets.figures.theme import Theme
    from attnwidgets.views.base.expressions import Kinds, Path
    from attnwidgets.views.base.options import ViewOptions

    Float = NDArray[np.float64]

CUMULATIVE = ("rollout", "attention_flow", "hidden_token_attribution", "globenc_rollout")
"""Methods whose maps are cumulative: they reach down to the input."""

MOST = 1_448
"""Elements up to which a browser gets every value (`reader.TILE_VALUES`), since each edge needs a value."""


class FlowView(View):
    """Where tokens come from, layer by layer: a graph of tokens by layers, the input at the bottom.

    A token is followed down to the input: the token under the pointer, the pinned token, or at first the last
    that is not special. An edge leads from a token after a layer down to a token it is made of; its
    width is the share of the followed token that it carries. Edges above a share are drawn, at most a
    thousand; a line tells how much of the mass they carry. Bars show the share of every input token: the same
    numbers as `aw.rollout` of the map. Special tokens, and edges to them, are grey. Of a long text a part is
    in sight, around the followed token, and the share of the rest is reported.

    All layers are computed when the view is created.

    Args:
        shown: A trace (then: its attention), a MixingMap of a stack that attends to itself (heads are
            averaged), or a ContributionGraph (its heads, residuals and feed-forward layers are added up).
            A map that is cumulative already, such as a rollout, is refused: give the map that it is of.
        residual_weight: Share of the residual connection that is mixed in, as in `aw.rollout`; None: 0.5
            for attention, nothing for measures that hold it already (value zeroing, norms, ALTI).

    Raises:
        ValueError: The map is cumulative, signed, between two sequences, or its layers have gaps.
    """

    _VIEW = "FlowView"
    _HEIGHT = 500
    NEEDS = Needs(("flow",))

    def __init__(
        self, shown: Any, *, residual_weight: float | None = None, **options: Unpack[ViewOptions]
    ) -> None:
        super().__init__(flow_steps(shown, residual_weight), **options)

    def share(self, query: int, key: int, *, layer: int | None = None, unit: str | None = None) -> float:
        """Return the share of an input token in a token after a layer, 0 to 1: a bar of the view.

        Args:
            query: Number of the token that is followed, counted in `unit`.
            key: Number of the input token.
            layer: Number of the layer; None: the last.
            unit: Unit of the elements; None: the view's unit.

        Raises:
            ValueError: The unit is not available.
            IndexError: The layer or token is out of range.

        Example:
            >>> view = aw.FlowView(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
            >>> round(sum(view.share(2, key) for key in range(6)), 6)
            1.0
        """
        steps = self.content.main.to(unit) if unit else self.content.main
        last = position(-1 if layer is None else layer, steps.layers, "layer")
        count = steps.shape[-1]
        query_index, key_index = (position(index, range(count), steps.unit) for index in (query, key))
        mass = np.eye(count)[query_index]
        for number in reversed(steps.layers[: last + 1]):
            mass = mass @ shares(np.asarray(steps.matrix(number), dtype=np.float64))
        return float(mass[key_index])

    def _numbers(self) -> Kinds:
        return super()._numbers() | {"share": self._share_paths}

    def _share_paths(self, query: int, key: int, layer: int, unit: str) -> Iterator[Path]:
        named = {"layer": layer, "unit": None if unit == self.content.main.unit else unit}
        yield self, f".share({listed(query, key, **named)})"

    def describe(self) -> str:
        """Return in a sentence where the followed token comes from, and how much the drawn edges carry."""
        from attnwidgets.views.still.comparisons import words_of_flow

        return words_of_flow(self.presentation)

    def _still(self, theme: Theme) -> Sheet:
        from attnwidgets.views.still.comparisons import flow_sheet

        return flow_sheet(self.presentation, theme)


def flow_steps(shown: Any, residual_weight: float | None = None) -> MixingMap:
    """Return the parts of every token in every layer [layer, query, key], in shares of the layer's input.

    Args:
        shown: A trace (then: its attention), a map of a stack that attends to itself (heads are averaged), or
            a ContributionGraph: its parts are added, and the residual connections around attention and the
            feed-forward layer are on the diagonal.
        residual_weight: Share of the residual connection that is mixed in, as in `aw.rollout`; None: 0.5
            for attention, 0 for measures that include it.

    Raises:
        ValueError: The map is cumulative, signed, between two sequences, has more than `MOST` elements, or
            its layers have gaps.
    """
    source = source_map(shown, "FlowView", None, partial=True)  # its warning is shown
    if source.method in CUMULATIVE:
        raise ValueError(
            f"FlowView follows the layers itself, but {source.method!r} is already cumulative: give the map "
            "it was computed from, such as aw.attention(trace)."
        )
    if len(source.key_labels) > MOST:
        raise ValueError(
            f"FlowView draws up to {MOST:,} elements, and this map has {len(source.key_labels):,}: give it "
            "in a coarser unit, such as aw.attention(trace).to('sentence')."
        )
    default = DEFAULT_WEIGHT if source.method == "attention" else 0.0  # other measures include the residual
    weight = default if residual_weight is None else residual_weight
    require_share(weight)
    layers = progress(source.layers, desc="FlowView: layers")
    method = str(source.provenance.get("title") or source.method).replace("_", " ")
    title = f"flow of {method}" + (f", residual weight {weight:g}" if weight else "")
    origin = {name: source.provenance[name] for name in ("model", "text") if name in source.provenance}
    return MixingMap(
        np.stack([_layer_shares(source, layer, weight) for layer in layers]),
        query=source.query,
        key=source.key,
        layers=source.layers,
        unit=source.unit,
        stochastic=True,
        signed=False,
        method="flow",
        stack=source.stack,
        provenance={**origin, "title": title, "options": {"residual_weight": weight}},
        trace_id=source.trace_id,
        warning=source.warning,
        predictions=source.predictions,
    )


def _layer_shares(source: MixingMap, number: int, weight: float) -> Float:
    """Return the parts of every token in a layer [query, key], in shares."""
    weights = np.asarray(source.layer(number), dtype=np.float64)
    if isinstance(source, ContributionGraph):
        return shares(_through_block(source, number, weights))
    matrix: Float = weights if source.heads is None else weights.mean(axis=0)
    if matrix.min(initial=0.0) < 0:
        raise ValueError(
            "FlowView shows shares, but this map is signed: give a map of weights, norms or contributions."
        )
    return shares(mix_residual(matrix, weight) if weight else matrix)


def _through_block(graph: ContributionGraph, number: int, attention: Float) -> Float:
    """Return the parts of a block's output: heads, residual and feed-forward layer."""
    residual, mlp, mlp_residual = (np.asarray(row, dtype=np.float64) for row in graph.others(number))
    after: Float = attention.sum(axis=0) + np.diag(residual)
    if not graph.parallel:
        return after  # the feed-forward layer reads only this, token by token
    return np.diag(mlp) + mlp_residual[:, None] * after
