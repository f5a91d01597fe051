"""FlowView: the sources of tokens, layer by layer; followed to the input they are rollout."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.results.contribution_graph import ContributionGraph
from attnwidgets.views.compare.flow_view import flow_steps


def down(steps):
    result = np.eye(steps.shape[-1])
    for matrix in steps.values.astype(np.float64):
        result = matrix @ result
    return result


@pytest.mark.parametrize("weight", [None, 0.2])
def test_followed_to_the_input_it_is_rollout(given, weight):
    trace = given()
    steps = flow_steps(trace, weight)
    options = {} if weight is None else {"residual_weight": weight}
    np.testing.assert_allclose(down(steps), aw.rollout(trace, **options).matrix(2), atol=1e-6)
    assert f"residual weight {0.5 if weight is None else weight:g}" in steps.title


def test_measures_that_hold_the_residual_get_none(minilm_trace):
    zeroing = aw.value_zeroing(minilm_trace)
    steps = flow_steps(zeroing)
    rolled = aw.rollout(zeroing, residual=None)
    np.testing.assert_allclose(down(steps), rolled.matrix(5), atol=1e-5)
    assert "residual" not in steps.title


@pytest.mark.parametrize("parallel", [False, True])
def test_the_parts_of_a_contribution_graph_are_added_up(parallel):
    parts = np.random.default_rng(0).random((2, 3, 4, 4))
    residual = np.full((2, 4), 0.25)
    parts *= 0.75 / parts.sum((1, 3), keepdims=True)
    mlp = np.random.default_rng(1).random((2, 4))
    graph = ContributionGraph(
        parts, residual=residual, mlp=mlp, mlp_residual=1 - mlp, parallel=parallel, query=list("abcd")
    )
    steps = flow_steps(graph)
    for number in range(2):
        expected = parts[number].sum(0) + 0.25 * np.eye(4)
        if parallel:
            expected = np.diag(mlp[number]) + (1 - mlp[number])[:, None] * expected
        np.testing.assert_allclose(steps.matrix(number), expected, atol=1e-6)


def test_a_view_has_one_matrix_a_layer_in_every_unit(given):
    trace = given()
    view = aw.FlowView(trace)
    sources = view.sources()
    assert {source.unit for source in sources} >= {"token", "word"}
    assert all(source.heads is None and source.layers == (0, 1, 2) for source in sources)
    assert view.selection is aw.Heatmap(aw.attention(trace)).selection


def test_what_leads_down_already_is_refused(given):
    with pytest.raises(ValueError, match="'rollout' is already cumulative"):
        aw.FlowView(aw.rollout(given()))


def test_what_cannot_be_followed_is_refused(given):
    trace = given()
    with pytest.raises(ValueError, match="consecutive layers"):
        aw.FlowView(aw.attention(trace).select(layer=[0, 2]))
    with pytest.raises(ValueError, match="this map is signed"):
        aw.FlowView(aw.results.MixingMap([[[1.0, -1.0], [0.5, 0.5]]], query=["a", "b"]))
    with pytest.raises(ValueError, match="residual_weight"):
        aw.FlowView(trace, residual_weight=2.0)
