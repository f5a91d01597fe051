"""Questions in a live JupyterLab: a submitted click is in the saved notebook, in the file and in Python."""

from __future__ import annotations

import json
import subprocess
import sys

import nbformat
import pytest
from playwright.sync_api import expect

from attnwidgets.course.reading.read_answers import read_answers
from attnwidgets.course.records import MIME

from .settling import settle

CELLS = (
    """import numpy as np, attnwidgets as aw
numbers = np.random.default_rng(0).dirichlet(np.ones(6), (2, 3, 6)).astype(np.float32)
trace = aw.from_attentions(numbers, ["the", "black", "cat", "sat", "there", "."])""",
    'q1 = aw.ask.head("Which head?", view=aw.Explorer(trace), id="q1", points=2)\nq1',
    'q2 = aw.ask.choice("Which?", options=["same", "all"], id="q2")\nq2',
    "1 + 1",
)
QUESTION = ".jp-OutputArea .aw-question"


class Class:
    """The open notebook, as its tests speak of it."""

    def __init__(self, lab):
        self.lab = lab
        lab.write("handout.ipynb", *CELLS)
        self.open("handout.ipynb")

    def open(self, name):
        self.name = name
        self.page = self.lab.open(name)
        self.run()

    def run(self):
        self.lab.run_all()
        self.page.locator(f"{QUESTION} .aw-headgrid canvas").first.wait_for(timeout=90_000)
        self.page.locator(QUESTION).nth(1).wait_for()
        self.lab.rest()

    def question(self, nth):
        return self.page.locator(QUESTION).nth(nth)

    def said(self, nth, words):
        self.question(nth).locator(".aw-question-note", has_text=words).wait_for()

    def click(self, layer, head):
        """Click a head in the grid, of 2 x 3."""
        grid = self.question(0).locator(".aw-grid-main canvas").first
        grid.scroll_into_view_if_needed()
        settle(self.page)
        box = grid.bounding_box()
        at = box["x"] + (head + 0.5) / 3 * box["width"], box["y"] + (layer + 0.5) / 2 * box["height"]
        self.page.mouse.click(*at)

    def choose(self, layer, head):
        """Click a head, which the question takes."""
        self.click(layer, head)
        self.question(0).locator(".aw-question-chosen", has_text=f"head {layer}.{head}").wait_for()

    def submit(self, nth):
        self.question(nth).get_by_role("button", name="Submit").click()

    def save(self):
        self.page.evaluate("window.jupyterapp.shell.currentWidget.context.save()")

    @property
    def records(self):
        book = nbformat.read(self.lab.folder / self.name, as_version=4)
        outputs = [output for cell in book.cells for output in cell.get("outputs", [])]
        return {r["id"]: r["value"] for o in outputs if (r := o.get("data", {}).get(MIME))}

    @property
    def saved(self):
        answers = json.loads((self.lab.folder / "handout.answers.json").read_text())["answers"]
        return {name: record["value"] for name, record in answers.items()}


@pytest.fixture(scope="module")
def room(lab):
    return Class(lab)


def test_a_click_is_submitted_and_saved(room, screenshot):
    room.choose(1, 2)
    screenshot(room.page, "asking-chosen.png")
    assert room.lab.ask("q1.answer") is None  # not submitted yet
    room.question(0).evaluate("el => { el.dataset.same = 'yes'; }")
    room.submit(0)
    room.said(0, "saved in handout.answers.json")
    room.lab.rest()
    assert room.question(0).get_attribute("data-same") == "yes"  # it is not drawn anew
    assert room.page.locator(".attnwidgets-question:visible").count() == 0
    screenshot(room.page, "asking-answered.png")
    assert room.lab.ask("q1.answer") == [1, 2]
    room.question(1).get_by_text("all", exact=True).click()
    room.submit(1)
    room.said(1, "saved in")
    room.lab.rest()  # the notebook has the record
    room.page.keyboard.press("Control+s")
    room.page.wait_for_function("!window.jupyterapp.shell.currentWidget.context.model.dirty")
    assert room.records == room.saved == {"q1": [1, 2], "q2": "all"}
    assert {
        name: item["value"] for name, item in read_answers(room.lab.folder / room.name).items()
    } == room.saved


