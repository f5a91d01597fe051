"""The values of each method for compiled circuits, also where it misses."""

from __future__ import annotations

import functools
import itertools

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.zoo.made import SMALL, logits_of, made, traced


@functools.cache
def said(method, name="induction", text="", **options):
    """A number for each token: attributions, or the last row of the last layer, averaged over heads."""
    _, _, trace = traced(name, text)
    values = np.asarray(aw.explain(trace, method, **options).values, dtype=np.float64)
    return (
        values
        if values.ndim == 1
        else values.reshape(values.shape[0], -1, *values.shape[-2:])[-1].mean(0)[-1]
    )


# `fadebcfadeb`, then c. Evidence: b (5), reached through head 0.0; c (6), which is copied; b (11), the query.
INDUCTION = {
    "attention": ({0: 0.5, 6: 0.5}, 1e-4),
    "rollout": ({0: 0.25, 5: 0.125, 6: 0.1875, 10: 0.125, 11: 0.3125}, 1e-4),
    "value_zeroing": ({6: 1.0}, 1e-4),
    "attention_norm": ({6: 2**0.5}, 1e-3),
    "alti": ({6: 0.25, 11: 0.75}, 1e-3),
    "globenc": ({5: 2.0, 6: 8**0.5, 10: 12**0.5, 11: 24**0.5}, 1e-3),
    "alti_logit": ({5: 10 / 3, 6: 20 / 3}, 1e-3),
    "decompx": ({6: 10.0}, 1e-3),
    "input_x_gradient": ({6: 10.0}, 1e-3),
    "lrp": ({6: 5.0}, 1e-3),  # the product of attention and value halves it
    "saliency": ({6: 9.94, 11: 9.94}, 0.01),
    "chefer": ({6: 5.0, 11: 1.0}, 1e-3),
    # Sampled at 50 points of a path with a jump: the sum is right to a few per cent.
    "integrated_gradients": ({0: -4.6, 5: 4.5, 6: 4.5, 11: 4.5}, 0.4),
    "occlusion": ({5: 10.0, 6: 80 / 9, 11: 10.0}, 1e-3),  # against the mean of 9 embeddings, c's among them
}


@pytest.mark.parametrize("method", INDUCTION)
def test_induction(method):
    shares, tolerance = INDUCTION[method]
    expected = np.zeros(12)
    expected[list(shares)] = list(shares.values())
    np.testing.assert_allclose(said(method), expected, atol=tolerance)


def test_only_occlusion_and_integrated_gradients_name_all_three():
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    card = aw.evaluate.recall_of_truth(model, tokenizer, "fadebcfadeb", list(INDUCTION))
    recalls = dict(zip(card.methods, card.mean[0, :, 0], strict=True))
    full = {name for name, recall in recalls.items() if recall == 1.0}
    assert full == {"occlusion", "integrated_gradients", "oracle"}
    assert recalls["alti_logit"] == pytest.approx(2 / 3)
    assert recalls["value_zeroing"] == recalls["attention"] == pytest.approx(1 / 3)


@pytest.mark.parametrize(
    ("method", "options"),
    [
        ("lrp", {"rule": "cp_lrp"}),
        ("integrated_gradients", {}),
        ("occlusion", {}),
        ("input_x_gradient", {}),
        ("shapley_sampling", {}),
        ("deeplift", {}),
        ("lime", {"operator": "mean", "ridge": 0, "unit": "token"}),
        ("alti_logit", {}),
        ("decompx", {}),
    ],
)
@pytest.mark.parametrize("text", ["abchgfba", "hhe", "d"])
def test_additive_methods_return_the_weights(method, options, text):
    model = made("additive")[0]
    expected = [0.0, *(model.truth.weights[letter] for letter in text)]
    # Weights are up to 3.5 and float32 has 24 bits: 1e-5 leaves some dozens of roundings.
    values = said(method, "additive", text, target="positive", **options)
    np.testing.assert_allclose(values, expected, atol=1e-5)
    assert values.sum() == pytest.approx(sum(expected), abs=1e-4)


def test_attnlrp_halves_what_went_through_attention():
    weights = made("additive")[0].truth.weights
    halves = [0.0, *(weights[letter] / 2 for letter in "abchgfba")]
    np.testing.assert_allclose(said("lrp", "additive", target="positive"), halves, atol=1e-5)


def score(text):
    """The logit of "positive" of the negation model."""
    model, tokenizer = made("negation")
    return float(logits_of(model, tokenizer, [text])[0, 1])


def test_negation_is_an_interaction():
    weight = made("negation")[0].truth.weights["a"]
    alone, joint = {"a": score("a"), "n": score("n")}, score("na")
    assert alone == pytest.approx({"a": weight, "n": 0.0}, abs=1e-6)
    assert joint == pytest.approx(-weight, abs=1e-6)
    # f(na) - f(n) - f(a) + f() is 0 for every sum of contributions.
    assert joint - alone["n"] - alone["a"] + score("") == pytest.approx(-2 * weight, abs=1e-6)
    # Removing either changes more than removing both: single effects say +3 in all, the joint effect -1.5.
    single = (joint - alone["a"]) + (joint - alone["n"])
    assert single == pytest.approx(-3 * weight, abs=1e-6)
    assert joint - score("") == pytest.approx(-weight, abs=1e-6)


