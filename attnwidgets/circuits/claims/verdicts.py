"""Verdicts from paired differences over texts: bootstrap intervals, a margin, and several claims at once."""

from __future__ import annotations

from itertools import count
from typing import TYPE_CHECKING, Literal

import numpy as np
from scipy.special import ndtr, ndtri, stdtr, stdtrit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Float = NDArray[np.float64]

Verdict = Literal["holds", "fails", "undecided"]
_FEWEST = 2


class Bootstrap:
    """Means of resampled texts: the same samples for everything that is compared.

    Percentile intervals of few texts are too narrow; they are widened as Hesterberg (2015, section 3.3) does,
    to levels at which they would be exact for normal numbers.

    Args:
        resamples: Number of samples.
        seed: Seed.
    """

    def __init__(self, resamples: int, seed: int) -> None:
        self._resamples, self._seed = resamples, seed

    def means(self, values: Float) -> Float:
        """Return the means of samples of values [text]: [sample]."""
        rng = np.random.default_rng(self._seed)
        chosen = rng.integers(0, len(values), (self._resamples, len(values)))
        return values[chosen].mean(axis=1)

    def interval(self, values: Float, level: float) -> tuple[float, float]:
        """Return the interval of the mean of values [text]; infinite for fewer than 2."""
        n = len(values)
        if n < _FEWEST:
            return -np.inf, np.inf
        wider = ndtr(stdtrit(n - 1, (1 - level) / 2) * np.sqrt(n / (n - 1)))
        low, high = np.quantile(self.means(values), [wider, 1 - wider])
        return float(low), float(high)

    def above(self, values: Float, margin: float) -> float:
        """Return a one-sided p value of the hypothesis that the mean is not above a margin."""
        return self._p(values, margin, np.less_equal)

    def below(self, values: Float, margin: float) -> float:
        """Return a one-sided p value of the hypothesis that the mean is not below a margin."""
        return self._p(values, margin, np.greater_equal)

    def _p(self, values: Float, margin: float, against: np.ufunc) -> float:
        n = len(values)
        if n < _FEWEST:
            return 1.0
        return self._widened(int(against(self.means(values), margin).sum()), n)

    def _widened(self, beyond: int, n: int) -> float:
        """Return the p value if `beyond` samples of `n` texts lie on the other side of the margin."""
        share = (1 + beyond) / (1 + self._resamples)
        # The level whose widened interval ends at the margin.
        return 1.0 if share >= 1 else float(stdtr(n - 1, ndtri(share) * np.sqrt((n - 1) / n)))

    def fewest(self, claims: int, level: float) -> int:
        """Return the smallest number of texts with which any of so many claims can hold or fail.

        Raises:
            ValueError: If none is: there are too few samples for so many claims.
        """
        wanted = (1 - level) / 2 / claims
        if 1 / (1 + self._resamples) >= wanted:
            raise ValueError(
                f"resamples={self._resamples} are too few for {claims} claims at level={level}: take more "
                f"than {int(1 / wanted)}."
            )
        return next(n for n in count(_FEWEST) if self._widened(0, n) <= wanted)


def verdict_of(holds: float, fails: float, level: float) -> Verdict:
    """Return the verdict from adjusted one-sided p values of both hypotheses."""
    alpha = (1 - level) / 2
    if holds <= alpha:
        return "holds"
    return "fails" if fails <= alpha else "undecided"
