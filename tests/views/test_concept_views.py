"""ConceptView, InfluenceView and ShapeView: they send the results' numbers, and texts open."""

from __future__ import annotations

import csv
import dataclasses
import io
import json
import types

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.base import expressions
from attnwidgets.views.base.standalone_view import LONGEST
from attnwidgets.views.concepts.concept_view import MOST
from tests.concepts.made import (
    HOSTILE,
    concept_scores,
    distilled,
    gradients,
    influence,
    sampled,
)
from tests.explanations.made import random_classifier
from tests.tracing import tiny


def asked(view, topic, **args):
    answer, _ = view.requests.answer(topic, args)
    json.dumps(answer, allow_nan=False)
    return answer


@pytest.fixture
def names(monkeypatch):
    """The reader's names."""
    namespace: dict = {}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=namespace))
    return namespace


def told(view, names, **args):
    """The code that a view copies, and its value in the reader's names."""
    code = view.requests.answer("expression", args)[0]["code"]
    return code, eval(code, {}, dict(names))


@pytest.fixture(scope="module")
def trace():
    return aw.trace(random_classifier(), tiny.wordpiece(), "the new cat sat.")


def test_results_open_their_views():
    kinds = {"ConceptView": concept_scores(), "InfluenceView": influence(), "ShapeView": distilled()}
    for name, result in kinds.items():
        view = result.view(title="mine", height=600)
        assert (type(view).__name__, view.options["title"], view.options["height"]) == (name, "mine", 600)
        assert view.describe() == repr(result)
        with pytest.raises(TypeError, match=f"{name}.. shows the result of aw.concepts"):
            getattr(aw, name)([1, 2])


def test_scores_and_texts_of_every_concept_and_layer_are_those_of_the_result():
    result = concept_scores()
    view = result.view()
    data = asked(view, "concepts")
    np.testing.assert_allclose(data["scores"], result.scores)
    np.testing.assert_allclose([data["low"], data["high"]], result.band)
    assert data["significant"] == result.significant.tolist()
    assert data["notes"] == list(result.notes)
    for row, name in enumerate(result.concepts):
        for column, layer in enumerate(result.layers):
            texts = asked(view, "texts", concept=row, layer=layer)
            ranked = result.sort(name, layer)
            assert texts["texts"] == [item.text for item in ranked]
            np.testing.assert_allclose(texts["cosines"], [item.cosine for item in ranked])
            expected = [result.sensitivity[item.number, row, column] for item in ranked]
            np.testing.assert_allclose(texts["sensitivities"], expected)
    topics = [topic for topic, _, _ in view.requests.for_page()]
    assert topics.count("texts") == topics.count("expression") == 6, "a page has every concept and layer"


def test_it_opens_on_a_significant_layer_and_follows_the_selection():
    result = concept_scores()
    view = result.view()
    assert view.layer == 3
    assert result.view(layer=1).layer == 1
    view.selection.layer = 9
    assert view.layer == 3, "the nearest that there is"
    assert aw.views.ConceptView(result, concept="food").options["concept"] == 1
    with pytest.raises(ValueError, match="Did you mean 'food'"):
        result.view(concept="foot")
    with pytest.raises(IndexError, match="layer"):
        result.view(layer=7)
    table = list(csv.DictReader(io.StringIO(view.requests.answer("csv", {})[0])))
    assert len(table) == 6
    assert float(table[0]["score"]) == result.scores[0, 0]


def test_influence_says_what_it_shows_and_a_page_holds_one_table():
    taught = influence()
    view = taught.view(test=1)
    assert "'another test'" in repr(view)
    assert "'a test'" not in view.describe()
    view.options = {**view.options, "test": 0}
    assert view.describe() == repr(taught)
    tables = [answer() for topic, _, answer in view.requests.for_page() if topic == "csv"]
    assert len(tables) == 1
    assert len(list(csv.DictReader(io.StringIO(tables[0][0])))) == len(taught.train)
    assert len(taught.to_rows()) == taught.values.size


