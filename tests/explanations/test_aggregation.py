from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.sae.feature_activations import FeatureActivations
from attnwidgets.tracing.text.units import TokenAxis
from tests.examples import examples
from tests.explanations.made import attention_map, axis, shares, unit


@st.composite
def partitions(draw, size: int | None = None):
    """Any division of n tokens into elements: contiguous or not, in any order, some elements empty."""
    n = size or draw(st.integers(1, 9))
    owners = draw(st.lists(st.integers(0, n), min_size=n, max_size=n))
    spans = [tuple(i for i in range(n) if owners[i] == owner) for owner in range(n + 1)]
    keep_empty = draw(st.booleans())
    return n, [span for span in spans if span or keep_empty]


def test_three_way_split_word_by_hand():
    # tokens: a | b1 b2 b3; the word b is tokens 1, 2, 3
    attention = [
        [0.4, 0.1, 0.2, 0.3],
        [0.5, 0.5, 0.0, 0.0],
        [0.2, 0.3, 0.1, 0.4],
        [0.8, 0.0, 0.1, 0.1],
    ]
    result = MixingMap([attention], query=axis("abcd", [(0,), (1, 2, 3)], None)).to("word")
    # to b: the sum over its pieces; from b: the mean over its pieces
    np.testing.assert_allclose(result.values[0], [[0.4, 0.6], [0.5, 0.5]], rtol=1e-6)
    assert "sum over key pieces, mean over query pieces" in result.note


def test_attributions_add_up_by_hand():
    scores = Attributions([1.0, -2.0, 0.5, 0.25], axis=axis("abcd", [(0,), (1, 2, 3)], None), target="x")
    np.testing.assert_allclose(scores.to("word").values, [1.0, -1.25])


@settings(max_examples=examples(80))
@given(partitions(), st.integers(0, 2**31))
def test_rows_still_sum_to_one_for_any_spans(division, seed):
    n, spans = division
    result = MixingMap(shares(2, n, n, seed=seed), query=axis("x" * n, spans, None)).to("word").values
    filled = [i for i, span in enumerate(spans) if span]
    empty = [i for i, span in enumerate(spans) if not span]
    np.testing.assert_allclose(result[:, filled].sum(-1), 1.0, atol=1e-5)
    assert not result[:, empty].any()
    assert not result[:, :, empty].any()


@settings(max_examples=examples(60))
@given(partitions(), st.integers(0, 2**31))
def test_aggregation_equals_the_definition(division, seed):
    n, spans = division
    values = shares(1, n, n, seed=seed)
    result = MixingMap(values, query=axis("x" * n, spans, None)).to("word").values[0]
    for s, rows in enumerate(spans):
        for t, columns in enumerate(spans):
            block = [values[0, i, j] for i in rows for j in columns]
            expected = sum(block) / len(rows) if rows else 0.0
            assert result[s, t] == pytest.approx(expected, abs=1e-6)


def test_rectangular_map_aggregates_each_side_by_its_own_words():
    query = axis("pqr", [(0, 1), (2,)], None)
    key = axis("abcd", [(0,), (1, 2, 3)], None)
    values = shares(1, 3, 4)
    result = MixingMap(values, query=query, key=key, stack="cross").to("word").values
    expected = values[0, :2].mean(0)
    np.testing.assert_allclose(result[0, 0], [expected[0], expected[1:].sum()], rtol=1e-5)
    assert result.shape == (1, 2, 2)


def test_a_unit_of_one_side_leaves_the_other_as_it_is():
    query, key = axis("pqr", [(0, 1), (2,)], None), axis("abcd", None, None)
    values = shares(1, 3, 4)
    result = MixingMap(values, query=query, key=key, stack="cross")
    assert result.available_units() == ("token", "word")
    words = result.to("word")
    np.testing.assert_allclose(words.values[0], [values[0, :2].mean(0), values[0, 2]], rtol=1e-5)
    assert words.key_labels == tuple("abcd")
    assert MixingMap(values.transpose(0, 2, 1), query=key, key=query).to("word").shape == (1, 4, 2)


def test_through_words_to_sentences_is_the_same_as_straight_there():
    tokens = attention_map()
    np.testing.assert_allclose(
        tokens.to("word").to("sentence").values, tokens.to("sentence").values, atol=1e-6
    )


def test_causal_map_stays_causal_over_words_that_follow_each_other():
    words = attention_map(causal=True).to("word")
    assert words.causal
    assert not np.triu(words.values, 1).any()


def test_causal_map_is_not_called_causal_over_words_that_interleave():
    interleaved = axis("abcd", [(0, 2), (1, 3)], None)
    result = MixingMap(shares(1, 4, 4, causal=True), query=interleaved, causal=True).to("word")
    assert not result.causal
    assert result.values[0, 0, 1] > 0


def test_units_offered_are_those_that_nest():
    assert attention_map().available_units() == ("token", "word", "sentence")
    assert attention_map().to("word").available_units() == ("word", "sentence")


def test_a_finer_unit_is_refused():
    with pytest.raises(ValueError, match="a map by sentence cannot be read by word"):
        attention_map().to("sentence").to("word")


