"""The real grading tools, as a teacher runs them: commands of this environment."""

from __future__ import annotations

import csv
import importlib.util
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest


def require(package, name):
    """Skip where a tool is not installed."""
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{name} is not installed (make test-all installs it)")


def tool(name, *arguments, cwd):
    """Run a tool; its output if it fails."""
    package = Path(importlib.util.find_spec("attnwidgets").origin).parents[1]
    paths = {
        "PYTHONPATH": os.pathsep.join([str(package), os.environ.get("PYTHONPATH", "")]),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
    }
    env = {**os.environ, **paths, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", name, *arguments]
    done = subprocess.run(command, check=False, cwd=cwd, env=env, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return done.stdout


def graded_by_otter(folder, notebook, answers, out):
    """Run otter-grader on a notebook and its file of answers.

    Args:
        folder: The files of `aw.course.to_otter`.
        notebook: The student's notebook.
        answers: The text of each student's file of answers, or None.
        out: A new folder.

    Returns:
        For every student the score of each test.
    """
    named = ("-t", "tests", "-c", "otter_config.json", "--no-environment", "-o", "a.zip")
    tool("otter", "generate", *named, cwd=folder)
    scores = []
    for number, text in enumerate(answers):
        results = out / str(number)
        results.mkdir(parents=True)
        handed = out / f"{number}.zip"
        with zipfile.ZipFile(handed, "w") as archive:
            archive.write(notebook, notebook.name)
            if text is not None:
                archive.writestr(f"{notebook.stem}.answers.json", text)
        tool("otter", "run", "-a", str(folder / "a.zip"), "-o", str(results), str(handed), cwd=out)
        tests = json.loads((results / "results.json").read_text())["tests"]
        scores.append({test["name"]: test.get("score") for test in tests})
    return scores


def graded_by_nbgrader(home, name, answers):
    """Release an assignment, hand it in and grade it, by nbgrader.

    Args:
        home: The course's folder, with the files of `aw.course.to_nbgrader`.
        name: The assignment's name.
        answers: By student, the text of the file of answers, or None.

    Returns:
        The released notebook, and the score of every student.
    """
    (home / "nbgrader_config.py").write_text(
        "c = get_config()\nc.CourseDirectory.course_id = 'x'\nc.ExecutePreprocessor.timeout = 600\n"
    )
    tool("nbgrader", "generate_assignment", name, "--create", "--force", cwd=home)
    released = home / "release" / name / f"{name}.ipynb"
    for student, text in answers.items():
        folder = home / "submitted" / student / name
        folder.mkdir(parents=True)
        (folder / released.name).write_bytes(released.read_bytes())
        if text is not None:
            (folder / f"{name}.answers.json").write_text(text)
    tool("nbgrader", "autograde", name, "--force", cwd=home)
    tool("nbgrader", "export", cwd=home)
    with (home / "grades.csv").open(newline="") as file:
        return released, {row["student_id"]: float(row["score"]) for row in csv.DictReader(file)}
