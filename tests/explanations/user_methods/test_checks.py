from __future__ import annotations

import sys

import numpy as np
import pytest

from attnwidgets.explanations import explain, methods
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.user_methods.check_report import InvariantError
from attnwidgets.explanations.user_methods.invariants import small_inputs
from attnwidgets.explanations.user_methods.register import check, register

from .functions import checked, failure, given, right, unnormalised, without_residual, wrong_way_round

# The checks


@pytest.mark.slow
def test_a_right_rollout_passes_everything():
    report = checked(right, "rows_sum_to_one", "causal", "nonnegative", "equals:rollout", beside="rollout")
    assert report.passed
    assert {result.word for result in report.results} == {"holds"}
    assert [row.largest < 1e-6 for row in report.beside.rows] == [True] * 3
    causal = next(result for result in report.results if result.name == "causal")
    assert 0 < causal.inputs < report.inputs


def smallest_by_brute_force(function):
    """The size of the smallest made-up input on which a function is not rollout."""
    for small in small_inputs():
        if np.abs(function(small.trace()) - rollout(small.trace()).values).max() > 1e-4:
            return small
    raise AssertionError


@pytest.mark.slow
@pytest.mark.parametrize(
    ("function", "words"),
    [
        (unnormalised, "1 token, 1 layer, 1 head"),
        (without_residual, "2 tokens, 1 layer, 1 head"),
        (wrong_way_round, "2 tokens, 2 layers, 1 head"),
    ],
)
def test_the_smallest_failing_input_is_the_smallest(function, words):
    with pytest.warns(UserWarning, match=r"mine fails: .*equals:rollout"):
        register("mine", invariants=("equals:rollout",))(function)
    result = failure(check("mine"), "equals:rollout")
    expected = smallest_by_brute_force(function)
    assert result.on == words == expected.words
    np.testing.assert_array_equal(result.attention.attention, expected.attention)
    layer = result.violation.layer
    np.testing.assert_allclose(result.violation.returned, function(expected.trace())[layer], rtol=1e-6)
    np.testing.assert_allclose(result.violation.expected, rollout(expected.trace()).layer(layer), rtol=1e-6)


def test_inputs_grow_and_repeat():
    everything = small_inputs()
    sizes = [small.attention.size for small in everything]
    assert sizes == sorted(sizes)
    assert sizes[0] == 1
    for small in everything:
        np.testing.assert_allclose(small.attention.sum(-1), 1.0)
    causal = [small for small in everything if small.trace().is_causal("self")]
    assert 10 < len(causal) < len(everything)


@pytest.mark.parametrize(
    ("invariant", "function", "said"),
    [
        ("rows_sum_to_one", unnormalised, r"layer 0, row 0 \('a'\): the sum is 2, not 1"),
        ("nonnegative", lambda t: -right(t), r"layer 0: -1 at query 0 \('a'\), key 0 \('a'\) is negative"),
        (
            "causal",
            lambda t: np.ones((len(t.tokens),) * 2),
            r"1 at query 0 \('a'\), key 1 \('b'\), a key that",
        ),
        ("causal", lambda t: np.ones(len(t.tokens)), r"'causal' applies to maps, and Attributions were"),
        ("equals:rollout", lambda t: np.ones(len(t.tokens)), r"Attributions \[source 1\] was returned"),
        ("equals:attention", right, r"MixingMap \[layer 1, query 1, key 1\] was returned, and attention is"),
    ],
)
def test_a_failing_invariant_says_what_is_wrong(invariant, function, said):
    report = checked(function, invariant)
    assert report.failing == (invariant,)
    assert methods()["mine"].mark == f"fails: {invariant}"
    with pytest.raises(AssertionError, match=said):
        raise AssertionError(failure(report, invariant).said)


@pytest.mark.slow
def test_one_layer_is_compared_with_the_same_layer():
    assert checked(lambda traced: right(traced)[-1], "equals:rollout").passed


def test_the_report_shows_input_result_and_expectation():
    report = checked(without_residual, "rows_sum_to_one", "equals:rollout", beside="rollout")
    text = repr(report)
    for line in (
        "mine fails: equals:rollout (run on",
        "  fails  equals:rollout: it is what aw.rollout returns",
        "on 2 tokens, 1 layer, 1 head",
        "             b  0.5  0.5",
        "             a  0.75  0.25",
        "layer 0, query 0 ('a'), key 0 ('a'): 0.5 was returned, rollout is 0.75",
        "compared with rollout, on 3 tokens, 3 layers, 2 heads (made up)",
    ):
        assert line in text
    row = report.beside.rows[0]
    last = small_inputs()[-1].trace()
    off = np.abs(without_residual(last)[0] - rollout(last).layer(0))
    assert row.largest == pytest.approx(off.max(), abs=1e-6)
    assert abs(row.value - row.reference) == pytest.approx(row.largest, abs=1e-6)


def test_the_box_is_text_only():
    def evil(traced):
        raise ValueError("<script>alert(1)</script>")

    shown = checked(evil)._repr_html_()
    assert "<script>" not in shown
    assert "&lt;script&gt;" in shown


def test_an_error_is_shown_with_its_input_and_the_users_lines():
    def second_head(traced):
        return traced.attention_layer(0)[1]

    report = checked(second_head, "rows_sum_to_one")
    outcome = failure(report, "raises IndexError")
    assert outcome.on == "1 token, 1 layer, 1 head"
    assert isinstance(outcome.error, IndexError)
    assert "return traced.attention_layer(0)[1]" in outcome.traceback
    assert "checking.py" not in outcome.traceback
    assert report.mark == "raises IndexError"
    open_ones = [result for result in report.results if result.word == "not checked"]
    assert [result.unasked for result in open_ones] == ["the function does not run"]
    with pytest.raises(IndexError):
        explain(given(heads=1), "mine")


def test_writing_into_the_trace_is_noticed():
    def in_place(traced):
        attention = traced.attention_layer(0)
        attention += 1.0
        return attention.mean(0)

    report = checked(in_place)
    assert report.failing == ("leaves the trace as it is",)
    assert "work on a copy" in repr(report)


def test_strict_raises_and_registers_nothing():
    with pytest.raises(InvariantError, match=r"the sum is 2, not 1") as caught:
        register("mine", invariants="rows_sum_to_one", strict=True)(unnormalised)
    assert caught.value.report.failing == ("rows_sum_to_one",)
    assert "mine" not in methods()

    def broken(traced):
        return 1 / 0

    with pytest.raises(InvariantError) as caught:
        register("mine", strict=True)(broken)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_failing_method_says_so_wherever_it_is_shown():
    checked(unnormalised, "rows_sum_to_one")
    assert "mine (fails: rows_sum_to_one)" in repr(methods())
    assert explain(given(), "mine").warning == "mine fails: rows_sum_to_one"


def test_prints_of_the_many_runs_are_held_back(capsys):
    @register("mine")
    def talkative(traced):
        sys.stdout.write("here\n")
        return right(traced)

    assert capsys.readouterr().out == ""
    explain(given(), "mine")
    assert capsys.readouterr().out == "here\n"
