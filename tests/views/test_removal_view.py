"""RemovalView: its curves are those of faithfulness, computed once, and a page holds the shown curves."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate.removals.protocol import steps_of
from attnwidgets.views.evaluate.handlers import removal_handlers
from attnwidgets.views.wire.handlers import RequestHandlers
from tests.explanations.made import random_classifier
from tests.tracing import tiny


@pytest.fixture(scope="module")
def trace():
    """A trace of a random classifier in float64, eight tokens."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat the unbelievable")


def given(trace, seed=0, **options):
    count = len(trace.axes()[0])
    values = np.random.default_rng(seed).normal(size=count)
    return aw.results.Attributions(values, axis=trace.axes()[0], trace_id=trace.id, method="made", **options)


def shown(view):
    """The arguments of the curves that a view opens with."""
    return next(args for topic, args, _ in view.requests.for_page() if topic == "removal")


def asked(view, **changes):
    meta, buffers = view.requests.answer("removal", shown(view) | changes)
    values, decided, certainty, weights = (np.frombuffer(data, "<f8") for data in buffers)
    halves = [part.reshape(2, -1) for part in (values, decided, certainty)]
    return meta, *halves, weights


@pytest.mark.parametrize("operator", ["mask", "delete", "zero", "attention_mask"])
@pytest.mark.parametrize("unit", ["token", "word"])
def test_curves_are_those_of_faithfulness(trace, operator, unit):
    result = given(trace)
    view = aw.RemovalView(trace, result, operator=operator, unit=unit)
    meta, values, _, _, weights = asked(view)
    n = meta["steps"][-1]
    card = aw.evaluate.faithfulness(
        trace,
        result,
        removal=aw.evaluate.Removal(operator, thresholds=[k / n for k in meta["steps"]]),
        metrics=("deletion", "insertion"),
        unit=unit,
    )
    np.testing.assert_allclose(values, card.of("made")[0], rtol=1e-9)
    np.testing.assert_array_equal(weights, result.to(unit).values)
    others = {name: shown(view)[name] for name in ("source", "target", "operator")}
    beside, buffers = view.requests.answer("removal_baselines", others)
    mean, low, high, oracle = (np.frombuffer(data, "<f8").reshape(2, -1) for data in buffers)
    columns = [meta["steps"].index(k) for k in beside["steps"]]
    np.testing.assert_allclose(mean, card.of("random")[0][:, columns], rtol=1e-9)
    np.testing.assert_allclose(oracle, card.of("oracle")[0][:, columns], rtol=1e-9)
    assert ((low <= mean + 1e-12) & (mean <= high + 1e-12)).all()


def test_what_is_predicted_at_every_step_is_the_highest_class(trace):
    meta, values, decided, certainty, _ = asked(aw.RemovalView(trace, given(trace), target=1))
    whole = {item.id: item.probability for item in trace.predictions(2)}
    best = max(whole, key=whole.get)
    assert decided[0, 0] == decided[1, -1] == best
    assert certainty[0, 0] == pytest.approx(whole[best])
    assert values[0, 0] == pytest.approx(whole[1])
    assert {index for index, _ in meta["outcomes"]} == set(decided.reshape(-1))
    assert (certainty >= values - 1e-12).all()


def test_nothing_runs_twice(trace, monkeypatch):
    view = aw.RemovalView(trace, given(trace))
    asked(view)
    runs = []
    trace.model.register_forward_hook(lambda *_: runs.append(1))
    asked(view)
    assert not runs


def test_a_map_is_read_by_the_pinned_row_or_the_mean_over_rows(trace):
    view = aw.RemovalView(trace, layer=1, head=0)
    matrix = aw.attention(trace).matrix(1, 0)
    assert shown(view)["row"] == -1
    np.testing.assert_allclose(asked(view)[-1], matrix.mean(axis=0), rtol=1e-6)
    view.selection.pinned = (3, -1)
    assert shown(view)["row"] == 3
    np.testing.assert_allclose(asked(view)[-1], matrix[3], rtol=1e-6)
    head = aw.RemovalView(trace, layer=1, head="mean")
    assert shown(head)["head"] == "mean"


