"""Verdicts err as seldom as they say: intervals, p values and Holm's correction, to other implementations."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import ttest_1samp

from attnwidgets._significance import holm
from attnwidgets.circuits.claims.verdicts import Bootstrap, verdict_of


@pytest.mark.parametrize("n", [5, 10, 30])
def test_at_the_margin_claims_hold_in_at_most_a_twentieth_of_samples(n):
    confirmed = 0
    for seed in range(200):
        values = np.random.default_rng(seed).normal(0.1, 0.2, n)
        bootstrap = Bootstrap(2000, seed)
        above, below = bootstrap.above(values, 0.1), bootstrap.below(values, 0.1)
        confirmed += verdict_of(above, below, 0.95) == "holds"
    assert confirmed <= 10


def test_intervals_are_those_of_students_t_for_normal_numbers():
    values = np.random.default_rng(0).normal(0.5, 1, 12)
    low, high = Bootstrap(20_000, 0).interval(values, 0.95)
    expected = ttest_1samp(values, 0).confidence_interval(0.95)
    assert low == pytest.approx(expected.low, abs=0.12)
    assert high == pytest.approx(expected.high, abs=0.12)
    p = ttest_1samp(values, 0, alternative="greater").pvalue
    assert Bootstrap(20_000, 0).above(values, 0) == pytest.approx(p, abs=0.02)


def test_interval_and_p_value_agree():
    values = np.random.default_rng(3).normal(0.3, 0.4, 9)
    bootstrap = Bootstrap(5000, 0)
    low, high = bootstrap.interval(values, 0.95)
    for at in (low - 0.02, low + 0.02):
        assert (bootstrap.above(values, at) <= 0.025) == (at < low)
    for at in (high - 0.02, high + 0.02):
        assert (bootstrap.below(values, at) <= 0.025) == (at > high)


def test_few_texts_decide_nothing():
    bootstrap = Bootstrap(1000, 0)
    assert bootstrap.interval(np.ones(1), 0.95) == (-np.inf, np.inf)
    assert bootstrap.above(np.ones(1), 0) == 1
    assert bootstrap.above(np.ones(2), 0) > 0.025
    assert bootstrap.above(np.ones(8), 0) < 0.025


@pytest.mark.parametrize(("claims", "level"), [(1, 0.95), (3, 0.95), (5, 0.95), (2, 0.99)])
def test_the_fewest_texts_with_which_a_claim_can_hold(claims, level):
    bootstrap = Bootstrap(10_000, 0)
    needed = bootstrap.fewest(claims, level)
    clear = {n: holm([bootstrap.above(np.ones(n), 0.1)] * claims)[0] for n in (needed - 1, needed)}
    assert verdict_of(clear[needed], 1.0, level) == "holds"
    assert verdict_of(clear[needed - 1], 1.0, level) == "undecided"
    with pytest.raises(ValueError, match="resamples=100 are too few for 9 claims"):
        Bootstrap(100, 0).fewest(9, 0.95)


def test_holm_to_the_worked_example():
    # Holm 1979 by hand: 3 x 0.01, then 2 x 0.02, then the largest so far
    np.testing.assert_allclose(holm([0.03, 0.01, 0.02]), [0.04, 0.03, 0.04])
    np.testing.assert_array_equal(holm([0.5, 0.6]), [1.0, 1.0])
