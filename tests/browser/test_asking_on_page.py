"""Questions on a page without a kernel: by pointer and keys, handed in as receipt or file; no solution."""

from __future__ import annotations

import base64
import html
import re
import zlib

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.ask.keeping import QUESTIONS
from attnwidgets.course.reading.read_answers import read_answers

from .settling import settle

WORDS = ["[CLS]", "the", "black", "cat", "sat", "[SEP]"]
HOSTILE = [
    "</script><script>hacked=1</script>",
    "<img src=x onerror='hacked=2'>",
    "a\0b",
    "\u202egnp",
    "x" * 500,
    "שלום",
]


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("JPY_SESSION_NAME", raising=False)
    monkeypatch.setattr(QUESTIONS, "_places", {})  # every test is a new notebook
    return tmp_path


@pytest.fixture
def trace():
    rows = np.random.default_rng(0).dirichlet(np.ones(6), (3, 4, 6)).astype(np.float32)
    return aw.from_attentions(rows, WORDS)


def receipt(page, nth=0):
    settle(page)
    return page.locator(".aw-question-receipt").nth(nth).get_attribute("title")


def chosen(page):
    """The chosen text, without the marks that isolate directions."""
    settle(page)
    return re.sub("[\u2068\u2069]", "", page.locator(".aw-question-chosen").first.inner_text())


def answer_of(question):
    """The line of the answer, as it is read."""
    parts = (question.locator(f".aw-question-{name}") for name in ("status", "chosen", "note"))
    return re.sub("[\u2068\u2069]", "", " ".join(part.inner_text() for part in parts))


def submit(page, nth=0):
    page.locator(".aw-question").nth(nth).get_by_role("button", name="Submit").click()


def test_a_click_in_the_view_is_taken_and_its_receipt_is_pythons(page_of, trace, screenshot):
    asked = aw.ask.head("Which head?", view=aw.Explorer(trace), id="q1", points=3)
    page = page_of(asked)
    question = page.locator(".aw-question")
    note = question.locator(".aw-question-note").inner_text()
    assert note == "Click a head in the view. You can change your answer at any time."
    assert "Not submitted yet" in question.inner_text()
    assert question.get_by_role("button", name="Submit").is_disabled()
    grid = page.locator(".aw-grid-main canvas").first.bounding_box()
    page.mouse.click(grid["x"] + 2.5 / 4 * grid["width"], grid["y"] + 1.5 / 3 * grid["height"])
    assert chosen(page) == "head 1.2"
    assert answer_of(question) == "Your answer: head 1.2 (not submitted)"
    assert question.locator(".aw-question-code").inner_text() == "q1.answer = (1, 2)"
    submit(page)
    settle(page)
    assert "paste the receipt, your answer as one line, into your course" in answer_of(question)
    screenshot(page, "asking-page.png")
    page.mouse.click(grid["x"] + 0.5 / 4 * grid["width"], grid["y"] + 0.5 / 3 * grid["height"])
    assert chosen(page) == "head 1.2"  # looking on changes nothing
    asked.answer = (1, 2)
    assert receipt(page) == asked.receipt
    question.get_by_role("button", name="Change").click()
    question.get_by_role("button", name="Clear").click()
    settle(page)
    assert question.get_attribute("data-mode") == "open"


@pytest.mark.parametrize(
    ("kind", "typed", "kept", "wrong", "why"),
    [
        ("head", "2.3", [2, 3], "2.4", "head 4"),
        ("layer", "1", 1, "3", "layer 3"),
        ("tokens", "4, 1-2", [1, 2, 4], "9", "position 9"),
        ("span", "1-3", [1, 4], "3-1", "comes before"),
        ("cell", "4, 3", [4, 3], "4", "row, column"),
        ("number", "-0,00001234567", -0.0000123457, "one", "not a number"),
    ],
)
def test_a_typed_answer_is_the_same_as_one_in_code(page_of, trace, kind, typed, kept, wrong, why):
    given = {} if kind == "number" else {"view": trace, "show_view": False}
    asked = getattr(aw.ask, kind)("What?", id="q", **given)
    page = page_of(*([] if kind == "number" else [asked.view]), asked)
    line = page.locator(".aw-question-line")
    line.fill(wrong)
    settle(page)
    assert why in page.locator(".aw-question-note").inner_text()
    line.press("Enter")
    settle(page)
    assert page.locator(".aw-question").get_attribute("data-mode") == "open"
    line.fill(typed)
    line.press("Enter")
    asked.answer = kept
    assert receipt(page) == asked.receipt
    assert chosen(page) == asked.said.replace("-1.23457e-05", "-0.0000123457")


