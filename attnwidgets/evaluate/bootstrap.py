"""Confidence intervals by resampling examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

_AT_ONCE = 2_000_000  # counts held at a time
_FEWEST = 2  # examples from which an interval can be told


def bootstrap(
    samples: NDArray[np.float64], *, level: float, resamples: int, seed: int
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the percentile interval of the mean over examples, low and high [...].

    Examples are drawn with replacement, the same ones for every score, so that differences between scores
    of one table are those of paired examples. Undefined scores (NaN) are left out of their own mean; a score
    that fewer than two examples have gets no interval (NaN).

    Args:
        samples: [example, ...].
        level: Coverage, as 0.95.
        resamples: How many times examples are drawn.
        seed: Of the draws.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    n = len(samples)
    flat = samples.reshape(n, -1)
    known = ~np.isnan(flat)
    filled = np.where(known, flat, 0.0)
    complete = bool(known.all())
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, flat.shape[1]))
    step = max(1, _AT_ONCE // n)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        counts = generator.multinomial(n, np.full(n, 1 / n), size=stop - start).astype(np.float64)
        weights = np.float64(n) if complete else counts @ known
        with np.errstate(invalid="ignore"):
            means[start:stop] = (counts @ filled) / weights
    shape = samples.shape[1:]
    enough = known.sum(axis=0) >= _FEWEST
    ends = np.full((2, flat.shape[1]), np.nan)
    tails = [(1 - level) / 2, (1 + level) / 2]
    ends[:, enough] = np.nanquantile(means[:, enough], tails, axis=0)
    return ends[0].reshape(shape), ends[1].reshape(shape)
