"""Copy as Python: the expression of a view's number, run in the names of its reader, returns that number."""

from __future__ import annotations

import types

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.views.base import expressions
from tests.explanations.made import random_classifier
from tests.sae import made
from tests.tracing import tiny
from tests.views.every import every_view, make

ELSEWHERE = {
    "Question": "an answer, which has a line of code of its own",
    "ScorecardView": "scores, tested below",
    "StudyView": "answers, a table",
    "SteerView": "words of a changed model",
    "FeatureTable": "a table",
    **dict.fromkeys(("ClaimView", "LensView", "PatchView"), "shares, ranks and means: test_circuit_views.py"),
    "SourcesView": "nats of an answer: test_sources_view.py",
    "WhyView": "shares of a score: test_why_view.py",
    "RunView": "attention over steps: test_run_view.py",
    **dict.fromkeys(
        ("ConceptView", "InfluenceView", "ShapeView"), "scores, influence and shapes: test_concept_views.py"
    ),
}
"""Views without a single number to copy: they have no matrix of the reader's, or several numbers."""


@pytest.fixture
def names(monkeypatch):
    """The reader's names; the view is asked in their presence."""
    namespace: dict = {}
    shell = types.SimpleNamespace(user_ns=namespace)
    monkeypatch.setattr(expressions, "running_shell", lambda: shell)
    return namespace


@pytest.fixture(scope="module")
def classified():
    return aw.trace(random_classifier(), tiny.wordpiece(), "the new cat sat on the mat.")


def told(view, **args):
    return view.requests.answer("expression", args)[0]


def number(view, names, **args):
    """Return the code that a view tells, and its value in the reader's names."""
    answer = told(view, **args)
    assert answer["note"] == "", answer
    return answer["code"], eval(answer["code"], {}, dict(names))


def cells(view):
    """Yield the arguments and the shown value of a cell of every source of a view, by layers and heads."""
    for source in view.sources():
        rows, cols = source.shape
        for layer in {source.ready[0], source.ready[-1]}:
            for head in {source.heads_of_tiles(layer)[0], *source.heads_of_tiles(layer)[-3:]}:
                row = source.row(layer, head, rows - 1)
                key = int(np.flatnonzero(np.isfinite(row))[-1])
                args = {
                    "source": source.id,
                    "layer": layer,
                    "head": head,
                    "query": rows - 1,
                    "key": min(key, cols),
                }
                yield {"of": "cell", **args}, float(row[key])


@pytest.mark.parametrize("name", [name for name in every_view() if name not in ELSEWHERE])
def test_the_expression_of_every_view_returns_the_number_that_is_shown(name, names, classified):
    view = make(name, lambda: classified)
    names["view"] = view
    shown = 0
    for args, value in cells(view):
        code, got = number(view, names, **args)
        assert code.startswith("view.")
        assert np.float32(got) == np.float32(value), code
        shown += 1
    assert shown


def test_the_trace_is_preferred_to_the_map_and_the_map_to_the_view(names, classified):
    attention = aw.attention(classified)
    by_trace, by_map = aw.Heatmap(classified), aw.Heatmap(attention)
    cell = {"of": "cell", "source": "attention/token/self", "layer": 1, "head": 1, "query": 3, "key": 2}
    shown = attention.layer(1)[1, 3, 2]
    names |= {"_": classified, "_7": classified, "by_trace": by_trace}
    assert number(by_trace, names, **cell) == (
        "by_trace.explanation('attention').value(3, 2, layer=1, head=1)",
        shown,
    )
    names["t"] = classified
    assert number(by_trace, names, **cell) == ("t.attention_layer(1)[1, 3, 2].item()", shown)
    names["inside"] = [attention]
    assert told(by_map, **cell)["note"]  # in no container
    names["weights"] = attention
    assert number(by_map, names, **cell) == ("weights.value(3, 2, layer=1, head=1)", shown)


def test_an_equal_object_is_not_the_one_shown(names, classified):
    view = aw.Heatmap(aw.attention(classified))
    names["other"] = aw.attention(classified)
    cell = {"of": "cell", "source": "attention/token/self", "layer": 0, "head": 0, "query": 1, "key": 1}
    answer = told(view, **cell)
    assert answer["code"].startswith("view.explanation(")
    assert "view" in answer["note"]


def test_names_count_as_they_are_when_asked(names, classified):
    view = aw.Heatmap(classified)
    cell = {"of": "cell", "source": "attention/token/self", "layer": 0, "head": 0, "query": 1, "key": 1}
    names["before"] = classified
    assert told(view, **cell)["code"].startswith("before.")
    names["after"] = names.pop("before")
    assert told(view, **cell)["code"].startswith("after.")


