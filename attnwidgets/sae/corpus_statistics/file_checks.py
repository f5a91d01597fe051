"""Consistency checks of statistics loaded from a file, which may be damaged or edited."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.sae.corpus_statistics.intervals import INTERVALS
from attnwidgets.sae.corpus_statistics.top_examples import NONE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from numpy.typing import NDArray

# Axes of the arrays; axes of the same name have the same length.
_FEATURE = "feature"
_AXES = {
    **dict.fromkeys(("features", "count", "total", "maxima", "exponent", "paired.count"), (_FEATURE,)),
    "histogram": (_FEATURE, "bin"),
    **dict.fromkeys(("near", "near.cosine"), (_FEATURE, "neighbour")),
    **dict.fromkeys(("along", "along.count"), (_FEATURE, "companion")),
    **{
        f"{which}{part}": (_FEATURE, which)
        for which in ("promoted", "suppressed")
        for part in ("", ".effect")
    },
    **{
        f"{which}.{name}": (row, which, *token_axis)
        for which, row in (("top", _FEATURE), ("drawn", "interval"))
        for name, token_axis in (
            *((name, ()) for name in ("value", "text", "place")),
            *((name, ("token",)) for name in ("ids", "activations")),
        )
    },
}
_IDS = ("top.ids", "drawn.ids", "promoted", "suppressed")


def require_whole(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Raise ValueError if arrays are inconsistent or refer to unknown features or tokens."""
    sizes = _sizes(arrays)
    if sizes["interval"] != sizes[_FEATURE] * INTERVALS or facts["before"] not in range(sizes["token"]):
        raise ValueError("the examples do not fit the features")
    features = arrays["features"]
    if not features.size or len(np.unique(features)) != len(features):
        raise ValueError("the features are empty or not unique")
    for name in ("features", "near", "along"):
        # Never as a list of all features: a damaged file may claim any number of them.
        _require_each(name, arrays[name], lambda numbers: (numbers >= 0) & (numbers < facts["d_sae"]))
    known = [int(number) for number in facts["pieces"]]
    for name in _IDS:
        _require_each(name, arrays.get(name, np.zeros(0, int)), lambda numbers: np.isin(numbers, known))
    for which in ("top", "drawn"):
        central = arrays[f"{which}.ids"][..., facts["before"]]
        if np.any((central == NONE) & (arrays[f"{which}.text"] != NONE)):
            raise ValueError(f"an example in {which!r} lacks its central token")


def _require_each(name: str, values: NDArray[Any], is_known: Callable[[NDArray[Any]], NDArray[Any]]) -> None:
    """Raise ValueError for a number that is neither known nor `NONE`."""
    if values.dtype.kind not in "iu" or not ((values == NONE) | is_known(values)).all():
        raise ValueError(f"the array {name!r} refers to unknown features or tokens")


def _sizes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the length of every axis; raise ValueError if arrays disagree on it."""
    sizes: dict[str, int] = {}
    for name, axes in _AXES.items():
        if name not in arrays:
            if name.removesuffix(".effect") in arrays:
                raise ValueError(f"the array {name!r} is missing")
            continue
        shape = arrays[name].shape
        agrees = [sizes.setdefault(axis, n) == n for axis, n in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or not all(agrees):
            raise ValueError(f"the array {name!r} has shape {shape}, which does not fit the others")
    return sizes
