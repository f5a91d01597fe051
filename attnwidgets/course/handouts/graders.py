"""What other graders need to use a key: tests for otter-grader, graded cells for nbgrader.

Both run a notebook again and drop its outputs, so that the file of answers has to be handed in with it.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from attnwidgets._files import write_bytes
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.grading.grade import checked_key
from attnwidgets.course.handouts.handout import source_of, student_version

if TYPE_CHECKING:
    import os
    from collections.abc import Mapping

    from attnwidgets.course.grading.rules import Rule

_FILE = re.compile(r"\W+")


def to_otter(key: Mapping[str, Rule], folder: str | os.PathLike[str]) -> Path:
    """Write a key as tests of otter-grader: a hidden test for every share that an answer can have.

    otter counts tests, so shares in between are rounded down: to tenths, or to those that a rule names. Then
    `otter generate -t FOLDER/tests -c FOLDER/otter_config.json` makes the autograder, and
    `otter run -a autograder.zip submission.zip` grades the archive of a notebook and its file of answers.

    Args:
        key: A rule for every question that counts, by id.
        folder: The folder to write to; made if it is not there.

    Returns:
        The folder, which now holds `tests/<question>.py` and `otter_config.json`.

    Raises:
        TypeError: `key` holds no rules.
        AnswerError: A rule holds a function, which no test can.
        OSError: The folder cannot be written.

    Example:
        >>> folder = aw.course.to_otter({"q1": aw.course.exact((5, 9), points=2)}, "ps1_otter")
        >>> sorted(path.name for path in folder.rglob("*.*"))
        ['otter_config.json', 'q1.py']
    """
    rules = checked_key(key)
    tests = {_FILE.sub("_", name): _otter_test(name, rule) for name, rule in rules.items()}
    if len(tests) < len(rules):
        raise AnswerError(f"two of the questions {', '.join(rules)} have one name as files")
    target = Path(folder)
    (target / "tests").mkdir(parents=True, exist_ok=True)
    for name, test in tests.items():
        write_bytes(target / "tests" / f"{name}.py", test.encode())
    config = {"show_hidden": False, "points_possible": sum(rule.points for rule in rules.values())}
    write_bytes(target / "otter_config.json", (json.dumps(config, indent=1) + "\n").encode())
    return target


def _otter_test(name: str, rule: Rule) -> str:
    code = _code(name, rule)
    cases, points, before = [], [], 0.0
    for step in rule.steps:
        lines = [
            ">>> import attnwidgets as aw",
            f">>> aw.course.grade(aw.ask.answers(), {{{name!r}: {code}}})[{name!r}].share >= {step - 1e-6!r}",
            "True",
        ]
        cases.append({"code": "\n".join(lines), "hidden": True, "locked": False})
        points.append(round((step - before) * rule.points, 6))
        before = step
    suite = {"cases": cases, "scored": True, "setup": "", "teardown": "", "type": "doctest"}
    return f"OK_FORMAT = True\n\ntest = { ({'name': name, 'points': points, 'suites': [suite]})!r}\n"


def to_nbgrader(
    key: Mapping[str, Rule], source: str | os.PathLike[str], folder: str | os.PathLike[str]
) -> Path:
    """Write a notebook for nbgrader: the student's version with a graded cell after every question.

    The graded cells hold the key as hidden tests, whose value is the number of points, so that partial credit
    counts as it is. `nbgrader generate_assignment` takes them out of what students get.

    Args:
        key: A rule for every question that counts, by id.
        source: The teacher's notebook (.ipynb), as `handout` takes it.
        folder: The course's folder, in which nbgrader runs. The notebook becomes
            `source/<name>/<name>.ipynb` in it.

    Returns:
        The path of the notebook that was written.

    Raises:
        TypeError: `key` holds no rules.
        AnswerError: A rule holds a function, or the notebook does not ask a question of the key.
        OSError: A file cannot be read or written.

    Example:
        >>> import json
        >>> from pathlib import Path
        >>> cells = [{"cell_type": "code", "source": "q1 = aw.ask.number('?', id='q1')", "metadata": {}}]
        >>> _ = Path("ps1.ipynb").write_text(json.dumps({"cells": cells}))
        >>> aw.course.to_nbgrader({"q1": aw.course.exact(6)}, "ps1.ipynb", "course").as_posix()
        'course/source/ps1/ps1.ipynb'
    """
    rules = checked_key(key)
    given = Path(source)
    notebook = json.loads(given.read_text(encoding="utf-8"))
    made = student_version(notebook, notebook["cells"], key=rules)
    cells: list[dict[str, Any]] = []
    left = dict(rules)
    for cell in made["cells"]:
        cells.append(cell)
        names = [name for name in left if cell["cell_type"] == "code" and _asks(source_of(cell), name)]
        cells.extend(_graded_cell(name, left.pop(name)) for name in names)
    if left:
        raise AnswerError(f"{given.name} asks no question with id={next(iter(left))!r}, which the key has")
    target = Path(folder) / "source" / given.stem / given.name
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(target, (json.dumps({**made, "cells": cells}, ensure_ascii=False, indent=1) + "\n").encode())
    return target


def _asks(source: str, name: str) -> bool:
    return bool(re.search(rf"""\bid\s*=\s*(["']){re.escape(name)}\1""", source))


def _graded_cell(name: str, rule: Rule) -> dict[str, Any]:
    lines = [
        "# This cell gives the points of the question above: leave it as it is.",
        "import attnwidgets as aw",
        "### BEGIN HIDDEN TESTS",
        f"aw.course.grade(aw.ask.answers(), {{{name!r}: {_code(name, rule)}}})[{name!r}].points",
        "### END HIDDEN TESTS",
    ]
    about = {
        "grade": True, "grade_id": f"grade-{name}", "locked": True, "points": rule.points,
        "schema_version": 3, "solution": False, "task": False, "cell_type": "code",
    }  # fmt: skip
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": f"grade-{_FILE.sub('-', name)}",
        "metadata": {"nbgrader": about},
        "outputs": [],
        "source": "\n".join(lines).splitlines(keepends=True),
    }


def _code(name: str, rule: Rule) -> str:
    """Return a rule as an expression that makes it again."""
    try:
        return f"aw.course.{rule.code}"
    except AnswerError as error:
        raise AnswerError(f"{name!r}: {error}") from error
