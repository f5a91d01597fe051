"""Questions of a view to its Python side: answered, refused in words, cancelled, and told in pages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._progress import progress
from attnwidgets.views.wire.handlers import Handler, Questions


@pytest.fixture
def told():
    return []


@pytest.fixture
def questions(told):
    def steps(n: int):
        return [{"step": i} for i in progress(range(n), desc="steps")], []

    topics = {
        "square": Handler(
            lambda of: ({"is": of * of}, [np.float32([of]).tobytes()]), for_page=lambda: [{"of": 3}]
        ),
        "steps": Handler(steps, runs_model=True),
    }
    return Questions(topics, lambda reply, buffers: told.append((reply, list(buffers))))


def test_an_answer_carries_its_number_and_buffers(questions, told):
    questions.receive({"kind": "ask", "id": 7, "topic": "square", "args": {"of": 3}})
    assert told == [({"kind": "answer", "id": 7, "meta": {"is": 9}}, [np.float32([3]).tobytes()])]


@pytest.mark.parametrize(
    ("topic", "args", "words"),
    [("sqare", {"of": 3}, "'square'"), ("square", {"of": None}, "NoneType"), ("square", {"off": 1}, "off")],
)
def test_what_is_wrong_is_told_in_words(questions, told, topic, args, words):
    questions.receive({"kind": "ask", "id": 1, "topic": topic, "args": args})
    ((reply, buffers),) = told
    assert (reply["kind"], reply["id"], buffers) == ("error", 1, [])
    assert words in reply["message"]


@pytest.mark.parametrize("content", [None, "ask", {}, {"kind": "tile", "id": 1}])
def test_what_is_no_question_is_left_alone(questions, told, content):
    questions.receive(content)
    assert told == []


def test_what_runs_a_model_tells_its_progress(questions, told):
    questions.receive({"kind": "ask", "id": 2, "topic": "steps", "args": {"n": 2}})
    kinds = [reply["kind"] for reply, _ in told]
    assert kinds[0] == "progress"
    assert kinds[-1] == "answer"
    assert {reply["id"] for reply, _ in told} == {2}


def test_a_page_holds_what_is_named_for_it(questions):
    ((topic, args, answer),) = questions.for_page()
    assert (topic, args) == ("square", {"of": 3})
    assert answer()[0] == {"is": 9}


def test_a_view_tells_its_answers_in_a_page(tmp_path):
    class Asked(aw.TokenStrip):
        def _topics(self):
            return {"square": Handler(lambda of: ({"is": of * of}, [b"abc"]), for_page=lambda: [{"of": 3}])}

    view = Asked(aw.Attributions([0.5, -0.5], axis=["a", "b"]))
    page = aw.to_html(view, tmp_path / "page.html").read_text(encoding="utf-8")
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page)[1])
    (answer,) = state["answers"]["view0"]
    assert (answer["topic"], answer["args"], answer["meta"]) == ("square", {"of": 3}, {"is": 9})
    assert len(answer["buffers"]) == 1
