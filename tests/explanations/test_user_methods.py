from __future__ import annotations

import sys
import warnings

import numpy as np
import pytest
import torch

from attnwidgets.explanations import Attributions, MixingMap, explain, methods
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.explanations.registry.registry import remove
from attnwidgets.explanations.user_methods.check_report import InvariantError
from attnwidgets.explanations.user_methods.register import check, register
from attnwidgets.explanations.user_methods.small_inputs import small_inputs
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace
from tests.explanations.made import shares
from tests.tracing import tiny


@pytest.fixture(autouse=True)
def _forgotten():
    yield
    for entry in methods():
        if entry.by_user:
            remove(entry.name)


@pytest.fixture(scope="module")
def real():
    """A tiny random encoder with a head, traced."""
    return trace(tiny.build(tiny.TEXT["BERT"]), None, [5, 6, 7, 8])


def given(layers=2, heads=3, n=4):
    return from_attentions(shares(layers, heads, n, n), [f"t{i}" for i in range(n)])


def heads_mean(traced, layer):
    return traced.attention_layer(layer).numpy().mean(axis=0)


def right(traced):
    """Rollout, as it should be."""
    found = None
    layers = []
    for layer in range(traced.n_layers()):
        mixed = 0.5 * heads_mean(traced, layer) + 0.5 * np.eye(len(traced.tokens))
        found = mixed if found is None else mixed @ found
        layers.append(found)
    return np.stack(layers)


def wrong_way_round(traced):
    found = None
    layers = []
    for layer in range(traced.n_layers()):
        mixed = 0.5 * heads_mean(traced, layer) + 0.5 * np.eye(len(traced.tokens))
        found = mixed if found is None else found @ mixed
        layers.append(found)
    return np.stack(layers)


def without_residual(traced):
    return np.stack([heads_mean(traced, layer) for layer in range(traced.n_layers())])


def unnormalised(traced):
    return without_residual(traced) + np.eye(len(traced.tokens))


