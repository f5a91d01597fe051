"""SteerView: its comparisons, the distance that states move, and the model afterwards."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.sae.steering.steering_effects import differing, side_by_side
from attnwidgets.tracing.predictions import spelled
from attnwidgets.views.features.steer_view import HIGH, LOW
from tests.tracing import tiny

from . import made

SITE = "blocks.0.hook_resid_post"
pytestmark = pytest.mark.usefixtures("closed_widgets")


@pytest.fixture(scope="module")
def gpt2():
    tokenizer = tiny.wordpiece()
    model = tiny.build(lambda: tiny._plain("GPT2", "LMHeadModel", initializer_range=0.3))
    with torch.no_grad():  # writes only tokens that the tokenizer can spell
        model.lm_head.weight[len(tokenizer) :] = 0
        model.lm_head.weight[:5] = 0
    return model, tokenizer


@pytest.fixture(scope="module")
def bert():
    return tiny.build(lambda: tiny._plain("Bert", "Model", initializer_range=0.3)), tiny.wordpiece()


@pytest.fixture
def sae():
    drawn = made.sae(d_in=32, site=SITE)
    drawn.maxima = torch.linspace(1, 5, 20)
    return drawn


@pytest.fixture
def view(gpt2, sae):
    return aw.SteerView(aw.trace(*gpt2, "the new cat sat."), sae, 3, max_new_tokens=4)


def asked(view, kind, feature, scale):
    return view.requests.answer("steered", {"kind": kind, "feature": feature, "scale": scale})[0]


def test_it_says_what_the_model_predicts_before_and_after(view, gpt2, sae):
    model, tokenizer = gpt2
    inputs = tokenizer("the new cat sat.", return_tensors="pt")
    with torch.no_grad():
        before = model(**inputs).logits[0, -1].softmax(-1)
        with aw.steer(model, sae, 3, 2.0) as steering:
            after = model(**inputs).logits[0, -1].softmax(-1)
    told = asked(view, "outcomes", 3, 2)
    assert told["change"] == pytest.approx(steering.relative_change, rel=1e-6)
    names = {label: (first, second) for label, first, second in told["rows"]}
    for best in (int(before.argmax()), int(after.argmax())):
        label = spelled(tokenizer, best)
        assert names[label] == pytest.approx((float(before[best]), float(after[best])), rel=1e-4)


def test_the_reach_is_what_steering_does_at_every_scale(view, gpt2, sae):
    model, tokenizer = gpt2
    inputs = tokenizer("the new cat sat.", return_tensors="pt")
    for feature in (3, 11):
        reach = view._steered.reach(feature)
        for scale in (LOW, 0.0, 1.0, HIGH):
            with aw.steer(model, sae, feature, scale) as steering, torch.no_grad():
                model(**inputs)
            assert reach.relative_change(scale) == pytest.approx(steering.relative_change, rel=1e-4)


def test_the_reach_counts_only_tokens_that_are_steered(gpt2, sae):
    model, tokenizer = gpt2
    view = aw.SteerView(aw.trace(model, tokenizer, "the new cat sat."), sae, 3, positions=[1, 2])
    with aw.steer(model, sae, 3, 2.0, positions=[1, 2]) as steering, torch.no_grad():
        model(**tokenizer("the new cat sat.", return_tensors="pt"))
    reach = view._steered.reach(3)
    assert len(reach.activations) == 2
    assert reach.relative_change(2.0) == pytest.approx(steering.relative_change, rel=1e-4)


def test_generated_text_is_laid_side_by_side(view, gpt2, sae):
    model, tokenizer = gpt2
    inputs = tokenizer("the new cat sat.", return_tensors="pt")

    def generated():
        ids = model.generate(**inputs, max_new_tokens=4, do_sample=False, pad_token_id=0)
        return tokenizer.decode(ids[0, inputs["input_ids"].shape[1] :], skip_special_tokens=True)

    before = generated()
    with aw.steer(model, sae, 3, 5.0):
        after = generated()
    sides = asked(view, "text", 3, 5)["texts"]
    assert ["".join(run for run, _ in side) for side in sides] == [before, after]
    assert before != after
    assert any(differs for _, differs in sides[1])


def test_an_encoder_compares_sentences(bert, sae):
    sentences = ["the cat sat", "new york", "a b c"]
    trace = aw.trace(*bert, "the new cat sat.")
    view = aw.SteerView(trace, sae, 3, sentences=sentences)
    assert view.options["kinds"] == ["sentences"]
    model, tokenizer = bert

    def pooled(text):
        with torch.no_grad():
            mean = model(**tokenizer(text, return_tensors="pt")).last_hidden_state[0].mean(0)
        return mean / mean.norm()

    embeddings = torch.stack([pooled(text) for text in sentences])
    before = embeddings @ pooled("the new cat sat.")
    with aw.steer(model, sae, 3, -1.0):
        after = embeddings @ pooled("the new cat sat.")
    rows = {label: values for label, *values in asked(view, "sentences", 3, -1)["rows"]}
    for i, sentence in enumerate(sentences):
        assert rows[sentence] == pytest.approx([float(before[i]), float(after[i])], abs=1e-5)


def test_the_model_comes_back_also_from_what_fails(view, gpt2):
    model, _ = gpt2
    hooks = [len(module._forward_hooks) for module in model.modules()]
    asked(view, "outcomes", 3, 2)
    calls = iter([None])

    def break_down(*_):
        if next(calls, "again") == "again":
            raise RuntimeError("out of memory")

    handle = model.lm_head.register_forward_hook(break_down)
    view._steered._kept.clear()
    with pytest.raises(RuntimeError, match="out of memory"):
        asked(view, "outcomes", 3, 1)
    handle.remove()
    assert [len(module._forward_hooks) for module in model.modules()] == hooks


def test_statistics_are_a_maximum_too(gpt2, sae):
    trace = aw.trace(*gpt2, "the new cat sat.")
    stats = aw.feature_stats(*gpt2, sae, made.TEXTS)
    assert aw.SteerView(trace, sae, 3, stats=stats)._steered.maximum(3) == float(stats.maxima[3])
    assert aw.SteerView(trace, sae, 3, maximum=2.5)._steered.maximum(3) == 2.5


def test_a_model_and_a_text_are_traced(gpt2, sae):
    model, tokenizer = gpt2
    view = aw.SteerView(model, sae, 3, tokenizer=tokenizer, text="the cat")
    assert view.options["kinds"] == ["outcomes", "text"]
    with pytest.raises(TypeError, match="tokenizer= and text="):
        aw.SteerView(model, sae, 3)


@pytest.mark.parametrize(
    ("args", "error", "message"),
    [
        ({"kind": "outcomes", "feature": 3, "scale": 6}, ValueError, "from -2 to 5"),
        ({"kind": "outcomes", "feature": 3, "scale": float("nan")}, ValueError, "from -2 to 5"),
        ({"kind": "outcomes", "feature": 20, "scale": 1}, IndexError, "0 to 19"),
        ({"kind": "sentences", "feature": 3, "scale": 1}, LookupError, "possible: outcomes, text"),
    ],
)
def test_what_cannot_be_asked_is_refused(view, args, error, message):
    with pytest.raises(error, match=message):
        view.requests.answer("steered", args)


def test_without_a_maximum_it_says_what_to_pass(gpt2):
    trace = aw.trace(*gpt2, "the cat")
    with pytest.raises(ValueError, match=r"stats=aw\.feature_stats"):
        aw.SteerView(trace, made.sae(d_in=32, site=SITE), 3)
    with pytest.raises(ValueError, match=r"width 8.*32 wide"):
        aw.SteerView(trace, made.sae(d_in=8, site=SITE), 3, maximum=1.0)


def test_a_page_holds_some_places_of_the_slider(view, tmp_path):
    page = aw.to_html(view, tmp_path / "page.html").read_text(encoding="utf-8")
    in_page = json.loads(re.search(r'id="aw-state">(.*?)</script>', page)[1])["answers"]["view0"]
    scales = [item["args"]["scale"] for item in in_page if item["args"].get("kind") == "outcomes"]
    assert sorted(scales) == view.options["held"]["outcomes"]
    assert {LOW, 0, 1, HIGH} <= set(scales)
    assert [list(item["args"]) for item in in_page[:2]] == [["feature"], ["kind", "feature", "scale"]]


def test_a_page_says_what_a_model_without_token_states_cannot_answer(sae, tmp_path):
    masked = tiny.build(lambda: tiny._plain("Bert", "ForMaskedLM", initializer_range=0.3)), tiny.wordpiece()
    view = aw.SteerView(aw.trace(*masked, "the new cat sat."), sae, 3, sentences=["a b c"])
    page = aw.to_html(view, tmp_path / "page.html").read_text(encoding="utf-8")
    in_page = json.loads(re.search(r'id="aw-state">(.*?)</script>', page)[1])["answers"]["view0"]
    reasons = [item["refused"] for item in in_page if item["topic"] == "steered"]
    assert len(reasons) == len(view.options["held"]["sentences"])
    assert all("returns no token states" in reason for reason in reasons)


@pytest.mark.parametrize(
    ("before", "after", "marked"),
    [
        ("a b c", "a b c", ([], [])),
        ("a b c", "a x c", ([" b"], [" x"])),
        ("", "new words", ([], ["new words"])),
        (" one two", " one two three", ([], [" three"])),
    ],
)
def test_words_that_differ_are_marked(before, after, marked):
    sides = differing(before, after)
    assert tuple("".join(run for run, _ in side) for side in sides) == (before, after)
    assert tuple([run for run, differs in side if differs] for side in sides) == marked


def test_what_is_largest_on_either_side_is_shown():
    rising = np.arange(50) / 100
    assert side_by_side(1 - rising, rising, 3) == [49, 48, 47, 2, 1, 0]
    assert side_by_side(rising, rising, 60) == list(range(49, -1, -1))


def test_a_steered_feature_is_not_selected_in_other_views(view):
    strip = aw.FeatureStrip(view._features.saes[0].activations)
    strongest = strip.selection.feature
    steered = 3 if strongest != 3 else 4
    other = aw.SteerView(view._steered.trace, view._steered.sae, steered, maximum=10.0)
    assert other.selection is strip.selection
    assert strip.selection.feature == strongest
    assert other.options["steered"] == steered
    assert list(other.requests._handlers["reach"].page_arguments()) == [{"feature": steered}]
