"""Sentences about explanations: every number in them is computed from the values again."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

import attnwidgets as aw
from attnwidgets.explanations import Attributions, MixingMap
from attnwidgets.explanations.results.verbalise import ENOUGH, SPANS, spans_of
from tests.examples import examples

WORDS = ["The", "soup", "was", "quite", "delicious", "today"]


def said(values, **options):
    return Attributions(values, axis=WORDS, unit="word", method="lrp", **options).describe()


def test_the_words_the_shares_and_the_target_are_named():
    text = said([0.0, 1.0, 0.0, 2.0, 6.0, -1.0], target="positive")
    assert text == (
        "Lrp: “delicious” speaks most for “positive” (67% of what speaks for “positive”). "
        "Against it speaks 10% of all weight, most of it “today” (100% of that)."
    )
    text = said([0.0, 4.0, 0.0, 3.0, 3.0, 1.0], target="positive", foil="negative")
    assert "“soup” matters most for “positive” rather than “negative” (36% of the whole)" in text or (
        "“quite delicious” matters most for “positive” rather than “negative” (55% of the whole)" in text
    )


def test_equal_and_empty_values_are_not_given_a_reason():
    assert "no word has any part in it" in said([0.0] * 6)
    assert "every word has the same part" in said([0.3] * 6)
    assert "speaks against it" in said([-1.0, 0, 0, 0, -3.0, 0], target="positive")


@settings(max_examples=examples(100))
@given(arrays(np.float64, 6, elements=st.floats(-5, 5, width=32)))
def test_shares_are_those_of_the_values(values):
    result = spans_of(values)
    positive = np.maximum(values, 0)
    assert len(result) <= SPANS
    if not result:
        assert not positive.any()
        return
    covered = np.zeros(6, dtype=bool)
    for span in result:
        assert not covered[span.first : span.stop].any()
        covered[span.first : span.stop] = True
        assert span.share == pytest.approx(positive[span.first : span.stop].sum() / positive.sum())
    assert positive[covered].min() >= positive[~covered].max(initial=0), "none is left out that has more"
    share = positive[covered].sum() / positive.sum()
    if share >= ENOUGH:
        smaller = np.sort(positive[covered])[1:].sum() / positive.sum()
        assert smaller < ENOUGH, "no element more than needed"


@settings(max_examples=examples(100))
@given(arrays(np.float64, 6, elements=st.floats(0, 5, width=32)))
def test_the_first_number_of_the_sentence_is_the_share_of_the_span_it_names(values):
    text = said(values)
    match = re.search(r"“([^”]*)” matters most \((less than 1|\d+)% of the whole\)", text)
    if match is None:
        assert not values.any() or (values == values[0]).all()
        return
    names = match.group(1).split()
    first = WORDS.index(names[0])
    assert WORDS[first : first + len(names)] == names
    share = values[first : first + len(names)].sum() / values.sum()
    assert match.group(2) == f"{share:.0%}"[:-1]


def test_pieces_of_words_are_read_together():
    attributions = Attributions([0.1, 2.9, 3, 1], axis=["[CLS]", "un", "##believable", "cat"])
    assert "“unbelievable” matters most (84%" in attributions.describe()
    two = Attributions([1, 2.9, 3], axis=["The", "␣key", "s"])
    assert "“keys” matters most" in two.describe()
    three = Attributions([1, 3], axis=["The", "␣key"], target="␣is", foil="␣are")
    assert "“key” matters most for “is” rather than “are” (75%" in three.describe()


def test_of_a_map_what_is_read_most_is_said():
    rows = np.array([[0.8, 0.1, 0.1], [0.5, 0.1, 0.4], [0.9, 0.05, 0.05]])
    weights = MixingMap(rows[None], query=["a", "b", "c"], layers=[3], method="attention")
    text = weights.describe()
    assert "“a” is read most, 73% of a row on average" in text
    assert "“b” reads “c” most, 40% of its row" in text
    many = MixingMap(np.stack([rows, rows]), query=["a", "b", "c"], method="attention")
    assert many.describe() == "Attention: 2 layers, 3 by 3 tokens."


def test_a_table_has_no_sentence():
    card = aw.results.Scorecard(np.zeros((2, 1, 1, 1)), metrics=["m"], methods=["a"], x=[0])
    with pytest.raises(TypeError, match="cannot be described in words"):
        card.describe()


def test_of_a_real_prediction(minilm):
    del minilm  # skips where it is not there
    model, tokenizer = aw.demo_model("classifier")
    trace = aw.trace(model, tokenizer, "She gave a lifeless performance as the young queen.")
    text = aw.lrp(trace, unit="word").describe()
    assert "“lifeless” speaks most for “negative”" in text


def test_of_a_map_the_three_strongest_relations_are_said():
    rows = np.array(
        [[0.1, 0.6, 0.3, 0.0], [0.05, 0.15, 0.4, 0.4], [0.2, 0.5, 0.3, 0.0], [0.0, 0.8, 0.1, 0.1]]
    )
    text = MixingMap(rows[None], query=list("abcd"), layers=[2], method="attention").describe()
    assert text == (
        "Attention in layer 2: “b” is read most, 51% of a row on average. "
        "Apart from that, “b” reads “c” most, 40% of its row; "
        "then “b” reads “d” (40%) and “a” reads “c” (30%)."
    )


def test_attributions_are_said_by_their_view_as_by_themselves():
    rows = Attributions(
        np.array([[0.0, 1, 0, 2, 6, -1], [1.0, 0, 0, 0, 0, 3]]),
        axis=WORDS,
        unit="word",
        target=["positive", "negative"],
        method="lrp",
    )
    assert aw.TokenStrip(rows).describe() == rows.describe()
