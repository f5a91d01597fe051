"""Methods as the evaluations take them: names, names with options, or functions of a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.explanations.registry.registry import methods
from attnwidgets.explanations.results.mixing_map import MixingMap

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Spec = str | tuple[str, Mapping[str, Any]] | Callable[[Any], Any]
    Specs = Spec | Sequence[Spec] | Mapping[str, Spec]

_MATRICES = 3  # dimensions of [layer, query, key]


def named(given: Any) -> dict[str, Callable[[Any], Any]]:
    """Return functions of a trace by the names that tables give them.

    Args:
        given: One method or several: a name in `aw.methods()`, a pair (name, options), a function of a trace;
            or a mapping from labels to any of these.

    Raises:
        ValueError: Where a method is unknown, none is given, or two have one name.
        TypeError: Where something else is given.
    """
    if isinstance(given, Mapping):
        pairs = [(str(label), spec) for label, spec in given.items()]
    else:
        single = isinstance(given, str) or callable(given) or _is_pair(given)
        pairs = [("", spec) for spec in ([given] if single else given)]
    found: dict[str, Callable[[Any], Any]] = {}
    for label, spec in pairs:
        own, function = _one(spec)
        name = label or own
        if name in found:
            raise ValueError(
                f"methods has {name!r} twice; give a mapping from labels to methods to tell them apart."
            )
        found[name] = function
    if not found:
        raise ValueError("methods is empty; name at least one of aw.methods().")
    return found


def labelled(given: Specs) -> dict[str, Spec]:
    """Return methods as they were given, by the names that tables give them; these can travel to workers.

    Raises:
        ValueError, TypeError: As `named` does.
    """
    if isinstance(given, Mapping):
        named(given)
        return {str(label): spec for label, spec in given.items()}
    single = isinstance(given, str) or callable(given) or _is_pair(given)
    several: Any = [given] if single else given
    return dict(zip(named(several), several, strict=True))


def _is_pair(given: Any) -> bool:
    return (
        isinstance(given, tuple)
        and len(given) == len(("name", "options"))
        and isinstance(given[0], str)
        and isinstance(given[1], Mapping)
    )


def _one(spec: Any) -> tuple[str, Callable[[Any], Any]]:
    if isinstance(spec, str):
        spec = (spec, {})
    if _is_pair(spec):
        name, options = spec
        known = methods()[name]
        said = ", ".join(_said(key, value) for key, value in options.items())
        return f"{name} ({said})" if said else name, lambda trace: known.function(trace, **options)
    if callable(spec):
        return str(getattr(spec, "__name__", type(spec).__name__)), spec
    raise TypeError(f"methods takes names, (name, options) and functions of a trace, not {spec!r}.")


def _said(key: str, value: Any) -> str:
    return (
        key.replace("_", " ") if value is True else str(value) if isinstance(value, str) else f"{key} {value}"
    )


def rows_of(found: Any, rows: Sequence[int], n: int, name: str) -> dict[int, NDArray[np.float64]]:
    """Return some rows [row, key] of every layer of what a method returned, over tokens, the mean over heads.

    Args:
        found: A MixingMap by tokens, or an array [layer, query, key].
        rows: Which rows.
        n: How many tokens there are.
        name: The method, for messages.

    Raises:
        TypeError: Where it is no map.
        ValueError: Where it is not over these tokens.
    """
    if not isinstance(found, MixingMap):
        try:
            array = np.asarray(found.detach().cpu() if hasattr(found, "detach") else found, dtype=np.float64)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"method {name!r} returned {type(found).__name__}, not a MixingMap [layer, query, key]."
            ) from error
        if array.ndim != _MATRICES or array.shape[1:] != (n, n):
            raise ValueError(
                f"method {name!r} returned shape {array.shape}, not [layer, {n} queries, {n} keys]."
            )
        if not np.isfinite(array).all():
            raise ValueError(f"method {name!r} returned values that are NaN or infinite.")
        return {layer: matrix[list(rows)] for layer, matrix in enumerate(array)}
    if found.shape[-2:] != (n, n) or len(found.query) != n or len(found.key) != n:
        raise ValueError(
            f"method {name!r} returned a map of {found.shape[-2]} by {found.shape[-1]} {found.unit}s; "
            f"targets and cues are looked up in one of {n} by {n} tokens."
        )
    taken = {}
    for number in found.layers:
        chosen = np.asarray(found.rows(number, None, rows), dtype=np.float64)
        taken[number] = chosen if found.heads is None else chosen.mean(axis=0)
    return taken
