"""What otter-grader and nbgrader make of a key: the real tools give full and partial credit."""

from __future__ import annotations

import ast
import csv
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError

from .made import sidecar, write

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


def hand_in(folder, notebook, records):
    folder.mkdir(parents=True)
    shutil.copy(notebook, folder / "ps1.ipynb")
    if records:
        write(folder / "ps1.answers.json", sidecar(*records))


def tool(name, *arguments, cwd):
    package = Path(importlib.util.find_spec("attnwidgets").origin).parents[1]
    paths = {
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    env = {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", name, *arguments]
    done = subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def test_otter_gets_a_test_for_every_share_and_all_points(tmp_path):
    folder = course.to_otter(KEY, tmp_path / "otter")
    tests = {path.stem: path.read_text() for path in (folder / "tests").iterdir()}
    assert set(tests) == {"q1", "q2"}
    made = ast.literal_eval(tests["q2"].partition("test = ")[2])
    assert made["points"] == pytest.approx([4 / 3] * 3)
    assert len(made["suites"][0]["cases"]) == 3
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
    with pytest.raises(AnswerError, match="rule of 'q1' holds a function"):
        course.to_otter({"q1": course.rubric({"long": lambda text: len(text) > 9})}, tmp_path)
    with pytest.raises(AnswerError, match="no question with id='q9'"):
        course.to_nbgrader({"q9": course.exact(1)}, source, tmp_path)
    with pytest.raises(AnswerError, match="one name as files"):
        course.to_otter({"q.1": course.exact(1), "q-1": course.exact(1)}, tmp_path)


@pytest.mark.extended
def test_otter_runs_and_gives_full_and_partial_credit(source, tmp_path):
    if importlib.util.find_spec("otter") is None:
        pytest.skip("otter-grader is not installed (make test-all installs it)")
    folder = course.to_otter(KEY, tmp_path / "otter")
    tool(
        "otter",
        "generate",
        "-t",
        "tests",
        "-c",
        "otter_config.json",
        "--no-environment",
        "-o",
        "a.zip",
        cwd=folder,
    )
    student = course.handout(source, tmp_path / "ps1.ipynb")
    scores = []
    for number, records in enumerate((RIGHT, PARTLY)):
        handed = tmp_path / f"handed{number}.zip"
        with zipfile.ZipFile(handed, "w") as archive:
            archive.write(student, "ps1.ipynb")
            archive.writestr("ps1.answers.json", json.dumps(sidecar(*records)))
        out = tmp_path / f"out{number}"
        out.mkdir()
        tool("otter", "run", "-a", str(folder / "a.zip"), "-o", str(out), str(handed), cwd=tmp_path)
        found = json.loads((out / "results.json").read_text())["tests"]
        scores.append({one["name"]: one.get("score") for one in found if one["name"] in KEY})
    assert scores == [{"q1": 2, "q2": pytest.approx(4)}, {"q1": 2, "q2": pytest.approx(4 * 4 / 6, abs=1e-4)}]


@pytest.mark.extended
def test_nbgrader_releases_without_the_key_and_gives_full_and_partial_credit(source, tmp_path):
    if importlib.util.find_spec("nbgrader") is None:
        pytest.skip("nbgrader is not installed (make test-all installs it)")
    home = tmp_path / "course"
    course.to_nbgrader(KEY, source, home)
    write(home / "nbgrader_config.py", "c = get_config()\nc.CourseDirectory.course_id = 'x'\n"
          "c.ExecutePreprocessor.timeout = 200\n")  # fmt: skip
    tool("nbgrader", "generate_assignment", "ps1", "--create", "--force", cwd=home)
    released = home / "release" / "ps1" / "ps1.ipynb"
    assert not [word for word in ("HIDDEN", "kendall", "exact") if word in released.read_text()]
    for name, records in {"full": RIGHT, "partly": PARTLY, "without": ()}.items():
        hand_in(home / "submitted" / name / "ps1", released, records)
    tool("nbgrader", "autograde", "ps1", "--force", cwd=home)
    tool("nbgrader", "export", cwd=home)
    with (home / "grades.csv").open(newline="") as file:
        scores = {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
    assert scores == {"full": 6, "partly": pytest.approx(2 + 4 * 4 / 6, abs=1e-4), "without": 0}
