"""The assignments in a live JupyterLab: run, answered as a student would, read and graded."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

import attnwidgets as aw
from tests.browser.settling import settle
from tests.browser.test_asking_in_lab import QUESTION
from tests.repo import test_course
from tests.repo.test_course import SOURCES

pytestmark = pytest.mark.extended
made, teachers = test_course.made, test_course.teachers


@pytest.fixture(scope="module", params=SOURCES)
def name(request):
    """The name of an assignment."""
    return request.param


def typed(kind, value):
    """Return an answer as a student types it into a question's line."""
    match kind:
        case "head":
            return ".".join(map(str, value))
        case "tokens" | "cell":
            return ", ".join(map(str, value))
        case "span":
            return f"{value[0]}-{value[1] - 1}"
    return str(value)


def put_in_order(page, question, value):
    """Name the items to order, if there are none; then move each up to its rank."""
    items = question.locator(".aw-question-place")
    if not items.count():
        for item in value:
            question.get_by_label("a name to add").fill(item)
            page.keyboard.press("Enter")
    for to, item in enumerate(value):
        settle(page)
        names = [" ".join(text.split()[1:-2]) for text in items.all_inner_texts()]
        items.nth(names.index(item)).focus()
        for _ in range(names.index(item) - to):
            page.keyboard.press("Shift+ArrowUp")
    settle(page)
    take = question.get_by_role("button", name="Use this order")
    if take.is_visible():
        take.click()


def answer(lab, question, record):
    """Answer a question by its fields and submit; several heads, which no line takes, by the line of code."""
    page, kind, value = lab.page, record["kind"], record["value"]
    if kind == "head" and isinstance(value[0], list):
        status, said = lab.do(f"{record['id']}.answer = {value}")
        assert status == "ok", said
        return
    if kind == "choice":
        for option in value if isinstance(value, list) else [value]:
            question.locator(".aw-question-option input").and_(page.locator(f"[value={option!r}]")).check()
    elif kind == "text":
        question.locator("textarea").fill(value)
    elif kind == "order":
        put_in_order(page, question, value)
    else:
        question.locator(".aw-question-line").fill(typed(kind, value))
    question.get_by_role("button", name="Submit").click()
    question.locator(".aw-question-note", has_text="saved in").wait_for()


def test_a_student_who_knows_all_has_full_marks(name, made, teachers, lab, screenshot):
    folder, key, _ = teachers
    (file,) = folder.glob("*answers.json")
    wanted = aw.course.read_answers(file)
    target = lab.folder / f"{name}.ipynb"
    target.write_bytes(made[1].read_bytes())
    page = lab.open(target.name)
    lab.run_all()
    page.wait_for_function(
        "() => window.jupyterapp.shell.currentWidget.content.widgets.filter(c => c.model.type === 'code')"
        ".every(c => c.model.executionCount)",
        timeout=400_000,
    )
    lab.rest()
    assert page.locator("[data-mime-type='application/vnd.jupyter.error']").count() == 0
    questions = page.locator(QUESTION)
    expect(questions).to_have_count(len(key), timeout=60_000)
    lab.rest()
    for number, (question, record) in enumerate(wanted.items()):
        named = page.locator(".aw-question-about", has_text=re.compile(rf"^{question}$"))
        at = questions.filter(has=named)
        at.scroll_into_view_if_needed()
        at.wait_for()
        answer(lab, at, record)
        if number in (0, len(key) - 1):
            screenshot(page, f"course-{name}-{question}.png")
    lab.rest()
    page.evaluate("window.jupyterapp.shell.currentWidget.context.save()")
    for path in (target, lab.folder / f"{name}.answers.json"):
        graded = aw.course.grade(aw.course.read_answers(path), key)
        assert {item: mark for item, mark in graded.items() if mark.share < 1} == {}
        assert graded.points == graded.of
