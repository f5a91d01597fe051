"""LayerProfile: the lines of a pair over layers, of every explanation that says something of several."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.wire.handlers import RequestHandlers


def profile(view, query=None, unit="token"):
    meta, (data,) = view.requests.answer("profile", {"query": query, "unit": unit})
    return meta, np.frombuffer(data, "<f4").reshape(len(meta["names"]), len(meta["layers"]), -1)


def test_a_line_is_the_row_in_every_layer(given):
    trace = given()
    view = aw.views.LayerProfile(trace)
    meta, values = profile(view, query=4)
    assert meta["names"] == ["attention", "rollout"]
    np.testing.assert_allclose(values[0], aw.attention(trace).mean().values[:, 4], rtol=1e-6)
    np.testing.assert_allclose(values[1], aw.rollout(trace).values[:, 4], rtol=1e-6)
    assert all(meta["shares"])
    assert meta["alike"]


def test_signed_weights_are_drawn_without_the_methods_that_refuse_them():
    weights = np.linspace(-1, 1, 2 * 9).reshape(2, 1, 3, 3)
    trace = aw.from_attentions(weights, ["a", "b", "c"])
    view = aw.views.LayerProfile(trace)
    assert view.names == ("attention",)
    np.testing.assert_allclose(profile(view, query=1)[1][0], weights[:, 0, 1], rtol=1e-6)
    with pytest.raises(ValueError, match="signed map"):
        aw.views.LayerProfile(trace, methods=["rollout"])


@pytest.mark.parametrize("make", [aw.views.LayerProfile, aw.views.CompareView])
def test_what_takes_long_is_not_computed_while_the_view_is_shown(given, make):
    trace, asked = given(), []
    quick = aw.attention(trace)

    def layer_fn(layer):
        asked.append(layer)
        return quick.layer(layer)

    slow = aw.results.MixingMap.lazy(
        layer_fn,
        method="slow",
        layers=quick.layers,
        heads=quick.heads,
        query=quick.query,
        key=quick.key,
        trace_id=trace.id,
        on_demand=True,
    )
    view = make([slow, quick])
    before = list(asked)
    view._repr_mimebundle_()
    assert asked == before
    assert view.opening is None
    view = make([quick, quick])
    view._repr_mimebundle_()
    assert view.opening is not None


def test_a_layer_that_a_method_has_not_is_no_number(given):
    trace = given()
    view = aw.views.LayerProfile(
        [aw.attention(trace), aw.attention(trace).select(layer=[1, 2])], names=["all", "some"]
    )
    _, values = profile(view, query=0)
    assert np.isnan(values[1, 0]).all()
    np.testing.assert_array_equal(values[1, 1:], values[0, 1:])


def test_attributions_are_read_in_the_row_of_their_target(given):
    trace = given(n=3)
    layers = aw.results.MixingMap(
        np.arange(18.0).reshape(3, 2, 3), query=["yes", "no"], key=aw.attention(trace).key, signed=True
    )
    result = aw.results.Attributions(
        [[1.0, 2, 3], [4, 5, 6]], axis=aw.attention(trace).key, target=["yes", "no"], map=layers
    )
    view = aw.views.LayerProfile([result, aw.attention(trace)], names=["yes", "no", "attention"])
    _, values = profile(view, query=2)
    np.testing.assert_array_equal(values[:2], layers.values.transpose(1, 0, 2))
    np.testing.assert_allclose(values[2], aw.attention(trace).mean().values[:, 2], rtol=1e-6)


def test_cues_are_marked_by_label_or_number(minilm_trace):
    tokens = list(minilm_trace.tokens)
    view = aw.views.LayerProfile(minilm_trace, cues=["trace", 1])
    assert view.options["marks"] == [tokens.index("trace"), 1]
    with pytest.raises(ValueError, match=r"'tarce' is not one of the tokens\. Did you mean 'trace'"):
        aw.views.LayerProfile(minilm_trace, cues=["tarce"])
    with pytest.raises(IndexError, match="token 99 is out of range"):
        aw.views.LayerProfile(minilm_trace, cues=[99])


def test_layers_that_run_the_model_tell_their_progress(minilm_trace):
    zeroing = aw.value_zeroing(minilm_trace)
    view = aw.views.LayerProfile(zeroing)
    assert len(zeroing.computed_layers) == 1  # the layer that the view opens with
    told = []
    questions = RequestHandlers(view._handlers(), lambda reply, _: told.append(reply))
    args = {"query": 2, "unit": "token"}
    questions.receive({"kind": "ask", "id": 1, "topic": "profile", "args": args})
    assert told[-1]["kind"] == "answer"
    assert told[0] == {"kind": "progress", "id": 1, "text": "profile", "done": None, "total": None}
    assert zeroing.computed_layers == zeroing.layers


def test_what_has_one_layer_has_no_profile(given):
    with pytest.raises(ValueError, match="no values for several layers"):
        aw.views.LayerProfile(aw.attention(given()).select(layer=1))
    with pytest.raises(ValueError, match="no values for several layers"):
        aw.views.LayerProfile(aw.results.Attributions([1.0], axis=["a"]))


def test_a_page_holds_the_lines_of_every_query_of_a_short_text(given):
    view = aw.views.LayerProfile(given(n=4), units=["token"])
    asked = [args for _, args, _ in view.requests.for_page()]
    assert asked == [{"query": query, "unit": "token"} for query in (None, 0, 1, 2, 3)]


def test_a_probe_is_drawn_beside_at_the_states_that_each_block_writes(given):
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 2
    states = rng.normal(size=(40, 3, 4)) + labels[:, None, None] * np.array([0.0, 3.0, 0.0])[None, :, None]
    card = aw.evaluate.probe(states, labels, mdl=False, resamples=5)
    assert type(card.view()).__name__ == "ScorecardView"
    trace = given()
    layers = aw.attention(trace).layers
    view = aw.views.LayerProfile(trace, methods=["attention"], probe=card)
    meta, _ = profile(view)
    lines = dict(meta["beside"])
    assert [*lines] == ["probe: accuracy", "majority"]
    assert lines["probe: accuracy"][0] == card.mean[0, 0, 1] > 0.9
    assert lines["probe: accuracy"][1] == card.mean[0, 0, 2] < 0.8
    assert lines["probe: accuracy"][2:] == [None] * (len(layers) - 2)
    assert view._repr_mimebundle_()[0]["image/png"]
    with pytest.raises(TypeError, match=r"probe= takes the result of aw\.evaluate\.probe"):
        aw.views.LayerProfile(
            trace, probe=aw.results.Scorecard([[[[1.0]]]], metrics=["m"], methods=["a"], x=[0])
        )
    alone = aw.evaluate.probe(states[:, :1], labels, mdl=False, resamples=5)
    with pytest.raises(ValueError, match="has states of layers 0"):
        aw.views.LayerProfile(trace, probe=alone)
