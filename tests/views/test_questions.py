"""Requests of a view to its Python side: answered, refused in words, cancelled, and included in pages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._progress import progress
from attnwidgets.views.wire.handlers import Handler, RequestHandlers


@pytest.fixture
def told():
    return []


@pytest.fixture
def handlers(told):
    def steps(n: int):
        return [{"step": i} for i in progress(range(n), desc="steps")], []

    topics = {
        "square": Handler(
            lambda of: ({"is": of * of}, [np.float32([of]).tobytes()]), for_page=lambda: [{"of": 3}]
        ),
        "steps": Handler(steps, runs_model=True),
    }
    return RequestHandlers(topics, lambda reply, buffers: told.append((reply, list(buffers))))


def test_an_answer_carries_its_number_and_buffers(handlers, told):
    handlers.receive({"kind": "ask", "id": 7, "topic": "square", "args": {"of": 3}})
    answer = {"kind": "answer", "id": 7, "meta": {"is": 9}, "lengths": [4]}
    assert told == [(answer, [np.float32([3]).tobytes()])]


@pytest.mark.parametrize(
    ("topic", "args", "words"),
    [("sqare", {"of": 3}, "'square'"), ("square", {"of": None}, "NoneType"), ("square", {"off": 1}, "off")],
)
def test_what_is_wrong_is_told_in_words(handlers, told, topic, args, words):
    handlers.receive({"kind": "ask", "id": 1, "topic": topic, "args": args})
    ((reply, buffers),) = told
    assert (reply["kind"], reply["id"], buffers) == ("error", 1, [])
    assert words in reply["message"]


@pytest.mark.parametrize("content", [None, "ask", {}, {"kind": "tile", "id": 1}])
def test_other_messages_are_ignored(handlers, told, content):
    handlers.receive(content)
    assert told == []


def test_what_runs_a_model_tells_its_progress(handlers, told):
    handlers.receive({"kind": "ask", "id": 2, "topic": "steps", "args": {"n": 2}})
    kinds = [reply["kind"] for reply, _ in told]
    assert kinds[0] == "progress"
    assert kinds[-1] == "answer"
    assert {reply["id"] for reply, _ in told} == {2}


def test_a_page_holds_what_is_named_for_it(handlers):
    ((topic, args, answer),) = handlers.for_page()
    assert (topic, args) == ("square", {"of": 3})
    assert answer()[0] == {"is": 9}


def test_a_view_tells_its_answers_in_a_page(tmp_path):
    class Asked(aw.TokenStrip):
        def _handlers(self):
            return {"square": Handler(lambda of: ({"is": of * of}, [b"abc"]), for_page=lambda: [{"of": 3}])}

    view = Asked(aw.results.Attributions([0.5, -0.5], axis=["a", "b"]))
    page = aw.to_html(view, tmp_path / "page.html").read_text(encoding="utf-8")
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page)[1])
    (answer,) = state["answers"]["view0"]
    assert (answer["topic"], answer["args"], answer["meta"]) == ("square", {"of": 3}, {"is": 9})
    assert len(answer["buffers"]) == 1


def test_a_chart_without_arguments_is_in_pages_and_travels_with_its_view(told):
    chart = RequestHandlers({"data": Handler(lambda: ({"x": [1, 2]}, []))}, told.append)
    assert [(topic, args) for topic, args, _ in chart.for_page()] == [("data", {})]
    assert b'"x":[1,2]' in chart.opening(10**6)
    with_model = RequestHandlers({"data": Handler(lambda: ({}, []), runs_model=True)}, told.append)
    assert list(with_model.for_page()) == []
    assert with_model.opening(10**6) is None


def test_the_first_answer_of_a_page_travels_with_the_view(handlers):
    assert b'"is":9' in handlers.opening(10**6)
