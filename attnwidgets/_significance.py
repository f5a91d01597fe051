"""p-values of permutations, Holm's correction for many of them, and the interval of a share."""

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


def wilson(right: int, count: int, *, level: float = 0.95) -> tuple[float, float]:
    """Return Wilson's interval of a share.

    It takes every answer to be independent of the others, which holds for a single answer a person.

    Args:
        right: The number of right answers.
        count: The number of answers.
        level: Coverage, above 0 and below 1.

    Returns:
        The ends of the interval, from 0 to 1.

    Raises:
        ValueError: `right` is not from 0 to `count`, `count` is 0, or the level is out of range.

    Source:
        Wilson 1927, "Probable inference, the law of succession, and statistical inference".

    Example:
        >>> [round(end, 3) for end in aw.people.wilson(8, 10)]
        [0.49, 0.943]
    """
    from scipy.special import ndtri

    if not 0 <= right <= count or count == 0:
        raise ValueError(f"right={right} of count={count}: give 0 to count, of at least 1.")
    if not 0 < level < 1:
        raise ValueError(f"level={level} is not above 0 and below 1.")
    z2 = float(ndtri(0.5 + level / 2)) ** 2
    share = right / count
    middle = (share + z2 / (2 * count)) / (1 + z2 / count)
    half = float(np.sqrt(z2 * (share * (1 - share) / count + z2 / (4 * count**2)))) / (1 + z2 / count)
    # The ends of shares of 0 and 1 are exact.
    return (0.0 if right == 0 else middle - half), (1.0 if right == count else middle + half)
