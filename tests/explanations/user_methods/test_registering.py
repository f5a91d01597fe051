from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from attnwidgets.explanations import Attributions, MixingMap, explain, methods
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.explanations.user_methods.register import check, register

from .functions import given, heads_mean, right, without_residual


def test_a_registered_function_is_a_method_like_any_other():
    decorated = register("mine", paper="Me 2024", invariants="rows_sum_to_one", beside="rollout")(right)
    assert decorated is right
    entry = methods()["mine"]
    assert (entry.by_user, entry.beside, entry.mark, entry.paper) == (True, "rollout", "", "Me 2024")
    assert entry.summary == "Rollout, as it should be."
    assert entry.returns == "MixingMap [layer, query, key]"
    assert "mine" in repr(methods())
    source = given()
    result = explain(source, "mine")
    assert isinstance(result, MixingMap)
    assert result.method == "mine"
    assert result.trace_id == source.id
    assert result.query_labels == ("t0", "t1", "t2", "t3")
    assert result.provenance["paper"] == "Me 2024"
    np.testing.assert_allclose(result.values, rollout(source).values, atol=1e-6)


@pytest.mark.slow
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


def test_attributions_that_a_function_returns_keep_what_each_target_depends_on():
    @register("mine")
    def generated(traced):
        facts = {"target": ["t2", "t3"], "residual": [0.5, 0.25], "reach": [2, 3]}
        return Attributions(np.eye(2, len(traced.tokens)), axis=traced.axes("self")[1], unit="token", **facts)

    result = explain(given(), "mine")
    assert (result.method, result.targets) == ("mine", ("t2", "t3"))
    assert (result.residual, result.reach) == ((0.5, 0.25), (2, 3))
    assert result.beyond().tolist() == [[False, False, True, True], [False, False, False, True]]


def test_the_explorer_offers_it():
    from attnwidgets.views.explorer import Explorer

    register("mine")(right)
    explorer = Explorer(given(), methods=["mine", "attention"])
    assert "mine" in [source.explanation.method for source in explorer.store.sources()]


# Results


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
    result = explain(source, "mine")
    assert result.axis_names == axes
    assert result.method == "mine"
    if layers is None:
        assert isinstance(result, Attributions)
        assert result.labels == source.tokens
    else:
        assert result.layers == layers
    returned = function(source)
    numbers = returned if hasattr(returned, "shape") else np.stack([np.asarray(part) for part in returned])
    np.testing.assert_allclose(result.values.reshape(np.shape(numbers)), numbers, rtol=1e-6)


def test_an_explanation_that_is_returned_keeps_where_it_comes_from():
    register("mine")(lambda traced: rollout(traced, residual=None).to("word"))
    result = explain(given(), "mine")
    assert result.method == "mine"
    assert result.unit == "word"
    assert "no residual" in result.steps
    assert result.provenance["source"]["method"] == "rollout"


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
            r"needs k in addition to the trace; give a default",
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
