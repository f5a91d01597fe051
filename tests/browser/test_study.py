"""A whole study on a telephone, by keyboard alone: from consent to the file, which is read back."""

from __future__ import annotations

import json
import re

import pytest

import attnwidgets as aw
from tests.people.made import WORDS, items, study

from .stage import play

PHONE = {"viewport": {"width": 360, "height": 720}}
HOSTILE = [
    "</script><script>hacked=1</script>",
    "<img src=x onerror='hacked=2'>",
    "a\0b",
    "\u202egnp",
    "x" * 300,
]


def progress(page):
    return page.locator(".aw-study-place").inner_text()


def mode(page):
    return page.locator(".aw-study").get_attribute("data-mode")


def agree(page):
    """Reach the button as a keyboard does: the code field, then the button."""
    page.locator(".aw-study-code").focus()
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    page.locator(".aw-study[data-mode=step]").wait_for()


def go_through(page, total, key=lambda question, at: "1"):
    for at in range(total):
        assert progress(page) == f"{at + 1} of {total}"
        question = page.locator(".aw-study-question").inner_text()
        page.keyboard.press(key(question, at))
        page.keyboard.press("Enter")
        if page.get_by_role("button", name="Continue").count():
            page.keyboard.press("Tab")
            page.keyboard.press("Enter")
    assert mode(page) == "end"


def fits(page):
    return page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_a_study_by_keyboard_on_a_telephone_and_its_file_is_read_back(page_of, tmp_path, screenshot):
    made = study(
        "forward",
        ("none", "lrp", "random", "ig"),
        title="What will it say?",
        practice=items(9, "lrp", "ig")[8:],
    )
    page = page_of(made.view(), **PHONE, accept_downloads=True)
    assert mode(page) == "consent"
    assert page.evaluate("localStorage.length + sessionStorage.length + document.cookie.length") == 0
    code = page.locator(".aw-study-code").input_value()
    assert re.fullmatch("[a-z0-9]{8}", code)
    screenshot(page, "study-consent.png")
    agree(page)
    asked = []

    def key(question, at):
        asked.append(question)
        assert fits(page)
        wanted = re.search("choose “(.*)”", question)
        return str(made.labels.index(wanted[1]) + 1) if wanted else "12"[at % 2]

    go_through(page, 1 + 8 + 2, key)
    assert sum("An attention check" in question for question in asked) == 2
    screenshot(page, "study-end.png")
    assert fits(page)
    with page.expect_download() as download:
        page.get_by_role("button", name="Download answers").focus()
        page.keyboard.press("Enter")
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == f"study-{code}.json"
    read = aw.people.read_responses(path, made)
    assert read.people == (code,)
    assert read.notes == read.set_aside == read.inattentive == ()
    rows = [row for row in read.rows if row["role"] == "item"]
    assert [row["item"] for row in rows] == [made.ids[turn.item] for turn in made.turns(code)]
    assert all(0 <= row["first_ms"] <= row["ms"] < 60_000 for row in read.rows)
    assert [row["position"] for row in rows] == list(range(8))
    line = tmp_path / "line.txt"
    line.write_text(page.locator(".aw-study-line").input_value())
    assert aw.people.read_responses(line, made).rows == read.rows
    edited = json.loads(path.read_text())
    edited["rows"][3][6] = "no" if edited["rows"][3][6] == "yes" else "yes"
    path.write_text(json.dumps(edited))
    with pytest.warns(UserWarning, match="edited or cut"):
        assert len(aw.people.read_responses(path, made).set_aside) == 11
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_role("button", name="Delete all answers?").click()
    assert mode(page) == "consent"


def test_pairs_stand_on_both_sides_and_the_answer_follows_them(page_of, tmp_path):
    made = study("forced_choice", ("lrp", "random"), checks=0)
    (code,) = made.codes(1)
    page = page_of(made.view(code), **PHONE, accept_downloads=True)
    agree(page)
    assert page.locator(".aw-study-panel").count() == 2
    go_through(page, 8)  # always the first
    line = tmp_path / "line.txt"
    line.write_text(page.locator(".aw-study-line").input_value())
    rows = aw.people.read_responses(line, made).rows
    assert sorted(row["side"] for row in rows) == [0] * 4 + [1] * 4
    assert [row["score"] for row in rows] == [1.0 - row["side"] for row in rows]


