"""What tokens are made of, layer by layer, for FlowView: rows of shares, residual connection included."""

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
"""Methods whose maps lead down to the input already."""
MOST = 1_448
"""Elements up to which matrices travel value by value (`reader.TILE_VALUES`): every edge needs its own."""
_WITHOUT_RESIDUAL = ("attention",)


def flow_steps(shown: Any, residual_weight: float | None = None) -> MixingMap:
    """Return what every token is made of in every layer [layer, query, key], in shares of the layer's input.

    Args:
        shown: A trace (then: its attention), a map of a stack that attends to itself, heads averaged, or a
            ContributionGraph: its parts are added, with what goes past attention and past the feed-forward
            layer on the diagonal.
        residual_weight: Share of the residual connection that is mixed in, as in `aw.rollout`; None: 0.5
            for attention, nothing for measures that hold it already.

    Raises:
        ValueError: The map is cumulative already, signed, of two sequences, has more than `MOST` elements, or
            its layers have gaps.
    """
    source = source_map(shown, "FlowView", None)
    if source.method in CUMULATIVE:
        raise ValueError(
            f"FlowView follows the layers itself, and {source.method!r} has followed them already: give the "
            "map that it is of, such as aw.attention(trace)."
        )
    if len(source.key_labels) > MOST:
        raise ValueError(
            f"FlowView draws up to {MOST:,} elements, and this map has {len(source.key_labels):,}: give it "
            "in a coarser unit, such as aw.attention(trace).to('sentence')."
        )
    weight = residual_weight
    if weight is None:
        weight = DEFAULT_WEIGHT if source.method in _WITHOUT_RESIDUAL else 0.0
    require_share(weight)
    matrices = [
        _rows(source, number, weight)
        for number in progress(source.layers, desc="FlowView: layers", total=len(source.layers))
    ]
    named = str(source.provenance.get("title") or source.method).replace("_", " ")
    title = f"flow of {named}" + (f", residual weight {weight:g}" if weight else "")
    about = {name: value for name, value in dict(source.provenance).items() if name in {"model", "text"}}
    return MixingMap(
        np.stack(matrices),
        query=source.query,
        key=source.key,
        layers=source.layers,
        unit=source.unit,
        stochastic=True,
        signed=False,
        method="flow",
        stack=source.stack,
        provenance={**about, "title": title, "options": {"residual_weight": weight}},
        trace_id=source.trace_id,
        warning=source.warning,
        predictions=source.predictions,
    )


def _rows(source: MixingMap, number: int, weight: float) -> Float:
    found = np.asarray(source.layer(number), dtype=np.float64)
    if isinstance(source, ContributionGraph):
        return shares(_through_block(source, number, found))
    matrix: Float = found if source.heads is None else found.mean(axis=0)
    if matrix.min(initial=0.0) < 0:
        raise ValueError(
            "FlowView shows shares, and this map is signed: give one of weights, lengths or contributions."
        )
    return shares(mix_residual(matrix, weight) if weight else matrix)


def _through_block(graph: ContributionGraph, number: int, attention: Float) -> Float:
    """Return what a block's output is made of: heads, the residual, and what the feed-forward layer adds."""
    residual, mlp, mlp_residual = (np.asarray(row, dtype=np.float64) for row in graph.others(number))
    after: Float = attention.sum(axis=0) + np.diag(residual)
    if not graph.parallel:
        return after  # the feed-forward layer reads only this, token by token
    return np.diag(mlp) + mlp_residual[:, None] * after
