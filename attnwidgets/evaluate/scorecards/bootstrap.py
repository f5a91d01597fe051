"""Confidence intervals by resampling examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.evaluate.arrays import Bools, Float

_AT_ONCE = 2_000_000  # counts held at a time
_FEWEST = 2  # examples that an interval needs


def bootstrap(samples: Float, *, level: float, resamples: int, seed: int) -> tuple[Float, Float]:
    """Return the percentile interval of the mean over examples, low and high [...].

    Examples are drawn with replacement, the same ones for every score, so that scores of one table can be
    compared as paired. Undefined scores (NaN) are left out of their own mean; a score that fewer than two
    examples have gets no interval (NaN).

    Args:
        samples: [example, ...].
        level: Coverage, such as 0.95.
        resamples: How often examples are drawn.
        seed: Seed of the draws.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    known = (~np.isnan(samples)).sum(axis=0)
    return _ends(_means(samples, resamples, seed), known >= _FEWEST, level)


def bootstrap_of(
    statistic: Callable[[Float], Float], samples: Float, *, level: float, resamples: int, seed: int
) -> tuple[Float, Float]:
    """Return the percentile interval of a function of means over examples, low and high.

    Draws in which the function is undefined (NaN) are left out.

    Args:
        statistic: Takes means [draw, ...] and returns [draw, ...], each draw independently.
        samples: [example, ...].
        level: Coverage, such as 0.95.
        resamples: How often examples are drawn.
        seed: Seed of the draws.
    """
    draws = statistic(_means(samples, resamples, seed))
    enough = np.full(draws.shape[1:], len(samples) >= _FEWEST) & ~np.isnan(draws).all(axis=0)
    return _ends(draws, enough, level)


def _means(samples: Float, resamples: int, seed: int) -> Float:
    """Return the means of examples drawn with replacement [draw, ...]."""
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
    return means.reshape(resamples, *samples.shape[1:])


def _ends(draws: Float, enough: Bools, level: float) -> tuple[Float, Float]:
    """Return the ends that hold `level` of the draws; NaN without enough examples."""
    ends = np.full((2, *draws.shape[1:]), np.nan)
    if enough.any():
        ends[:, enough] = np.nanquantile(draws[:, enough], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ends[0], ends[1]
