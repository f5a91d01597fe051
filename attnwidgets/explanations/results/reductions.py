"""Reductions over heads, layers or targets: mean, max, sum, or any function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from attnwidgets._errors import suggest

Reduction = Literal["mean", "max", "sum"] | Callable[[Any], Any]


def reduce_first(array: Any, how: Reduction) -> Any:
    """Return `array` reduced over its first axis, in float64."""
    if callable(how):
        return how(np.asarray(array, dtype=np.float64))
    reduction, array = reduction_name(how), np.asarray(array)
    if reduction == "max":
        return array.max(axis=0).astype(np.float64)
    # Added up in float64, without a copy of all of it.
    return getattr(array, reduction)(axis=0, dtype=np.float64)


def reduction_name(how: Reduction) -> str:
    """Return the name of a reduction.

    Raises:
        ValueError: If it is neither known nor a function.
    """
    if callable(how):
        return str(getattr(how, "__name__", type(how).__name__))
    if how not in ("mean", "max", "sum"):
        near = suggest(str(how), ("mean", "max", "sum"))
        raise ValueError(f"reduction {how!r} is not 'mean', 'max', 'sum' or a function.{near}")
    return str(how)