@pytest.mark.parametrize(
    ("typed", "mode", "told"),
    [
        ("-7", "open", "The answer is at least 0 pieces."),
        ("−7 pieces", "open", "The answer is at least 0 pieces."),
        ("pieces", "open", "This is not a number."),
        ("7 nats", "open", "This is not a number."),
        ("0,5", "chosen", "Your answer: 0.5 pieces (not submitted)"),
        ("7 Pieces", "chosen", "Your answer: 7 pieces (not submitted)"),
        ("0", "chosen", "Your answer: 0 pieces (not submitted)"),
    ],
)
def test_a_number_is_checked_with_its_unit(page_of, typed, mode, told):
    page = page_of(aw.ask.number("How many?", id="q", unit="pieces", least=0))
    page.locator(".aw-question-line").fill(typed)
    settle(page)
    question = page.locator(".aw-question")
    assert question.get_attribute("data-mode") == mode
    assert told in answer_of(question)


def test_an_attribution_without_a_target_shows_no_placeholder(page_of, trace):
    received = aw.attention(trace).mean("head").select(layer=0).to_attributions("column_mean")
    page = page_of(aw.TokenStrip(received))
    settle(page)
    assert "∅" not in page.locator(".aw-root").inner_text()
    page.locator(".aw-tok").nth(2).hover()
    settle(page)
    assert "∅" not in page.locator(".aw-root").inner_text()


def test_tokens_and_spans_are_taken_from_a_view_beside_it(page_of, trace):
    view = aw.TokenStrip(trace)
    tokens = aw.ask.tokens("Which?", view=view, id="t", show_view=False)
    page = page_of(view, tokens)
    words = page.locator(".aw-tok")
    words.filter(has_text="cat").click()
    words.filter(has_text="the").click(modifiers=["Shift"])
    assert chosen(page) == "“the” “cat”"
    page.mouse.click(5, 5)  # beside all views: the selection goes, the taken cells stay
    assert chosen(page) == "“the” “cat”"
    submit(page)
    tokens.answer = [1, 3]
    assert receipt(page) == tokens.receipt


def test_an_order_is_made_by_keys_and_by_dragging(page_of):
    asked = aw.ask.order("Order.", options=["a", "b", "c"], id="q")
    free = aw.ask.order("Name.", id="r")
    page = page_of(asked, free)
    items = page.locator(".aw-question-place")
    items.nth(2).focus()
    page.keyboard.press("Shift+ArrowUp")
    page.keyboard.press("Shift+ArrowUp")
    settle(page)
    assert [text.split() for text in items.all_inner_texts()] == [
        [str(i + 1), name, "↑", "↓"] for i, name in enumerate("cab")
    ]
    first, last = items.nth(0).bounding_box(), items.nth(2).bounding_box()
    page.mouse.move(first["x"] + 60, first["y"] + 10)
    page.mouse.down()
    page.mouse.move(last["x"] + 60, last["y"] + 20, steps=5)
    page.mouse.up()
    submit(page)
    asked.answer = ["a", "b", "c"]
    assert receipt(page) == asked.receipt
    field = page.get_by_label("a name to add")
    for name in ("1.0", "0.2"):
        field.fill(name)
        field.press("Enter")
    submit(page, 1)
    free.answer = ["1.0", "0.2"]
    assert receipt(page, 1) == free.receipt


def test_hostile_texts_stay_texts_and_their_receipts_are_pythons(page_of):
    asked = [
        aw.ask.choice(" ".join(HOSTILE), options=HOSTILE, multiple=True, id="c"),
        aw.ask.order(HOSTILE[0], options=HOSTILE, id="o"),
        aw.ask.text(HOSTILE[3], id="t", title=HOSTILE[1]),
    ]
    page = page_of(*asked, viewport={"width": 480, "height": 800})
    for box in page.get_by_role("checkbox").all():
        box.check()
    submit(page)
    page.get_by_role("button", name="Use this order").click()
    submit(page, 1)
    page.locator("textarea").fill("".join(HOSTILE))
    submit(page, 2)
    asked[0].answer, asked[1].answer = HOSTILE, HOSTILE
    asked[2].answer = "".join(HOSTILE)
    assert [receipt(page, nth) for nth in range(3)] == [item.receipt for item in asked]
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    wide = (
        "() => [...document.querySelectorAll('.aw-question *')].filter(e => e.scrollWidth > e.clientWidth + 1"
    )
    cut = page.evaluate(f"{wide} && getComputedStyle(e).overflowX === 'visible' && e.clientWidth).length")
    assert cut == 0


