"""How high a ranking puts the relevant items, and how alike two vectors rank their elements.

How alike two vectors rank their elements: Spearman's rho, Kendall's tau-b, overlap of the k highest.

None of them is ever NaN. A constant vector ranks nothing: by convention its correlation is 0, and 1 with
another constant vector. `defined` says NaN instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import require_choice

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from attnwidgets.evaluate.arrays import Float

Ties = Literal["expected", "together"]
TIES: tuple[Ties, ...] = ("expected", "together")


def average_precision(
    scores: Sequence[float] | np.ndarray, relevant: Iterable[int], *, ties: Ties = "expected"
) -> float:
    """Return the average precision of ranking by `scores`, highest first: 0 to 1, its best value.

    It is 1 if the relevant items lead. It averages, over the relevant items, the precision at the rank of
    each: the share of relevant items among those down to it.

    Args:
        scores: A number per item.
        relevant: Indices of the items that should lead.
        ties: "expected" takes the mean over all orders of items with equal scores, so that no order is
            favoured and a constant score is worth as much as chance (McSherry and Najork 2008, section 3.3);
            "together" gives equal scores the rank of the last of them, as scikit-learn does.

    Returns:
        The average precision; NaN if no item is relevant.

    Raises:
        ValueError: If a score is NaN, an index is out of range, or `ties` is unknown.

    Example:
        >>> aw.evaluate.average_precision([0.9, 0.1, 0.8], relevant=[0, 1])  # (1/1 + 2/3) / 2
        0.8333333333333333
    """
    require_choice("ties", ties, TIES)
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError(
            f"scores must be one number per item, and never NaN; they have shape {values.shape}."
        )
    hits = np.zeros(len(values))
    for index in relevant:
        if not 0 <= index < len(values):
            raise ValueError(f"relevant has item {index}; there are items 0 to {len(values) - 1}.")
        hits[index] = 1.0
    total = hits.sum()
    if not total:
        return float("nan")
    order = np.argsort(-values, kind="stable")
    hits, sorted_values = hits[order], values[order]
    last = np.append(sorted_values[1:] != sorted_values[:-1], True)
    if last.all():
        precisions = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        return float((precisions * hits).sum() / total)
    result = before = hits_before = 0.0
    for group in np.split(hits, np.flatnonzero(last)[:-1] + 1):
        size, inside = len(group), group.sum()
        if ties == "together":
            result += inside * (hits_before + inside) / (before + size)
        elif inside:
            result += _within(size, inside, before, hits_before)
        before += size
        hits_before += inside
    return float(result / total)


def _within(size: int, inside: float, before: float, hits_before: float) -> float:
    """Return the expected sum of precisions at the relevant items of a group in random order.

    Args:
        size: Number of items in the group.
        inside: Number of relevant items among them.
        before: Number of items that rank above the group.
        hits_before: Number of relevant items among those.
    """
    ranks = np.arange(1, size + 1)
    # If rank k is relevant, so many of the k - 1 items of the group above it are, on average.
    above = (ranks - 1) * (inside - 1) / (size - 1) if size > 1 else np.zeros(1)
    return float((inside / size * (hits_before + 1 + above) / (before + ranks)).sum())


def expected_average_precision(n_relevant: int, n: int) -> float:
    """Return the average precision of a random order of `n` items, of which `n_relevant` are relevant.

    With R relevant of n: (1/n) sum_k (1 + (k - 1)(R - 1)/(n - 1)) / k; about R/n for long texts, more for
    short ones.

    Args:
        n_relevant: Number of relevant items, 1 to n.
        n: Number of items.

    Raises:
        ValueError: If n_relevant is out of range.

    Example:
        >>> aw.evaluate.expected_average_precision(1, 2)
        0.75
    """
    if not 1 <= n_relevant <= n:
        raise ValueError(f"n_relevant must be 1 to n = {n}, not {n_relevant}.")
    return _within(n, n_relevant, 0, 0) / n_relevant


def is_constant(values: Float) -> bool:
    """Return whether all values are equal."""
    return bool((values == values[0]).all())


def defined(measure: Callable[[Float, Float], float], first: Float, second: Float) -> float:
    """Return a rank correlation; NaN if it is undefined, for which the measures have conventions."""
    if len(first) < 2 or not np.isfinite(second).all() or is_constant(first) or is_constant(second):  # noqa: PLR2004
        return float("nan")
    return measure(first, second)


def _with_constant(first: Float, second: Float) -> float | None:
    """Return the correlation if either vector is constant, else None."""
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

    If m elements tie for the last r of the k ranks, each of them is in the top k to the degree r/m, and an
    element is in both top k to the lesser of its two degrees. So a vector shares its whole top k with itself,
    and a constant vector shares k/n of it with any other, as a random choice does.
    """
    return float(np.minimum(_membership(first, k), _membership(second, k)).sum() / k)


def _membership(values: Float, k: int) -> Float:
    last = np.partition(values, len(values) - k)[len(values) - k]
    above, equal = values > last, values == last
    degree = (k - above.sum()) / equal.sum()
    return np.where(above, 1.0, np.where(equal, degree, 0.0))
