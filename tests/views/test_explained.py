"""Views of a prediction open explained: words that speak for it, and a head that reads content words."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.results.verbalise import findings_of
from attnwidgets.views.base.linked_view import MOST_CHIPS

FILM = "A wonderful film, and not too melodramatic."


@pytest.fixture(scope="module")
def classified():
    return aw.trace(*aw.demo_model("classifier"), FILM)


@pytest.fixture(scope="module")
def capital(smollm2):
    return aw.trace(*smollm2, "The capital of France is")


def header_of(view, path):
    """Return the header in a page of a view."""
    page = view.to_html(path).read_text()
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page, re.DOTALL)[1])
    return next(model["state"]["header"] for model in state["models"].values() if model["kind"] == "store")


def test_a_decoder_opens_on_the_head_whose_last_row_reads_a_content_word(capital):
    opening = aw.Explorer(capital).selection.opening
    weights = capital.attention_layer(opening.layer)[opening.head]
    assert [capital.tokens[position] for position in opening.pair] == ["␣is", "␣France"]
    assert weights[4, 3] > 0.85
    assert weights[1:4, 0].mean() > 0.5
    assert opening.sentence == (
        f"“is” attends to “France” ({weights[4, 3]:.2f}); the other tokens attend mostly to the first."
    )
    assert aw.Heatmap(capital).selection.opening == opening
    row = weights[aw.NeuronView(capital).opening_query("self", opening.layer, opening.head)]
    assert 2 <= (row > 0.1).sum() <= 4  # of the same head, a row with something to compare


def test_a_head_that_always_reads_the_token_before_is_not_chosen(capital):
    opening = aw.Explorer(capital).selection.opening
    previous = aw.statistics.head_patterns(capital)["previous"]
    assert previous[opening.layer, opening.head] < 0.5
    assert previous.max() > 0.8


def test_a_classifier_opens_on_the_head_whose_rows_read_a_content_word(classified):
    opening = aw.Explorer(classified).selection.opening
    weights = classified.attention_layer(opening.layer)[opening.head].numpy()
    query, key = opening.pair
    rows = range(1, len(classified.tokens) - 1)
    most = sum(weights[row].argmax() == key for row in rows)
    assert classified.tokens[key] == "wonderful"
    assert weights[query, key] == weights[1:-1, key].max()
    reader = f"“{classified.tokens[query]}” with {weights[query, key]:.2f}"
    assert opening.sentence == f"{most} of {len(rows)} tokens attend most to “wonderful”, {reader}."


def test_without_content_words_the_clearest_pattern_is_chosen():
    trace = aw.trace(*aw.demo_model("classifier"), "so it is")
    assert aw.Explorer(trace).selection.opening.words == "reads the token before"


@pytest.mark.parametrize(
    ("values", "residual", "sentence"),
    [
        ([9, 0.52, 0.1, -0.3], 0.1, "“good” speaks for “yes” (0.52 of 9.42)."),
        ([0, 0.52, 0.1, -0.3], -0.2, "“good” speaks for “yes” (0.52)."),
        ([0, 0.52, 0.26, 0.1], 0.0, "“good” and “film” speak for “yes” (0.52 and 0.26 of 0.88)."),
        ([0, -0.5, -0.1, 0.0], 0.0, "No token speaks for “yes”."),
        ([0, 12.34, 0.0, 0.0], None, "“good” matters most for “yes” (12.3)."),
        ([0, 0, 0, 0], 0.0, ""),
    ],
)
def test_a_finding_names_the_words_that_speak_for_the_target(values, residual, sentence):
    tokens = ("[CLS]", "good", "film", "end")
    unit = aw.results.Unit(
        "token", tokens, tuple((index,) for index in range(4)), special=(True, False, False, False)
    )
    axis = aw.results.TokenAxis(tokens, {"token": unit})
    shown = aw.results.Attributions(np.array(values, dtype=float), axis=axis, target="yes", residual=residual)
    assert findings_of(shown) == [sentence]


def test_a_finding_names_a_repeated_word_once_and_letters_of_a_single_word():
    repeated = aw.results.Attributions(
        [0.5, 0.1, 0.4], axis=("good", "film", "good"), target="yes", residual=0.0
    )
    assert findings_of(repeated) == ["“good” speaks for “yes” (0.50 and 0.40 of 1.00)."]
    letters = aw.lrp(aw.trace(*aw.zoo.induction(), "fadebcfadeb"))
    assert findings_of(letters)[0].startswith("“c” speaks for “c” (")


def test_a_finding_has_a_contrast_and_names_whole_words(classified):
    contrast = aw.lrp(classified, "negative", foil="positive")
    assert findings_of(contrast)[0].startswith(
        "“melodramatic” speaks for “negative” rather than “positive” ("
    )
    words = contrast.to("word")
    value = words.values[words.labels.index("melodramatic")]
    assert f"({value:.2f})." in findings_of(contrast)[0] or f"({value:.2f} of" in findings_of(contrast)[0]


@pytest.mark.slow
def test_a_page_explains_every_prediction_above_the_text(classified, capital, tmp_path):
    predictions = header_of(aw.Explorer(classified), tmp_path / "class.html")["predictions"]
    assert predictions["method"] == "lrp"
    assert predictions["explained"] == [item["id"] for item in predictions["items"]]
    predictions = header_of(aw.Explorer(capital), tmp_path / "token.html")["predictions"]
    assert predictions["explained"] == [item["id"] for item in predictions["items"][:MOST_CHIPS]]


def test_a_page_of_named_methods_explains_by_these_alone(classified, tmp_path):
    trace = aw.trace(classified.model, classified.tokenizer, FILM)
    predictions = header_of(aw.Explorer(trace, methods=["attention"]), tmp_path / "page.html")["predictions"]
    assert (predictions["method"], predictions["explained"]) == ("", [])


def test_a_long_text_is_not_explained_unasked(monkeypatch, tmp_path):
    monkeypatch.setattr("attnwidgets.views.base.linked_view.MOST_EXPLAINED", 5)
    view = aw.Explorer(aw.trace(*aw.demo_model("classifier"), FILM))
    assert header_of(view, tmp_path / "page.html")["predictions"]["explained"] == []


def test_the_text_at_rest_shows_the_explanation_and_a_pin_the_row(classified):
    view = aw.Explorer(aw.trace(classified.model, classified.tokenizer, FILM))
    assert view.presentation.explanation_at_rest is None, "nothing is computed yet"
    view.explain_predictions()
    state = view.presentation
    values = aw.lrp(classified).values
    np.testing.assert_allclose(state.explanation_at_rest.matrix(0, "-")[0], values, rtol=1e-6)
    assert state.sentence == findings_of(aw.lrp(classified))[0]
    assert view.describe().startswith(state.sentence)
    view.selection.pinned = (3, 2)
    assert view.presentation.explanation_at_rest is None
    assert not view.describe().startswith(state.sentence)


def test_all_predictions_are_explained_by_one_pass_and_as_each_is_alone(classified, monkeypatch):
    trace = aw.trace(classified.model, classified.tokenizer, FILM)
    alone = [aw.lrp(trace), *(aw.lrp(trace, item.id) for item in trace.predictions()[1:])]
    calls, call = [], type(trace).call
    monkeypatch.setattr(type(trace), "call", lambda *given: calls.append(1) or call(*given))
    view = aw.Explorer(trace)
    view.explain_predictions()
    assert len(alone) == 2
    assert len(calls) == 1
    for expected in alone:
        key = "lrp" if expected is alone[0] else f"lrp@{trace.predictions()[1].id}"
        shown = view.explanation(key)
        np.testing.assert_array_equal(shown.values, expected.values)
        np.testing.assert_array_equal(shown.map.layer(3), expected.map.layer(3))
        assert shown.provenance == expected.provenance
    view.store.make("lrp@0-1")
    assert len(calls) == 2, "the target, the foil and their difference share a pass"


def test_a_saved_figure_has_the_explanation_of_the_prediction(classified, tmp_path):
    view = aw.Explorer(aw.trace(classified.model, classified.tokenizer, FILM))
    figure = view.save(tmp_path / "figure.svg").read_text()
    assert findings_of(aw.lrp(classified))[0] in figure