def test_all_answers_of_a_page_are_one_file(page_of, folder, trace):
    asked = [aw.ask.number("How many?", id="b"), aw.ask.text("Why?", id="a"), aw.ask.number("What?", id="c")]
    page = page_of(*asked)
    for line in page.locator(".aw-question-line").all()[:1]:
        line.fill("12")
        line.press("Enter")
    page.locator("textarea").fill("Because.")
    page.keyboard.press("Control+Enter")
    with page.expect_download() as download:
        page.get_by_role("button", name="Download answers").first.click()
    path = folder / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == "page.answers.json"
    assert {name: record["value"] for name, record in read_answers(path).items()} == {
        "a": "Because.",
        "b": 12,
    }


def unpacked(page):
    """Everything in a page, with its packed parts unpacked."""
    text = page.read_text()
    parts = [html.unescape(text)]
    for blob in re.findall(r'octet-stream;base64" id="[^"]*">([^<]*)<', text):
        data = base64.b64decode(blob)
        while data:  # several compressed parts in a row
            reader = zlib.decompressobj()
            try:
                parts.append(reader.decompress(data).decode("latin-1"))
            except zlib.error:
                break
            data = reader.unused_data
    return "\n".join(parts)


def test_a_handout_holds_no_key_no_truth_and_no_other_method(trace, folder):
    key = {(1, 2): (True, "KEY-WORDS"), "default": "NEVER"}
    view = aw.Explorer(trace, methods=["attention"], units=["token"])
    asked = aw.ask.head("Which head?", view=view, id="q", feedback=key)
    aw.Explorer(trace).explanation("rollout")  # the teacher's, beside it
    text = unpacked(asked.to_html(folder / "handout.html"))
    assert "Which head?" in text
    assert '"attention/token/self"' in text
    for secret in ("KEY-WORDS", "NEVER", "rollout/token", "attention/word", '"truth"', 'feedback":"K'):
        assert secret not in text
    assert '"value":null' in text


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [480, 760, 1200])
def test_the_question_and_its_view_are_one_frame(page_of, trace, screenshot, width, scheme):
    asked = [
        aw.ask.head("Which head?", view=aw.Explorer(trace), id="q1", points=3, title="question 1 of 6"),
        aw.ask.choice("Which of these?", options=["same", "all", "different"], id="q2"),
        aw.ask.order("Order.", options=["same", "all", "different"], id="q3"),
        aw.ask.text("Why?", id="q4"),
    ]
    page = page_of(*asked, viewport={"width": width, "height": 900}, color_scheme=scheme)
    band, view = (page.locator(name).first.bounding_box() for name in (".aw-question", ".aw-question-view"))
    assert abs(band["y"] + band["height"] - view["y"] - view["height"]) < 2
    assert abs(band["width"] - view["width"]) < 3
    heights = [box.bounding_box()["height"] for box in page.locator(".aw-question").all()]
    page.locator(".aw-question-line").first.fill("1.2")
    page.locator(".aw-question-line").first.press("Enter")
    page.locator(".aw-question-option").nth(1).click()
    settle(page)
    screenshot(page, f"asking-{width}-{scheme}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), "wider than the page"
    if width > 480:
        assert [box.bounding_box()["height"] for box in page.locator(".aw-question").all()] == heights


def test_axe_finds_nothing(page_of, trace, root):
    axe = root / "js" / "node_modules" / "axe-core" / "axe.min.js"
    if not axe.is_file():
        pytest.skip("axe-core is not installed (npm ci in js/; make test does it)")
    page = page_of(
        aw.ask.head("Which head?", view=aw.Explorer(trace), id="q1"),
        aw.ask.choice("Which of these?", options=["same", "all"], id="q2"),
        aw.ask.order("Order.", options=["same", "all"], id="q3"),
        aw.ask.text("Why?", id="q4"),
    )
    page.evaluate(axe.read_text(encoding="utf-8"))
    violations = page.evaluate("axe.run(document.querySelector('main')).then((result) => result.violations)")
    assert [f"{v['id']}: {[node['html'][:200] for node in v['nodes']]}" for v in violations] == []
