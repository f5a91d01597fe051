"""Views of results, features, questions and studies: their figure, page and words name the same numbers."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.sae import made
from tests.tracing import tiny
from tests.views.every import make

from .agreement import compares


@compares("SentenceView")
def test_a_sentence_view_has_the_scale_of_its_largest_value(see):
    links = np.array([[0.0, 0.0, 0.0], [0.3, 0.0, 0.0], [0.1, 0.2, 0.0]])
    sentences = ["One is here.", "Two is there.", "Three is far."]
    seen = see(
        aw.views.SentenceView(
            aw.results.MixingMap(links[None, None], query=sentences, key=sentences, method="made")
        )
    )
    assert not seen.lacks("0.3")
    assert not seen.lacks_values("depends on | 1 | Two is there.", 0.2, skip={"figure", "words"})
    assert not seen.lacks_values("2 depends on | 1 Two is there.", 0.2, skip={"page", "words"})
    assert not seen.lacks_values("“Three is far.” depends most on 1", 0.2, skip={"page", "figure"})
    assert not seen.lacks_values("1 on 0", 0.3, skip={"page", "figure"})


@compares("RunView")
def test_a_run_says_what_its_curves_are_at_the_step(see):
    seen = see(make("RunView", None))
    assert not seen.lacks("behaviour", "head 1.0")
    assert not seen.lacks("cause, head 1.0: 0.893 at step 0, 0.893 at step 10", skip={"page"})
    assert {"lost without 1.0", "0.89", "step 10 / 10"} <= {*seen.page}
    assert "step 10 of 10, head 1.0" in seen.figure


@compares("SourcesView")
def test_sources_name_the_message_and_its_nats(see):
    seen = see(make("SourcesView", None))
    assert not seen.lacks("message 0", "each is then small alone")
    assert not seen.lacks("“It is red.” rests most on message 0: +2.50 nats.", skip={"page"})
    assert not seen.lacks("“Yes.” rests on no message: all are below 0.6 nats.", skip={"figure", "page"})
    assert not seen.lacks_values("message 0", 2.5)
    assert not seen.lacks_values("message 1, user", 1.0, skip={"words", "figure"})
    assert any("1 user Is it?" in text for text in seen.figure)
    assert "+1.00" in seen.figure


def test_sources_of_a_picture_name_its_part_and_the_nats_of_each_word(see):
    model, processor = aw.zoo.trained("scenes")
    scene = model.truth.scene(7)
    trace = aw.trace(model, processor, f"{scene.text} {scene.answer}", image=scene.image)
    result = aw.vision.sources(trace, (16, 24))
    seen = see(result.view())
    assert not seen.lacks("patch 1,2", "Parts that show the same cover for each other", skip={"page"})
    for word in (3, 5, 6):
        assert not seen.lacks_values(
            f"“{result.words[word]}” rests most on", result.scores.values[word, 5], skip={"page"}
        )
    assert {"red", "middle", "right", "+15.55 nats without patch 1,2"} <= {*seen.page}
    assert "+0.77 nats, patch 1,2" in seen.figure


@compares("WhyView")
def test_a_why_names_its_rows_and_what_a_removal_leaves(see):
    seen = see(make("WhyView", None))
    assert not seen.lacks("“b” looks at “c”", "its token", "head 0.0")
    assert not seen.lacks_values("Both lists sum to", 38.594, 38.594)
    assert not seen.lacks_values("offers", 77.187, -38.594, skip={"words", "page"})
    assert not seen.lacks_values("“b” offers | 77", 0, skip={"words", "page", "figure"})
    assert not seen.lacks_values("in “c”", 0, 1, skip={"page"})
    assert not seen.lacks_values("without head 0.0 in “c”", 1, 0, 1, skip={"words", "figure"})


@compares("NeuronView")
def test_a_neuron_view_names_the_pair_and_every_step(see):
    seen = see(make("NeuronView", None))  # queries and keys are the rows of a unit matrix
    weight = np.exp(0.5**0.5) / (1 + np.exp(0.5**0.5))
    assert not seen.lacks("“0” reads “0” in layer 0, head 0", skip={"page"})
    assert not seen.lacks("“0” → “0”", "layer 0, head 0", skip={"figure", "words"})
    assert not seen.lacks_values("q · k", 1.0, skip={"page"})
    assert not seen.lacks_values("q · k |", 1.0, skip={"figure", "words"})
    assert not seen.lacks("0.707", f"{weight:.4f}")


@compares("PatchView")
def test_a_patching_names_its_scores_and_its_largest_places(see):
    view = make("PatchView", None)
    result = view.patching()
    seen = see(view)
    assert not seen.lacks("denoise", f"{result.clean:.2f}")
    assert not seen.lacks_values("clean", result.clean, skip={"words"})
    assert not seen.lacks_values("corrupt", result.corrupt)
    ((layer, head), *_) = sorted(np.ndindex(2, 2), key=lambda at: -abs(result.raw["head"][at]))
    share = result.raw["head"][layer, head] / (result.clean - result.corrupt)
    assert not seen.lacks_values(f"{layer}.{head}", share)
    for texts in (seen.figure, seen.page):
        assert {"-1", "1"} <= set(texts)


@compares("LensView")
def test_a_lens_names_the_ranks_of_the_answer(see):
    view = make("LensView", None)
    seen = see(view)
    assert not seen.lacks("logit lens, answer x")
    assert not seen.lacks_values("rank", 9, skip={"figure", "page"})
    assert not seen.lacks_values("layer 0", 9, skip={"figure", "words"})
    assert not seen.lacks_values("output", 1, skip={"figure", "words"})
    assert not seen.lacks_values("probability", 1.0, skip={"figure", "page"})
    drawn = [line.get_ydata() for axes in view.figure().axes for line in axes.lines]
    assert any(len(line) == 3 and np.allclose(line, np.log10([9, 4, 1])) for line in drawn)


@compares("ClaimView")
def test_a_claim_names_its_effect_its_controls_and_its_texts(see):
    view = make("ClaimView", None)
    result = view.result()
    seen = see(view)
    assert not seen.lacks(
        result.claim, result.verdict, f"{result.mean:.2f}", "[0.40, 0.60]", "0.10", "0.20", "margin 0.1"
    )
    assert not seen.lacks("1 of 2 texts", skip={"page"})
    assert not seen.lacks_values("texts given", 2, skip={"figure", "words"})
    assert not seen.lacks_values("texts used", 1, skip={"figure", "words"})


@compares("ConceptView")
def test_concepts_name_their_scores_and_their_significance(see):
    view = make("ConceptView", None)
    scores = view._scores
    seen = see(view)
    drawn = [line.get_ydata() for axes in view.figure().axes for line in axes.lines]
    for name, row, runs, accuracy in zip(
        scores.concepts, scores.scores, scores.by_run, scores.accuracy, strict=True
    ):
        np.testing.assert_allclose(row, runs.mean(axis=1))
        assert not seen.lacks_values(f"{name}: 1:", row[0], skip={"figure", "page"})
        assert not seen.lacks_values(f"| {name} | ", row[-1], accuracy[-1], skip={"figure", "words"})
        for values in (row, accuracy):
            assert any(len(line) == len(values) and np.allclose(line, values) for line in drawn)
    assert not seen.lacks("negation at 3", skip={"page", "words"})
    assert not seen.lacks("p 0.010", skip={"figure", "words"})
    assert "0.60*" in seen.words


@compares("InfluenceView")
def test_influence_names_the_texts_that_help_and_harm_most(see):
    view = make("InfluenceView", None)
    values = view._influence.values[0]
    seen = see(view)
    for train, side in ((int(values.argmin()), "helped"), (int(values.argmax()), "harmed")):
        name = f"training text {train}"
        assert not seen.lacks(name)
        assert re.search(rf"{side} {re.escape(f'{values[train]:+.3g}')}  \w+: '{name}'", seen.words)
        assert not seen.lacks_values(name, abs(values[train]), skip={"page", "words"})
        list_name = {"helped": "helpful", "harmed": "harmful"}[side]
        assert not seen.lacks_values(f"{list_name} training texts", values[train], skip={"figure", "words"})


@compares("ShapeView")
def test_a_shape_names_the_shares_of_the_variance(see):
    view = make("ShapeView", None)
    values = np.array([[-0.4, 0.6], [0.5, -0.5]])  # [how, adjective]
    share = values.mean(axis=1).var() / values.var()
    seen = see(view)
    assert not seen.lacks_values("loses", 1 - share, skip={"page"})
    assert not seen.lacks(f"{1 - share:.1%}".replace("%", " %"), skip={"figure", "words"})
    assert not seen.lacks_values("how × adj", 1 - share, skip={"words"})
    assert not seen.lacks_values("mean", values.mean(), skip={"words"})


@compares("ScorecardView")
def test_scores_name_the_mean_of_every_method(see):
    samples = [[[[0.5, 0.7], [0.2, 0.1]]], [[[0.6, 0.8], [0.3, 0.2]]]]  # [example, metric, method, layer]
    card = aw.results.Scorecard(samples, metrics=["m"], methods=["first", "second"], x=[0, 1])
    view = aw.views.ScorecardView(card)
    seen = see(view)
    assert not seen.lacks("2 examples")
    means = np.mean(samples, axis=0)[0]
    for name, row in zip(card.methods, means, strict=True):
        assert not seen.lacks_values(name, row.mean(), skip={"figure"})
        assert any(np.allclose(line.get_ydata(), row) for line in view.figure().axes[0].lines)


@pytest.fixture(scope="module")
def features():
    """A trace of a model that predicts the next token, an SAE of its states, and statistics."""
    tokenizer = tiny.wordpiece()
    model = tiny.build(lambda: tiny._plain("GPT2", "LMHeadModel", initializer_range=0.3))
    with torch.no_grad():  # says only words of the tokenizer
        model.lm_head.weight[len(tokenizer) :] = 0
        model.lm_head.weight[:5] = 0
    sae = made.sae(d_in=32, site="blocks.0.hook_resid_post")
    stats = aw.feature_stats(model, tokenizer, sae, list(made.TEXTS))
    sae.maxima = torch.linspace(1, 5, 20)
    return aw.trace(model, tokenizer, "the new cat sat."), sae, stats


@compares("FeatureStrip", "FeatureTable")
@pytest.mark.parametrize("kind", ["FeatureStrip", "FeatureTable"])
def test_features_name_the_strongest_and_its_activation(see, features, kind):
    trace, sae, _ = features
    result = aw.sae_features(trace, sae)
    seen = see(getattr(aw, kind)(result))
    table = np.stack([result.feature(number).values for number in range(20)])[:, 1:-1]  # special tokens
    best, second = np.argsort(-table.max(axis=1))[:2]
    assert f"“feature {best}”" in seen.words
    assert f"activation of feature {best}" in seen.figure
    for number in (best, second):
        assert not seen.lacks_values(f"| {number} |", table[number].max(), skip={"words", "page"})
        mark = "#" if kind == "FeatureStrip" else ""
        assert not seen.lacks_values(f"| {mark}{number} |", table[number].max(), skip={"words", "figure"})


@compares("FeaturePanel")
def test_a_feature_names_its_density_and_its_largest_activation(see, features):
    stats = features[2]
    view = aw.FeaturePanel(stats)
    seen = see(view)
    best = int(np.nanargmax(stats.maxima))
    assert not seen.lacks(f"feature {best}", skip={"page"})
    assert not seen.lacks(f"feature #{best}", skip={"figure", "words"})
    feature = stats.feature(best)
    assert not seen.lacks_values("fires on", feature.density, skip={"words"})
    assert not seen.lacks_values("at most", stats.maxima[best], skip={"words", "figure"})
    assert not seen.lacks_values("up to", stats.maxima[best], skip={"words", "page"})


@compares("SteerView")
def test_steering_names_the_feature_and_the_outcomes_before_and_after(see, features):
    trace, sae, _ = features
    seen = see(aw.SteerView(trace, sae, 3, max_new_tokens=1))
    assert not seen.lacks("feature 3, steered to its maximum", skip={"page", "words"})
    assert not seen.lacks("feature #3", skip={"figure", "words"})
    assert seen.words.startswith("Feature 3 is set to")
    assert not seen.lacks_values("et to", sae.maxima[3], skip={"figure"})
    before = torch.as_tensor(trace.logits)[-1].softmax(-1)
    with aw.steer(trace.model, sae, 3, 1.0), torch.no_grad():
        after = trace.model(**trace.inputs).logits[0, -1].softmax(-1)
    best = int(after.argmax())
    assert not seen.lacks_values(
        trace.tokenizer.convert_ids_to_tokens(best), before[best], after[best], skip={"words"}
    )


@compares("Question")
def test_a_question_names_its_points_and_its_answer(see, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # an answer is saved in the folder of its notebook
    question = make("Question", None)
    question.answer = 12
    seen = see(question)
    assert not seen.lacks("How many heads has the model?", "1 point", "12")


@compares("StudyView")
def test_a_study_names_its_question_and_its_items(see):
    seen = see(make("StudyView", None), act=lambda page: page.get_by_role("button", name="I agree").click())
    assert not seen.lacks("How far?", "1")
    assert not seen.lacks("item 1 of 1", skip={"words", "page"})
    assert not seen.lacks("1 of 1", skip={"words", "figure"})
    assert not seen.lacks("A study of 1 item in 2 conditions", skip={"page", "figure"})
