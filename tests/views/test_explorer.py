"""Requests of the Explorer: one pair through the layers, and maps of the changed model."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw


@pytest.fixture
def trace(classifier):
    return aw.trace(*classifier, "A wonderful film with a dull ending.")


@pytest.fixture(scope="module")
def classifier():
    return aw.demo_model("classifier")


def test_a_pair_through_the_layers_is_the_recorded_attention(trace):
    explorer = aw.Explorer(trace)
    _, (data,) = explorer.requests.answer("pair", {"source": "attention/token/self", "query": 6, "key": 3})
    weights = np.frombuffer(data, "<f4").reshape(6, 12)
    attention = aw.attention(trace)
    np.testing.assert_array_equal(weights, [attention.layer(layer)[:, 6, 3] for layer in range(6)])


@pytest.mark.slow
def test_a_pair_beyond_the_text_is_refused(trace):
    with pytest.raises(IndexError, match=r"\(6, 99\) is out of range: there are 10 queries and 10 keys"):
        aw.Explorer(trace).requests.answer("pair", {"source": "attention/token/self", "query": 6, "key": 99})


def test_maps_of_the_changed_model_are_those_of_a_rerun_and_say_so(trace):
    explorer = aw.Explorer(trace)
    specs = [{"kind": "ablate", "stack": "self", "layer": 1, "head": 8, "how": "zero"}]
    meta, _ = explorer.requests.answer("follow", {"interventions": specs})
    explorer.selection.method = meta["method"]
    shown = next(s for s in explorer.sources() if s.method == meta["method"] and s.unit == "token")
    changed = trace.rerun(aw.ablate_heads(trace, (1, 8)))
    np.testing.assert_array_equal(shown.matrix(3, 2), np.asarray(aw.attention(changed).layer(3)[2]))
    assert not np.array_equal(shown.matrix(3, 2), aw.attention(trace).layer(3)[2])
    assert "head 8 of layer 1 set to zero" in shown.title


def test_the_title_of_any_explanation_of_a_changed_model_names_the_change(trace):
    changed = trace.rerun(aw.ablate_heads(trace, (1, 8)))
    assert aw.rollout(changed).provenance["interventions"] == ("head 8 of layer 1 set to zero",)
    assert "head 8 of layer 1 set to zero" in aw.rollout(changed).title
    assert "interventions" not in aw.rollout(trace).provenance


@pytest.mark.parametrize("height", [199, 4001, True, "300", 300.5])
def test_a_height_out_of_range_is_refused(trace, height):
    with pytest.raises((ValueError, TypeError), match=r"Explorer\(height="):
        aw.Explorer(trace, height=height)


def test_a_height_reaches_the_browser(trace):
    assert aw.Explorer(trace).options["height"] <= 560
    assert aw.Explorer(trace, height=700).options["height"] == 700


def test_the_steps_of_a_weight_end_at_the_recorded_one(trace):
    args = {"stack": "self", "layer": 2, "head": 5, "query": 6, "key": 3}
    meta, _ = aw.Explorer(trace).requests.answer("computed", args)
    names, values = zip(*meta["steps"], strict=True)
    assert values[-1] == pytest.approx(aw.attention(trace).layer(2)[5, 6, 3], rel=1e-5)
    assert values[1] == pytest.approx(values[0] / 32**0.5)
    assert names[1:] == ("× 1 / √32", "softmax over 10 keys")
