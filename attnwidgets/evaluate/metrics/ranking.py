"""Average precision: how high a ranking puts what should be on top."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import numpy as np

from attnwidgets._errors import suggest

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

Ties = Literal["expected", "together"]
TIES: tuple[Ties, ...] = ("expected", "together")


def average_precision(
    scores: Sequence[float] | np.ndarray, relevant: Iterable[int], *, ties: Ties = "expected"
) -> float:
    """Return the average precision of ranking by `scores`, highest first: 0 to 1, one if the relevant lead.

    The precision at the place of every relevant item (how many of the items down to it are relevant, as a
    share), averaged over the relevant items.

    Args:
        scores: One number for every item.
        relevant: Indices of the items that should lead.
        ties: "expected" takes the mean over all orders of items with equal scores, so that no order is
            favoured and a constant score is worth as much as chance (McSherry and Najork 2008, section 3.3);
            "together" ranks equal scores at one place, that of the last of them, as scikit-learn does.

    Returns:
        The average precision; NaN where nothing is relevant.

    Raises:
        ValueError: Where a score is NaN, an index is out of range, or `ties` is unknown.
    """
    if ties not in TIES:
        raise ValueError(
            f"ties {ties!r} is not one of {', '.join(map(repr, TIES))}.{suggest(str(ties), TIES)}"
        )
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError(f"scores must be one number an item, none of them NaN; it has shape {values.shape}.")
    hits = np.zeros(len(values))
    for index in relevant:
        if not 0 <= index < len(values):
            raise ValueError(f"relevant names item {index}; there are items 0 to {len(values) - 1}.")
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
    result = before = found = 0.0
    for group in np.split(hits, np.flatnonzero(last)[:-1] + 1):
        size, inside = len(group), group.sum()
        if ties == "together":
            result += inside * (found + inside) / (before + size)
        elif inside:
            result += _within(size, inside, before, found)
        before += size
        found += inside
    return float(result / total)


def _within(size: int, inside: float, before: float, found: float) -> float:
    """Return the expected sum of precisions at the relevant items of a group in random order.

    Args:
        size: Items in the group.
        inside: Relevant ones among them.
        before: Items that rank above the group.
        found: Relevant ones among those.
    """
    places = np.arange(1, size + 1)
    # Where place k is relevant, so many of the k - 1 items of the group above it are on average.
    above = (places - 1) * (inside - 1) / (size - 1) if size > 1 else np.zeros(1)
    return float((inside / size * (found + 1 + above) / (before + places)).sum())


def expected_average_precision(n_relevant: int, n: int) -> float:
    """Return the average precision of a random order of `n` items, of which `n_relevant` are relevant.

    With R relevant of n: (1/n) sum_k (1 + (k - 1)(R - 1)/(n - 1)) / k; about R/n for long texts, and more
    for short ones.

    Raises:
        ValueError: Where it is not the case that 1 <= n_relevant <= n.
    """
    if not 1 <= n_relevant <= n:
        raise ValueError(f"n_relevant must be 1 to n = {n}, not {n_relevant}.")
    return _within(n, n_relevant, 0, 0) / n_relevant
