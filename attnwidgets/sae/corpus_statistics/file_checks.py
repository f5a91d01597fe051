"""Whether statistics from a file hold together: a file may be damaged, or changed by someone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets.sae.corpus_statistics.tally import INTERVALS
from attnwidgets.sae.corpus_statistics.top_examples import NONE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

# Axes of the arrays: those of one name are of one length.
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
        f"{which}.{name}": (row, which, *place)
        for which, row in (("top", _FEATURE), ("drawn", "interval"))
        for name, place in (
            *((one, ()) for one in ("value", "text", "place")),
            *((one, ("token",)) for one in ("ids", "activations")),
        )
    },
}
_IDS = ("top.ids", "drawn.ids", "promoted", "suppressed")


def require_whole(arrays: Mapping[str, NDArray[Any]], facts: Mapping[str, Any]) -> None:
    """Raise a ValueError for arrays that do not fit together, or name what is not there."""
    sizes = _sizes(arrays)
    if sizes["interval"] != sizes[_FEATURE] * INTERVALS or facts["before"] not in range(sizes["token"]):
        raise ValueError("the examples do not fit the features")
    features = arrays["features"]
    if not features.size or len(np.unique(features)) != len(features):
        raise ValueError("no features, or one of them twice")
    for name in ("features", "near", "along"):
        _require_in(name, arrays[name], range(facts["d_sae"]))
    known = [int(number) for number in facts["pieces"]]
    for name in _IDS:
        _require_in(name, arrays.get(name, np.zeros(0, int)), known)
    for which in ("top", "drawn"):
        own = arrays[f"{which}.ids"][..., facts["before"]]
        if np.any((own == NONE) & (arrays[f"{which}.text"] != NONE)):
            raise ValueError(f"an example of {which!r} lacks its token")


def _require_in(name: str, values: NDArray[Any], known: Any) -> None:
    """Raise a ValueError for a number that is neither known nor `NONE`."""
    if values.dtype.kind not in "iu" or not np.isin(values, [NONE, *known]).all():
        raise ValueError(f"the array {name!r} holds what is not there")


def _sizes(arrays: Mapping[str, NDArray[Any]]) -> dict[str, int]:
    """Return the length of every axis, which is the same in all arrays that have it."""
    sizes: dict[str, int] = {}
    for name, axes in _AXES.items():
        if name not in arrays:
            if name.removesuffix(".effect") in arrays:
                raise ValueError(f"the array {name!r} is missing")
            continue
        shape = arrays[name].shape
        same = [sizes.setdefault(axis, n) == n for axis, n in zip(axes, shape, strict=False)]
        if len(shape) != len(axes) or not all(same):
            raise ValueError(f"the array {name!r} has shape {shape}, which does not fit the others")
    return sizes
