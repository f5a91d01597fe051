"""Agreement of rankings: against every pair counted by hand, with ties and constants, and refused input."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import attnwidgets as aw
from attnwidgets.evaluate.metrics.ranking import kendall, spearman, top_k_overlap
from attnwidgets.tracing.text.units import TokenAxis, Unit
from tests.examples import examples

# Few different values, so that most examples have ties.
VECTORS = st.integers(2, 7).flatmap(
    lambda n: st.tuples(*(st.lists(st.integers(-2, 2), min_size=n, max_size=n) for _ in range(2)))
)


def mean_ranks(values):
    """The rank of every value from 1; ties share the mean of their ranks."""
    return [
        np.mean([1 + sum(other < value for other in values) + i for i in range(values.count(value))])
        for value in values
    ]


@pytest.mark.slow
@given(VECTORS)
@settings(max_examples=examples(60))
def test_spearman_and_kendall_are_those_counted_by_hand(vectors):
    first, second = vectors
    arrays = [np.array(vector, dtype=np.float64) for vector in vectors]
    if len(set(first)) == 1 or len(set(second)) == 1:
        expected = float(len(set(first)) == len(set(second)) == 1)
        assert spearman(*arrays) == kendall(*arrays) == expected
        return
    ranks = [mean_ranks(vector) for vector in vectors]
    assert spearman(*arrays) == pytest.approx(np.corrcoef(*ranks)[0, 1], abs=1e-12)
    pairs = list(itertools.combinations(range(len(first)), 2))
    signs = [(np.sign(first[i] - first[j]), np.sign(second[i] - second[j])) for i, j in pairs]
    agreeing = sum(a * b for a, b in signs)
    untied = [sum(sign[side] != 0 for sign in signs) for side in (0, 1)]
    assert kendall(*arrays) == pytest.approx(agreeing / math.sqrt(untied[0] * untied[1]), abs=1e-12)


@given(VECTORS, st.integers(1, 6))
@settings(max_examples=examples(60))
def test_overlap_is_that_of_sets_where_no_tie_is_cut_and_never_leaves_its_range(vectors, k):
    arrays = [np.array(vector, dtype=np.float64) for vector in vectors]
    k = min(k, len(arrays[0]))
    result = top_k_overlap(*arrays, k)
    assert 0 <= result <= 1 + 1e-12
    assert result == pytest.approx(top_k_overlap(*reversed(arrays), k))
    assert top_k_overlap(arrays[0], arrays[0], k) == pytest.approx(1)
    highest = [sorted(range(len(v)), key=lambda i: -v[i])[:k] for v in vectors]
    cut = any(sum(x >= v[top[-1]] for x in v) > k for v, top in zip(vectors, highest, strict=True))
    if not cut:
        assert result == pytest.approx(len(set(highest[0]) & set(highest[1])) / k)


def test_a_constant_vector_overlaps_as_much_as_chance():
    ranked = np.array([5.0, 4.0, 3.0, 2.0, 1.0])
    assert top_k_overlap(ranked, np.ones(5), 2) == pytest.approx(2 / 5)


def attributions(values, **options):
    n = np.shape(values)[-1]
    return aw.results.Attributions(values, axis=[f"t{i}" for i in range(n)], **options)


def test_attributions_against_each_other():
    result = aw.evaluate.agreement(
        {
            "a": attributions([1, 2, 3, 4]),
            "reversed": attributions([4, 3, 2, 1]),
            "b": attributions([1, 2, 4, 3]),
        }
    )
    assert result.names == ("a", "reversed", "b")
    assert result.matrix.tolist() == [
        [1, -1, pytest.approx(0.8)],
        [-1, 1, pytest.approx(-0.8)],
        [pytest.approx(0.8), pytest.approx(-0.8), 1],
    ]
    tau = aw.evaluate.agreement(
        [attributions([1, 2, 3, 4]), attributions([1, 2, 4, 3])], "kendall", names=["a", "b"]
    )
    assert tau.between("a", "b") == pytest.approx(4 / 6)
    top = aw.evaluate.agreement([attributions([1, 2, 3, 4]), attributions([1, 4, 2, 3])], "top_k", k=2)
    assert top.matrix[0, 1] == 0.5
    assert top.chance == 0.5
    assert top.names == ("given", "given (2)")


def test_by_magnitude_a_strong_no_counts_as_much_as_a_strong_yes():
    signed, size = attributions([-4, 1, 2, 3]), attributions([4, 1, 2, 3])
    assert aw.evaluate.agreement([signed, size]).matrix[0, 1] < 1
    assert aw.evaluate.agreement([signed, size], by="magnitude").matrix[0, 1] == 1


def test_a_constant_item_is_named_and_scores_nothing():
    result = aw.evaluate.agreement({"a": attributions([1, 2, 3]), "flat": attributions([2, 2, 2])})
    assert result.matrix.tolist() == [[1, 0], [0, 1]]
    assert "'flat' is constant" in result.warning
    assert "'a'" not in result.warning


def special_axis():
    tokens = ("[CLS]", "the", "cat", "[SEP]")
    unit = Unit("token", tokens, tuple((i,) for i in range(4)), (True, False, False, True))
    return TokenAxis(tokens, {"token": unit})


def test_special_elements_can_be_left_out():
    first = aw.results.Attributions([9, 1, 2, 8], axis=special_axis())
    second = aw.results.Attributions([9, 2, 1, 8], axis=special_axis())
    assert aw.evaluate.agreement([first, second]).matrix[0, 1] == pytest.approx(0.8)
    assert aw.evaluate.agreement([first, second], special=False).matrix[0, 1] == -1
    maps = [
        aw.results.MixingMap(np.outer(np.ones(4), item.values), query=special_axis(), causal=False)
        for item in (first, second)
    ]
    assert aw.evaluate.agreement(maps, special=False).n_rows == 2
    assert aw.evaluate.agreement(maps, special=False).matrix[0, 1] == -1


def test_maps_are_compared_row_by_row_over_what_queries_can_see():
    rows = [np.tril(np.random.default_rng(seed).random((5, 5))) for seed in (0, 1)]
    maps = {str(i): aw.results.MixingMap(matrix, query=list("abcde")) for i, matrix in enumerate(rows)}
    result = aw.evaluate.agreement(maps)
    expected = np.mean([spearman(rows[0][i, : i + 1], rows[1][i, : i + 1]) for i in range(1, 5)])
    assert result.n_rows == 4
    assert result.matrix[0, 1] == pytest.approx(expected, abs=1e-6)
    whole = aw.evaluate.agreement(maps, over="all")
    lower = np.tril_indices(5)
    assert whole.n_rows == 1
    assert whole.n_elements == 15
    assert whole.matrix[0, 1] == pytest.approx(spearman(rows[0][lower], rows[1][lower]), abs=1e-6)
    top = aw.evaluate.agreement(maps, "top_k", k=3)
    assert top.n_rows == 2


def test_several_targets_count_as_rows():
    equal, opposite = attributions([[1, 2, 3], [1, 2, 3]]), attributions([[1, 2, 3], [3, 2, 1]])
    assert aw.evaluate.agreement([equal, opposite]).matrix[0, 1] == 0
    with pytest.raises(ValueError, match="2 targets"):
        aw.evaluate.agreement([attributions([1, 2, 3]), equal])


def test_what_does_not_compare_is_refused_in_words():
    short, long = attributions([1, 2]), attributions([1, 2, 3])
    with pytest.raises(ValueError, match="3 source elements, 'given' 2"):
        aw.evaluate.agreement([short, long])
    other = aw.results.Attributions([1, 2, 3], axis=["t0", "x", "t2"])
    with pytest.raises(ValueError, match=r"'x' as source element 1, 'given' 't1'.*\.to\('word'\)"):
        aw.evaluate.agreement([long, other])
    words = aw.results.Attributions(
        [1, 2, 3], axis=TokenAxis.plain(["a", "b", "c"], name="word"), unit="word"
    )
    with pytest.raises(ValueError, match="by word, 'given' by token"):
        aw.evaluate.agreement([long, words])
    square = aw.results.MixingMap(np.eye(3), query=list("abc"))
    with pytest.raises(TypeError, match="to_attributions"):
        aw.evaluate.agreement([long, square])
    deep = aw.results.MixingMap(np.ones((2, 3, 3)), query=list("abc"))
    with pytest.raises(ValueError, match=r"layers 0 to 1.*select\(layer"):
        aw.evaluate.agreement([deep, square])
    heads = aw.results.MixingMap(np.ones((1, 2, 3, 3)), query=list("abc"))
    with pytest.raises(ValueError, match=r"heads 0 to 1"):
        aw.evaluate.agreement([square, heads])
    with pytest.raises(ValueError, match="two or more"):
        aw.evaluate.agreement([long])
    with pytest.raises(TypeError, match="single explanation"):
        aw.evaluate.agreement(long)
    with pytest.raises(TypeError, match=r"items\[1\] is a list"):
        aw.evaluate.agreement([long, [1, 2, 3]])
    with pytest.raises(ValueError, match="'spearman'"):
        aw.evaluate.agreement([long, long], "spearmann")
    with pytest.raises(ValueError, match="k must be 1 to 2"):
        aw.evaluate.agreement([long, long], "top_k", k=3)
    with pytest.raises(ValueError, match="for measure='top_k'"):
        aw.evaluate.agreement([long, long], k=1)
    with pytest.raises(ValueError, match="nothing to rank"):
        aw.evaluate.agreement([attributions([1]), attributions([1])])
    with pytest.raises(ValueError, match="one twice"):
        aw.evaluate.agreement([long, long], names=["a", "a"])
    with pytest.raises(KeyError, match="'given'"):
        aw.evaluate.agreement([long, long]).between("given", "x")


def test_the_matrix_is_frozen_saved_and_shown_with_its_caveat(tmp_path):
    result = aw.evaluate.agreement(
        {"<i>": attributions([1, 2, 3, 4]), "b": attributions([1, 3, 2, 4])}, "top_k", k=1
    )
    with pytest.raises(ValueError, match="read-only"):
        result.matrix[0, 1] = 0
    again = aw.load(result.save(tmp_path / "agreement.safetensors"))
    assert again.to_dataframe().equals(result.to_dataframe())
    assert again.title == result.title == "overlap of the highest 1 of 4 tokens"
    shown = result._repr_html_()
    assert "&lt;i&gt;" in shown
    assert "by chance 0.25" in shown
    assert "may be wrong together" in shown
    assert "1.00" in [text.get_text() for text in result.figure().axes[0].texts]


def test_measures_of_one_model_agree_more_than_with_chance(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    explained = {"attention": aw.attention(trace), "rollout": aw.rollout(trace)}
    maps = {name: result.select(layer=2) for name, result in explained.items()}
    maps = {name: result if result.heads is None else result.mean() for name, result in maps.items()}
    for measure in ("spearman", "kendall", "top_k"):
        result = aw.evaluate.agreement(maps, measure)
        assert np.isfinite(result.matrix).all()
        assert result.between("attention", "rollout") > result.chance + 0.1
