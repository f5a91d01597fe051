"""Attention rollout: attention multiplied through the layers down to the input.

Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers, section 3.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._selecting import position
from attnwidgets.explanations.mixing.discarding import (
    Discard,
    discard_note,
    discard_positions,
    drop_columns,
    drop_lowest,
)
from attnwidgets.explanations.mixing.layer_product import (
    DEFAULT_WEIGHT,
    map_fields,
    measured_steps,
    mix_residual,
    product,
    require_share,
    shares,
    source_map,
)
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.registry.requirements import followed_through
from attnwidgets.explanations.results.description import plain
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from attnwidgets.explanations.results.arrays import Array, Reduction
    from attnwidgets.explanations.results.trace_protocol import TraceLike

PAPER = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"

_REMEDY = "pass normalize=True, which divides rows before the product, or a later start_layer"
_SIGNED = "rollout cannot divide rows of a signed map by their sums; pass normalize=False."


@method(
    "rollout",
    question="Attention",
    gist="which input words attention leads back to",
    paper=PAPER,
    needs="recorded attention, or any map of a stack that attends to itself",
    returns="MixingMap [layer, query, key], cumulative to that layer",
    cost="one matrix product per layer",
    speed="instant",
    takes=followed_through,
)
def rollout(
    trace: TraceLike | MixingMap,
    residual_weight: float = DEFAULT_WEIGHT,
    start_layer: int = 0,
    *,
    head_reduce: Reduction = "mean",
    normalize: bool = True,
    residual: Literal["mix", "add"] | None = "mix",
    order: Literal["output_first", "input_first"] = "output_first",
    discard: Discard = None,
    discard_ratio: float = 0.0,
    stack: str | None = None,
    partial: bool = False,
) -> MixingMap:
    """The share of each input token in each token of layer l: attention multiplied through the layers.

    With A_l the attention of layer l, heads combined, w = `residual_weight` and I the residual connection:

        A'_l = (1 - w) A_l + w I, each row divided by its sum;   R_0 = A'_0;   R_l = A'_l R_{l-1}

    For w = 0.5 this is the published (A + I) / rowsum, even if rows of A do not sum to 1. It is computed in
    float64, in the unit of the given map; tokens for a trace. `.to("word")` aggregates the result, while
    `aw.rollout(aw.attention(trace).to("word"))` rolls out over words, which gives different numbers; the
    result says which.

    Args:
        trace: A trace, or a map of a stack with self-attention (norms, ALTI, value zeroing, ...).
        residual_weight: Weight of the residual connection, 0 to 1, for residual="mix".
        start_layer: Number of the layer to start from; earlier layers are left out.
        head_reduce: How heads are combined: "mean", "max", "sum", or a function of [head, query, key].
        normalize: Whether rows are divided by their sum. A row that sums to zero stays zero, meaning that
            that token has no shares (not with a residual).
        residual: "mix" as above; "add" for I + A without weights, as in some lectures; None for maps that
            already include the residual (ALTI, value zeroing).
        order: "output_first" as published, R_l = A'_l R_{l-1}; "input_first" is the product
            A'_0 A'_1 ... A'_l of some lectures. The order changes the numbers much more than the form of the
            residual does.
        discard: Tokens that receive no attention: "first", "special" or a list of positions. In every layer
            their columns of A_l are set to zero before the residual is mixed in and rows are divided by
            their sums (with `normalize`), so their weight goes to the remaining tokens and the residual. A
            row without any remaining weight becomes the token itself; without a residual, zero.
        discard_ratio: Share of every layer's weights A_l, the lowest, that is set to zero before the residual
            is mixed in and rows are divided by their sums. Known from vit-explain, whose code divides row i
            by the sum of row j in column j (the sums lack an axis): its numbers are others.
        stack: Stack of an encoder-decoder trace; "cross" is not supported.
        partial: Whether to follow attention alone in a model whose blocks also mix tokens otherwise (state
            space, gated delta rule, convolution; `trace.anatomy`). The numbers are then not shares of the
            input tokens. By default such a block takes part with the norms of the vectors that tokens add
            (`aw.attention_norm`, "res"), rows divided by their sums, as long as they were recorded.

    Returns:
        A lazy map [layer, query, key], cumulative to each layer, numbered as in the model. Rows sum to 1
        with `normalize`. `.note` says if the first token holds over 0.9 of the rows, as is common in causal
        models.

    Raises:
        ValueError: For a map from one sequence to another, a signed map with `normalize`, an option out of
            range, a `discard` that matches nothing or leaves nothing, or a stack passed with a map; without
            `partial`, for a model in which other mixing was not recorded.
        IndexError: If the layer or position is out of range.

    Example:
        >>> trace = aw.trace(*aw.demo_model("encoder"), "The cat sat on the mat.")
        >>> rolled_out = aw.rollout(trace)
        >>> rolled_out.shape, float(rolled_out.layer(-1)[0].sum().round(3))
        ((6, 9, 9), 1.0)
    """
    require_share(residual_weight)
    if not 0 <= discard_ratio < 1:
        raise ValueError(f"discard_ratio must be a share of the weights, 0 to below 1, not {discard_ratio}.")
    require_choice("residual", residual, ("mix", "add", None))
    require_choice("order", order, ("output_first", "input_first"))
    if residual != "mix" and residual_weight != DEFAULT_WEIGHT:
        raise ValueError(
            f"residual_weight={residual_weight} has no effect with residual={residual!r}; omit one of them."
        )
    plain_options = residual_weight == DEFAULT_WEIGHT and (residual, head_reduce) == ("mix", "mean")
    plain_options &= normalize and discard is None and not discard_ratio
    measured = measured_steps(trace, stack, partial=partial, plain=plain_options)
    source = source_map(trace, "rollout", stack, partial=partial, measured=measured)
    if normalize and source.known("signed"):
        raise ValueError(_SIGNED)
    without_attention = () if measured is None else measured.layers
    layers = _layers_from(tuple(sorted({*source.layers, *without_attention})), start_layer)
    reduced = source.reduce("head", head_reduce) if source.heads is not None else source
    dropped = discard_positions(discard, source.key_unit, "rollout")

    def step(number: int) -> NDArray[np.float64]:
        if measured is not None and number in without_attention:
            return shares(np.array(measured.layer(number), dtype=np.float64))
        # The mean over heads is not cached: only the product is read again.
        if source.heads is not None and isinstance(head_reduce, str):
            matrix = np.array(source.matrix(number, head_reduce), dtype=np.float64)
        else:
            matrix = np.array(reduced.layer(number), dtype=np.float64)
        if normalize and matrix.min() < 0:  # for sources that only know this when computed
            raise ValueError(_SIGNED)
        matrix = drop_lowest(drop_columns(matrix, dropped), discard_ratio)
        if residual == "mix":
            matrix = mix_residual(matrix, residual_weight)
        elif residual == "add":
            matrix[np.diag_indices(len(matrix))] += 1.0
        return shares(matrix) if normalize else matrix

    options = {
        "residual": residual,
        "residual_weight": residual_weight if residual == "mix" else None,
        "start_layer": layers[0],
        "head_reduce": None if source.heads is None else head_reduce,
        "normalize": normalize,
        "order": order,
        "discard": discard,
        "discard_ratio": discard_ratio,
    }
    weight = options["residual_weight"]
    departures = {
        "no residual": residual is None,
        "residual added without weights": residual == "add",
        f"residual weight {weight}": weight not in (None, DEFAULT_WEIGHT),
        f"{plain(options['head_reduce'])} over heads": options["head_reduce"] not in (None, "mean"),
        "rows not normalised": not normalize,
        "input first": order == "input_first",
        f"from layer {layers[0]}": layers[0] != min(*source.layers, *without_attention, layers[0]),
        discard_note(discard, source.unit): discard is not None,
        f"without the lowest {discard_ratio:.0%} of every layer's weights": discard_ratio > 0,
        f"rolled out at {source.unit} level": source.unit != next(iter(source.query.units)),
    }
    steps = [phrase for phrase, holds in departures.items() if holds]
    custom_reduction = callable(head_reduce) and source.heads is not None
    convex = residual != "add" and (source.heads is None or head_reduce == "mean")
    return MixingMap.lazy(
        _Cumulative(step, layers, order, source.dtype),
        layers=layers,
        # Products of lower triangular matrices are lower triangular, in either order.
        causal=None if custom_reduction else source.known("causal"),
        # Rows of zeros, the exception, only show in the numbers, so normalised maps are checked later.
        stochastic=None if normalize or convex else False,
        signed=None if custom_reduction else source.known("signed"),
        keep=False,
        **map_fields(
            source, "rollout", title="rollout", paper=PAPER, options=options, steps=steps, measured=measured
        ),
    )


class BeyondPrecisionError(ValueError):
    """Raised if a product exceeds the precision of its map.

    Args:
        reason: The cause.
        remedy: Advice to the user.
    """

    def __init__(self, reason: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"{reason}; {remedy}.")
        self.reason = reason


class _Cumulative:
    """Computes cumulative products; keeps each in the map's precision, and the last in float64."""

    def __init__(self, step: Any, layers: tuple[int, ...], order: str, dtype: str) -> None:
        self._step = step
        self._layers = layers
        self._dtype = np.dtype(dtype)
        self._output_first = order == "output_first"
        self._done: dict[int, Array] = {}
        self._frontier: NDArray[np.float64] | None = None
        self._lock = threading.Lock()

    def __call__(self, layer: int) -> Array:
        with self._lock:
            while layer not in self._done:
                number = self._layers[len(self._done)]
                matrix = self._step(number)
                if self._frontier is not None:
                    before = self._frontier
                    matrix = product(matrix, before) if self._output_first else product(before, matrix)
                self._frontier = matrix
                self._done[number] = _in_precision(matrix, number, self._dtype)
            return self._done[layer]


def _in_precision(matrix: NDArray[np.float64], number: int, dtype: np.dtype[np.floating]) -> Array:
    """Return a product in `dtype`, or raise a BeyondPrecisionError if it exceeds its range."""
    largest = max(float(matrix.max(initial=0.0)), -float(matrix.min(initial=0.0)))
    if not largest <= float(np.finfo(dtype).max):
        raise BeyondPrecisionError(
            f"the product of the layers up to {number} reaches {largest:.2g}, beyond {dtype}"
        )
    return matrix.astype(dtype)


def _layers_from(layers: tuple[int, ...], start_layer: int) -> tuple[int, ...]:
    # A block without attention may be named: the product begins at the next layer.
    named = next((number for number in layers if 0 <= start_layer <= number), start_layer)
    return layers[position(named, layers, "start_layer") :]
