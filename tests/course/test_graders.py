"""Keys in otter-grader and nbgrader: the real tools give full and partial credit."""

from __future__ import annotations

import ast
import json

import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError

from .made import sidecar, write
from .tools import graded_by_nbgrader, graded_by_otter, require

course = aw.course
KEY = {"q1": course.exact("1.0", points=2), "q2": course.kendall(["a", "b", "c", "d"], points=4)}
CELLS = (
    ("import attnwidgets as aw",),
    ("q1 = aw.ask.choice('Which head copies?', options=['0.0', '1.0'], id='q1', points=2)\nq1",),
    ("q1.answer = '1.0'", "solution"),
    ("q2 = aw.ask.order('Which first?', options=['d', 'a', 'b', 'c'], id=\"q2\", points=4)\nq2",),
    ("q2.answer = ['a', 'b', 'c', 'd']", "solution"),
)
RIGHT = (course.make_record("q1", "choice", "1.0"), course.make_record("q2", "order", ["a", "b", "c", "d"]))
PARTLY = (RIGHT[0], course.make_record("q2", "order", ["b", "a", "c", "d"]))


@pytest.fixture
def source(tmp_path):
    """The teacher's notebook."""
    cells = [
        {"cell_type": "code", "execution_count": None, "id": f"c{number}", "metadata": {"tags": tags},
         "outputs": [], "source": text}
        for number, (text, *tags) in enumerate(CELLS)
    ]  # fmt: skip
    kernel = {"name": "python3", "display_name": "Python 3", "language": "python"}
    made = {"cells": cells, "metadata": {"kernelspec": kernel}, "nbformat": 4, "nbformat_minor": 5}
    return write(tmp_path / "teacher" / "ps1.ipynb", made)


def test_otter_gets_a_test_for_every_share_and_all_points(tmp_path):
    folder = course.to_otter(KEY, tmp_path / "otter")
    tests = {path.stem: path.read_text() for path in (folder / "tests").iterdir()}
    assert set(tests) == {"q1", "q2"}
    made = ast.literal_eval(tests["q2"].partition("test = ")[2])
    assert made["points"] == pytest.approx([4 / 6] * 6, abs=1e-6)  # an order with ties has the shares between
    assert len(made["suites"][0]["cases"]) == 6
    assert all(case["hidden"] for case in made["suites"][0]["cases"])
    assert json.loads((folder / "otter_config.json").read_text())["points_possible"] == 6


def test_nbgrader_gets_the_students_version_with_a_graded_cell_after_each_question(source, tmp_path):
    path = course.to_nbgrader(KEY, source, tmp_path / "course")
    assert path == tmp_path / "course" / "source" / "ps1" / "ps1.ipynb"
    cells = json.loads(path.read_text())["cells"]
    about = [cell["metadata"].get("nbgrader", {}).get("grade_id") for cell in cells]
    assert about == [None, None, "grade-q1", None, "grade-q2"]
    assert "q2.answer = " not in path.read_text()
    assert "aw.course.kendall(['a', 'b', 'c', 'd'], points=4)" in "".join(cells[4]["source"])


def test_what_no_test_can_hold_is_refused_by_name(source, tmp_path):
    with pytest.raises(AnswerError, match="'q1': the rule contains a function"):
        course.to_otter({"q1": course.rubric({"long": lambda text: len(text) > 9})}, tmp_path)
    with pytest.raises(AnswerError, match="no question with id='q9'"):
        course.to_nbgrader({"q9": course.exact(1)}, source, tmp_path)
    with pytest.raises(AnswerError, match="one name as files"):
        course.to_otter({"q.1": course.exact(1), "q-1": course.exact(1)}, tmp_path)


@pytest.mark.extended
def test_otter_runs_and_gives_full_and_partial_credit(source, tmp_path):
    require("otter", "otter-grader")
    folder = course.to_otter(KEY, tmp_path / "otter")
    student = course.handout(source, tmp_path / "ps1.ipynb")
    answers = [json.dumps(sidecar(*records)) for records in (RIGHT, PARTLY)]
    result = graded_by_otter(folder, student, answers, tmp_path / "out")
    scores = [{name: tests[name] for name in KEY} for tests in result]
    assert scores == [{"q1": 2, "q2": pytest.approx(4)}, {"q1": 2, "q2": pytest.approx(4 * 4 / 6, abs=1e-4)}]


@pytest.mark.extended
def test_nbgrader_releases_without_the_key_and_gives_full_and_partial_credit(source, tmp_path):
    require("nbgrader", "nbgrader")
    home = tmp_path / "course"
    course.to_nbgrader(KEY, source, home)
    given = {"full": RIGHT, "partly": PARTLY, "without": ()}
    answers = {name: json.dumps(sidecar(*records)) if records else None for name, records in given.items()}
    released, scores = graded_by_nbgrader(home, "ps1", answers)
    assert not [word for word in ("HIDDEN", "kendall", "exact") if word in released.read_text()]
    assert scores == {"full": 6, "partly": pytest.approx(2 + 4 * 4 / 6, abs=1e-4), "without": 0}