def test_words_and_means_of_a_trace_are_made_from_it(names, classified):
    view = aw.Heatmap(classified)
    names |= {"aw": aw, "trace": classified}
    cell = {"of": "cell", "source": "attention/word/self", "layer": 1, "head": "mean", "query": 3, "key": 2}
    shown = next(source for source in view.sources() if source.unit == "word").row(1, "mean", 3)[2]
    code, value = number(view, names, **cell)
    assert code == "aw.attention(trace).value(3, 2, layer=1, head='mean', unit='word')"
    assert np.float32(value) == shown


def test_another_rollout_is_not_taken_for_the_default_one(names, classified):
    first = aw.Heatmap(aw.rollout(classified, residual_weight=0.2))
    view = aw.Explorer(classified, methods=["rollout"])
    names |= {"aw": aw, "trace": classified, "first": first, "view": view}
    for shown in (first, view):
        for args, value in cells(shown):
            code, got = number(shown, names, **args)
            assert np.float32(got) == np.float32(value), code


def test_attributions_of_a_target_and_a_foil_and_their_layers(names, classified):
    lrp = aw.lrp(classified, target=1, foil=0)
    view = aw.views.RelevanceMap(lrp)
    names["relevance"] = lrp
    starts = set()
    for args, value in cells(view):
        code, got = number(view, names, **args)
        starts.add(code.split("(")[0])
        assert np.float32(got) == np.float32(value), code
    assert starts == {"relevance.value", "relevance.map.value"}


def test_a_target_and_foil_that_the_reader_chose_in_the_view(names, classified):
    view = aw.Explorer(classified)
    names["view"] = view
    view.selection.target, view.selection.foil = 1, 0
    view.selection.method = "input_x_gradient"
    source = next(s for s in view.store.sources() if s.method == view.selection.method and s.unit == "token")
    assert "@1-0" in source.method
    for row in range(3):
        cell = {"of": "cell", "source": source.id, "layer": 0, "head": "-", "query": row, "key": 2}
        code, got = number(view, names, **cell)
        assert f"target={row}" in code
        assert np.float32(got) == source.row(0, "-", row)[2]


def test_a_row_without_its_special_tokens_is_divided_as_in_the_view(names, classified):
    attention = aw.attention(classified)
    view = aw.Heatmap(attention, hide_special="renormalise")
    names["m"] = attention
    cell = {"of": "cell", "source": "attention/token/self", "layer": 0, "head": 1, "query": 3, "key": 2}
    _, value = number(view, names, **cell)
    special = np.array(classified.units["token"].special)
    row = attention.layer(0)[1, 3].astype(float)
    assert value == pytest.approx(row[2] / row[~special].sum(), rel=1e-12)


def test_the_agreement_of_two_explanations(names, classified):
    view = aw.compare(classified, methods=["attention", "rollout"])
    names["view"] = view
    asked = {"layer": 0, "query": 2, "unit": "token", "special": False, "by": "value"}
    ranked = view.requests.answer("agreement", asked)[0]["measures"]
    for measure, shown in ranked.items():
        code, value = number(view, names, of="agreement", measure=measure, row=0, col=1, **asked)
        assert round(float(value), 4) == shown["values"][0][1], code


def test_a_value_of_a_row_that_is_compared(names, classified):
    view = aw.compare(classified, methods=["attention", "rollout"])
    names["view"] = view
    for unit in ("token", "word"):
        asked = {"layer": 0, "query": 2, "unit": unit}
        meta, (data,) = view.requests.answer("strips", asked)
        shown = np.frombuffer(data, "<f4").reshape(2, -1)
        for strip, name in enumerate(meta["names"]):
            code, value = number(view, names, of="value", strip=strip, element=3, **asked)
            assert code.startswith(f"view.value({name!r}, 3")
            assert np.float32(value) == shown[strip, 3], code


def test_values_of_a_line_over_layers(names, classified):
    view = aw.views.LayerProfile(classified)
    names["view"] = view
    meta, (data,) = view.requests.answer("profile", {"query": 2, "unit": "token"})
    shown = np.frombuffer(data, "<f4").reshape(2, len(meta["layers"]), -1)
    for line in range(2):
        for sources in ([3], [1, 4]):
            args = {"of": "value", "line": line, "sources": sources, "layer": 1, "query": 2, "unit": "token"}
            code, value = number(view, names, **args)
            assert value == pytest.approx(shown[line, 1, sources].sum(), rel=1e-6), code


def test_the_share_of_an_input_token_is_that_of_rollout(names, classified):
    view = aw.FlowView(classified)
    names["view"] = view
    rolled = aw.rollout(classified)
    for layer in rolled.layers:
        args = {"of": "share", "query": 4, "key": 2, "layer": layer, "unit": "token"}
        code, value = number(view, names, **args)
        assert value == pytest.approx(rolled.matrix(layer)[4, 2], rel=1e-5), code
    _, value = number(view, names, of="share", query=1, key=1, layer=0, unit="word")
    assert value == pytest.approx(view.explanation().to("word").matrix(0)[1, 1], rel=1e-5)


