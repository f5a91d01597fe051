"""Somers' D, in whole numbers: an exchange of neighbours gives the same share on every machine."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def somers_d(right: Sequence[int], given: Sequence[int]) -> float:
    """Return how far two lists of ranks agree, from -1 to 1, by the pairs that `right` does not tie.

    It is Kendall's tau where neither has ties; `scipy.stats.somersd` gives the same.
    """
    agreeing = untied = 0
    for (a, b), (c, d) in combinations(zip(right, given, strict=True), 2):
        agreeing += ((a > c) - (a < c)) * ((b > d) - (b < d))
        untied += a != c
    return agreeing / untied if untied else 0.0