def test_many_examples_are_shortened_from_the_middle():
    result = concept_scores(texts=[f"text {at}" for at in range(MOST + 31)])
    texts = asked(result.view(), "texts", concept=0, layer=1)
    ranked = [item.text for item in result.sort("negation", 1)]
    assert texts["left"] == 31
    assert texts["texts"] == ranked[: MOST // 2] + ranked[-MOST // 2 :]


def test_scores_are_copied_as_python(names):
    result = concept_scores()
    view = result.view()
    for namespace in ({"view": view}, {"view": view, "found": result}):
        names.clear()
        names |= namespace
        code, value = told(view, names, of="score", concept=1, layer=2)
        assert value == result.scores[1, 1]
        assert code.startswith("found.") == ("found" in namespace)
    with pytest.raises(ValueError, match="Did you mean 'food'"):
        view.score("foot", 2)
    with pytest.raises(IndexError):
        view.score("food", 8)


@pytest.mark.slow
def test_the_linked_views_show_a_text_and_its_layer(trace):
    result = concept_scores(layers=[0, 1, 9], texts=["the cat.", "a new mat.", "the mat sat.", "a cat sat."])
    explorer = aw.Explorer(trace)
    view = result.view(linked=explorer)
    assert view.selection is explorer.selection
    explorer.selection.layer = 1
    assert view.layer == 1
    asked(view, "open", at=1)
    assert explorer.trace.text == "a new mat."
    assert view.selection is explorer.selection, "another text has another selection"
    other = result.view(linked=explorer, layer=9)
    assert (other.layer, explorer.selection.layer) == (9, 1), "a layer that only this view has"
    view.close()
    other.close()
    assert explorer.selection.is_open
    explorer.show_text(0)
    again = view._repr_mimebundle_()
    assert again
    assert view.selection is explorer.selection
    with pytest.raises(TypeError, match="takes a view of a trace"):
        result.view(linked=view)
    with pytest.raises(TypeError, match="takes a view of a trace"):
        result.view(linked="text")
    with pytest.raises(IndexError, match="text"):
        asked(view, "open", at=99)
    with pytest.raises(LookupError, match="nothing about 'open'"):
        asked(result.view(), "open", at=0)


def test_training_texts_of_a_test_are_those_of_the_result(trace):
    taught = influence()
    explorer = aw.Explorer(trace)
    view = taught.view(test=1, linked=explorer)
    about = asked(view, "tests")
    np.testing.assert_allclose(about["measured"], taught.measured)
    assert about["labels"] == list(taught.test_labels)
    for test in range(2):
        data = asked(view, "influence", test=test)
        assert data["helpful"] == [item.number for item in taught.helpful(test, 8)]
        assert data["harmful"] == [item.number for item in taught.harmful(test, 8)]
        np.testing.assert_allclose(data["influence"], taught.values[test])
        np.testing.assert_allclose(data["change"], taught.change[test])
        np.testing.assert_allclose(data["distance"], taught.distance[test])
        assert data["texts"] == list(taught.train)
    assert (view._text(-2), view._text(3)) == ("another test", "training text 3")
    with pytest.raises(IndexError, match="test"):
        taught.view(test=2)
    with pytest.raises(IndexError):
        asked(view, "influence", test=2)


def test_leaving_a_text_out_is_a_true_refit_and_pages_hold_those_that_are_listed(names):
    taught = influence()
    view = taught.view()
    data = asked(view, "influence", test=0)
    pages = [args for topic, args, _ in view.requests.for_page() if topic == "refit"]
    assert [args["train"] for args in pages] == [*data["helpful"], *data["harmful"]]
    train = data["helpful"][0]
    done = asked(view, "refit", test=0, train=train)
    expected = taught.leave_one_out([train])[0, 0]
    assert done["change"] == expected
    assert done["after"] == pytest.approx(taught.measured[0] + expected)
    assert expected > 0, "without a helpful text the loss rises"
    names |= {"view": view, "taught": taught}
    assert told(view, names, of="influence", test=0, train=train)[1] == taught.values[0, train]
    assert told(view, names, of="left_out", test=0, train=train)[1] == expected
    del names["taught"]
    assert told(view, names, of="influence", test=1, train=2) == (
        "view.influence(2, test=1)",
        taught.values[1, 2],
    )


WORDS = ("the new cat sat.", "the   cat\nsat", "[CLS] cat", "\u202ethe <b>cat</b>")


@pytest.mark.slow
def test_words_are_coloured_by_what_speaks_for_the_label_of_each_text(trace):
    classes = tuple(trace.model.config.id2label.values())[:2]
    taught = influence(WORDS, WORDS[:2], classes, sample=trace)
    for method in ("lrp", "saliency"):
        view = taught.view(method=method)
        result = asked(view, "strips", test=1, method=method)
        shown = asked(view, "influence", test=1)
        texts = {train: WORDS[train] for train in [*shown["helpful"], *shown["harmful"]]}
        assert set(result["train"]) == set(map(str, texts))
        rows = [(result["train"][str(at)], text, taught.train_labels[at]) for at, text in texts.items()]
        for parts, text, label in [*rows, (result["test"], WORDS[1], taught.test_labels[1])]:
            assert "".join(word for word, _ in parts) == text
            read = aw.trace(trace.model, trace.tokenizer, text)
            expected = aw.explain(read, method, target=label).to("word")
            special = expected.axis.units["word"].special
            values = [value for value, apart in zip(expected.values, special, strict=True) if not apart]
            coloured = [value for _, value in parts if value is not None]
            np.testing.assert_allclose(coloured, values, rtol=1e-5)
    pages = [args for topic, args, _ in taught.view(test=1).requests.for_page() if topic == "strips"]
    assert pages == [{"test": 1, "method": "lrp"}]


def test_a_figure_shows_the_words_that_were_coloured(trace, tmp_path):
    taught = influence(WORDS, WORDS[:1], ("no", "so-so"), sample=trace)
    view = taught.view(method="saliency")
    plain = view.save(tmp_path / "plain.png").read_bytes()
    asked(view, "strips", test=0, method="saliency")
    parts = view._still(LIGHT).parts
    assert view.save(tmp_path / "words.png").read_bytes() != plain
    (strip,) = parts[:1]
    values = [value for word, value in view._coloured[0, "saliency"]["test"] if word.strip()]
    np.testing.assert_allclose(strip.values[0], values)
    assert "words by saliency" in view._still(LIGHT).note
    first = taught.helpful(0, 1)[0]
    assert parts[1].left.parts[1].names[0].startswith(f"{first.label} \N{MINUS SIGN}")


def test_the_menu_has_every_method_that_explains_a_class_and_says_why_some_cannot(trace):
    taught = influence(WORDS, WORDS[:1], sample=trace)
    view = taught.view(method="grad_cam")
    offered = {each["method"]: each["refusal"] for each in asked(view, "tests")["methods"]}
    wanted = {each.name for each in aw.methods() if each.kind == "attributions"} - {"mixing_ratio"}
    assert set(offered) == wanted, "mixing_ratio explains no class"
    assert "picture" in offered["grad_cam"]
    assert offered["lrp"] == ""
    with pytest.raises(ValueError, match=r"grad_cam: it needs a picture"):
        asked(view, "strips", test=0, method="grad_cam")


def test_words_are_plain_where_no_method_or_no_model_is(trace):
    bare = influence().view()
    for view in (bare, influence(sample=trace).view(method=None)):
        assert view.options["colouredBy"] == ""
        assert not [topic for topic, *_ in view.requests.for_page() if topic == "strips"]
    assert asked(bare, "tests")["methods"] == []
    with pytest.raises(LookupError):
        asked(bare, "strips", test=0, method="lrp")
    with pytest.raises(ValueError, match=r"method 'lpr' is unknown.*lrp"):
        influence(sample=trace).view(method="lpr")
    for method in ("rollout", "mixing_ratio"):
        with pytest.raises(ValueError, match="returns no attributions to a class"):
            influence().view(method=method)


def test_where_labels_are_no_classes_words_speak_for_the_prediction(trace):
    taught = influence(WORDS, WORDS[:1], ("0.5", "2"), sample=trace)
    view = taught.view()
    assert asked(view, "tests")["classes"] is False
    expected = aw.lrp(aw.trace(trace.model, trace.tokenizer, WORDS[0])).to("word")
    values = [value for word, value in asked(view, "strips", test=0, method="lrp")["test"] if word.strip()]
    np.testing.assert_allclose(values, expected.values[1:-1], rtol=1e-5)


def test_a_long_text_is_shown_up_to_its_two_thousandth_character(trace):
    long = "the new cat sat. " * 60
    taught = influence([long, *WORDS, 40 * "a mat " + 2000 * "x"], [long + 60 * "a new mat "], sample=trace)
    view = taught.view()
    data = asked(view, "influence", test=0)
    listed = [*data["helpful"], *data["harmful"]]
    assert {0, 5} <= set(listed)
    result = asked(view, "strips", test=0, method="saliency")
    for train, parts in result["train"].items():
        text = taught.train[int(train)]
        cut = text if len(text) <= 2000 else text[:1999] + "…"
        assert "".join(word for word, _ in parts) == data["texts"][int(train)] == cut
    assert data["test"] == taught.tests[0]


@pytest.mark.parametrize("kind", ["binary", "regression"])
def test_a_margin_is_shown_as_readers_have_it(kind):
    taught = influence()
    taught = dataclasses.replace(
        taught, measure="margin", _refit=dataclasses.replace(taught._refit, kind=kind)
    )
    view = taught.view()
    features, labels = taught._tests
    logits = taught._refit.outputs_for(features)[:, 0]
    shown = asked(view, "tests")
    sign = (2 * labels - 1) if kind == "binary" else 1
    assert shown["measure"] == ("margin" if kind == "binary" else "output")
    np.testing.assert_allclose(shown["measured"], sign * logits)
    done = asked(view, "refit", test=1, train=4)
    without = taught._refit.outputs_without(4, features)[1, 0] * (sign[1] if kind == "binary" else 1)
    assert (done["before"], done["after"]) == pytest.approx(((sign * logits)[1], without))
    turned = -1 if kind == "binary" else 1
    np.testing.assert_allclose(asked(view, "influence", test=0)["change"], turned * taught.change[0])


def test_influence_by_gradients_has_no_refit_and_no_distance():
    view = gradients().view()
    assert asked(view, "tests")["measured"] is None
    data = asked(view, "influence", test=0)
    assert (data["change"], data["distance"], data["influence"]) == (None, None, [-0.2, 0.1, None])
    with pytest.raises(LookupError, match="refit"):
        asked(view, "refit", test=0, train=0)


def test_of_many_training_texts_the_strongest_are_drawn():
    taught = influence(train=[f"text {at}" for at in range(1500)])
    data = asked(taught.view(), "influence", test=0)
    assert len(data["points"]) <= 420
    strongest = np.argsort(-np.abs(taught.values[0]))[:200]
    assert set(strongest.tolist()) <= set(data["points"])


def test_shapes_pairs_and_the_worst_texts_are_those_of_the_result(names):
    student = distilled()
    view = student.view()
    data = asked(view, "shapes")
    assert data["fidelities"] == pytest.approx([student.fidelities[1], student.fidelities[2]])
    for slot, (name, values) in zip(data["slots"], student.shapes.items(), strict=True):
        assert slot["name"] == name
        np.testing.assert_allclose(slot["values"], values)
    assert data["pairs"][0]["slots"] == [0, 1]
    np.testing.assert_allclose(data["pairs"][0]["values"], student.pairs["how", "adj"])
    assert [text for _, text, _, _ in data["worst"]] == [item.text for item in student.worst(12)]
    assert [view._text(at) for at, *_ in data["worst"]] == [text for _, text, _, _ in data["worst"]]
    for namespace in ({"view": view}, {"view": view, "student": student}):
        names.clear()
        names |= namespace
        assert told(view, names, of="fidelity")[1] == student.fidelity
        assert told(view, names, of="share", name="how x adj")[1] == student.shares["how x adj"]
        assert told(view, names, of="effect", slots=[1], levels=[0])[1] == student.shapes["adj"][0]
        assert (
            told(view, names, of="effect", slots=[0, 1], levels=[1, 0])[1]
            == student.pairs["how", "adj"][1, 0]
        )
    with pytest.raises(ValueError, match=r"pair=.* is not one of \('how', 'adj'\)"):
        student.view(pair=("how", "thing"))
    with pytest.raises(ValueError, match="Did you mean 'how x adj'"):
        view.share("how x ad")


def test_a_sample_is_called_an_estimate_and_a_constant_has_nothing_to_explain():
    data = asked(sampled().view(), "shapes")
    assert data["estimated"]
    assert "estimated from 80 of 216" in data["notes"][-1]
    nothing = asked(distilled(constant=True).view(), "shapes")
    assert nothing["fidelities"] == [None, None]
    alone = distilled(order=1).view()
    assert asked(alone, "shapes")["pairs"] == []
    assert alone.options["pair"] == -1


@pytest.mark.slow
@pytest.mark.parametrize(
    "result",
    [
        concept_scores(HOSTILE[:5], (2,), HOSTILE, [*HOSTILE, "=1+1"]),
        influence(HOSTILE, HOSTILE[:1], HOSTILE[:2], HOSTILE),
        distilled(levels=HOSTILE),
    ],
    ids=["concepts", "influence", "shapes"],
)
def test_hostile_texts_are_cut_and_saved_as_text(result, tmp_path):
    view = result.view()
    for topic, args, _ in list(view.requests.for_page()):
        if topic not in {"expression", "csv"}:
            assert 4 * LONGEST * "x" not in json.dumps(asked(view, topic, **args))
    assert view.save(tmp_path / "figure.svg").read_text().count("<script") == 0
    page = view.to_html(tmp_path / "page.html").read_text()
    assert "<img src=x" not in page
    assert view._repr_mimebundle_()[0]["image/png"]


@pytest.mark.slow
def test_what_is_not_a_number_is_neither_sent_nor_drawn_as_one(tmp_path):
    result = concept_scores()
    for values in (result.accuracy, result.p, result.by_run):
        values[1] = np.nan  # as of a direction that was given, and of no gradient
    view = result.view(concept="food")
    data = asked(view, "concepts")
    assert data["accuracy"][1] == data["p"][1] == data["scores"][1] == [None] * 3
    assert view.layer in result.layers
    for item in (view, gradients().view(), distilled(constant=True).view()):
        assert item.save(tmp_path / "figure.png").stat().st_size > 1000
        assert item.describe()
