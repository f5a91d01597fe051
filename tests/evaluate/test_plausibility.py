"""Scores that ask no model: how far an explanation spreads, and whether it names what people name."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate import (
    complexity,
    entropy,
    features_above,
    gini,
    plausibility,
    rationale_elements,
    sparsity,
)
from attnwidgets.explanations import Attributions
from tests.explanations.made import axis, random_classifier
from tests.tracing import tiny

SIX = ("recall", "token_f1", "iou", "iou_f1", "auprc", "average_precision")


@pytest.fixture(scope="module")
def traced() -> Any:
    """[CLS] un ##believ ##able cat [SEP]."""
    return aw.trace(random_classifier(), tiny.wordpiece(), "unbelievable cat")


def given(trace: Any, values: Any) -> Attributions:
    return Attributions(values, axis=trace.axes()[0])


def test_complexity_at_its_ends() -> None:
    equal, single = np.full(8, -0.3), np.eye(8)[2] * -5
    assert [sparsity(equal), gini(equal), features_above(equal)] == pytest.approx([0, 0, 8])
    assert entropy(equal) == pytest.approx(np.log(8))
    assert [sparsity(single), gini(single), features_above(single), entropy(single)] == pytest.approx(
        [7 / 8, 7 / 8, 1, 0]
    )
    for measure in (sparsity, gini, features_above, entropy):
        assert np.isnan(measure(np.zeros(4)))


def test_complexity_by_hand_and_blind_to_sign_and_scale() -> None:
    values = np.array([0.1, -0.4, 0.0, 0.5])
    pairs = sum(abs(abs(a) - abs(b)) for a in values for b in values)
    assert gini(values) == pytest.approx(pairs / (2 * 4 * np.abs(values).sum()))
    assert entropy(values) == pytest.approx(-sum(p * np.log(p) for p in (0.1, 0.4, 0.5)))
    assert features_above(values, 0.2) == 2  # 0.1 is a fifth of the largest, which is not above it
    assert sparsity(values, 0.2) == 0.5
    for measure in (sparsity, gini, features_above, entropy):
        assert measure(-7 * values) == pytest.approx(measure(values))


def test_a_table_of_complexity_leaves_special_tokens_out(traced: Any) -> None:
    card = complexity({"mine": given(traced, [9, 1, 1, 1, 1, 9]), "none": given(traced, [9, 0, 0, 0, 0, 9])})
    assert card.of("mine")[0, :, 0] == pytest.approx([0, np.log(4), 0, 4])
    np.testing.assert_allclose(card.of("mine"), card.of("uniform"))
    assert np.isnan(card.of("none")).all()
    assert card.warning == "none is zero on an input"
    everything = complexity(given(traced, [9, 0, 0, 0, 0, 9]), special=True, metrics="features_above")
    assert everything.samples[0, 0, 0, 0] == 2
    made = Attributions(np.arange(7.0), axis=axis())
    assert complexity([made, made]).n_examples == 2


def test_characters_find_their_tokens_and_words(traced: Any) -> None:
    assert rationale_elements(traced, [(0, 12)]) == (1, 2, 3)
    assert rationale_elements(traced, [(0, 12)], "word") == (1,)
    assert rationale_elements(traced, [(2, 3), (13, 16)]) == (2, 4)
    assert rationale_elements(traced, [4, 1]) == (1, 4)
    assert rationale_elements(traced, [(12, 13)]) == ()


def test_plausibility_by_hand(traced: Any) -> None:
    # Ranked 4, 1, 2, 3; gold are 1, 2, 3 (one run): top three are 4, 1, 2 (two runs, one of them right).
    card = plausibility(traced, given(traced, [9, 3, 2, 1, 4, 9]), [(0, 12)], metrics=SIX)
    area = (1 + 0) / 2 * 0 + (0 + 1 / 2) / 2 / 3 + (1 / 2 + 2 / 3) / 2 / 3 + (2 / 3 + 3 / 4) / 2 / 3
    expected = [2 / 3, 2 / 3, 2 / 4, 2 / 3, area, (1 / 2 + 2 / 3 + 3 / 4) / 3]
    assert card.samples[0, :, 0, 0] == pytest.approx(expected)
    two = plausibility(traced, given(traced, [9, 3, 2, 1, 0, 9]), [(0, 12)], metrics=SIX[:4], k=2)
    assert two.samples[0, :, 0, 0] == pytest.approx([2 / 3, 4 / 5, 2 / 3, 1.0])


