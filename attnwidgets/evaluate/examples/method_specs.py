"""Methods as evaluations take them: names, names with options, or functions of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from attnwidgets.evaluate.arrays import Float

    Spec = str | tuple[str, Mapping[str, Any]] | Callable[[Any], Any]
    Specs = Spec | Sequence[Spec] | Mapping[str, Spec]

_MATRICES = 3  # dimensions of [layer, query, key]


def labelled(given: Specs) -> dict[str, Spec]:
    """Return methods as they were given, by the names that tables give them; these can travel to workers.

    Args:
        given: One method or several: a name in `aw.methods()`, a pair (name, options), a function of a trace;
            or a mapping from labels to any of these.

    Raises:
        ValueError: If a method is unknown, none is given, or two share a name.
        TypeError: If something else is given.
    """
    if isinstance(given, Mapping):
        pairs = [(str(label) or name_of(spec), spec) for label, spec in given.items()]
    else:
        single = isinstance(given, str) or callable(given) or _is_pair(given)
        several: Any = [given] if single else given
        pairs = [(name_of(spec), spec) for spec in several]
    specs: dict[str, Spec] = {}
    for name, spec in pairs:
        name_of(spec)
        if name in specs:
            raise ValueError(
                f"methods has {name!r} twice; give a mapping from labels to methods to tell them apart."
            )
        specs[name] = spec
    if not specs:
        raise ValueError("methods is empty; name at least one of aw.methods().")
    return specs


def functions_by_name(given: Specs) -> dict[str, Callable[[Any], Any]]:
    """Return functions of a trace by the names that tables give them; for the forms, see `labelled`."""
    return {name: function_of(spec) for name, spec in labelled(given).items()}


def name_of(spec: Any) -> str:
    """Return the name of a method with its options, as tables give it.

    Raises:
        ValueError: If the method is unknown.
        TypeError: If it is not a method.
    """
    if isinstance(spec, str):
        spec = (spec, {})
    if _is_pair(spec):
        name, options = spec
        methods()[name]
        told = ", ".join(_option_text(key, value) for key, value in options.items())
        return f"{name} ({told})" if told else str(name)
    if callable(spec):
        return str(getattr(spec, "__name__", type(spec).__name__))
    raise TypeError(f"methods takes names, (name, options) and functions of a trace, not {spec!r}.")


def function_of(spec: Any) -> Callable[[Any], Any]:
    """Return the function of a trace that a method is."""
    if callable(spec):
        return spec
    name, options = (spec, {}) if isinstance(spec, str) else spec
    method = methods()[name]
    return lambda trace: method.function(trace, **options)


def _is_pair(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == len(("name", "options"))
        and isinstance(given[0], str)
        and isinstance(given[1], Mapping)
    )


def _option_text(key: str, value: Any) -> str:
    if value is True:
        return key.replace("_", " ")
    return value if isinstance(value, str) else f"{key} {value}"


def rows_of(result: Any, rows: Sequence[int], n: int, name: str) -> dict[int, Float]:
    """Return some rows [row, key] of every layer of a method's result, over tokens, averaged over heads.

    Args:
        result: A MixingMap by tokens, or an array [layer, query, key].
        rows: Which rows.
        n: Number of tokens.
        name: The method, for messages.

    Raises:
        TypeError: If the result is not a map.
        ValueError: If it is not over these tokens.
    """
    if not isinstance(result, MixingMap):
        try:
            array = np.asarray(
                result.detach().cpu() if hasattr(result, "detach") else result, dtype=np.float64
            )
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"method {name!r} returned {type(result).__name__}, not a MixingMap [layer, query, key]."
            ) from error
        if array.ndim != _MATRICES or array.shape[1:] != (n, n):
            raise ValueError(
                f"method {name!r} returned shape {array.shape}, not [layer, {n} queries, {n} keys]."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"method {name!r} returned values that are NaN or infinite.")
        return {layer: matrix[list(rows)] for layer, matrix in enumerate(array)}
    if result.shape[-2:] != (n, n) or len(result.query) != n or len(result.key) != n:
        raise ValueError(
            f"method {name!r} returned a map of {result.shape[-2]} by {result.shape[-1]} {result.unit}s; "
            f"targets and cues need one of {n} by {n} tokens."
        )
    by_layer = {}
    for number in result.layers:
        chosen = np.asarray(result.rows(number, None, rows), dtype=np.float64)
        by_layer[number] = chosen if result.heads is None else chosen.mean(axis=0)
    return by_layer