def checked(function, *invariants, **options):
    """Register a function whose checks may fail, and return what came of them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        register("mine", invariants=invariants, **options)(function)
    return check("mine")


def failure(report, name):
    return next(result.failure for result in report.results if result.name == name)


# It is a method like any other


def test_a_registered_function_is_a_method_like_any_other():
    decorated = register("mine", paper="Me 2024", invariants="rows_sum_to_one", beside="rollout")(right)
    assert decorated is right
    entry = methods()["mine"]
    assert (entry.by_user, entry.beside, entry.mark, entry.paper) == (True, "rollout", "", "Me 2024")
    assert entry.summary == "Rollout, as it should be."
    assert entry.returns == "MixingMap [layer, query, key]"
    assert "mine" in repr(methods())
    source = given()
    found = explain(source, "mine")
    assert isinstance(found, MixingMap)
    assert found.method == "mine"
    assert found.trace_id == source.id
    assert found.query_labels == ("t0", "t1", "t2", "t3")
    assert found.provenance["paper"] == "Me 2024"
    np.testing.assert_allclose(found.values, rollout(source).values, atol=1e-6)


def test_a_cell_may_run_again_and_the_package_keeps_its_names():
    register("mine")(right)
    register("mine")(without_residual)
    np.testing.assert_allclose(explain(given(), "mine").values, without_residual(given()), rtol=1e-6)
    with pytest.raises(ValueError, match="'rollout' is the package's own method"):
        register("rollout")
    assert methods()["rollout"].function is rollout


def test_options_are_the_functions_own():
    @register("mine")
    def scaled(traced, scale=2.0):
        return scale * without_residual(traced)

    assert methods()["mine"].default_options() == {"scale": 2.0}
    doubled, halved = explain(given(), "mine"), explain(given(), "mine", scale=0.5)
    np.testing.assert_allclose(doubled.values, 4 * halved.values, rtol=1e-6)
    assert halved.provenance["options"]["scale"] == 0.5
    with pytest.raises(TypeError, match=r"mine.. takes no keyword 'scle'.*Did you mean 'scale'"):
        explain(given(), "mine", scle=1)


def test_the_explorer_offers_it():
    from attnwidgets.views.explorer import Explorer

    register("mine")(right)
    explorer = Explorer(given(), methods=["mine", "attention"])
    assert "mine" in [source.explanation.method for source in explorer.store.sources()]


# What it may return


@pytest.mark.parametrize(
    ("function", "axes", "layers"),
    [
        (
            lambda t: [t.attention_layer(layer) for layer in range(2)],
            ("layer", "head", "query", "key"),
            (0, 1),
        ),
        (
            lambda t: [t.attention_layer(layer).mean(0) for layer in range(2)],
            ("layer", "query", "key"),
            (0, 1),
        ),
        (lambda t: t.attention_layer(1).double().mean(0), ("layer", "query", "key"), (1,)),
        (lambda t: heads_mean(t, 1).tolist(), ("layer", "query", "key"), (1,)),
        (lambda t: heads_mean(t, 1).sum(0), ("source",), None),
        (lambda t: rollout(t).reduce("query", "sum"), ("target", "source"), None),
        (rollout, ("layer", "query", "key"), (0, 1)),
    ],
)
def test_axes_are_read_off_the_shape(function, axes, layers):
    source = given()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it reads layer 1, and small inputs have one layer
        register("mine")(function)
    found = explain(source, "mine")
    assert found.axis_names == axes
    assert found.method == "mine"
    if layers is None:
        assert isinstance(found, Attributions)
        assert found.labels == source.tokens
    else:
        assert found.layers == layers
    returned = function(source)
    numbers = returned if hasattr(returned, "shape") else np.stack([np.asarray(part) for part in returned])
    np.testing.assert_allclose(found.values.reshape(np.shape(numbers)), numbers, rtol=1e-6)


def test_an_explanation_that_is_returned_keeps_where_it_comes_from():
    register("mine")(lambda traced: rollout(traced, residual=None).to("word"))
    found = explain(given(), "mine")
    assert found.method == "mine"
    assert found.unit == "word"
    assert "no residual" in found.steps
    assert found.provenance["source"]["method"] == "rollout"


@pytest.mark.parametrize(
    ("function", "error", "said"),
    [
        (lambda t: None, TypeError, r"mine returned None; is there a `return`"),
        (lambda t: t.attention_layer(0), ValueError, r"shape \(3, 4, 4\).*first axis looks like heads"),
        (lambda t: np.ones((5, 4, 4)), ValueError, r"first axis has 5 entries, and there are 2 layers"),
        (lambda t: np.ones((4, 3)), ValueError, r"here \(2, 3, 4, 4\), \(2, 4, 4\), \(4, 4\), \(4,\)"),
        (lambda t: np.ones(3), ValueError, r"mine returned shape \(3,\)"),
        (lambda t: 1.0, ValueError, r"mine returned shape \(\)"),
        (lambda t: "numbers", TypeError, r"mine returned a str that is not a numeric array"),
        (lambda t: {"a": 1}, TypeError, r"mine returned a dict that is not a numeric array"),
        (lambda t: np.full((4, 4), np.nan), ValueError, r"16 values that are NaN or infinite"),
    ],
)
def test_what_cannot_be_labelled_is_refused_in_words(function, error, said):
    with pytest.warns(UserWarning, match="mine"):
        register("mine")(lambda traced: function(traced) if traced.n_heads() == 3 else None)
    with pytest.raises(error, match=said):
        explain(given(), "mine")


# What is checked


def test_a_right_rollout_passes_everything():
    report = checked(right, "rows_sum_to_one", "causal", "nonnegative", "equals:rollout", beside="rollout")
    assert report.passed
    assert {result.word for result in report.results} == {"holds"}
    assert [row.largest < 1e-6 for row in report.beside.rows] == [True] * 3
    causal = next(result for result in report.results if result.name == "causal")
    assert 0 < causal.asked < report.inputs


def smallest_by_brute_force(function):
    """The size of the smallest made-up input on which a function is not rollout."""
    for small in small_inputs():
        if np.abs(function(small.trace()) - rollout(small.trace()).values).max() > 1e-4:
            return small
    raise AssertionError


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
    found = failure(check("mine"), "equals:rollout")
    expected = smallest_by_brute_force(function)
    assert found.on == words == expected.words
    np.testing.assert_array_equal(found.attention.attention, expected.attention)
    layer = found.violation.layer
    np.testing.assert_allclose(found.violation.returned, function(expected.trace())[layer], rtol=1e-6)
    np.testing.assert_allclose(found.violation.expected, rollout(expected.trace()).layer(layer), rtol=1e-6)


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
        "beside rollout, on 3 tokens, 3 layers, 2 heads (made up)",
    ):
        assert line in text
    row = report.beside.rows[0]
    last = small_inputs()[-1].trace()
    off = np.abs(without_residual(last)[0] - rollout(last).layer(0))
    assert row.largest == pytest.approx(off.max(), abs=1e-6)
    assert abs(row.own - row.other) == pytest.approx(row.largest, abs=1e-6)


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
    found = failure(report, "raises IndexError")
    assert found.on == "1 token, 1 layer, 1 head"
    assert isinstance(found.error, IndexError)
    assert "return traced.attention_layer(0)[1]" in found.traceback
    assert "checking.py" not in found.traceback
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


# Real traces, and functions that need a model


def test_what_only_a_real_trace_shows_is_shrunk():
    source = given(layers=3, heads=2, n=9)

    def from_the_fifth_token(traced):
        found = right(traced)
        if len(traced.tokens) >= 5:
            found[-1, 4, 0] += 0.5
        return found

    report = checked(from_the_fifth_token, "rows_sum_to_one")
    assert report.passed
    report = check("mine", source)
    found = failure(report, "rows_sum_to_one")
    assert found.on.startswith("5 tokens, 1 layer, 1 head of ")
    assert found.attention.tokens == ("t0", "t1", "t2", "t3", "t4")
    np.testing.assert_allclose(found.attention.attention.sum(-1), 1.0)
    assert "row 4 ('t4'): the sum is 1.5, not 1" in found.said


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
    found = explain(cross, "mine", stack="cross")
    assert found.stack == "cross"
    assert found.shape[-2:] == tuple(len(axis) for axis in cross.axes("cross"))


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


# Mistakes in declaring


@pytest.mark.parametrize(
    ("call", "error", "said"),
    [
        (lambda: register(right), TypeError, r'write @aw.register\("mine"\) above'),
        (lambda: register("mine")(3), TypeError, r"goes above a function, not a int"),
        (lambda: register("mine")(lambda: 1), TypeError, r"takes nothing; its first argument is the trace"),
        (
            lambda: register("mine")(lambda traced, k: 1),
            TypeError,
            r"needs k beside the trace; give a default",
        ),
        (lambda: register("mine", invariant="causal"), TypeError, r"Did you mean 'invariants'"),
        (lambda: register("mine", invariants="casual"), ValueError, r"Did you mean 'causal'"),
        (lambda: register("mine", invariants="equals:rolout"), ValueError, r"Did you mean 'rollout'"),
        (lambda: register("mine", beside="rolout"), ValueError, r"Did you mean 'rollout'"),
        (lambda: register("mine", needs="modl"), ValueError, r"Did you mean 'model'"),
        (lambda: check("rollout"), ValueError, r"'rollout' is the package's own method.*none yet"),
        (lambda: check("mine"), ValueError, r"method 'mine' is unknown"),
    ],
)
def test_mistakes_are_named(call, error, said):
    with pytest.raises(error, match=said):
        call()


def test_torch_results_with_gradients_are_taken():
    register("mine")(lambda traced: torch.ones(len(traced.tokens), requires_grad=True))
    np.testing.assert_array_equal(explain(given(), "mine").values, np.ones(4))