def test_what_is_left_after_some_removals(names, classified):
    view = aw.RemovalView(classified, "rollout")
    names["view"] = view
    shown = next(view._removals._shown())
    meta, buffers = view.requests.answer("removal", shown)
    curves = np.frombuffer(buffers[0]).reshape(2, -1)
    for step in (0, 2, len(meta["steps"]) - 1):
        for flag in (False, True):
            args = {"of": "left", **shown, "k": meta["steps"][step], "kept": flag}
            code, value = number(view, names, **args)
            assert np.array_equal(value, curves[int(flag), step], equal_nan=True), code
    with pytest.raises(ValueError, match="is not one of the steps"):
        view.left(99)


def test_scores_of_a_method_at_a_place_and_over_all(names):
    samples = np.random.default_rng(0).normal(size=(6, 2, 3, 4))
    labels = {"metrics": ["one", "two"], "methods": ["a", "b", "random"], "baselines": ["random"]}
    card = aw.results.Scorecard(samples, x=[0.1, 0.2, 0.5, 1], x_name="share", **labels)
    single = aw.results.Scorecard(samples[..., :1], x=["score"], **(labels | {"metrics": ["three", "four"]}))
    view = aw.views.ScorecardView({"curves": card, "points": single})
    for given in ({"view": view}, {"view": view, "card": card, "single": single, "aw": aw}):
        names.clear()
        names |= given
        for shown in view.options["cards"]:
            for metric, (metric_name, _) in enumerate(shown["metrics"]):
                for row, (row_name, _) in enumerate(shown["rows"]):
                    score = {"of": "score", "metric": metric_name, "row": row_name}
                    code, value = number(view, names, **score, place=-1)
                    assert value == pytest.approx(shown["whole"][0][metric][row], rel=1e-6), code
                    code, value = number(view, names, **score, place=0)
                    assert value == pytest.approx(shown["mean"][metric][row][0], rel=1e-6), code
                    assert code.startswith("view.") == ("card" not in names)
    assert number(view, names, of="score", metric="two", row="b", place=-1)[0] == (
        "aw.evaluate.aopc(card).mean[1, 1, 0].item()"
    )
    with pytest.raises(ValueError, match="row='c' is not one of a, b, random"):
        view.score("one", "c")


def test_probabilities_before_and_after_an_intervention(names, classified):
    view = aw.InterventionView(classified)
    names |= {"trace": classified, "view": view}
    specs = [{"kind": "ablate", "layer": 0, "head": 1, "how": "zero", "stack": "self"}]
    view.selection.interventions = specs
    for number_, _, before, after in view.requests.answer("changed", {"interventions": specs})[0]["rows"]:
        code, value = number(view, names, of="outcome", id=number_)
        assert code.startswith("trace.predictions(")
        assert value == pytest.approx(before, abs=1e-6)
        code, value = number(view, names, of="changed", interventions=specs, id=number_)
        assert code.startswith("trace.rerun(*view.interventions())")
        assert value == pytest.approx(after, abs=1e-6)


def test_activations_and_density_of_a_feature(names):
    model = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3))
    sae = made.sae(d_in=32, site=made.SITE)
    sae.maxima = torch.linspace(1, 5, 20)
    fired = aw.sae_features(aw.trace(model, tiny.wordpiece(), "the new cat sat."), sae)
    view = aw.FeatureStrip(fired)
    feature = fired.ranked(1)[0].feature
    for unit in fired.available_units():
        shown = fired.to(unit).feature(feature).values
        args = {"of": "activation", "sae": 0, "feature": feature, "token": int(shown.argmax()), "unit": unit}
        names.clear()
        names["view"] = view
        code, value = number(view, names, **args)
        assert value == shown.max(), code
        names["fired"] = fired
        code, value = number(view, names, **args)
        assert code.startswith("fired.")
        assert value == shown.max(), code


def test_what_a_page_asks_is_checked(names, classified):
    view = aw.Heatmap(classified)
    cell = {"of": "cell", "source": "attention/token/self", "layer": 0, "head": 0, "query": 1, "key": 1}
    for wrong in (
        {"of": "__class__"},
        {"source": "no"},
        {"key": 99},
        {"key": -1},
        {"layer": 9},
        {"query": -1},
    ):
        with pytest.raises((LookupError, IndexError)):
            told(view, **(cell | wrong))


def test_a_page_holds_the_expression_of_the_pinned_cell(names, classified):
    view = aw.Heatmap(classified, layer=0, head=0)
    names["trace"] = classified
    assert "expression" not in {topic for topic, _, _ in view.requests.for_page()}
    view.selection.pinned = (3, 2)
    ((args, answer),) = [(a, make()) for topic, a, make in view.requests.for_page() if topic == "expression"]
    assert list(args) == ["of", "source", "layer", "head", "query", "key"]
    assert answer[0]["code"] == "trace.attention_layer(0)[0, 3, 2].item()"
