"""Layers of a FlowView: what every token is made of, in shares, with the residual connection."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.layer_product import (
    DEFAULT_WEIGHT,
    mix_residual,
    require_share,
    shares,
    source_map,
)
from attnwidgets.explanations.results.contribution_graph import ContributionGraph
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

CUMULATIVE = ("rollout", "attention_flow", "hidden_token_attribution", "globenc_rollout")
"""Methods whose maps are cumulative: they reach down to the input."""
MOST = 1_448
"""Elements up to which a browser gets every value (`reader.TILE_VALUES`): each edge needs its own."""


def flow_steps(shown: Any, residual_weight: float | None = None) -> MixingMap:
    """Return what every token is made of in every layer [layer, query, key], in shares of the layer's input.

    Args:
        shown: A trace (then: its attention), a map of a stack that attends to itself (heads are averaged), or
            a ContributionGraph: its parts are added, and what bypasses attention and the feed-forward layer
            is on the diagonal.
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
    """Return what every token is made of in one layer [query, key], in shares."""
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
    """Return what a block's output is made of: heads, residual and feed-forward layer."""
    residual, mlp, mlp_residual = (np.asarray(row, dtype=np.float64) for row in graph.others(number))
    after: Float = attention.sum(axis=0) + np.diag(residual)
    if not graph.parallel:
        return after  # the feed-forward layer reads only this, token by token
    return np.diag(mlp) + mlp_residual[:, None] * after
