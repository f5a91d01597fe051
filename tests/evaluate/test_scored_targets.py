"""The target that a metric scores an explanation for, and outputs that have no probability."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.test_answers import MOODS, traced

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace


ONCE = aw.evaluate.Removal("zero", oracle=None, draws=1)


def answers() -> tuple[Trace, Any, Any]:
    """Return a trace with a word that occurs twice in the text, and its more and less probable answers."""
    trace = traced("Bert", "QuestionAnswering", "who sat", "the cat sat and the cat sat.")
    ids = [answer.id for answer in trace.predictions(100) if answer.label == "cat"]
    return trace, *ids


def rows() -> tuple[Trace, Any, Any]:
    trace: Trace = aw.trace(tiny.build(tiny.TEXT["GPT-2"]), None, input_ids=[3, 7, 9, 5, 11])
    best = trace.predictions(1)[0].id
    return trace, best, aw.targets.token(best, position=1)


def namesakes() -> tuple[Trace, Any, Any]:
    return traced("Bert", "SequenceClassification", id2label={0: "joy", 1: "fear", 2: "joy"}), 0, 2


def masked() -> tuple[Trace, Any, Any]:
    trace = traced("Bert", "MaskedLM", "the [MASK] sat")
    best = trace.predictions(1)[0].id
    return trace, best, aw.targets.token(best, position=1)


@pytest.mark.parametrize("make", [answers, rows, masked, namesakes])
def test_targets_of_the_same_name_are_told_apart(make: Any) -> None:
    trace, *targets = make()
    together = aw.input_x_gradient(trace, targets)
    for target in targets:
        given = aw.input_x_gradient(trace, target)
        if make is not rows:  # of a decoder, the names of tokens that follow each other
            np.testing.assert_allclose(together.select(given.target).values, given.values, atol=1e-6)
        meant = aw.evaluate.faithfulness(trace, given, target, removal=ONCE).values
        if make in (rows, masked) and target is targets[1]:
            with pytest.raises(ValueError, match=" at 1', a label that does not determine one: pass target="):
                aw.evaluate.faithfulness(trace, given, removal=ONCE)
        else:
            np.testing.assert_array_equal(aw.evaluate.faithfulness(trace, given, removal=ONCE).values, meant)


@pytest.mark.parametrize("head", ["SequenceClassification", "QuestionAnswering"])
def test_a_metric_that_needs_a_probability_says_what_a_number_has(head: str) -> None:
    numbers = {"num_labels": 3, "problem_type": "regression"} if head.startswith("Sequence") else {}
    trace = traced("Bert", head, "who sat", "the unbelievable cat sat.", **numbers)
    removal = aw.evaluate.Removal("mask", oracle=None, draws=1)
    for card in (
        aw.evaluate.fidelity(trace, "saliency", removal=removal),
        aw.evaluate.performance_loss([trace], "saliency", [None], removal=removal),
    ):
        assert np.isnan(card.values).all()
        assert '`faithfulness` with Removal(..., score="number") scores its number' in card.warning
    swapped = aw.evaluate.attention_permutation(trace, permutations=1)
    assert np.isnan(swapped.values).all()
    assert "numbers without probabilities" in swapped.warning
    with pytest.raises(ValueError, match="numbers without probabilities"):
        aw.evaluate.adversarial_attention(trace, steps=1)
    with pytest.raises(ValueError, match='take loss="change"'):
        aw.evaluate.effective_complexity(
            trace,
            "saliency",
            removal=aw.evaluate.Removal("mask", oracle="leave_one_out", draws=1),
            loss="log_loss",
        )
    # Where nothing but the number counts, a feature matters as much as it moves the number.
    occluded = aw.occlusion(trace, baseline="mask")
    moved = aw.results.Attributions(np.abs(occluded.values), axis=occluded.axis, unit="token", method="moved")
    card = aw.evaluate.importance_correlation(trace, moved, removal=aw.evaluate.Removal("mask", draws=1))
    assert card.select(metric="leave_one_out_variation_tau").values.flat[0] == pytest.approx(1)


def test_an_explanation_is_scored_for_what_it_is_of() -> None:
    trace = traced("Bert", "SequenceClassification", id2label=MOODS)
    other = trace.predictions()[-1].label
    given = aw.lrp(trace, other)
    removal = aw.evaluate.Removal("mask", oracle=None, draws=1)
    by_label = aw.evaluate.faithfulness(trace, given, other, removal=removal)
    np.testing.assert_array_equal(
        aw.evaluate.faithfulness(trace, given, removal=removal).values, by_label.values
    )
    with pytest.raises(ValueError, match=r"scores one target, and the explanations are of .*: pass target="):
        aw.evaluate.faithfulness(trace, {"one": given, "two": aw.lrp(trace)}, removal=removal)
    # A row of rollout is labelled by its layer, and is of no target.
    row = aw.rollout(trace).to_attributions("row", query=0).select(-1)
    card = aw.evaluate.faithfulness(trace, {"rollout": row, "lrp": given}, removal=removal)
    assert card.methods[:2] == ("rollout", "lrp")
    # A row of Chefer's map, or of the relevances of a layer, has the target of the map.
    for vector in (
        aw.chefer(trace, other).map.to_attributions("row", query=0),
        given.map.to_attributions("row", query=0),
    ):
        row = vector.select(-1)
        by_map, by_label = (
            aw.evaluate.faithfulness(trace, row, label, removal=removal) for label in (None, other)
        )
        np.testing.assert_array_equal(by_map.values, by_label.values)
    margin = aw.saliency(
        trace, aw.targets.function(lambda out: out.logits[:, 0] - out.logits[:, 1], "margin")
    )
    with pytest.raises(
        ValueError, match=r"the explanation is of 'margin', a label that does not determine one"
    ):
        aw.evaluate.faithfulness(trace, margin, removal=removal)