def test_words_are_marked_by_arrow_keys_and_space(page_of, tmp_path):
    made = study("remove_words", ("none", "lrp"), count=2, checks=1)
    page = page_of(made.view(), **PHONE)
    agree(page)
    for _ in range(3):
        page.keyboard.press("Tab")
        page.keyboard.press("ArrowRight")
        page.keyboard.press("Space")
        page.get_by_role("button", name="Next").focus()
        page.keyboard.press("Enter")
    assert mode(page) == "end"
    line = tmp_path / "line.txt"
    line.write_text(page.locator(".aw-study-line").input_value())
    read = aw.people.read_responses(line, made)
    assert [row["answer"] for row in read.rows] == [[1]] * 3
    assert [row["score"] for row in read.rows if row["role"] == "item"] == [1.0, 1.0]
    assert len(read.inattentive) == 1


def test_nothing_goes_on_without_an_answer_and_no_name_is_a_code(page_of):
    page = page_of(study("trust").view())
    field = page.locator(".aw-study-code")
    field.fill("Eve Smith")
    field.press("Enter")
    assert mode(page) == "consent"
    assert "Do not use your name" in page.locator(".aw-study-note").inner_text()
    field.fill("abcd1234")
    field.press("Enter")
    assert mode(page) == "step"
    page.keyboard.press("Enter")
    page.keyboard.press("6")
    page.keyboard.press("Enter")
    assert progress(page) == "1 of 10"
    assert page.get_by_role("button", name="Next").is_disabled()
    page.keyboard.press("5")
    page.keyboard.press("Enter")
    assert progress(page) == "2 of 10"


def test_a_kernel_hears_nothing_before_consent_and_then_every_answer(open_page):
    page, view = open_page(), study("trust").view()
    play(page, view, kernel="refuses", cold=False)

    def told():
        return [item["args"] for item in page.evaluate("sent") if item.get("topic") == "responses"]

    page.locator(".aw-study-code").fill("abcd1234")
    assert told() == []
    agree(page)
    for count in range(3):
        page.wait_for_function(
            "(n) => sent.filter((message) => message.topic === 'responses').length === n", arg=count + 1
        )
        page.keyboard.press("4")
        page.keyboard.press("Enter")
    page.wait_for_function("sent.filter((message) => message.topic === 'responses').length === 4")
    view._receive(**told()[-1])
    assert [row["answer"] for row in view.responses.rows] == [4, 4, 4]
    assert [row["score"] for row in view.responses.rows if row["role"] == "item"] == [4.0, 4.0, 4.0]
    page.get_by_role("button", name="Withdraw").click()
    page.get_by_role("button", name="Delete all answers?").click()
    page.wait_for_function("sent.filter((message) => message.topic === 'responses').length === 5")
    view._receive(**told()[-1])
    assert view.responses is None


def test_hostile_texts_stay_texts(page_of):
    given = [
        {
            "text": " ".join([*HOSTILE, str(i)]), "prediction": HOSTILE[i], "id": f"{i}{HOSTILE[1]}",
            "explanations": {HOSTILE[0]: (HOSTILE, [1.0, -0.5, 0.2, 0.1, 0.4]), "b": HOSTILE[1]},
        }
        for i in range(2)
    ]  # fmt: skip
    texts = {"question": HOSTILE[1], "consent": "\n".join(HOSTILE)}
    options = {"title": HOSTILE[0], "texts": texts, "checks": 1}
    made = aw.people.study("trust", given, [HOSTILE[0], "b"], **options)
    page = page_of(made.view(), **PHONE)
    agree(page)
    go_through(page, 3)
    assert page.evaluate("typeof hacked") == "undefined"
    assert page.locator(".aw-study img").count() == 0
    assert fits(page)
    made = study("forward", labels=["no", "yes", HOSTILE[1]], checks=0)
    page = page_of(made.view(), **PHONE)
    agree(page)
    assert HOSTILE[1] in page.locator(".aw-study-choice").nth(2).inner_text()
    assert WORDS[0] in page.locator(".aw-study-text").inner_text()
