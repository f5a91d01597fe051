"""SourcesView of messages: words that sum to their sentence, unfolded words, and the contents of pages."""

from __future__ import annotations

import dataclasses
import types

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from attnwidgets.views.circuits.sources_view import SourcesView
from tests.tracing import chats

from .every import make

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My name is Ada. I like tea."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": "What is my name?"},
    {"role": "assistant", "content": "It is Ada. You like tea."},
]


@pytest.fixture(scope="module")
def result():
    trace = aw.trace(chats.model(), chats.tokenizer("chatml"), messages=MESSAGES)
    return aw.circuits.sources(trace)


def many(values):
    """Return a result of a message for each number, between a system message and a question."""
    shown = make("SourcesView", None).shown.result
    labels = [*(f"{at} user: text {at}" for at in range(len(values))), "the answer so far"]
    numbers = [[*values, 0.0]]
    scores = aw.results.Attributions(numbers, axis=labels, target=("Yes.",))
    roles = ("system", *[""] * (len(values) - 2), "question", "answer")
    return dataclasses.replace(
        shown, scores=scores, roles=roles, spans=tuple((at,) for at in range(len(roles)))
    )


def test_it_opens_from_the_result_and_its_words_sum_to_their_sentence(result):
    view = result.view()
    assert isinstance(view, SourcesView)
    data = view.requests.answer("sources", {})[0]
    assert [item["text"] for item in data["answer"]] == ["It is Ada.", "You like tea."]
    assert [item["words"] for item in data["answer"]] == [
        ["It", "is", "Ada", "."],
        ["You", "like", "tea", "."],
    ]
    assert [(part["name"], part["role"], part["kind"]) for part in data["parts"]] == [
        ("0", "system", "system"),
        ("1", "user", ""),
        ("2", "assistant", ""),
        ("3", "user", "question"),
        ("", "the answer so far", "answer"),
    ]
    assert data["parts"][1]["text"] == MESSAGES[1]["content"]
    for at, sentence in enumerate(data["answer"]):
        words = view.requests.answer("words", {"sentence": at})[0]
        np.testing.assert_allclose(np.sum(words, 0), sentence["values"], atol=1e-4)
        np.testing.assert_allclose(sentence["values"], result.scores.values[at], rtol=1e-5, atol=1e-9)


def test_only_the_strongest_of_many_are_unfolded_with_their_neighbours():
    values = np.full(200, 0.01)
    values[[0, 17, 90, 91, 150, 160, 199]] = 9, 2, -1.5, 1, 0.8, 0.7, 9
    shown = many(values).view().shown
    expected = [0, *range(16, 19), *range(89, 93), *range(149, 152), *range(159, 162), 199, 200]
    assert shown.unfolded(0) == expected
    assert shown.strongest(0) == 17
    values[[150, 160]] = 0.01
    assert many(values).view().shown.unfolded(0) == [0, 16, 17, 18, 89, 90, 91, 92, 199, 200]
    assert many(np.full(12, 0.1)).view().shown.unfolded(0) == [*range(13)]
    weak = many(np.full(30, 0.5)).view()
    assert weak.shown.strongest(0) is None
    assert "“Yes.” rests on no token: all are below 0.6 nats." in weak.describe()


def test_its_python_gives_the_number_that_is_shown(result, monkeypatch):
    view = result.view(sentence=1)
    namespace = {"rests": result}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=namespace))
    args = {"of": "source", "sentence": 1, "part": 3, "word": None}
    code = view.requests.answer("expression", args)[0]["code"]
    assert code == "rests.scores.value(3, target=1)"
    assert eval(code, {}, namespace) == view.score(1, 3)
    namespace["view"] = view
    code = view.requests.answer("expression", args | {"word": 2})[0]["code"]
    assert eval(code, {}, namespace) == view.score(1, 3, word=2)


def test_a_page_holds_all_numbers_and_what_was_written(result):
    view = result.view()
    in_page = [(topic, args) for topic, args, _ in view.requests.for_page() if topic != "expression"]
    assert ("sources", {}) in in_page
    assert [args for topic, args in in_page if topic == "words"] == [{"sentence": 0}, {"sentence": 1}]
    assert "written_without" not in dict(in_page)
    assert view.requests.answer("written_without", {"part": 1})[0]["text"] == view.written_without(1)
    assert view.options["written"] == [1]
    assert ("written_without", {"part": 1}) in [(topic, args) for topic, args, _ in view.requests.for_page()]


def test_its_title_names_the_method(result):
    removed = aw.circuits.sources(result.trace, method="removed").view()
    assert removed.options["measures"] == "nats lost with a message removed"
    subsets = dataclasses.replace(result, method="subsets").view()
    assert subsets.options["measures"] == "nats lost for each hidden message, in a sparse fit"


def test_what_is_refused(result):
    with pytest.raises(
        TypeError, match=r"shows the result of aw.circuits.sources or aw.vision.sources, not int"
    ):
        SourcesView(3)
    with pytest.raises(IndexError, match="sentence=2 is out of range: the answer has 2 sentences"):
        result.view(sentence=2)
    with pytest.raises(IndexError, match="part 4 is out of range: parts 0 to 3 can be taken away"):
        result.view().written_without(4)
    with pytest.raises(ValueError, match="the result holds no model"):
        make("SourcesView", None).written_without(0)


def test_other_units_are_named_by_their_number_and_their_message(result):
    trace = result.trace
    parts = aw.circuits.sources(trace, unit="sentence").view().shown.parts
    assert [part.role for part in parts[:4]] == ["system", "user", "user", "assistant"]
    assert [part.text for part in parts[:3]] == ["Be brief.", "My name is Ada.", "I like tea."]
    assert [part.name for part in parts[:3]] == ["0", "1", "2"]
    roles = aw.circuits.sources(trace, unit="role").view().shown.parts
    assert [part.role for part in roles] == ["system", "user", "the answer so far"]


def test_passages_are_named_by_their_titles_and_the_question_by_its_role():
    passages = [("Ada", "She lives in Rome."), ("Bob", "He lives in Oslo.")]
    messages = [
        {"role": "user", "content": "Ada: She lives in Rome.\nHe lives in Oslo.\n\nWho lives in Oslo?"},
        {"role": "assistant", "content": "Bob does."},
    ]
    trace = aw.trace(chats.model(), chats.tokenizer("chatml"), messages=messages, passages=passages)
    parts = aw.circuits.sources(trace, unit="passage").view().shown.parts
    assert [(part.name, part.role, part.text, part.kind) for part in parts[:3]] == [
        ("0", "Ada", "She lives in Rome.", ""),
        ("1", "Bob", "He lives in Oslo.", ""),
        ("2", "user", "Who lives in Oslo?", "question"),
    ]


def test_relevance_is_shown_in_logits_and_hides_nothing(result):
    relevance = aw.circuits.sources(result.trace, method="lrp")
    shown = relevance.view().shown.described()
    assert (shown["measure"], shown["relation"], shown["cover"]) == ("logits", "from", "")
    for row, sentence in zip(relevance.scores.values, shown["answer"], strict=True):
        best = 1 + int(np.argmax(row[1:3]))  # the system message and the question stand apart
        assert sentence["strongest"] == (best if row[best] > 0 else None)
        assert "nats" not in sentence["rests"]


def test_a_view_without_parts_but_those_that_stand_apart_says_so():
    messages = MESSAGES[3:]
    trace = aw.trace(chats.model(), chats.tokenizer("chatml"), messages=messages)
    words = aw.circuits.sources(trace).view().describe()
    assert "Before “It is Ada.” no message comes but those that stand apart." in words
    assert "below" not in words
