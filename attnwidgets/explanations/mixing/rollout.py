"""Attention rollout: attention followed through the layers down to the input.

Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers, section 3.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from attnwidgets._errors import suggest
from attnwidgets.explanations.mixing.discarding import Discard, discarded, said, without
from attnwidgets.explanations.mixing.layer_product import (
    DEFAULT_WEIGHT,
    carried_on,
    followed,
    mixed,
    product,
    require_share,
    shares,
)
from attnwidgets.explanations.registry.memory_estimates import followed_through
from attnwidgets.explanations.registry.registry import method
from attnwidgets.explanations.results.description import plain
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    from attnwidgets.explanations.results.arrays import Array
    from attnwidgets.explanations.results.reductions import Reduction
    from attnwidgets.explanations.results.trace_protocol import TraceLike

PAPER = "Abnar and Zuidema 2020, Quantifying Attention Flow in Transformers"

_REMEDY = (
    "pass normalize=True, which divides rows before the product, or start_layer=, a later layer to start at"
)
_SIGNED = "rollout cannot divide rows of a signed map by their sums; pass normalize=False."


@method(
    "rollout",
    paper=PAPER,
    needs="recorded attention, or any map of a stack that attends to itself",
    returns="MixingMap [layer, query, key], cumulative to that layer",
    cost="one matrix product a layer",
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
    stack: str | None = None,
) -> MixingMap:
    """Attention followed through the layers: what share of every input token is in a token of layer l.

    With A_l the attention of layer l over heads, w = `residual_weight` and I the residual connection:

        A'_l = (1 - w) A_l + w I, every row divided by its sum;   R_0 = A'_0;   R_l = A'_l R_{l-1}

    For w = 0.5 this is the published (A + I) / rowsum, also where rows of A do not sum to one.
    It is computed in float64 in the unit of the map it is given: for a trace, tokens. `.to("word")`
    aggregates the result; `aw.rollout(aw.attention(trace).to("word"))` rolls out over words, which is another
    number, and the result says so.

    Args:
        trace: A trace, or any map of a stack that attends to itself (norms, ALTI, value zeroing, ...).
        residual_weight: Share of the residual connection, 0 to 1. Used by residual="mix".
        start_layer: Number of the layer to start from; the layers before it are left out.
        head_reduce: How heads become one matrix: "mean", "max", "sum", or a function of [head, query, key].
        normalize: Whether rows are divided by their sum. A row that sums to zero stays zero: nothing is
            known of that token (with a residual this does not happen).
        residual: "mix" as above; "add" for I + A without weights, as lectures write it; None for no
            residual, for maps that hold it already (ALTI, value zeroing).
        order: "output_first" is published, R_l = A'_l R_{l-1}; "input_first" is the product
            A'_0 A'_1 ... A'_l that some lectures write. The order changes the numbers much more than the
            form of the residual does.
        discard: Elements that nothing is drawn from: "first", "special" (tokens) or positions. In every layer
            their columns of A_l, heads joined, are set to zero before the residual is mixed in; rows are
            divided by their sums after that (where `normalize` is on), so that what rested on them goes to
            all that is left, the residual included. A row with nothing left is its own token alone; without a
            residual, zero.
        stack: Which stack of an encoder-decoder trace; "cross" is refused.

    Returns:
        A lazy map [layer, query, key], cumulative to each layer, numbered as in the model. Rows sum to one
        where `normalize` is on. `.note` says where the first token holds over 0.9 of the rows, as in causal
        models it often does.

    Raises:
        ValueError: For a map from one sequence to another, a signed map that should be normalised, an
            option out of its range, a `discard` that leaves nothing or names nothing, or a stack given with
            a map.
        IndexError: Where there is no such layer or position.
    """
    _check_options(residual_weight, residual, order)
    source = followed(trace, "rollout", stack)
    if normalize and source.known("signed"):
        raise ValueError(_SIGNED)
    layers = _layers_from(source.layers, start_layer)
    reduced = source.reduce("head", head_reduce) if source.heads is not None else source
    places = discarded(discard, source.key_unit, "rollout")

    def step(number: int) -> NDArray[np.float64]:
        # What is kept is the product; the mean over heads is not.
        if source.heads is not None and isinstance(head_reduce, str):
            matrix = np.array(source.matrix(number, head_reduce), dtype=np.float64)
        else:
            matrix = np.array(reduced.layer(number), dtype=np.float64)
        if normalize and matrix.min() < 0:  # where the source could not know before it was computed
            raise ValueError(_SIGNED)
        return _with_residual(without(matrix, places), residual, residual_weight, normalize=normalize)

    options = {
        "residual": residual,
        "residual_weight": residual_weight if residual == "mix" else None,
        "start_layer": layers[0],
        "head_reduce": None if source.heads is None else head_reduce,
        "normalize": normalize,
        "order": order,
        "discard": discard,
    }
    steps = _departures(options, first_layer=source.layers[0])
    steps += filter(None, [said(discard, source.unit)])
    if source.unit != next(iter(source.query.units)):
        steps.append(f"rolled out at {source.unit} level")
    own_reduction = callable(head_reduce) and source.heads is not None
    convex = residual != "add" and (source.heads is None or head_reduce == "mean")
    return MixingMap.lazy(
        _Cumulative(step, layers, order, source.dtype),
        layers=layers,
        # Products of lower triangular matrices are lower triangular, in either order.
        causal=None if own_reduction else source.known("causal"),
        # Zero rows are the exception that only the numbers show, so a normalised map reads its own.
        stochastic=None if normalize or convex else False,
        signed=None if own_reduction else source.known("signed"),
        keep=False,
        **carried_on(source, "rollout", title="rollout", paper=PAPER, options=options, steps=steps),
    )


def _departures(options: Mapping[str, Any], *, first_layer: int) -> list[str]:
    """Return in words how the options depart from the published method, for the reader of the result."""
    weight = options["residual_weight"]
    words = {
        "no residual": options["residual"] is None,
        "residual added without weights": options["residual"] == "add",
        f"residual weight {weight}": weight not in (None, DEFAULT_WEIGHT),
        f"{plain(options['head_reduce'])} over heads": options["head_reduce"] not in (None, "mean"),
        "rows not normalised": not options["normalize"],
        "input first": options["order"] == "input_first",
        f"from layer {options['start_layer']}": options["start_layer"] != first_layer,
    }
    return [phrase for phrase, holds in words.items() if holds]


class BeyondPrecisionError(ValueError):
    """A product that has no place in the precision of its map.

    Args:
        said: What happened.
        remedy: What to do about it.
    """

    def __init__(self, said: str, remedy: str = _REMEDY) -> None:
        super().__init__(f"{said}; {remedy}.")
        self.said = said


class _Cumulative:
    """Products of the layers so far. Keeps the result of every layer passed, and the last one in float64."""

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
                self._done[number] = _kept(matrix, number, self._dtype)
            return self._done[layer]


def _kept(matrix: NDArray[np.float64], number: int, dtype: np.dtype[np.floating]) -> Array:
    """Return a product in `dtype`, if it has a place there."""
    largest = max(float(matrix.max(initial=0.0)), -float(matrix.min(initial=0.0)))
    if not largest <= float(np.finfo(dtype).max):
        raise BeyondPrecisionError(
            f"the product of the layers up to {number} reaches {largest:.2g}, beyond {dtype}"
        )
    return matrix.astype(dtype)


def _with_residual(
    matrix: NDArray[np.float64], residual: str | None, weight: float, *, normalize: bool
) -> NDArray[np.float64]:
    """Return A' of one layer [query, key]."""
    if residual == "mix":
        matrix = mixed(matrix, weight)
    elif residual == "add":
        matrix[np.diag_indices(len(matrix))] += 1.0
    return shares(matrix) if normalize else matrix


def _check_options(residual_weight: float, residual: str | None, order: str) -> None:
    require_share(residual_weight)
    choices: tuple[tuple[str, str | None, tuple[str | None, ...]], ...] = (
        ("residual", residual, ("mix", "add", None)),
        ("order", order, ("output_first", "input_first")),
    )
    for name, value, taken in choices:
        if value not in taken:
            near = suggest(str(value), [choice for choice in taken if choice])
            raise ValueError(f"{name} {value!r} is not one of {', '.join(map(repr, taken))}.{near}")
    if residual != "mix" and residual_weight != DEFAULT_WEIGHT:
        raise ValueError(
            f"residual_weight={residual_weight} has no place in residual={residual!r}; leave one of them out."
        )


def _layers_from(layers: tuple[int, ...], start_layer: int) -> tuple[int, ...]:
    first = layers[-1] + 1 + start_layer if start_layer < 0 else start_layer
    if not 0 <= first <= layers[-1]:
        raise IndexError(
            f"start_layer {start_layer} is out of range: there are layers {layers[0]} to {layers[-1]}."
        )
    return tuple(number for number in layers if number >= first)
