from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations import Attributions, MixingMap
from tests.explanations.made import TOKENS, attention_map, shares

A = np.array([[0.5, 0.5, 0.0], [0.25, 0.5, 0.25], [0.0, 0.75, 0.25]])


def small(values=A, **options) -> MixingMap:
    return MixingMap(values, query=["[CLS]", "b", "c"], **options)


@pytest.mark.parametrize(
    ("how", "diagonal", "expected"),
    [
        ("column_sum", True, [0.75, 1.75, 0.5]),
        ("column_sum", False, [0.25, 1.25, 0.25]),
        ("column_mean", True, [0.25, 1.75 / 3, 0.5 / 3]),
        ("column_mean", False, [0.125, 0.625, 0.125]),
        ("column_max", True, [0.5, 0.75, 0.25]),
        ("column_max", False, [0.25, 0.75, 0.25]),
        ("row_sum", True, [1.0, 1.0, 1.0]),
        ("row_sum", False, [0.5, 0.5, 0.75]),
        ("row_mean", False, [0.25, 0.25, 0.375]),
        ("row_max", False, [0.5, 0.25, 0.75]),
    ],
)
def test_columns_and_rows_reduce_in_closed_form(how, diagonal, expected):
    result = small().to_attributions(how, diagonal=diagonal)
    assert isinstance(result, Attributions)
    assert result.labels == ("[CLS]", "b", "c")
    np.testing.assert_allclose(result.values, expected, rtol=1e-6)
    side, reduction = how.split("_")
    axis = {"column": "query", "row": "key"}[side]
    same = small().reduce(axis, reduction, diagonal=diagonal)
    np.testing.assert_array_equal(same.values, result.values)
    assert same.steps == result.steps


@pytest.mark.parametrize(
    ("query", "position"),
    [("cls", 0), ("first", 0), ("last", 2), ("b", 1), (1, 1), (-1, 2), (np.int64(2), 2)],
)
def test_a_row_is_chosen_by_place_or_label(query, position):
    result = small().to_attributions("row", query=query)
    np.testing.assert_array_equal(result.values, A[position].astype(np.float32))
    others = small().to_attributions("row", query=query, diagonal=False)
    expected = A[position].copy()
    expected[position] = 0
    np.testing.assert_array_equal(others.values, expected.astype(np.float32))


def test_the_largest_of_the_others_may_be_negative():
    signed = small(-A - 1).to_attributions("column_max", diagonal=False)
    np.testing.assert_allclose(signed.values, [-1.0, -1.5, -1.0])


def test_steps_say_what_was_done():
    assert small().to_attributions("row", query="cls").steps == ("row of '[CLS]' (query 0)",)
    assert small().to_attributions("column_mean", diagonal=False).title == (
        "given, mean over queries, without the diagonal"
    )
    words = attention_map(layers=1).mean("head").to("word").to_attributions("column_sum")
    assert words.steps[-1] == "sum over queries"
    assert words.unit == "word"
    assert words.provenance["model"] == "made"


def test_every_layer_gives_a_row_of_its_own():
    source = attention_map(layers=3).mean("head")
    result = source.to_attributions("column_mean")
    assert result.targets == ("layer 0", "layer 1", "layer 2")
    np.testing.assert_allclose(result.values, source.values.mean(axis=1), rtol=1e-5)
    last = source.select(layer=-1).to_attributions("column_mean")
    assert last.shape == (len(TOKENS),)
    np.testing.assert_array_equal(last.values, result.select("layer 2").values)


def test_shares_are_shares_after_the_column_mean():
    result = attention_map(layers=1).mean("head").to_attributions("column_mean")
    assert float(result.values.sum()) == pytest.approx(1.0, abs=1e-5)
    assert float(result.to("word").values.sum()) == pytest.approx(1.0, abs=1e-5)


def test_a_function_reduces_too():
    result = small().reduce("query", lambda columns: np.median(columns, axis=0))
    np.testing.assert_allclose(result.values, [0.25, 0.5, 0.25])


def test_one_token_without_itself_is_zero():
    single = MixingMap([[1.0]], query=["a"])
    for how in ("column_sum", "column_mean", "row_max"):
        np.testing.assert_array_equal(single.to_attributions(how, diagonal=False).values, [0.0])


def test_one_head_needs_no_reduction_and_several_do():
    head = attention_map().select(head=1, layer=0)
    np.testing.assert_array_equal(
        head.to_attributions("row", query=2).values, attention_map().matrix(0, 1)[2]
    )
    with pytest.raises(ValueError, match=r"heads 0 to 1: reduce them first"):
        attention_map().to_attributions()


def test_between_two_sequences_there_is_no_diagonal():
    cross = MixingMap(shares(1, 2, 3), query=["a", "b"], key=["x", "y", "z"])
    assert cross.to_attributions("column_sum").labels == ("x", "y", "z")
    assert cross.to_attributions("row_sum").labels == ("a", "b")
    for how, options in (("column_sum", {}), ("row", {"query": 0})):
        with pytest.raises(ValueError, match="diagonal=False needs a map of a stack that attends to itself"):
            cross.to_attributions(how, diagonal=False, **options)


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda m: m.to_attributions("colum_mean"), ValueError, r"Did you mean 'column_mean'"),
        (lambda m: m.to_attributions("row"), ValueError, r"needs query=.*'\[CLS\]', 'b', 'c'"),
        (lambda m: m.to_attributions("row", query="lst"), ValueError, r"Did you mean 'last'"),
        (lambda m: m.to_attributions("row", query=3), IndexError, r"query 3 is out of range"),
        (lambda m: m.to_attributions("column_sum", query=1), ValueError, r"query=1 is for how='row'"),
        (lambda m: m.reduce("quer", "sum"), ValueError, r"Did you mean 'query'"),
        (lambda m: m.reduce("layer", "sum", diagonal=False), ValueError, r"diagonal=False is for 'query'"),
        (lambda m: m.reduce("query", "men"), ValueError, r"Did you mean 'mean'"),
        (lambda m: m.reduce("query", np.median), ValueError, r"median over query returned shape \(\), not"),
        (lambda m: m.reduce("query", lambda a: a), ValueError, r"returned shape \(3, 3\), not \(3,\)"),
    ],
)
def test_mistakes_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call(small())


def test_labels_that_occur_twice_are_named_by_number():
    twice = MixingMap(A, query=["the", "cat", "the"])
    with pytest.raises(ValueError, match="'the' is at 0, 2"):
        twice.to_attributions("row", query="the")
    with pytest.raises(ValueError, match="no element is a class token"):
        twice.to_attributions("row", query="cls")


def test_a_number_is_read_by_labels_and_by_the_words_for_positions():
    short = MixingMap(A, query=["[CLS]", "good", "␣film"])
    assert short.value("good", "film") == short.value("good", "last") == short.value(1, 2) == A[1, 2]
    assert short.value("cls", "first") == short.value(-3, 0) == A[0, 0]
    vector = Attributions([0.5, -1.0, 2.0], axis=["[CLS]", "good", "good"])
    assert vector.value("cls") == 0.5
    assert vector.value("last") == 2.0
    with pytest.raises(ValueError, match="source 'good' is at 1, 2; give one of these numbers"):
        vector.value("good")
    with pytest.raises(ValueError, match=r"key 'flim' is neither a label .* Did you mean .␣film."):
        short.value(0, "flim")
