"""Average precision against brute force over all orders."""

from __future__ import annotations

from itertools import combinations, permutations
from math import isnan

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnwidgets.evaluate import average_precision, expected_average_precision
from tests.examples import examples


def of_order(order, relevant) -> float:
    """The textbook definition: precision at every relevant item, averaged."""
    ranks = [index for index, item in enumerate(order, 1) if item in relevant]
    return sum(number / position for number, position in enumerate(ranks, 1)) / len(ranks)


def over_orders(scores, relevant) -> float:
    """The mean over all orders that a ranking by scores leaves open."""
    ranked = sorted(scores, reverse=True)
    orders = [
        order for order in permutations(range(len(scores))) if [scores[item] for item in order] == ranked
    ]
    return float(np.mean([of_order(order, relevant) for order in orders]))


def test_without_ties_it_is_the_textbook_definition():
    scores = [0.1, 0.7, 0.05, 0.15]
    assert average_precision(scores, [1]) == 1.0
    assert average_precision(scores, [0]) == pytest.approx(1 / 3)
    assert average_precision(scores, [1, 0]) == pytest.approx((1 + 2 / 3) / 2)
    assert average_precision(scores, [0, 1], ties="together") == pytest.approx((1 + 2 / 3) / 2)


@settings(max_examples=examples(100))
@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=6).flatmap(
        lambda scores: st.tuples(
            st.just(scores), st.sets(st.integers(0, len(scores) - 1), min_size=1, max_size=len(scores))
        )
    )
)
def test_ties_are_worth_the_mean_over_their_orders(case):
    scores, relevant = case
    assert average_precision(scores, relevant) == pytest.approx(over_orders(scores, relevant), abs=1e-12)


def test_ties_together_rank_at_the_last_of_their_places():
    # Items 0 and 1 share the first rank, where one of two is relevant.
    assert average_precision([1, 1, 0], [0], ties="together") == pytest.approx(1 / 2)
    assert average_precision([1, 1, 0], [0, 2], ties="together") == pytest.approx((1 / 2 + 2 / 3) / 2)
    assert average_precision([0, 0, 0, 0], [2], ties="together") == pytest.approx(1 / 4)


@pytest.mark.parametrize("n", [1, 2, 5])
def test_the_closed_form_of_chance_is_the_mean_over_all_orders(n):
    for size in range(1, n + 1):
        means = [over_orders([0] * n, set(relevant)) for relevant in combinations(range(n), size)]
        assert expected_average_precision(size, n) == pytest.approx(np.mean(means), abs=1e-12)
        assert average_precision([3.0] * n, range(size)) == pytest.approx(means[0], abs=1e-12)


def test_nothing_relevant_is_undefined():
    assert isnan(average_precision([1, 2], []))


@pytest.mark.parametrize(
    ("arguments", "options", "told"),
    [
        (([1, float("nan")], [0]), {}, "NaN"),
        (([1, 2], [2]), {}, "items 0 to 1"),
        (([1, 2], [0]), {"ties": "expcted"}, "Did you mean 'expected'"),
    ],
)
def test_bad_input_is_refused(arguments, options, told):
    with pytest.raises(ValueError, match=told):
        average_precision(*arguments, **options)


@pytest.mark.parametrize(("relevant", "n"), [(0, 3), (4, 3)])
def test_chance_needs_something_relevant(relevant, n):
    with pytest.raises(ValueError, match="n_relevant"):
        expected_average_precision(relevant, n)
