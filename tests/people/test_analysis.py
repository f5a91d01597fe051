"""Planted effects of simulated people are recovered; intervals, p and plans against closed forms."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binomtest

import attnwidgets as aw
from attnwidgets.people.agents import cells_of
from attnwidgets.people.analysis import Outcomes, estimate, flipped, permuted

from .made import study

STUDIES = 400


@pytest.mark.slow
@pytest.mark.parametrize(("people_sd", "items_sd"), [(0.0, 0.0), (0.5, 0.3), (0.8, 0.8)])
def test_known_effects_are_recovered_in_95_percent_of_intervals(people_sd, items_sd):
    made = study("forward", ("none", "lrp"), count=24)
    agent = aw.people.Agent({"none": 0.6, "lrp": 0.8}, people_sd=people_sd, items_sd=items_sd)
    cells, _ = cells_of(made, made.codes(24))
    difference = mean = 0
    for number in range(STUDIES):
        rng = np.random.default_rng(number)
        outcomes = Outcomes(agent.draw(agent.shares(made), cells, rng).astype(float), cells)
        result = estimate(outcomes, 1, 0, 0.95, 200, rng)
        difference += result.low <= 0.2 <= result.high
        result = estimate(outcomes, 0, None, 0.95, 200, rng)
        mean += result.low <= 0.6 <= result.high
    assert 0.92 <= difference / STUDIES <= 0.98
    assert 0.92 <= mean / STUDIES <= 0.98


def test_the_share_of_an_agent_is_exactly_what_was_given():
    agent = aw.people.Agent({}, people_sd=1.0, items_sd=0.7)
    drawn = agent.draw(np.array([0.3, 0.9]), np.tile([0, 1], (3000, 300)), np.random.default_rng(0))
    assert abs(drawn[:, ::2].mean() - 0.3) < 0.02
    assert abs(drawn[:, 1::2].mean() - 0.9) < 0.02


def test_the_variance_is_that_of_the_answers_where_they_are_independent():
    """Independent answers have a closed form: p (1 - p) / n."""
    rng = np.random.default_rng(0)
    cells = np.zeros((40, 40), np.int64)
    errors = [
        estimate(Outcomes((rng.random((40, 40)) < 0.4).astype(float), cells), 0, None, 0.95, 400, rng).error
        for _ in range(30)
    ]
    assert np.mean(errors) == pytest.approx(np.sqrt(0.4 * 0.6 / 1600), rel=0.15)


def test_an_agent_that_reads_the_explanation_is_always_right_and_one_without_it_guesses():
    """The rule is "the word with the largest value is `text`"; without an explanation nothing tells."""
    made = study("forward", ("none", "lrp"), count=16)
    truth = {item.text: item.prediction for item in made.items}

    def reads(trial, rng):
        (shown,) = trial.explanations
        if shown.values:
            assert trial.words[int(np.argmax(shown.values))] == "text"
            return truth[trial.text]
        return trial.choices[int(rng.integers(2))]

    result = made.simulate(reads, people=20, seed=1).analyse()
    none, lrp = result.means
    assert lrp["mean"] == 1.0
    assert none["low"] < 0.5 < none["high"]
    assert result.difference("lrp", "none")["p"] < 0.002
    assert "lrp less none" in str(result)
    with pytest.raises(ValueError, match="'maybe', which is not an answer"):
        made.simulate(lambda trial, rng: "maybe", people=2)


def test_trust_forced_choice_and_words_recover_what_was_given():
    steps = aw.people.Agent({"none": 2.0, "lrp": 4.0}, people_sd=0.2, items_sd=0.2)
    result = study("trust", count=24).simulate(steps, people=40).analyse()
    assert [round(mean["mean"], 0) for mean in result.means] == [2, 4]
    assert result.means[0]["wilson_low"] is None
    pairs = study("forced_choice", ("a", "b", "c"), count=24)
    shares = aw.people.Agent({("a", "b"): 0.8, ("a", "c"): 0.5, ("c", "b"): 0.6}, people_sd=0.2, items_sd=0.2)
    result = pairs.simulate(shares, people=60).analyse()
    assert [(mean["condition"], mean["other"]) for mean in result.means] == [
        ("a", "b"),
        ("a", "c"),
        ("b", "c"),
    ]
    np.testing.assert_allclose([mean["mean"] for mean in result.means], [0.8, 0.5, 0.4], atol=0.07)
    assert result.difference("a", "b")["p_holm"] < 0.01 < result.difference("a", "c")["p_holm"]
    assert len(result.to_rows()) == 3
    marks = aw.people.Agent({"none": 0.3, "lrp": 0.7})
    result = study("remove_words", count=24).simulate(marks, people=40).analyse()
    assert result.means[1]["mean"] > result.means[0]["mean"] + 0.2


def test_without_an_effect_p_is_below_005_in_about_5_percent():
    cells = np.indices((16, 12)).sum(0) % 2
    below = 0
    for number in range(200):
        rng = np.random.default_rng(number)
        scores = (rng.random((16, 12)) < rng.random((16, 1))).astype(float)
        below += permuted(Outcomes(scores, cells), 1, 0, 200, rng) < 0.05
    assert below <= 20
    rng = np.random.default_rng(0)
    between = np.repeat([0, 1], 8)[:, None] + np.zeros((16, 12), np.int64)
    assert permuted(Outcomes(between.astype(float), between), 1, 0, 500, rng) < 0.01
    assert permuted(Outcomes(scores * 0, between), 1, 0, 500, rng) == 1.0
    assert flipped(Outcomes(np.ones((12, 4)), np.zeros((12, 4), np.int64)), 0, 2000, rng) < 0.005


@pytest.mark.parametrize(("right", "count"), [(0, 5), (3, 7), (50, 120), (9, 9)])
def test_wilson_is_scipys(right, count):
    expected = binomtest(right, count).proportion_ci(method="wilson")
    assert aw.people.wilson(right, count) == pytest.approx((expected.low, expected.high), abs=1e-12)


@pytest.mark.slow
def test_a_plan_agrees_with_the_formula_for_independent_answers():
    """70 against 80 % right: 80 % power takes about 290 answers in each condition."""
    made = study("forward", ("none", "lrp"), count=24)
    agent = aw.people.Agent({"none": 0.7, "lrp": 0.8}, people_sd=0.0, items_sd=0.0)
    plan = made.plan(agent, people=(8, 24), studies=300)
    assert 0.68 <= plan.power[1] <= 0.88
    assert plan.power[0] < 0.5
    assert plan.needed(0.99) is None
    assert [row["people"] for row in plan.to_rows()] == [8, 24]
    assert "lrp against none" in repr(plan)
    with pytest.raises(ValueError, match="numbers of 2 or more"):
        made.plan(agent, people=[1])
    with pytest.raises(ValueError, match="'ig' is not one of"):
        made.plan(agent, compare=("ig", "none"))


def test_all_is_the_same_with_the_same_seed():
    made, agent = study(), aw.people.Agent({"none": 0.5, "lrp": 0.7}, attention=0.8)
    first, same, other = (made.simulate(agent, people=6, seed=seed) for seed in (0, 0, 1))
    assert first.rows == same.rows != other.rows
    assert str(first.analyse(resamples=100)) == str(same.analyse(resamples=100))


def test_who_failed_a_check_does_not_count_and_is_named():
    made = study()
    responses = made.simulate(aw.people.Agent({"none": 0.5, "lrp": 0.7}, attention=0.7), people=12)
    assert 0 < len(responses.inattentive) < 11
    result = responses.analyse(resamples=100)
    assert responses.inattentive[0] in result.notes[0]
    assert result.means[0]["people"] == 12 - len(responses.inattentive)
    assert responses.analyse(resamples=100, keep_inattentive=True).means[0]["people"] == 12
    with pytest.raises(ValueError, match="1 person is left"):
        responses.without(*responses.people[1:]).analyse(keep_inattentive=True)
    for options, words in (
        ({"level": 2}, "level=2"),
        ({"resamples": 5}, "resamples=5"),
        ({"reference": "lpr"}, "Did you mean 'lrp'"),
    ):
        with pytest.raises(ValueError, match=words):
            responses.analyse(**options)


def test_agents_that_do_not_fit_are_refused():
    made = study()
    for effects, words in (({"none": 0.5}, "none for 'lrp'"), ({"none": 0.5, "lrp": 5}, "out of range")):
        with pytest.raises(ValueError, match=words):
            made.simulate(aw.people.Agent(effects))
    with pytest.raises(ValueError, match="items_sd=-1"):
        aw.people.Agent({}, items_sd=-1)
    with pytest.raises(
        ValueError, match="'maybe', which is not an answer in 'forward'; answers are 'no', 'yes'"
    ):
        made.simulate(lambda trial, rng: "maybe")
    with pytest.raises(TypeError, match="agent is a int"):
        made.simulate(3)
    with pytest.raises(ValueError, match=r"the pair \('a', 'b'\)"):
        study("forced_choice", ("a", "b")).simulate(aw.people.Agent({"a": 1}))


@pytest.mark.parametrize(
    ("kind", "effects", "most"),
    [("forward", {"none": 0.5, "lrp": 0.97}, 1), ("trust", {"none": 1.1, "lrp": 4.9}, 5)],
)
def test_intervals_of_means_end_where_scores_do(kind, effects, most):
    analysis = study(kind).simulate(aw.people.Agent(effects), people=6).analyse(resamples=100)
    assert analysis.means[1]["high"] == most
    assert all(mean["low"] >= (kind == "trust") for mean in analysis.means)


def test_answers_that_nothing_is_right_of_have_no_score():
    made = study("remove_words", count=4)
    plain = [replace(item, remove=()) for item in made.items]
    asked = aw.people.study("remove_words", plain, ["none", "lrp"])
    with pytest.raises(ValueError, match=r"no answer has a score: no item says what is right \(remove=\)"):
        asked.simulate(lambda trial, rng: [0], people=4).analyse()


def test_unbalanced_answers_are_said():
    made = study("trust", count=8)
    rows = made.simulate(aw.people.Agent({"none": 2, "lrp": 3}), people=4).rows
    remaining = [row for row in rows if not (row["item"] == "0" and row["condition"] == "lrp")]
    result = aw.results.Responses(remaining, study=made).analyse(resamples=100)
    assert "1 of 16 pairs of item and condition have no answer" in result.notes[0]
