"""Answers: the values each kind takes and refuses, their words, code, check and feedback."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.course.records import MIME

OPTIONS = ["same", "all", "different"]


def test_a_number_below_the_least_is_refused_wherever_it_comes_from():
    asked = aw.ask.number("How many?", id="pieces", unit="pieces", least=0)
    asked.answer = 0
    with pytest.raises(ValueError, match="answer=-7 is below 0"):
        asked.answer = -7
    assert asked.answer == 0
    aw.ask.number("How many?", id="pieces", unit="pieces").answer = -7
    again = aw.ask.number("How many?", id="pieces", unit="pieces", least=0)
    assert again.answer is None  # the question without a limit wrote it
    with pytest.raises(ValueError, match="nan"):
        aw.ask.number("How many?", id="q", least=float("nan"))


def test_the_summary_counts_what_is_answered_and_names_the_rest():
    asked = [aw.ask.number("How many?", id=f"q{number}") for number in range(1, 4)]
    assert aw.ask.summary() == "0 of 3 answered; not yet: q1, q2, q3"
    asked[1].answer = 4
    assert aw.ask.summary() == "1 of 3 answered; not yet: q1, q3"
    asked[0].answer = asked[2].answer = 4
    assert aw.ask.summary() == "3 of 3 answered"


def question(kind, view=None, **options):
    given = {"options": OPTIONS} if kind == "choice" else {}
    return getattr(aw.ask, kind)(
        "What?", id=f"of_{kind}", **({"view": view} if view else {}), **given, **options
    )


@pytest.mark.parametrize(
    ("kind", "given", "kept", "said", "code"),
    [
        ("head", (0, 2), [0, 2], "head 0.2", "of_head.answer = (0, 2)"),
        ("head", np.array([2, 3]), [2, 3], "head 2.3", "of_head.answer = (2, 3)"),
        ("head", [(1, 0), (0, 2)], [[0, 2], [1, 0]], "heads 0.2, 1.0", "of_head.answer = [[0, 2], [1, 0]]"),
        ("layer", 2, 2, "layer 2", "of_layer.answer = 2"),
        ("tokens", {4, 2}, [2, 4], "“black” “sat”", "of_tokens.answer = [2, 4]"),
        ("span", (1, 4), [1, 4], "“the” “black” “cat”", "of_span.answer = (1, 4)"),
        ("cell", (4, 3), [4, 3], "“sat” → “cat”", "of_cell.answer = (4, 3)"),
        ("order", ["b", ["a", "c"]], ["b", ["a", "c"]], "b > a = c", "of_order.answer = ['b', ['a', 'c']]"),
        ("number", np.float32(0.1), 0.1, "0.1", "of_number.answer = 0.1"),
        ("choice", "all", "all", "all", "of_choice.answer = 'all'"),
        ("text", "On\n<s>.", "On\n<s>.", "On <s>.", r"of_text.answer = 'On\n<s>.'"),
    ],
)
def test_an_answer_is_kept_in_one_form_and_said(traced, kind, given, kept, said, code):
    asked = question(kind, aw.Explorer(traced()))
    assert asked.check() == "not answered yet"
    assert (asked.receipt, asked.said, asked.code) == ("", "", "")
    asked.answer = given
    assert asked.answer == kept
    assert asked.said == said
    assert asked.code == code
    assert asked.check() == "answered, well-formed"
    again = question(kind, aw.Explorer(traced()))
    assert again.answer == kept  # read from the file
    exec(code, {f"of_{kind}": again})
    assert again.record == asked.record
    assert aw.course.decode(asked.receipt) == asked.record


@pytest.mark.parametrize(
    ("kind", "given", "error", "words"),
    [
        ("head", (0, 4), IndexError, "head 4 is out of range: the heads are 0 to 3"),
        ("head", (3, 0), IndexError, "layer 3 is out of range: the layers are 0 to 2"),
        ("head", "0.2", ValueError, r"\(layer, head\)"),
        ("layer", -1, ValueError, "counts from 0"),
        ("tokens", [6], IndexError, "position 6 is out of range: they are 0 to 5"),
        ("span", (2, 2), ValueError, "empty"),
        ("span", (2, 7), IndexError, "0 to 5"),
        ("cell", (0, 6), IndexError, "key 6"),
        ("number", float("nan"), ValueError, "finite"),
        ("number", "1", ValueError, "not a number"),
        ("choice", "al", ValueError, "Did you mean 'all'"),
        ("choice", ["all"], ValueError, "one option"),
        ("text", 3, ValueError, "not text"),
    ],
)
def test_what_is_no_answer_is_refused_and_the_earlier_one_stays(traced, kind, given, error, words):
    asked = question(kind, aw.Explorer(traced()))
    with pytest.raises(error, match=words):
        asked.answer = given
    assert asked.answer is None


def test_an_order_of_options_has_all_of_them():
    asked = question("order", options=OPTIONS)
    with pytest.raises(ValueError, match="not an order of all of"):
        asked.answer = ["same", "all"]
    asked.answer = ["all", ["different", "same"]]
    assert asked.said == "all > different = same"


def test_several_options_are_a_sorted_list():
    asked = question("choice", multiple=True)
    asked.answer = ["same", "all"]
    assert asked.answer == ["all", "same"]
    asked.answer = []
    assert asked.said == "none of them"
    with pytest.raises(ValueError, match="list of options"):
        asked.answer = "same"


def test_none_takes_an_answer_back(folder):
    asked = question("number")
    asked.answer = 3
    asked.answer = None
    assert asked.check() == "not answered yet"
    assert json.loads((folder / "answers.json").read_text())["answers"] == {}


@pytest.mark.parametrize(
    ("feedback", "told"),
    [
        (lambda value: value == 6, "answered, well-formed, right"),
        (lambda value: (value == 7, "count again"), "answered, well-formed, not right yet: count again"),
        ({6: "as many as heads"}, "answered, well-formed: as many as heads"),
        ({7: True}, "answered, well-formed"),
        (lambda value: 1 / 0, "ZeroDivisionError"),
        (None, "answered, well-formed"),
    ],
)
def test_only_a_teachers_feedback_says_right_or_wrong(feedback, told):
    asked = question("number", feedback=feedback)
    asked.answer = 6
    assert asked.answer == 6
    assert told in asked.check()
    assert ("right" in asked.check()) == ("right" in told)


def test_what_the_view_has_chosen_is_taken(traced):
    view = aw.Explorer(traced())
    head, layer, tokens, span, cell = (
        question(kind, view) for kind in ("head", "layer", "tokens", "span", "cell")
    )
    for asked, words in (
        (head, "mean of all heads"),
        (tokens, "No token"),
        (span, "No span"),
        (cell, "No cell"),
    ):
        with pytest.raises(ValueError, match=words):
            asked.take()
    view.selection.layer, view.selection.head = 1, 3
    view.selection.pins = [(4, -1), (2, 3)]
    view.selection.span = (1, 3)
    assert [asked.take() for asked in (head, layer, tokens, span, cell)] == [
        [1, 3],
        1,
        [3, 4],
        [1, 3],
        [2, 3],
    ]
    view.selection.heads = [(2, 1), (0, 1)]
    assert head.take() == [[0, 1], [2, 1]]


def test_words_are_taken_as_their_tokens(minilm):
    trace = aw.trace(*minilm, "An electroencephalographer spoke.")
    view = aw.Explorer(trace)
    tokens, span = question("tokens", view), question("span", view)
    cell = question("cell", view)
    view.selection.unit = "word"
    view.selection.pins = [(2, -1)]
    view.selection.span = (2, 4)
    pieces = [i for i, token in enumerate(trace.tokens) if 2 <= i < len(trace.tokens) - 3]
    assert len(pieces) > 3
    assert tokens.take() == pieces
    assert span.take() == [2, pieces[-1] + 2]
    view.selection.pinned = (2, 3)
    with pytest.raises(ValueError, match="let the view show tokens"):
        cell.take()
    view.selection.pinned = (1, 3)
    assert cell.take() == [1, pieces[-1] + 1]


def test_a_question_about_heads_does_not_open_on_its_answer(minilm, sentence):
    trace = aw.trace(*minilm, sentence)
    view = aw.Explorer(trace)
    assert view.selection.opening.words
    aw.ask.head("Which head?", view=view, id="q")
    assert view.selection.head == "mean"
    assert view.selection.opening.words == ""
    chosen = aw.Explorer(aw.trace(*minilm, sentence), layer=3, head=5)
    aw.ask.head("Which other head?", view=chosen, id="p")
    assert (chosen.selection.layer, chosen.selection.head) == (3, 5)


@pytest.mark.slow
def test_a_view_of_another_text_is_not_taken_from(minilm):
    view = aw.Explorer(aw.trace(*minilm, "He sat down."))
    asked = aw.ask.head("Which head?", view=view, id="q")
    view.show_text("She stood up.")
    view.selection.head = 3
    with pytest.raises(ValueError, match="another text"):
        asked.take()
    view.show_text(0)
    view.selection.head = 2
    assert asked.take()[1] == 2


def test_linked_views_share_what_is_taken(traced):
    first, second = aw.Explorer(traced()), aw.Explorer(traced(seed=1))
    asked = aw.ask.layer("Which layer?", view=second, id="q")
    aw.link(first, second)
    first.selection.layer = 2
    assert asked.take() == 2


def test_a_trace_and_a_map_are_shown_in_a_view(traced):
    assert type(aw.ask.head("Which?", view=traced(), id="a").view).__name__ == "Explorer"
    assert type(aw.ask.cell("Which?", view=aw.attention(traced()), id="b").view).__name__ == "Heatmap"
    with pytest.raises(TypeError, match=r"aw\.Explorer\(trace\)"):
        aw.ask.head("Which?", view=3, id="c")
    with pytest.raises(TypeError, match="give view="):
        aw.ask.Question("head", "Which?", "d")


@pytest.mark.parametrize(
    ("given", "error", "words"),
    [
        ({"prompt": "  "}, ValueError, "prompt"),
        ({"prompt": "x" * 5000}, ValueError, "5,000 characters"),
        ({"id": "a b"}, ValueError, "id"),
        ({"points": -1}, ValueError, "points"),
        ({"options": "abc"}, TypeError, "options"),
        ({"options": ["a", "a"]}, ValueError, "twice"),
        ({"options": []}, ValueError, "options is missing"),
        ({"options": [str(i) for i in range(101)]}, ValueError, "101"),
        ({"feedback": 3}, TypeError, "feedback"),
        ({"point": 3}, TypeError, "Did you mean .points.?"),
    ],
)
def test_what_is_no_question_is_refused(given, error, words):
    with pytest.raises(error, match=words):
        aw.ask.choice(**{"prompt": "Which?", "id": "q", "options": ["a", "b"], **given})


def test_the_output_of_a_cell_holds_widget_record_receipt_and_text(traced):
    asked = aw.ask.head("Which <b>head</b>?", view=aw.Explorer(traced()), id="q", points=2)
    data, _ = asked._repr_mimebundle_()
    assert data[MIME]["value"] is None
    asked.answer = (1, 2)
    data, _ = asked._repr_mimebundle_()
    assert data[MIME] == asked.record
    assert asked.receipt in data["text/html"]
    assert asked.receipt in data["text/plain"]
    assert "Which &lt;b&gt;head&lt;/b&gt;?" in data["text/html"]
    assert "<img" in data["text/html"]  # the view, for who reads a converted notebook
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == asked.model_id


def test_all_answers_of_a_notebook_are_graded_by_id():
    first, second, open_one = (aw.ask.number("How many?", id=name) for name in "abc")
    first.answer, second.answer = 1, 2
    assert {name: record["value"] for name, record in aw.ask.answers().items()} == {"a": 1, "b": 2}
    assert open_one.answer is None
    assert aw.ask.number("How many?", id="a").answer == 1