def test_a_line_of_code_answers_too(room):
    status, out = room.lab.do("q1.answer = (0, 2)")
    assert status == "ok", out
    room.question(0).locator(".aw-question-chosen", has_text="head 0.2").wait_for()
    room.lab.rest()
    room.save()
    assert room.records["q1"] == room.saved["q1"] == [0, 2]


def test_looking_on_changes_nothing_and_change_does(room):
    question = room.question(0)
    room.click(0, 0)
    room.lab.until("[q1.selection.layer, q1.selection.head]", [0, 0])
    room.lab.rest()
    assert "head 0.2" in question.locator(".aw-question-line-of").inner_text()
    question.get_by_role("button", name="Change").click()
    room.choose(1, 1)
    room.submit(0)
    room.lab.until("q1.answer", [1, 1])


def test_answers_survive_a_restart(room):
    room.page.evaluate("window.jupyterapp.shell.currentWidget.sessionContext.session.kernel.restart()")
    room.lab.ready()
    room.lab.rest()  # the manager of widgets has looked for those of the new kernel
    room.run()
    room.question(0).locator(".aw-question-chosen", has_text="head 1.1").wait_for()
    assert room.lab.ask("[q1.answer, q2.answer]") == [[1, 1], "all"]
    room.save()
    assert room.records == {"q1": [1, 1], "q2": "all"}


def test_a_second_question_with_the_id_of_another_cell_is_refused(room):
    error = room.page.evaluate(
        """async () => {
          const {content, context} = window.jupyterapp.shell.currentWidget;
          const cell = content.widgets.at(-1);
          cell.model.sharedModel.setSource('aw.ask.text("Why?", id="q1")');
          content.activeCellIndex = content.widgets.length - 1;
          await window.jupyterapp.commands.execute('notebook:run-cell');
          return JSON.stringify(cell.model.outputs.toJSON());
        }"""
    )
    assert "id='q1' is the question 'Which head?' of cell In [" in error
    assert room.lab.ask("q1.answer") == [1, 1]
    room.lab.run_cell(1)  # the same cell again is the same question
    room.question(0).locator(".aw-question-chosen", has_text="head 1.1").wait_for()
    room.lab.rest()
    assert room.lab.ask("q1.answer") == [1, 1]


def test_converted_to_a_page_and_to_a_script_the_answers_are_there(room, kernel_environment):
    from nbconvert import HTMLExporter, PythonExporter  # not imported where tests are only collected

    folder = room.lab.folder
    room.save()
    page, script = folder / "handout.html", folder / "handout.py"
    for exporter, target in ((HTMLExporter, page), (PythonExporter, script)):
        target.write_text(exporter().from_filename(folder / room.name)[0])
    assert {name: item["value"] for name, item in read_answers(page).items()} == room.saved
    assert "Which head?" in page.read_text()
    code = script.read_text().rsplit('aw.ask.text("Why?"', 1)[0]
    script.write_text(f"{code}\nprint(q1.answer, q2.answer)")
    run = subprocess.run(
        [sys.executable, "handout.py"],
        cwd=folder,
        env={key: value for key, value in kernel_environment.items() if key != "JPY_SESSION_NAME"},
        check=True,
        capture_output=True,
        text=True,
        timeout=180,
    )
    assert run.stdout.split("\n")[-2] == "[1, 1] all"


def test_a_renamed_notebook_says_where_its_answers_are(room):
    folder = room.lab.folder
    room.save()
    for cell_output in ("handout.html", "handout.py"):
        (folder / cell_output).unlink(missing_ok=True)
    (folder / "handout.ipynb").rename(folder / "mine.ipynb")
    room.open("mine.ipynb")
    room.question(0).locator(".aw-question-chosen", has_text="head 1.1").wait_for()
    expect(room.question(0).locator(".aw-question-told")).to_contain_text("Rename it to mine.answers.json")