def test_unknown_unit_lists_the_units_and_the_nearest():
    with pytest.raises(ValueError, match=r"'token', 'word', 'sentence'\. Did you mean 'word'\?"):
        attention_map().to("wordd")


def test_a_units_own_spans():
    pair = unit("phrase", [(0, 1, 2, 3), (4, 5, 6)])
    tokens = attention_map()
    np.testing.assert_allclose(tokens.to(pair).values, tokens.to("sentence").values, atol=1e-6)
    assert tokens.to(pair).unit == "phrase"


@pytest.mark.parametrize(
    ("spans", "message"),
    [
        ([(0, 1), (3, 4, 5, 6)], "token 2 lies in no element"),
        ([(0, 1, 2), (2, 3, 4, 5, 6)], "token 2 lies in several elements"),
        ([(0, 1, 2, 3, 4, 5, 6, 7)], "names token 7"),
    ],
)
def test_spans_that_do_not_divide_the_tokens_are_refused(spans, message):
    with pytest.raises(ValueError, match=message):
        attention_map().to(unit("phrase", spans))


def test_max_over_words_is_not_the_words_of_the_max():
    tokens = attention_map()
    by_word = tokens.to("word").max("head").values
    np.testing.assert_allclose(by_word, tokens.to("word").values.max(1))
    assert not np.allclose(by_word, tokens.max("head").to("word").values)


def test_plain_axis_offers_its_one_unit():
    given_map = MixingMap([[[1.0, 0.0], [0.5, 0.5]]], query=TokenAxis.plain(["a", "b"]))
    assert given_map.available_units() == ("token",)
    assert given_map.to("token") is given_map


SPANS = [(0, 2), (2, 6)]


def six_tokens() -> tuple[MixingMap, TokenAxis]:
    axis = TokenAxis.plain(["The", "␣state", "-", "of", "-", "art"])
    weights = np.random.default_rng(0).dirichlet(np.ones(6), size=(2, 3, 6))
    return MixingMap(weights, query=axis), axis


def test_spans_are_given_as_pairs() -> None:
    made, axis = six_tokens()
    result = made.to(SPANS)
    assert (result.unit, result.query_labels) == ("span", ("The state", "-of-art"))
    assert result.query_unit.spans == ((0, 1), (2, 3, 4, 5))
    by_hand = np.stack([made.values[..., :2].sum(-1), made.values[..., 2:].sum(-1)], axis=-1)
    by_hand = np.stack([by_hand[..., :2, :].mean(-2), by_hand[..., 2:, :].mean(-2)], axis=-2)
    np.testing.assert_allclose(result.values, by_hand, atol=1e-6)
    row = Attributions(np.arange(6.0), axis=axis, map=made)
    assert row.to(SPANS).values.tolist() == [1, 14]
    assert row.to(np.array(SPANS)).labels == ("The state", "-of-art")
    whole = row.to(SPANS).to([(0, 6)])
    assert (whole.values.tolist(), whole.unit) == ([15], "spans")
    assert whole.map is not None
    assert whole.map.shape == (2, 3, 1, 1)
    fired = FeatureActivations(np.eye(6), axis=axis).to(SPANS)
    np.testing.assert_array_equal(fired.values, [[1, 1, 0, 0, 0, 0], [0, 0, 1, 1, 1, 1]])


def test_queries_and_keys_take_spans_of_their_own() -> None:
    made = MixingMap(np.full((1, 2, 4), 0.25), query=["x", "y"], key=["a", "b", "c", "d"])
    result = made.to(([(0, 2)], [(0, 1), (1, 4)]))
    np.testing.assert_allclose(result.values, [[[0.25, 0.75]]])
    with pytest.raises(ValueError, match="key axis: token 2 lies in no element"):
        made.to([(0, 2)])


@pytest.mark.parametrize(
    ("spans", "says"),
    [
        ([(0, 2), (1, 6)], "token 1 lies in several"),
        ([(0, 2), (3, 6)], "token 2 lies in no element"),
        ([(0, 2), (2, 7)], r"spans\[1\] is \(2, 7\).*tokens 0 to 5"),
        ([(0, 6), (6, 6)], r"spans\[1\] is \(6, 6\).*holds a token"),
        ([(-2, 6)], r"spans\[0\] is \(-2, 6\)"),
        ([], "token 0 lies in no element"),
    ],
)
def test_pairs_that_do_not_divide_the_tokens_are_refused(spans: list[tuple[int, int]], says: str) -> None:
    made, axis = six_tokens()
    for item in (made, Attributions(np.zeros(6), axis=axis), FeatureActivations(np.eye(6), axis=axis)):
        with pytest.raises(ValueError, match=says):
            item.to(spans)


@pytest.mark.parametrize("spans", [[(0, "two")], [(0, 1, 2)], [0, 2], (0, 6), 3, [(0.0, 6.0)]])
def test_spans_that_are_no_pairs_are_refused(spans: Any) -> None:
    for item in (six_tokens()[0], Attributions(np.zeros(6), axis=six_tokens()[1])):
        with pytest.raises(TypeError, match=r"pairs? \(start, end\)"):
            item.to(spans)
