"""A view whose code or models do not arrive asks for a copy of itself, and gives way to late code."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.page.frame import copy_of
from attnwidgets.views.wire.runtime import stub

# The stub in a page, with a model that records messages, and a host whose Runtime comes when it is told to.
STAGE = """async stub => {
  const url = URL.createObjectURL(new Blob([stub], {type: "text/javascript"}));
  const view = (await import(url)).default;
  const heard = [];
  window.sent = [];
  window.tell = (reply) => heard.forEach((listen) => listen(reply, []));
  const model = {
    get: (name) => name, send: (question) => sent.push(question), on: (_, listen) => heard.push(listen),
  };
  window.drawn = (el) => { el.append("the view itself"); };
  const runtime = {exports: {render: async ({el}) => drawn(el)}};
  const host = {getWidget: () => new Promise((come, fail) => { window.come = () => come(runtime);
    window.fail = (why) => fail(new Error(why)); })};
  const end = new AbortController();
  window.leave = () => end.abort();
  view.render({model, el: document.body, signal: end.signal, host});
}"""

# A task of the page, so that its promises are settled; frames and timers are the test's clock's.
A_TASK = """() => new Promise((done) => {
  const {port1, port2} = new MessageChannel();
  port1.onmessage = () => done();
  port2.postMessage(0);
})"""


@pytest.fixture
def stage(open_page):
    page = open_page()
    page.clock.install()
    page.evaluate(STAGE, stub("Heatmap", ("tools",), 480))
    return page


def said(page):
    page.evaluate(A_TASK)
    return page.locator("body").inner_text()


def asked(page):
    return [question["topic"] for question in page.evaluate("sent")]


def test_what_arrives_asks_for_nothing(stage):
    stage.evaluate("come()")
    stage.clock.run_for(60_000)
    assert said(stage) == "the view itself"
    assert asked(stage) == []


def test_a_skeleton_of_the_height_stands_there_before_the_code(stage, open_page):
    assert stage.locator("p").bounding_box()["height"] == 480
    page = open_page()
    page.evaluate(STAGE.replace("(name) => name", "() => ({height: 300})"), stub("Heatmap", (), 480))
    assert page.locator("p").bounding_box()["height"] == 300


def test_what_fails_says_why_and_what_to_do_until_the_copy_comes(stage):
    stage.evaluate("fail('widget model not found')")
    assert "widget model not found" in said(stage)
    assert "view.frame()" in said(stage)
    (question,) = stage.evaluate("sent")
    assert (question["kind"], question["topic"]) == ("ask", "page")
    assert "not found" in question["args"]["why"]
    stage.evaluate("tell({kind: 'answer', id: 'other', meta: 'x'})")
    stage.evaluate("tell({kind: 'progress', id: 'page'})")
    assert "view.frame()" in said(stage)  # nothing of this was the answer
    stage.evaluate("tell({kind: 'answer', id: 'page', meta: '<b>a copy</b>'})")
    assert said(stage) == "a copy"


def test_what_is_late_gives_way_when_it_comes(stage):
    stage.clock.run_for(8000)
    assert said(stage) == ""
    stage.clock.run_for(2000)
    assert "no answer" in said(stage)
    stage.evaluate("tell({kind: 'answer', id: 'page', meta: 'a copy'})")
    stage.evaluate("come()")
    assert said(stage) == "the view itself"
    assert asked(stage) == ["page"]


def test_what_fails_inside_is_not_asked_for_twice(stage):
    stage.clock.run_for(10_000)
    stage.evaluate("void (window.drawn = () => { throw new Error('no store'); })")
    stage.evaluate("come()")
    assert "no answer" in said(stage)
    assert asked(stage) == ["page"]


def test_an_output_that_was_cleared_asks_for_nothing(stage):
    stage.evaluate("leave()")
    stage.clock.run_for(10_000)
    assert said(stage) == ""
    assert asked(stage) == []


def test_the_copy_is_the_view_in_a_frame(open_page):
    numbers = np.random.default_rng(0).dirichlet(np.ones(5), (2, 3, 5)).astype(np.float32)
    view = aw.Heatmap(aw.from_attentions(numbers, list("abcde")))
    page = open_page()
    page.set_content(f"<main>{copy_of(view, 'Error: <b>no</b> runtime.')}</main>")
    page.frame_locator("iframe").locator(".aw-heatmap canvas").first.wait_for()
    line = page.get_by_role("status").inner_text()
    assert "copy of this Heatmap" in line
    assert "(<b>no</b> runtime)" in line
