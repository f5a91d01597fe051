"""Kendall's tau-b, in whole numbers: an exchange of neighbours gives the same share on every machine."""

from __future__ import annotations

import math
from itertools import combinations
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def tau_b(first: Sequence[int], second: Sequence[int]) -> float:
    """Return Kendall's tau-b of two lists of places, from -1 to 1; 0 where one of them ties everything.

    scipy's `kendalltau` gives the same, after a second of import.
    """
    agreeing = untied_first = untied_second = 0
    for (a, b), (c, d) in combinations(zip(first, second, strict=True), 2):
        one, other = (a > c) - (a < c), (b > d) - (b < d)
        agreeing += one * other
        untied_first += one != 0
        untied_second += other != 0
    scale = math.sqrt(untied_first * untied_second)
    return agreeing / scale if scale else 0.0
