"""A curve as a number: its mean or its area; and confidence intervals by resampling examples."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.evaluate.arrays import Bools, Float
    from attnwidgets.evaluate.scorecards.scorecard import Scorecard

_TWO = 2

_AT_ONCE = 2_000_000  # counts in memory at a time
_FEWEST = 2  # examples that an interval needs


def aopc(card: Scorecard) -> Scorecard:
    """Return the plain mean of a scorecard over its last axis: AOPC, if that is shares of features.

    An example with an undefined score at any share is undefined.

    Args:
        card: Scores over a last axis, such as those of `faithfulness`.

    Source: DeYoung et al. 2020, section 5; Samek et al. 2017, Evaluating the Visualization of What a Deep
    Neural Network Has Learned (there from k = 0 on, which adds a zero).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.faithfulness(trace, "saliency", operator="mask", unit="word")
        >>> card.shape, aw.evaluate.aopc(card).shape
        ((2, 3, 5), (2, 3, 1))
    """
    return _reduced(card, card.samples.mean(axis=-1, keepdims=True), "mean", "AOPC")


def area(card: Scorecard) -> Scorecard:
    """Return the area under every curve of a scorecard, by trapezoids between the values of its last axis.

    The last axis is not scaled: for shares from 0 to 1, the area lies between the least and greatest value.

    Args:
        card: Scores over a last axis of numbers, such as those of `faithfulness`.

    Raises:
        ValueError: If the last axis has fewer than two values, or they do not rise.

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> card = aw.evaluate.faithfulness(trace, "saliency", operator="mask", metrics="deletion")
        >>> aw.evaluate.area(card).x
        ('area',)
    """
    x = [float(label) if isinstance(label, (int, float)) else np.nan for label in card.x]
    steps = np.diff(x)
    if len(x) < _TWO or not (steps > 0).all():
        raise ValueError(f"an area needs two or more rising values of {card.x_name!r}, not {list(card.x)!r}.")
    heights = (card.samples[..., 1:] + card.samples[..., :-1]) / 2
    return _reduced(card, (heights * steps).sum(axis=-1, keepdims=True), "area", "area")


def abpc(card: Scorecard) -> Scorecard:
    """Return the area between the two perturbation curves of a scorecard: the higher, the better.

    The first curve removes the features from the most to the least relevant, the second from the least to
    the most. The second is `insertion` read from its end: keeping the top k alone removes the n - k least
    relevant features. The area between them is area(insertion) - area(deletion), and random orders have 0.

    Args:
        card: Result of `faithfulness` with the metrics "deletion" and "insertion", for thresholds from 0
            to 1.

    Raises:
        ValueError: If "deletion" or "insertion" is missing, or the thresholds do not go from 0 to 1.

    Source: Schulz et al. 2020, Restricting the Flow: Information Bottlenecks for Attribution, section 4.2
    (the area between morf and lerf curves).

    Example:
        >>> trace = aw.trace(*aw.demo_model("classifier"), "A fine film with a weak end.")
        >>> removal = aw.evaluate.Removal("mask", thresholds=(0, 0.25, 0.5, 0.75, 1))
        >>> metrics = ("deletion", "insertion")
        >>> card = aw.evaluate.faithfulness(trace, "saliency", removal=removal, metrics=metrics)
        >>> aw.evaluate.abpc(card).metrics
        ('abpc',)
    """
    names = list(card.metrics)
    lacking = [name for name in ("deletion", "insertion") if name not in names]
    if lacking:
        raise ValueError(
            f"abpc needs the metrics 'deletion' and 'insertion'; {lacking[0]!r} is not in the card."
        )
    if not len(card.x) or (float(card.x[0]), float(card.x[-1])) != (0.0, 1.0):
        raise ValueError(f"abpc needs thresholds from 0 to 1, not {list(card.x)!r}.")
    areas = area(card)
    samples = areas.samples
    between = samples[:, [names.index("insertion")]] - samples[:, [names.index("deletion")]]
    return areas.with_samples(between, step="insertion less deletion", metrics=("abpc",))


def _reduced(card: Scorecard, samples: Float, step: str, label: str) -> Scorecard:
    """Return a scorecard whose last axis became a single number."""
    return card.with_samples(
        samples, step=f"{step} over {card.x_name}", x=[label], x_name=f"over {card.x_name}", x_notes=[""]
    )


def bootstrap(samples: Float, *, level: float, resamples: int, seed: int) -> tuple[Float, Float]:
    """Return the percentile interval of the mean over examples, low and high [...].

    Examples are drawn with replacement, the same examples for every score, so that scores of a table can be
    compared as paired. Undefined scores (NaN) are left out of the mean; a score that fewer than two
    examples have gets no interval (NaN).

    Args:
        samples: [example, ...].
        level: Coverage, such as 0.95.
        resamples: How often examples are drawn.
        seed: Seed of the draws.

    Source: Efron and Tibshirani 1993, chapter 13.
    """
    counts = (~np.isnan(samples)).sum(axis=0)
    return _ends(_means(samples, resamples, seed), counts >= _FEWEST, level)


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
    defined = ~np.isnan(flat)
    filled = np.where(defined, flat, 0.0)
    complete = bool(defined.all())
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, flat.shape[1]))
    step = max(1, _AT_ONCE // n)
    for start in range(0, resamples, step):
        stop = min(start + step, resamples)
        counts = generator.multinomial(n, np.full(n, 1 / n), size=stop - start).astype(np.float64)
        weights = np.float64(n) if complete else counts @ defined
        with np.errstate(invalid="ignore"):
            means[start:stop] = (counts @ filled) / weights
    return means.reshape(resamples, *samples.shape[1:])


def _ends(draws: Float, enough: Bools, level: float) -> tuple[Float, Float]:
    """Return the ends that hold `level` of the draws; NaN without enough examples."""
    ends = np.full((2, *draws.shape[1:]), np.nan)
    if enough.any():
        ends[:, enough] = np.nanquantile(draws[:, enough], [(1 - level) / 2, (1 + level) / 2], axis=0)
    return ends[0], ends[1]