def test_no_sum_of_contributions_states_a_negation():
    """The best of all additive models of the subsets of "na", by least squares, is wrong by w / 2 each."""
    weight = made("negation")[0].truth.weights["a"]
    subsets = ["".join(letters) for k in range(3) for letters in itertools.combinations("na", k)]
    values = np.array([score(subset) for subset in subsets])
    design = np.array([[1, "n" in subset, "a" in subset] for subset in subsets], dtype=float)
    best, *_ = np.linalg.lstsq(design, values, rcond=None)
    np.testing.assert_allclose(np.abs(design @ best - values), weight / 2, atol=1e-6)
    # With the product of both as a third term, it is exact.
    exact = np.column_stack([design, design[:, 1] * design[:, 2]])
    terms, residual, *_ = np.linalg.lstsq(exact, values, rcond=None)
    np.testing.assert_allclose(terms, [0, 0, weight, -2 * weight], atol=1e-5)
    np.testing.assert_allclose(exact @ terms, values, atol=1e-5)
    assert not residual.size


@pytest.mark.parametrize(
    "method", ["occlusion", "integrated_gradients", "lrp", "input_x_gradient", "shapley_sampling"]
)
def test_what_additive_methods_say_of_a_negation_is_wrong_for_some_subset(method):
    values = said(method, "negation", "na", target="positive")
    subsets = [(), (1,), (2,), (1, 2)]
    actual = [score("".join("na"[i - 1] for i in subset)) for subset in subsets]
    errors = [abs(values[list(subset)].sum() - value) for subset, value in zip(subsets, actual, strict=True)]
    # An interaction of 2 w = 3 cannot be shared out: some subset is wrong by a quarter of it or more.
    assert max(errors) >= 0.75


@pytest.mark.slow
def test_shapley_values_share_the_interaction_evenly():
    # n: (-2 w) / 2, a: w + (-2 w) / 2, in closed form; sampled orders of two tokens are few.
    values = said("shapley_sampling", "negation", "na", target="positive", samples=400)
    assert values[1:].sum() == pytest.approx(-1.5, abs=0.1)
    assert values[1] == pytest.approx(-1.5, abs=0.5)
    assert values[2] == pytest.approx(0.0, abs=0.5)


def test_the_last_layer_shows_one_hop_of_two():
    _, _, trace = traced("two_hop")
    rows = aw.attention(trace).values[:, 0, -1]
    # bc ef ab a: layer 1 reads b of "ab", layer 2 reads c of "bc".
    assert rows.argmax(-1).tolist() == [6, 6, 2]
    result = said("value_zeroing", "two_hop")
    assert result.argmax() == 2
    assert result.max() == pytest.approx(1.0, abs=1e-6)
    np.testing.assert_allclose(said("occlusion", "two_hop") > 5, [0, 1, 1, 0, 0, 1, 1, 1])


@pytest.mark.slow
def test_of_a_bracket_attention_and_gradients_see_the_top_of_the_stack_alone():
    for method in ("attention", "input_x_gradient", "decompx", "value_zeroing"):
        values = said(method, "dyck", "([]()")
        assert values.argmax() == 1, method
        assert np.abs(np.delete(values, 1)).max() < 1e-3, method
    # Brackets closed in between decide as well that it is the top: only removing it shows.
    assert (said("occlusion", "dyck", "([]()") > 5).sum() > 1


def test_a_flat_answer_has_no_gradient_and_occlusion_sees_it():
    model, _, trace = traced("histogram")
    five = aw.targets.token(4, position=1)
    assert not np.abs(aw.input_x_gradient(trace, five).values).max() > 1e-6
    removed = aw.occlusion(trace, five).values
    equal = sorted(model.truth.evidence("abacabadab"))
    np.testing.assert_allclose(removed[equal], 10, atol=1e-3)
    np.testing.assert_allclose(removed[[2, 4, 6, 8, 10]], 0, atol=1e-3)


@pytest.mark.slow
@pytest.mark.parametrize("name", SMALL)
def test_every_method_runs_or_says_why_not(name):
    model, _, trace = traced(name)
    answer = model.truth.answer(trace.tokens)
    target = aw.targets.token(int(answer) - 1, position=model.truth.at) if name == "histogram" else None
    refused = {}
    for method in aw.methods():
        options = {"target": target} if target is not None and "target" in method.options else {}
        try:
            values = np.asarray(aw.explain(trace, method.name, **options).values)
        except (UnsupportedModelError, ValueError) as error:
            refused[method.name] = str(error)
        else:
            assert np.isfinite(values).all(), method.name
    # A flat answer has no gradient, and Chefer's method multiplies attention with it.
    of_pictures = {"grad_cam", "caption_words", "mixing"}
    assert set(refused) == ({"chefer", *of_pictures} if name == "histogram" else of_pictures)
    assert all(why.startswith(f"{method}: ") for method, why in refused.items())
