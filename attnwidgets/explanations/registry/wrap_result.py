"""Bare numbers of a trace, by their shape, as an explanation with its labels."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.results.arrays import Array, as_floats
from attnwidgets.explanations.results.attributions import Attributions
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from attnwidgets.explanations.explanation import Explanation

SHAPES = "[layer, head, query, key], [layer, query, key], [query, key] and [source]"
MAP, LAYERS, MATRIX, VECTOR = 4, 3, 2, 1


def as_explanation(returned: Any, trace: Any, stack: str, common: dict[str, Any]) -> Explanation:
    """Return what a function returned as an explanation of its trace.

    Args:
        returned: Numbers (numpy, torch, lists; a list may hold one array a layer) in one of `SHAPES`, or a
            MixingMap or Attributions. [query, key] is numbered as the last layer.
        trace: What it explains.
        stack: Which stack.
        common: What `carried` returns for the method.

    Raises:
        ValueError: For a shape that fits no axes (the message names those that do), NaN or infinity.
        TypeError: Where it is no numbers.
    """
    if isinstance(returned, (MixingMap, Attributions)):
        return _renamed(returned, common)
    name = common["method"]
    if returned is None:
        raise TypeError(f"{name} returned None; is there a `return` at its end?")
    array = _numbers(returned, name)
    query, key = trace.axes(stack)
    layers, heads = trace.n_layers(stack), trace.n_heads(stack)
    unit = next(unit for unit in query.units if unit in key.units)
    matrix = (len(query), len(key))
    taken = {
        MAP: (layers, heads, *matrix),
        LAYERS: (layers, *matrix),
        MATRIX: matrix,
        VECTOR: matrix[1:],
    }
    if array.shape != taken.get(array.ndim):
        fitting = ", ".join(str(shape) for shape in taken.values())
        hint = _hint(array.shape, taken)
        raise ValueError(f"{name} returned shape {array.shape}; taken are {SHAPES}, here {fitting}.{hint}")
    if array.ndim == VECTOR:
        return Attributions(array, axis=key, unit=unit, **common)
    numbers = tuple(range(layers)) if array.ndim > MATRIX else (layers - 1,)
    return MixingMap(array, query=query, key=key, layers=numbers, unit=unit, **common)


def _hint(shape: tuple[int, ...], taken: dict[int, tuple[int, ...]]) -> str:
    if len(shape) != LAYERS or shape[1:] != taken[MATRIX]:
        return ""
    layers, heads = taken[MAP][:2]
    if shape[0] == heads:
        return " Its first axis looks like heads: reduce them, or return [layer, head, query, key]."
    return f" Its first axis has {shape[0]} entries, and there are {layers} layers."


def _numbers(returned: Any, name: str) -> Array:
    try:
        if isinstance(returned, (list, tuple)) and any(hasattr(part, "detach") for part in returned):
            return np.stack([as_floats(part) for part in returned])
        return as_floats(returned)
    except (TypeError, ValueError) as error:
        raise TypeError(
            f"{name} returned a {type(returned).__name__} that is no array of numbers ({error}); taken are "
            f"{SHAPES}, as numpy, torch or lists, a MixingMap or Attributions."
        ) from error


def _renamed(found: MixingMap | Attributions, common: dict[str, Any]) -> Explanation:
    """Return an explanation under the method's name; how it came about is kept as its source."""
    history = common["provenance"] | {"source": found.provenance, "steps": list(found.steps)}
    notes = [note for both in (found.warning, common["warning"]) for note in both.split("; ") if note]
    warning = "; ".join(dict.fromkeys(notes))
    kept = common | {"provenance": history, "stack": found.stack, "warning": warning}
    if isinstance(found, Attributions):
        names = ("axis", "target", "foil", "residual", "map", "unit")
        return Attributions(found.values, **{name: getattr(found, name) for name in names}, **kept)
    axes = ("query", "key", "layers", "heads", "unit", "runs_model", "on_demand")
    facts = ("causal", "stochastic", "signed")
    arguments = {name: getattr(found, name) for name in axes} | {name: found.known(name) for name in facts}
    arguments["row_fn"] = found.rows if found.knows_rows else None
    return MixingMap.lazy(found.layer, **arguments, keep=False, **kept)
