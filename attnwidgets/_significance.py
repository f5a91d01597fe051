"""p-values of permutations, and Holm's correction for many of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    Float = NDArray[np.float64]


def two_sided(observed: float, draws: Float) -> float:
    """Return the share of draws, the observed value among them, that are at least as far from their mean.

    Exact where the draws are of exchanged labels (Phipson and Smyth 2010: never zero).
    """
    every = np.append(draws, observed)
    centre = every.mean()
    far = np.abs(draws - centre) >= abs(observed - centre) - 1e-12
    return float((1 + far.sum()) / (1 + len(draws)))


def holm(p: ArrayLike) -> Float:
    """Return p-values corrected for their number (Holm 1979), in the same shape; NaN is left out."""
    flat = np.asarray(p, dtype=np.float64).reshape(-1)
    corrected = np.full(flat.shape, np.nan)
    present = np.flatnonzero(~np.isnan(flat))
    order = present[np.argsort(flat[present], kind="stable")]
    scaled = flat[order] * (len(order) - np.arange(len(order)))
    corrected[order] = np.minimum(1.0, np.maximum.accumulate(scaled)) if len(order) else scaled
    return corrected.reshape(np.shape(p))
