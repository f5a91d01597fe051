"""The numbers of a panel of predictions: exact at every temperature, by position, and in a page."""

from __future__ import annotations

import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.tracing.predictions import TEMPERATURES, outcomes
from tests.tracing import tiny


@pytest.fixture(scope="module")
def read():
    import transformers as hf

    config = hf.GPT2Config(vocab_size=262, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4)
    model = tiny.build(lambda: hf.GPT2LMHeadModel(config))
    return aw.trace(model, tiny.byte_level(), "the cat sat on the mats")


@pytest.mark.parametrize("temperature", [0.05, 0.5, 1.0, 2.0])
def test_probabilities_are_exact_at_every_temperature(read, temperature):
    result = outcomes(read, most=50)
    others = result.rest[TEMPERATURES.index(temperature)]
    scaled = result.logits.astype(np.float64) / temperature
    whole = np.logaddexp(np.logaddexp.reduce(scaled), others)
    expected = (read.logits[-1].double() / temperature).softmax(-1).numpy()[list(result.ids)]
    np.testing.assert_allclose(np.exp(scaled - whole), expected, rtol=1e-4, atol=1e-12)
    assert list(expected) == sorted(expected, reverse=True)


def test_a_place_in_the_text_tells_what_stands_there(read):
    result = outcomes(read, 3)
    token = int(read.input_ids[3])
    logits = read.logits[2]
    assert result.actual is not None
    assert result.actual[0] == token
    assert result.actual[3] == int((logits > logits[token]).sum())
    assert result.ids[0] == int(logits.argmax())
    assert outcomes(read, len(read.input_ids)).ids == outcomes(read).ids
    for position in (0, len(read.input_ids) + 1):
        with pytest.raises(ValueError, match=f"1 to {len(read.input_ids)}"):
            outcomes(read, position)


def test_classes_come_with_their_names_and_nothing_else():
    classifier, tokenizer = aw.demo_model("classifier")
    result = outcomes(aw.trace(classifier, tokenizer, "a great film"))
    assert set(result.labels) == {"positive", "negative"}
    assert np.isneginf(result.rest).all()
    assert result.count == 2


def test_a_masked_model_tells_of_its_mask_and_of_no_other_place():
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    trace = aw.trace(model, tokenizer, "the [MASK] sat")
    assert outcomes(trace).ids[0] == int(trace.logits[2].argmax())
    with pytest.raises(ValueError, match="fills in masks"):
        outcomes(trace, 1)


@pytest.mark.parametrize("name", ["Predictions", "Explorer"])
def test_the_panel_asks_and_a_page_holds_what_needs_no_model(read, name):
    view = getattr(aw, name)(read)
    meta, buffers = view.requests.answer("outcomes", {})
    assert len(buffers[0]) == 4 * len(meta["ids"])
    assert len(buffers[1]) == 8 * len(meta["temperatures"])
    meta, buffers = view.requests.answer("surprisal", {})
    values = np.frombuffer(buffers[0], "<f4")
    assert np.isnan(values[0])
    np.testing.assert_allclose(values[1:], aw.surprisal(read).values[1:], rtol=1e-6)
    topics = {topic for topic, _, _ in view.requests.for_page()}
    assert {"outcomes", "surprisal"} <= topics
    assert "continuations" not in topics


def test_continuations_are_asked_for_and_bounded(read):
    view = aw.Predictions(read)
    args = {"how": "sample", "n": 2, "length": 4, "temperature": 0.5, "top_k": 0, "top_p": 0.9, "seed": 1}
    meta, _ = view.requests.answer("continuations", args)
    made = aw.continuations(read, "sample", 2, max_new_tokens=4, temperature=0.5, top_p=0.9, seed=1)
    assert [item["tokens"] for item in meta["items"]] == [list(entry.tokens) for entry in made]
    with pytest.raises(ValueError, match="1 to 20"):
        view.requests.answer("continuations", args | {"n": 1000})


