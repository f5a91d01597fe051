"""Attention flow: the maximum flow from input tokens to tokens of a layer, with attention as capacities.

Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers, section 3.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import duration
from attnwidgets._progress import progress
from attnwidgets.explanations.mixing.discarding import Discard, discard_note, discard_positions, drop_columns
from attnwidgets.explanations.mixing.layer_product import (
    DEFAULT_WEIGHT,
    map_fields,
    measured_steps,
    mix_residual,
    require_share,
    shares,
    source_map,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import at_most, n_keys, network
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.arrays import Reduction
    from attnwidgets.explanations.results.trace_protocol import TraceLike

PAPER = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"

LIMIT = 64
"""Number of tokens above which `force=True` is required."""

SCALE = 10**9
"""Integer capacity of a weight of 1; capacities have 32 bits, and a token passes on at most 1."""

_PROBES = 5


@method(
    "attention_flow",
    question="What goes into a token",
    gist="how much can flow from each input word",
    paper=PAPER,
    needs=("map", at_most(LIMIT, "tokens", n_keys)),
    returns="MixingMap [layer, query, key], from the input to that layer",
    cost="a maximum flow per pair of tokens and layer: a second at 24 tokens, a minute at 64",
    speed="minutes",
    takes=network,
)
def attention_flow(
    trace: TraceLike | MixingMap,
    residual_weight: float = DEFAULT_WEIGHT,
    *,
    head_reduce: Reduction = "mean",
    normalize: bool = True,
    discard: Discard = None,
    stack: str | None = None,
    force: bool = False,
    partial: bool = False,
) -> MixingMap:
    """The maximum flow from each input token to each token of a layer, with attention weights as capacities.

    Nodes are the tokens at every layer. With A_l the attention of layer l, heads combined, and w =
    `residual_weight`, the edge from token i above layer l to token j below it carries at most A'_l[i, j],
    where A'_l = (1 - w) A_l + w I with each row divided by its sum; for w = 0.5 this is the published
    (A + I) / rowsum. The flow of layer l is the maximum flow from token i above it to input token j.

    Computed by `scipy.sparse.csgraph.maximum_flow` (Dinic) with capacities round(1e9 * A'). The error of a
    flow through l layers of n tokens is at most n * n * l / 2e9, and far less in practice.

    Args:
        trace: A trace, or a map of a stack with self-attention.
        residual_weight: Weight of the residual connection, 0 to 1.
        head_reduce: How heads are combined: "mean", "max", "sum", or a function of [head, query, key].
        normalize: Whether the rows of the flow are divided by their sums, as published. A row of zeros
            stays zero.
        discard: Tokens that receive no attention: "first", "special" or a list of positions. In every layer
            their columns of A_l are set to zero before the residual is mixed in and rows are divided by
            their sums, so their weight goes to the remaining tokens and the residual. A row without any
            remaining weight becomes the token itself; without a residual, zero.
        stack: Stack of an encoder-decoder trace; "cross" is not supported.
        force: Whether to run beyond 64 tokens.
        partial: Whether to follow attention alone where blocks also mix tokens otherwise; see `aw.rollout`.

    Returns:
        A lazy map [layer, query, key], cumulative from the input. A layer costs n * n flows through all
        layers below it, so prefer `.layer(-1)` if the last is enough. Computations over a second show a
        progress bar.

    Raises:
        ValueError: Beyond 64 tokens without `force` (the message estimates the time of the last layer), for
            a signed map or a map from one sequence to another, a weight outside 0 to 1, or a `discard` that
            matches nothing or leaves nothing; in a model in which other mixing of tokens was not recorded,
            without `partial`.
        IndexError: If a position in `discard` does not exist.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> flow = aw.attention_flow(trace)
        >>> flow.layer(1).shape
        (9, 9)
    """
    require_share(residual_weight)
    plain = residual_weight == DEFAULT_WEIGHT and head_reduce == "mean" and discard is None
    measured = measured_steps(trace, stack, partial=partial, plain=plain)
    source = source_map(trace, "attention_flow", stack, partial=partial, measured=measured)
    without_attention = () if measured is None else measured.layers
    layers = tuple(sorted({*source.layers, *without_attention}))
    if source.signed:
        raise ValueError("attention_flow needs capacities that are not negative, and this map is signed.")
    per_layer = source if source.heads is None else source.reduce("head", head_reduce)
    n_tokens = source.shape[-1]
    dropped = discard_positions(discard, source.key_unit, "attention_flow")

    def capacities(number: int) -> NDArray[np.float64]:
        if measured is not None and number in without_attention:
            return shares(np.array(measured.layer(number), dtype=np.float64))
        matrix = np.asarray(per_layer.layer(number), dtype=np.float64)
        return shares(mix_residual(drop_columns(matrix, dropped), residual_weight))

    def layer_of(number: int) -> NDArray[np.float64]:
        below = [capacities(layer) for layer in layers[: layers.index(number) + 1]]
        flows = _flows(below, f"attention flow, layer {number}")
        return shares(flows) if normalize else flows

    if n_tokens > LIMIT and not force:
        seconds = _estimate([capacities(layers[0])] * len(layers))
        coarser = (
            "pass a map of words (aw.attention(trace).to('word')), " if "word" in source.key.units else ""
        )
        raise ValueError(
            f"attention_flow over {n_tokens} tokens takes about {duration(seconds)} for layer "
            f"{layers[-1]} alone; pass force=True to run it, {coarser}"
            "or use aw.rollout, which approximates it in milliseconds."
        )
    options = {
        "residual_weight": residual_weight,
        "head_reduce": None if source.heads is None else head_reduce,
        "normalize": normalize,
        "discard": discard,
    }
    fields = map_fields(
        source,
        "attention_flow",
        title="attention flow",
        paper=PAPER,
        options=options,
        steps=[note for note in (discard_note(discard, source.unit),) if note],
        measured=measured,
    )
    return MixingMap.lazy(
        layer_of,
        layers=layers,
        causal=source.causal if source.heads is None or not callable(head_reduce) else None,
        stochastic=True if normalize else None,
        **fields | {"on_demand": True},
    )


def _network(layers: list[NDArray[np.float64]]) -> Any:
    """Return the CSR matrix of integer capacities; node l * n + i is token i below layer l."""
    from scipy.sparse import csr_matrix

    n_tokens = len(layers[0])
    froms, tos, weights = [], [], []
    for level, matrix in enumerate(layers):
        upper, lower = np.nonzero(np.rint(matrix * SCALE))
        froms.append((level + 1) * n_tokens + upper)
        tos.append(level * n_tokens + lower)
        weights.append(np.rint(matrix[upper, lower] * SCALE))
    size = (len(layers) + 1) * n_tokens
    ends = (np.concatenate(froms), np.concatenate(tos))
    return csr_matrix((np.concatenate(weights).astype(np.int32), ends), shape=(size, size), dtype=np.int32)


def _flows(layers: list[NDArray[np.float64]], label: str) -> NDArray[np.float64]:
    """Return the maximum flow [token above the last layer, input token]."""
    from scipy.sparse.csgraph import maximum_flow

    network, pairs = _network(layers), _connected(layers)
    n_tokens = len(layers[0])
    flows = np.zeros((n_tokens, n_tokens))
    for query, key in progress(pairs, desc=label, total=len(pairs)):
        flows[query, key] = maximum_flow(network, len(layers) * n_tokens + query, key).flow_value / SCALE
    return flows


def _connected(layers: list[NDArray[np.float64]]) -> NDArray[np.intp]:
    """Return the pairs (token above the last layer, input token) that a path connects [pair, 2].

    Nothing flows between the others, which are half of all in a causal model.
    """
    connected = np.eye(len(layers[0]), dtype=bool)
    for matrix in layers:
        connected = (np.rint(matrix * SCALE) != 0) @ connected
    return np.argwhere(connected)


def _estimate(layers: list[NDArray[np.float64]]) -> float:
    """Return the estimated seconds for all flows through a network, from the time of a few of them."""
    from scipy.sparse.csgraph import maximum_flow

    network, pairs = _network(layers), _connected(layers)
    probes = pairs[np.linspace(0, len(pairs) - 1, _PROBES, dtype=int)]
    begin = time.perf_counter()
    for query, key in probes:
        maximum_flow(network, len(layers) * len(layers[0]) + query, key)
    return (time.perf_counter() - begin) / _PROBES * len(pairs)
