"""How alike two vectors rank their elements: Spearman's rho, Kendall's tau-b, overlap of the k highest.

None of them is ever NaN. A constant vector ranks nothing: by convention its correlation is 0, and 1 with
another constant vector. `defined` says NaN instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.evaluate.arrays import Float


def is_constant(values: Float) -> bool:
    """Return whether all values are equal."""
    return bool((values == values[0]).all())


def defined(measure: Callable[[Float, Float], float], first: Float, second: Float) -> float:
    """Return a rank correlation; NaN if it is undefined, for which the measures have conventions."""
    if len(first) < 2 or not np.isfinite(second).all() or is_constant(first) or is_constant(second):  # noqa: PLR2004
        return float("nan")
    return measure(first, second)


def _with_constant(first: Float, second: Float) -> float | None:
    """Return the correlation if one vector is constant, else None."""
    constant = (is_constant(first), is_constant(second))
    return float(all(constant)) if any(constant) else None


def spearman(first: Float, second: Float) -> float:
    """Return Spearman's rho, -1 to 1: Pearson's correlation of ranks; equal values share their mean rank."""
    from scipy.stats import rankdata

    settled = _with_constant(first, second)
    if settled is not None:
        return settled
    ranks = [rankdata(values) - (len(values) + 1) / 2 for values in (first, second)]
    rho = (ranks[0] @ ranks[1]) / np.sqrt((ranks[0] @ ranks[0]) * (ranks[1] @ ranks[1]))
    return float(np.clip(rho, -1.0, 1.0))


def kendall(first: Float, second: Float) -> float:
    """Return Kendall's tau-b, -1 to 1: (C - D) / sqrt((P - T_1) (P - T_2)).

    Of the P pairs of elements, C are in the same order in both vectors, D in opposite orders, and T_1 and T_2
    are tied in the first and in the second.
    """
    from scipy.stats import kendalltau

    settled = _with_constant(first, second)
    return settled if settled is not None else float(kendalltau(first, second, variant="b").statistic)


def top_k_overlap(first: Float, second: Float, k: int) -> float:
    """Return the share of the k highest elements that two vectors have in common, 0 to 1.

    If m elements tie for the last r of the k places, each of them is in the top k to the degree r/m, and an
    element is in both top k to the lesser of its two degrees. So a vector shares its whole top k with itself,
    and a constant vector shares k/n of it with any other, as a random choice does.
    """
    return float(np.minimum(_membership(first, k), _membership(second, k)).sum() / k)


def _membership(values: Float, k: int) -> Float:
    last = np.partition(values, len(values) - k)[len(values) - k]
    above, equal = values > last, values == last
    degree = (k - above.sum()) / equal.sum()
    return np.where(above, 1.0, np.where(equal, degree, 0.0))
