"""SentenceView: arcs between sentences, from maps of sentences and from traces."""

from __future__ import annotations

from xml.etree import ElementTree as ET

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.still.texts import links_of

SENTENCES = ["One is here.", "Two was there.", "Three reads one.", "Four."]
VALUES = np.array(
    [[0, 0, 0, 0], [3, 0, 0, 0], [2, 1, 0, 0], [0.5, 0, 4, 0]],
    dtype=np.float32,
)
WORDS = [(0, 1), (1, 5), (5, 7), (7, 12)]


def given_map(values=VALUES, labels=SENTENCES):
    return aw.results.MixingMap(values[None], query=labels)


@pytest.fixture(scope="module")
def spelling():
    return aw.trace(*aw.zoo.induction(letters="abcdefgh", length=16), "fadebcfadeb")


def texts(view, path):
    svg = ET.parse(view.save(path)).getroot()
    return [el.text or "" for el in svg.iter("{http://www.w3.org/2000/svg}text")]


def test_links_are_the_largest_first_and_leave_out_what_is_near_special_or_no_number():
    plain = np.zeros(4, dtype=bool)
    assert links_of(VALUES, 1, plain) == [(3, 2, 4.0), (1, 0, 3.0), (2, 0, 2.0), (2, 1, 1.0), (3, 0, 0.5)]
    assert links_of(VALUES, 2, plain) == [(2, 0, 2.0), (3, 0, 0.5)]
    assert links_of(VALUES, 1, np.array([True, False, False, False])) == [(3, 2, 4.0), (2, 1, 1.0)]
    signed = np.where(VALUES == 1, -5, VALUES)
    signed[3, 2] = np.nan
    assert links_of(signed, 1, plain)[0] == (2, 1, -5.0)
    assert all(link[:2] != (3, 2) for link in links_of(signed, 1, plain))
    assert not links_of(np.eye(3), 1, np.zeros(3, dtype=bool)), "nothing depends on itself"


@pytest.mark.parametrize("method", ["suppress", "attention"])
def test_the_result_of_sentence_attribution_opens_here(spelling, method):
    result = aw.circuits.sentence_attribution(spelling, method, unit=WORDS)
    view = result.view()
    assert isinstance(view, aw.views.SentenceView)
    state = view.presentation
    head = {} if state.head == "-" else {"head": state.head}
    expected = result.matrix(state.layer, **head)
    np.testing.assert_allclose(state.source.matrix(state.layer, state.head), expected, atol=1e-6)
    assert view.options["height"] == 500


def test_a_trace_is_shown_by_sentences_whatever_unit_others_show(minilm_trace):
    view = aw.views.SentenceView(minilm_trace)
    assert view.options["unit"] == "sentence"
    assert aw.views.SentenceView(minilm_trace, unit="word").options["unit"] == "word"


def test_a_figure_holds_the_text_and_both_lists_of_the_pinned_sentence(tmp_path):
    view = aw.views.SentenceView(given_map())
    view.selection.pinned = (2, -1)
    result = texts(view, tmp_path / "a.svg")
    assert set(SENTENCES) <= set(result)
    assert "2 depends on" in result
    assert "what depends on 2" in result
    assert [text for text in result if text in {"2.00", "1.00", "4.00"}] == ["2.00", "1.00", "4.00"]
    far = aw.views.SentenceView(given_map(), distance=2)
    assert "only tokens that are 2 or more apart" in texts(far, tmp_path / "b.svg")


def test_it_opens_on_the_last_sentence_unless_that_has_no_arc(tmp_path):
    assert "3 depends on" in texts(aw.views.SentenceView(given_map()), tmp_path / "a.svg")
    alone = VALUES.copy()
    alone[3] = 0
    assert "1 depends on" in texts(aw.views.SentenceView(given_map(alone)), tmp_path / "b.svg")


def test_one_sentence_says_what_is_missing(tmp_path):
    view = aw.views.SentenceView(given_map(np.ones((1, 1), dtype=np.float32), ["Alone."]))
    assert any("This text has one token" in text for text in texts(view, tmp_path / "a.svg"))


def test_it_is_described_in_words():
    said = aw.views.SentenceView(given_map(), title="made up").describe()
    assert said == (
        "Made up: “Four.” depends most on 2 (4.00), 0 (0.50). "
        "Strongest of all: 3 on 2 (4.00), 1 on 0 (3.00), 2 on 0 (2.00)."
    )
    alone = aw.views.SentenceView(given_map(np.zeros((2, 2), dtype=np.float32), ["a", "b"])).describe()
    assert "depends on no other" in alone


@pytest.mark.slow
def test_two_hundred_sentences_are_drawn_around_the_chosen_one(tmp_path):
    values = np.tril(np.random.default_rng(0).random((200, 200), dtype=np.float32), -1)
    view = aw.views.SentenceView(given_map(values, [f"Sentence {index}." for index in range(200)]))
    result = texts(view, tmp_path / "a.svg")
    assert "Sentence 199." in result
    assert "sentences 140 to 199 of 200" in result


def test_what_has_no_arcs_is_refused_with_what_to_do(spelling):
    with pytest.raises(TypeError, match="sentence_attribution, another map, or a trace, not int"):
        aw.views.SentenceView(3)
    with pytest.raises(ValueError, match="lies between two"):
        aw.views.SentenceView(aw.results.MixingMap(np.ones((1, 2, 2)), query=["a", "b"], key=["c", "d"]))
    many = [str(index) for index in range(401)]
    with pytest.raises(ValueError, match="up to 400 sentences, and this text has 401"):
        aw.views.SentenceView(given_map(np.eye(401, dtype=np.float32), many))
    for name, value in (("least", 2.0), ("distance", 0), ("distance", True)):
        with pytest.raises(ValueError, match=name):
            aw.views.SentenceView(given_map(), **{name: value})
    published = aw.circuits.sentence_attribution(spelling, unit=WORDS, as_published=True)
    with pytest.raises(ValueError, match="logarithms, which have no zero"):
        aw.views.SentenceView(published)
    assert isinstance(published.view(), aw.Heatmap)
