"""Plain numbers as an explanation of a trace, labelled by their shape."""

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
    """Return a function's result as an explanation of its trace.

    Args:
        returned: Numbers (numpy, torch, lists; a list may hold one array per layer) in one of `SHAPES`, or a
            MixingMap or Attributions. [query, key] is numbered as the last layer.
        trace: The explained trace.
        stack: Name of the stack.
        common: Result of `provenance_of` for the method.

    Raises:
        ValueError: For a shape that fits no axes (the message names those that do), NaN or infinity.
        TypeError: If the result is not numeric.
    """
    if isinstance(returned, (MixingMap, Attributions)):
        return _rename(returned, common)
    name = common["method"]
    if returned is None:
        raise TypeError(f"{name} returned None; is there a `return` at its end?")
    array = _numbers(returned, name)
    query, key = trace.axes(stack)
    all_layers, heads = trace.layers(stack), trace.n_heads(stack)
    layers = len(all_layers)
    unit = next(unit for unit in query.units if unit in key.units)
    matrix = (len(query), len(key))
    shapes = {MAP: (layers, heads, *matrix), LAYERS: (layers, *matrix), MATRIX: matrix, VECTOR: matrix[1:]}
    if array.shape != shapes.get(array.ndim):
        fitting = ", ".join(map(str, shapes.values()))
        raise ValueError(
            f"{name} returned shape {array.shape}; accepted shapes are {SHAPES}, here {fitting}."
            f"{_hint(array.shape, shapes)}"
        )
    if array.ndim == VECTOR:
        return Attributions(array, axis=key, unit=unit, **common)
    numbers = all_layers if array.ndim > MATRIX else all_layers[-1:]
    return MixingMap(array, query=query, key=key, layers=numbers, unit=unit, **common)


def _hint(shape: tuple[int, ...], shapes: dict[int, tuple[int, ...]]) -> str:
    if len(shape) != LAYERS or shape[1:] != shapes[MATRIX]:
        return ""
    layers, heads = shapes[MAP][:2]
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
            f"{name} returned a {type(returned).__name__} that is not a numeric array ({error}); "
            f"accepted are {SHAPES}, as numpy, torch or lists, a MixingMap or Attributions."
        ) from error


def _rename(result: MixingMap | Attributions, common: dict[str, Any]) -> Explanation:
    """Return an explanation under the method's name, with its former provenance as the source."""
    history = common["provenance"] | {"source": result.provenance, "steps": list(result.steps)}
    notes = [note for warning in (result.warning, common["warning"]) for note in warning.split("; ") if note]
    common |= {"provenance": history, "stack": result.stack, "warning": "; ".join(dict.fromkeys(notes))}
    if isinstance(result, Attributions):
        names = ("axis", "target", "foil", "residual", "map", "unit")
        return Attributions(result.values, **{name: getattr(result, name) for name in names}, **common)
    rows = result.rows if result.knows_rows else None
    return MixingMap.lazy(result.layer, row_fn=rows, keep=False, **(result.arguments() | common))
