"""Recall of given evidence: of all methods, with ties, in any model whose truth is given."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate.metrics.recall_of_truth import recall
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.zoo.made import made

TEXTS = ["fadebcfadeb", "abca", "hgfhg"]


def induction():
    return made("induction", letters="abcdefgh", length=16)


def test_ties_share_the_places_that_are_left():
    assert recall(np.array([3.0, 2.0, 1.0, 0.0]), [0, 1]) == 1.0
    assert recall(np.array([3.0, 2.0, 1.0, 0.0]), [2, 3]) == 0.0
    assert recall(np.ones(8), [1, 4]) == pytest.approx(2 / 8)
    # The first is recalled; the second rank goes to one of three.
    assert recall(np.array([1.0, 5.0, 1.0, 1.0]), [1, 2]) == pytest.approx((1 + 1 / 3) / 2)
    # Rounding is a tie.
    assert recall(np.array([0.5, 1.0, 1.0 + 1e-8, 0.0]), [1]) == pytest.approx(0.5)


def test_what_has_no_value_above_0_is_not_named():
    assert recall(np.zeros(8), [1, 4]) == 0.0
    assert recall(np.array([0.0, 5.0, 0.0, 0.0]), [1, 2]) == 0.5
    assert recall(np.array([1e-12, 5.0, -1.0]), [0, 1, 2]) == pytest.approx(1 / 3)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
def test_it_is_the_mean_over_random_orders_of_ties(seed):
    draw = np.random.default_rng(seed)
    values, evidence = draw.integers(1, 4, 9).astype(float), sorted(draw.choice(9, 4, replace=False))
    orders = [np.argsort(-(values + draw.uniform(0, 0.1, 9)))[:4] for _ in range(20_000)]
    sampled = np.mean([np.isin(order, evidence).mean() for order in orders])
    assert recall(values, evidence) == pytest.approx(sampled, abs=0.01)


@pytest.mark.slow
def test_all_methods_stand_beside_chance_and_the_truth():
    card = aw.evaluate.recall_of_truth(*induction(), TEXTS, "all")
    assert card.methods[-2:] == card.baselines == ("random", "oracle")
    assert set(card.methods[:-2]) == set(aw.methods().names) - {
        "mixing",
        "mixing_ratio",
        "grad_cam",
        "caption_words",
    }
    assert "mixing_ratio is left out" in card.warning
    assert card.n_examples == 3
    by_name = dict(zip(card.methods, card.mean[0, :, 0], strict=True))
    assert by_name["oracle"] == by_name["occlusion"] == 1.0
    assert by_name["random"] == pytest.approx(np.mean([3 / 12, 3 / 5, 3 / 6]))
    assert np.nanmin(card.samples) >= 0
    assert np.nanmax(card.samples) <= 1
    view = aw.views.ScorecardView(card)
    assert view.score("recall_of_truth", "occlusion") == 1.0
    view.close()


def test_removing_one_of_two_copies_changes_less_than_removing_what_is_needed():
    model, tokenizer = induction()
    card = aw.evaluate.recall_of_truth(model, tokenizer, ["abca", "abcabca"], ["occlusion"])
    # Redundant evidence: with a second copy of "ab", neither alone is missed, and others rank beside it.
    assert card.of("occlusion")[0, 0, 0] == 1.0
    assert card.of("occlusion")[1, 0, 0] < 0.9


@pytest.mark.slow
def test_a_method_that_lacks_its_library_is_left_out_and_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "captum", None)
    monkeypatch.setitem(sys.modules, "captum.attr", None)
    card = aw.evaluate.recall_of_truth(*induction(), "abca", "all")
    assert not {"occlusion", "shapley_sampling"} & set(card.methods)
    assert "occlusion is left out: " in card.warning
    assert "captum" in card.warning
    with pytest.raises(RuntimeError, match="captum"):
        aw.evaluate.recall_of_truth(*induction(), "abca", "occlusion")


@pytest.mark.slow
def test_none_is_all_and_magnitude_ranks_what_speaks_against():
    model, tokenizer = induction()
    recalled = aw.evaluate.recall_of_truth(model, tokenizer, TEXTS[0], None)
    assert recalled.methods == aw.evaluate.recall_of_truth(model, tokenizer, TEXTS[:1], "all").methods
    names = ["integrated_gradients"]
    by_value = aw.evaluate.recall_of_truth(model, tokenizer, TEXTS[0], names)
    by_size = aw.evaluate.recall_of_truth(model, tokenizer, TEXTS[0], names, by="magnitude")
    # <s> has -4.6, which is the largest by magnitude.
    assert by_value.mean[0, 0, 0] == 1.0
    assert by_size.mean[0, 0, 0] == pytest.approx(2 / 3)


def test_own_methods_options_and_labels_are_taken():
    def first(trace):
        return np.broadcast_to(np.eye(len(trace.tokens))[0], (1, len(trace.tokens), len(trace.tokens)))

    methods = {"reads <s>": first, "CP": ("lrp", {"rule": "cp_lrp"})}
    card = aw.evaluate.recall_of_truth(*induction(), TEXTS[0], methods)
    assert card.methods == ("reads <s>", "CP", "random", "oracle")
    assert card.mean[0, :2, 0] == pytest.approx([0, 1 / 3])


@pytest.mark.parametrize("name", ["additive", "negation", "two_hop", "dyck", "histogram"])
def test_every_compiled_model_is_scored_for_its_right_answer(name):
    text = {
        "additive": "abhg",
        "negation": "abn",
        "two_hop": "bcaba",
        "dyck": "([",
        "histogram": "abacabadab",
    }
    card = aw.evaluate.recall_of_truth(*made(name), text[name], ["occlusion", "attention"], by="magnitude")
    assert card.methods == ("occlusion", "attention", "random", "oracle")
    # Removal finds the deciding tokens. Counting also reads <s>; closing reads brackets opened in between.
    least = {"histogram": 0.8}
    assert card.mean[0, 0, 0] >= least.get(name, 1.0)


def test_what_cannot_be_scored_is_named():
    model, tokenizer = induction()
    with pytest.raises(ValueError, match="texts is empty"):
        aw.evaluate.recall_of_truth(model, tokenizer, [], "attention")
    with pytest.raises(ValueError, match=r"texts holds 'abc', in which nothing decides"):
        aw.evaluate.recall_of_truth(model, tokenizer, "abc", "attention")
    with pytest.raises(ValueError, match=r"'atention' is unknown.*'attention'"):
        aw.evaluate.recall_of_truth(model, tokenizer, "abca", "atention")
    with pytest.raises(TypeError, match=r"mixing_ratio.*a number for each of 5 tokens"):
        aw.evaluate.recall_of_truth(model, tokenizer, "abca", "mixing_ratio")
    with pytest.raises(ValueError, match="by 'size' is not one of"):
        aw.evaluate.recall_of_truth(model, tokenizer, "abca", "attention", by="size")
    with pytest.raises(ValueError, match="model has no known truth"):
        aw.evaluate.recall_of_truth(random_classifier(), tiny.wordpiece(), "a", "attention")