def test_a_model_without_predictions_answers_nothing(minilm_trace):
    assert "outcomes" not in aw.Predictions(minilm_trace)._handlers()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"hide_special": "renormalize"}, "'renormalise'"),
        ({"keep_mass": 0}, "above 0, at most 1"),
        ({"keep_mass": "half"}, "is not a number"),
        ({"threshold": -1}, "0 or more"),
        ({"scale": "logarithm"}, "'log'"),
        ({"color_range": "global"}, "'all'"),
        ({"palette": "virids"}, "'viridis'"),
    ],
)
def test_filters_are_checked(given, options, words):
    with pytest.raises((TypeError, ValueError), match=re.escape(words)):
        aw.Heatmap(given(), **options)


def test_filters_are_options_of_views_that_draw_maps(given):
    view = aw.TokenStrip(given(), hide_special="renormalise", keep_mass=0.9, threshold=0.01, scale="log")
    assert view.options["filters"] == {"special": "renormalise", "mass": 0.9, "least": 0.01, "scale": "log"}
    assert aw.Heatmap(given()).options["filters"] == {}
    with pytest.raises(TypeError, match="takes no keyword 'keep_mass'"):
        aw.LayerSlider(given(), keep_mass=0.5)


def test_a_text_of_several_paragraphs_is_offered_by_them(minilm):
    several = aw.TokenStrip(aw.trace(*minilm, "One day. It rained.\n\nThe end."))
    single = aw.TokenStrip(aw.trace(*minilm, "One day. It rained.\nThe end."))
    assert {source.unit for source in several.sources()} == {"token", "word", "sentence", "paragraph"}
    assert {source.unit for source in single.sources()} == {"token", "word", "sentence"}


@pytest.fixture
def regression(request):
    """Two texts read by a model that predicts numbers of these names."""
    import torch
    import transformers as hf

    config = hf.BertConfig(
        vocab_size=27, id2label=dict(enumerate(request.param)), problem_type="regression", **tiny.SMALL
    )
    model = tiny.build(lambda: hf.BertForSequenceClassification(config))
    with torch.no_grad():
        model.classifier.weight.normal_()
        model.bert.pooler.dense.weight.mul_(20)
    return [aw.trace(model, tiny.wordpiece(), text) for text in ("the unbelievable cat sat.", "a cat!")]


@pytest.mark.parametrize("regression", [("LABEL_0",), ("valence", "arousal")], indirect=True)
def test_numbers_of_a_regression_are_shown_without_probabilities(regression, tmp_path):
    trace = regression[0]
    numbers = [f"{number:.4g}".replace("-", "−") for number in trace.logits.tolist()]
    names = [f"{name} " for name in ("valence", "arousal")] if len(numbers) > 1 else [""]
    # The first number is explained by default, so that its explanation is the menu's.
    explanation = aw.saliency(trace)
    assert aw.TokenStrip(explanation).store.sources()[-1].method == "saliency"
    if len(numbers) > 1:
        assert aw.TokenStrip(aw.saliency(trace, 1)).store.sources()[-1].method != "saliency"
    explorer = aw.Explorer(regression)
    assert "removal" in explorer.needs.scripts
    shown = explorer.store.header["predictions"]
    assert shown["title"] == trace.predictions_title == ("numbers" if len(numbers) > 1 else "number")
    assert [entry["label"] for entry in shown["items"]] == [
        f"{name}{number}" for name, number in zip(names, numbers, strict=True)
    ]
    assert {item["probability"] for item in shown["items"]} == {None}
    spec = {"kind": "ablate", "layer": 0, "head": 0, "how": "zero", "stack": "self"}
    answer, _ = explorer._changed([spec])
    after = trace.rerun(aw.ablate_heads(trace, (0, 0))).logits.tolist()
    assert answer["rows"] == [
        [i, trace.answer.names[i], pytest.approx(trace.logits[i].item()), pytest.approx(after[i])]
        for i in range(len(numbers))
    ]
    explanation.save(tmp_path / "saved.npz")
    assert aw.load(tmp_path / "saved.npz").predictions.items[0].label == trace.predictions()[0].label
    pair = aw.TwoTexts(regression)
    told, _ = pair._predictions(None, None)
    assert [row[2:] for row in told["rows"]] == [
        [pytest.approx(text.logits[i].item()) for text in regression] for i in range(len(numbers))
    ]
    assert f"{trace.logits[0].item():.4g} and" in pair.describe()
