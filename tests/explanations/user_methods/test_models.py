from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations import explain, methods
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.explanations.user_methods.register import check, register
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

from .functions import checked, failure, given, right, unnormalised

# Real traces, and functions that need a model


def test_what_only_a_real_trace_shows_is_shrunk():
    source = given(layers=3, heads=2, n=9)

    def from_the_fifth_token(traced):
        outcome = right(traced)
        if len(traced.tokens) >= 5:
            outcome[-1, 4, 0] += 0.5
        return outcome

    report = checked(from_the_fifth_token, "rows_sum_to_one")
    assert report.passed
    report = check("mine", source)
    result = failure(report, "rows_sum_to_one")
    assert result.on.startswith("5 tokens, 1 layer, 1 head of ")
    assert result.attention.tokens == ("t0", "t1", "t2", "t3", "t4")
    np.testing.assert_allclose(result.attention.attention.sum(-1), 1.0)
    assert "row 4 ('t4'): the sum is 1.5, not 1" in result.said


def test_a_function_that_needs_a_model_is_checked_when_it_first_runs(real):
    @register("mine", needs="model", invariants="rows_sum_to_one")
    def unshared(traced):
        return value_zeroing(traced, normalize=False)

    assert methods()["mine"].refusal(given()).startswith("needs the model")
    assert "checked when it first runs" in repr(check("mine"))
    with pytest.warns(UserWarning, match=r"mine fails: rows_sum_to_one"):
        explain(real, "mine")
    assert methods()["mine"].mark == "fails: rows_sum_to_one"
    assert explain(real, "mine").warning == "mine fails: rows_sum_to_one"


def test_a_function_that_turns_out_to_need_a_model_is_greyed_where_there_is_none(real):
    register("mine", invariants=("rows_sum_to_one", "equals:value_zeroing"), trace=real)(value_zeroing)
    entry = methods()["mine"]
    assert entry.mark == ""
    assert entry.refusal(given()).startswith("needs the model")
    assert entry.refusal(real) == ""
    with pytest.raises(ValueError, match="trace does not suit 'mine', which needs the model"):
        check("mine", given())


def test_forgetting_to_say_that_a_model_is_needed_is_explained():
    report = checked(lambda traced: traced.model.config.hidden_size)
    assert "registered with needs='model'" in repr(report)


def test_parts_of_a_logit_must_sum_to_it():
    decoder = trace(tiny.build(tiny.TEXT["GPT-2"]), None, [5, 6, 7])
    score = float(decoder.logits[-1].max())

    def parts(traced, share=1.0):
        return np.full(len(traced.tokens), share * score / len(traced.tokens))

    report = checked(parts, "complete", needs="logits", trace=decoder)
    assert methods()["mine"].mark == ""
    assert check("mine", decoder).passed
    assert report.results[0].word == "not checked"
    checked(lambda traced: parts(traced, 0.5), "sums_to_logit", needs="logits")
    failing = check("mine", decoder)
    assert failing.failing == ("sums_to_logit",)
    assert f"the values sum to {score / 2:.6g}; the logit of" in repr(failing)


def test_other_stacks_are_for_functions_that_take_them():
    cross = trace(tiny.build(tiny.SEQ2SEQ["Marian"]), None, [5, 6, 7])

    def of_stack(traced, stack=None):
        return np.stack([traced.attention_layer(layer, stack).numpy() for layer in range(2)])

    register("mine")(right)
    assert "a keyword stack=" in methods()["mine"].refusal(cross, "decoder")
    assert methods()["mine"].refusal(cross) == ""
    with pytest.warns(UserWarning, match="raises IndexError"):
        register("mine")(of_stack)
    assert methods()["mine"].refusal(cross, "cross") == ""
    result = explain(cross, "mine", stack="cross")
    assert result.stack == "cross"
    assert result.shape[-2:] == tuple(len(axis) for axis in cross.axes("cross"))


def test_a_notebook_gets_a_box(monkeypatch):
    import IPython
    import IPython.display

    shown = []
    shell = type("Shell", (), {"kernel": True})()
    monkeypatch.setattr(IPython, "get_ipython", lambda: shell)
    monkeypatch.setattr(IPython.display, "display", shown.append)
    register("mine", invariants="rows_sum_to_one")(unnormalised)
    assert [report.failing for report in shown] == [("rows_sum_to_one",)]
    register("mine", invariants="rows_sum_to_one")(right)
    assert shown[-1].passed