def test_equal_values_enter_the_curve_together(traced: Any) -> None:
    tied = plausibility(traced, given(traced, [0, 1, 1, 0, 0, 0]), [1], metrics="auprc")
    # From (0, 1) to (1, 1/2); the rest adds no recall.
    assert tied.samples[0, 0, 0, 0] == pytest.approx(0.75)


def test_the_oracle_is_perfect_and_chance_what_chance_is(traced: Any) -> None:
    card = plausibility(
        traced,
        given(traced, [0, 4, 3, 2, 1, 0]),
        [2],
        metrics=SIX,
        baseline=aw.evaluate.RandomBaseline(draws=4000),
    )
    np.testing.assert_allclose(card.of("oracle"), 1.0)
    chance = card.of("random")[0, :, 0]
    assert chance[:2] == pytest.approx([1 / 4, 1 / 4], abs=0.03)
    assert chance[5] == pytest.approx(aw.evaluate.expected_average_precision(1, 4), abs=0.03)
    assert (card.samples <= 1).all()
    assert (card.samples >= 0).all()


def test_undefined_is_nan_with_the_reason(traced: Any) -> None:
    flat = plausibility(traced, {"flat": given(traced, [1] * 6)}, [(0, 12)], metrics=SIX)
    assert np.isnan(flat.of("flat")).all()
    assert "flat is constant" in flat.warning
    empty = plausibility(traced, given(traced, [0, 1, 2, 3, 4, 0]), [(12, 13)])
    assert np.isnan(empty.samples).all()
    assert "no gold element" in empty.warning


def test_the_demo_texts_with_their_rationales() -> None:
    model, tokenizer = aw.demo_model("classifier")
    texts = aw.demo_texts("test")[:6]
    traces = aw.trace(model, tokenizer, [entry.text for entry in texts])
    card = plausibility(traces, {"gradient": "input_x_gradient"}, texts, unit="word", metrics="auprc")
    np.testing.assert_allclose(card.of("oracle"), 1.0)
    for item, trace in zip(texts, traces, strict=True):
        words = [trace.units["word"].labels[at] for at in rationale_elements(trace, item, "word")]
        for start, stop in item.rationale:
            assert item.text[start:stop].split()[0].strip(",.").lower() in " ".join(words).lower()


def test_bad_input_is_said(traced: Any) -> None:
    values = given(traced, [0, 1, 2, 3, 4, 0])
    with pytest.raises(ValueError, match="Did you mean 'entropy'"):
        complexity(values, metrics="entrpy")
    with pytest.raises(ValueError, match="threshold is a share"):
        complexity(values, threshold=2)
    with pytest.raises(ValueError, match="equally many for every name"):
        complexity({"a": [values], "b": [values, values]})
    with pytest.raises(TypeError, match="to_attributions"):
        complexity(aw.rollout(traced))
    with pytest.raises(ValueError, match="characters, 0 to 16 here"):
        plausibility(traced, values, [(3, 99)])
    with pytest.raises(ValueError, match="tokens 0 to 5"):
        plausibility(traced, values, [8])
    with pytest.raises(TypeError, match="a list of spans"):
        plausibility(traced, values, "cat")
    with pytest.raises(ValueError, match="rationales has 2 for 1 traces"):
        plausibility([traced], [values], [[1], [2]])
    bare = aw.trace(traced.model, None, input_ids=[1, 7, 2])
    with pytest.raises(ValueError, match="fast tokenizer"):
        plausibility(bare, given(bare, [0, 1, 2]), [(0, 1)])


def test_former_keywords_of_the_baseline_warn_and_give_the_same(traced: Any) -> None:
    values = given(traced, [9, 3, 2, 1, 4, 9])
    now = plausibility(traced, values, [2], baseline=aw.evaluate.RandomBaseline(draws=7, seed=3))
    with pytest.warns(DeprecationWarning, match=r"'draws', 'seed' belong in baseline=aw\.evaluate\.Random"):
        former = plausibility(traced, values, [2], draws=7, seed=3)
    np.testing.assert_array_equal(former.samples, now.samples)
    assert (now.samples != plausibility(traced, values, [2]).samples).any()
    with pytest.raises(ValueError, match="draws must be at least 1, not 0"):
        aw.evaluate.RandomBaseline(draws=0)
    with pytest.raises(TypeError, match=r"baseline takes an aw\.evaluate\.RandomBaseline, not 3"):
        plausibility(traced, values, [2], baseline=3)