def test_the_selected_target_is_read_and_a_given_explanation_keeps_its_own(trace):
    view = aw.RemovalView(trace, methods=["input_x_gradient"])
    other = int(trace.logits.argmin())
    view.selection.target = other
    assert asked(view)[0]["target"] == view.selection.target.label
    fixed = aw.RemovalView(trace, "input_x_gradient", target=1 - other)
    assert shown(fixed)["target"] is None
    assert asked(fixed)[0]["target"] == trace.predictions(1)[0].label


def test_operators_that_are_impossible_say_why():
    decoder = aw.trace(tiny.build(tiny.TEXT["GPT-2"]).double(), None, input_ids=[3, 17, 42, 8, 99])
    view = aw.RemovalView(decoder, given(decoder))
    assert view.options["operator"] == "delete"
    reasons = dict(asked(view)[0]["operators"])
    assert reasons["delete"] == reasons["zero"] == ""
    assert "no mask token" in reasons["mask"]
    with pytest.raises(ValueError, match="possible are"):
        aw.RemovalView(decoder, given(decoder), operator="mask")
    with pytest.raises(ValueError, match="Did you mean 'delete'"):
        aw.RemovalView(decoder, given(decoder), operator="delte")


def test_what_cannot_be_ranked_or_removed_is_told(trace):
    flat = aw.results.Attributions(np.ones(len(trace.axes()[0])), axis=trace.axes()[0], trace_id=trace.id)
    with pytest.raises(ValueError, match="ranks nothing"):
        asked(aw.RemovalView(trace, flat))
    other = aw.results.Attributions([1.0, 2.0], axis=["a", "b"])
    with pytest.raises(ValueError, match="another input"):
        aw.RemovalView(trace, other)
    with pytest.raises(TypeError, match="takes a trace"):
        aw.RemovalView(given(trace))
    with pytest.raises(ValueError, match="without a model, so that nothing was predicted"):
        aw.RemovalView(aw.from_attentions(np.full((1, 1, 2, 2), 0.5), ["a", "b"]))


def test_a_page_holds_what_is_shown_in_every_unit_as_the_browser_asks_it(trace):
    view = aw.RemovalView(trace, given(trace))
    in_page = [(topic, args) for topic, args, _ in view.requests.for_page()]
    units = {args["source"].split("/")[1] for topic, args in in_page if topic == "removal"}
    assert units == {source.unit for source in view.sources()}
    first = next(args for topic, args in in_page if topic == "removal")
    assert list(first) == ["source", "layer", "head", "row", "target", "operator"]
    assert json.dumps(first)
    assert all(args["operator"] == "mask" for _, args in in_page)


def test_an_explorer_answers_what_was_asked_and_runs_nothing_else(trace, given):
    view = aw.Heatmap(aw.attention(trace))
    handlers = removal_handlers(view, trace)
    assert not [args for handler in handlers.values() for args in handler.for_page()]
    source = view.sources()[0].id
    args = {"source": source, "layer": 0, "head": 0, "row": 2, "target": None, "operator": None}
    told = []
    RequestHandlers(handlers, lambda reply, _: told.append(reply)).receive(
        {"kind": "ask", "id": 1, "topic": "removal", "args": args}
    )
    assert told[-1]["kind"] == "answer"
    assert {reply["kind"] for reply in told} == {"progress", "answer"}
    assert list(handlers["removal"].for_page()) == [args]
    assert removal_handlers(view, given()) == {}


def test_steps_of_long_texts_are_dense_where_the_most_happens():
    assert steps_of(5) == (0, 1, 2, 3, 4, 5)
    steps = np.array(steps_of(500))
    assert (steps[0], steps[-1]) == (0, 500)
    assert len(steps) < 120
    assert (np.diff(steps)[:30] == 1).all()
    assert (np.diff(steps) > 0).all()
