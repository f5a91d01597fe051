"""Keys from the scores of all candidates, and in the formats of otter-grader and nbgrader.

`key_of` and `order_of` derive rules with a margin from scores. `to_otter` writes a key as tests for
otter-grader, `to_nbgrader` as graded cells for nbgrader. Both graders run a notebook again and drop its
outputs, so that the file of answers has to be handed in with it.
"""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from attnwidgets._errors import require_choice
from attnwidgets._files import write_bytes
from attnwidgets.course.errors import AnswerError, MarginError
from attnwidgets.course.grading.grade import checked_key
from attnwidgets.course.grading.rules import Rule, any_of, exact, kendall
from attnwidgets.course.handouts.handout import source_of, student_version

if TYPE_CHECKING:
    import os

MARGIN = 0.10
"""The least margin of a question: other machines and versions move numbers a little."""

_FILE = re.compile(r"\W+")


def key_of(
    question: str,
    scores: Mapping[Any, float] | Any,
    *,
    best: str = "max",
    shares: Sequence[float] = (1,),
    margin: float = MARGIN,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule for "which is the most?", from the scores of all candidates.

    Args:
        question: Id of the question, for the message.
        scores: A score for every candidate: a dict; or an array [layer, head], whose candidates are heads, or
            [layer] or [token], whose candidates are numbers. NaN: not a candidate.
        best: `"max"` or `"min"`.
        shares: Shares of the best candidate, the second best, and so on: `(1, 0.5)` where the two are close.
        margin: The least margin. It is the distance between the last candidate with a share and the first
            without, divided by the larger of their magnitudes: 0.1 is 10 %.
        points: Points for a share of 1.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        `exact` or `any_of`, with its `.margin` and `.runner_up`.

    Raises:
        MarginError: The runner-up is too near (an AnswerError); the message names the question and both.
        AnswerError: There are too few candidates.

    Example:
        >>> rule = aw.course.key_of("q1", {"attention": 0.25, "LRP": 0.33, "IG": 0.2}, points=2)
        >>> rule, round(rule.margin, 2)
        (exact('LRP', points=2), 0.24)
    """
    require_choice("best", best, ("max", "min"))
    ranked = sorted(_candidates(scores), key=lambda pair: -pair[1] if best == "max" else pair[1])
    if not shares or len(ranked) <= len(shares):
        raise AnswerError(f"question {question!r} has {len(ranked)} candidates, and needs {len(shares) + 1}")
    (last, value), (runner_up, next_value) = ranked[len(shares) - 1], ranked[len(shares)]
    apart = _apart(value, next_value)
    if apart < margin:
        raise MarginError(
            f"question {question!r}: {last} ({value:.4g}) is only {apart:.1%} away from {runner_up} "
            f"({next_value:.4g}), and {margin:.0%} are needed: ask otherwise, or give shares=(1, 0.5)"
        )
    right = [candidate for candidate, _ in ranked[: len(shares)]]
    if len(right) == 1 and shares[0] == 1:
        rule = exact(right[0], points=points, subject=subject)
    else:
        rule = any_of(dict(zip(right, shares, strict=True)), points=points, subject=subject)
    return dataclasses.replace(rule, margin=apart, runner_up=runner_up)


def order_of(
    question: str,
    scores: Mapping[str, float],
    *,
    best: str = "max",
    tie: float = 0.001,
    margin: float = MARGIN,
    points: float = 1,
    subject: str | None = None,
) -> Rule:
    """Return the rule for "put these in order", from the score of each.

    Args:
        question: Id of the question, for the message.
        scores: A score for every name.
        best: Which comes first: `"max"` or `"min"`.
        tie: Scores within this margin tie.
        margin: The least margin between neighbours that do not tie; see `key_of`.
        points: Points for a share of 1.
        subject: The hash of the model and text that the answer must be about; None: not compared.

    Returns:
        `kendall`, with the least margin between neighbours as its `.margin`.

    Raises:
        MarginError: Two neighbours are too near for an order, and too far apart for a tie.
        AnswerError: There are fewer than two ranks.

    Example:
        >>> aw.course.order_of("q4", {"same": 0.5, "all": 0.25, "different": 0.0})
        kendall(['same', 'all', 'different'], points=1)
    """
    require_choice("best", best, ("max", "min"))
    ranked = sorted(_candidates(scores), key=lambda pair: -pair[1] if best == "max" else pair[1])
    ranks: list[list[str]] = []
    least = np.inf
    for number, (name, value) in enumerate(ranked):
        apart = _apart(ranked[number - 1][1], value) if number else np.inf
        if tie < apart < margin:
            before, its = ranked[number - 1]
            raise MarginError(
                f"question {question!r}: {before} ({its:.4g}) and {name} ({value:.4g}) are only {apart:.1%} "
                f"apart, and {margin:.0%} are needed: leave one of them out"
            )
        if number and apart <= tie:
            ranks[-1].append(name)
        else:
            ranks.append([name])
            least = min(least, apart)
    order = [names if len(names) > 1 else names[0] for names in ranks]
    return dataclasses.replace(kendall(order, points=points, subject=subject), margin=float(least))


def _candidates(scores: Any) -> Iterable[tuple[Any, float]]:
    if isinstance(scores, Mapping):
        pairs = list(scores.items())
    else:
        array = np.asarray(scores, dtype=float)
        pairs = [(index if array.ndim > 1 else index[0], score) for index, score in np.ndenumerate(array)]
    return [(candidate, float(score)) for candidate, score in pairs if np.isfinite(score)]


def _apart(first: float, second: float) -> float:
    """Return how far two scores are apart, by the larger magnitude: 0 where both are 0."""
    largest = max(abs(first), abs(second))
    return abs(first - second) / largest if largest else 0.0


def to_otter(key: Mapping[str, Rule], folder: str | os.PathLike[str]) -> Path:
    """Write a key as tests of otter-grader: a hidden test for every share that an answer can have.

    otter counts tests, so shares in between are rounded down: to tenths, or to those that a rule names. Then
    `otter generate -t FOLDER/tests -c FOLDER/otter_config.json` makes the autograder, and
    `otter run -a autograder.zip submission.zip` grades the archive of a notebook and its file of answers.

    Args:
        key: A rule for every question that counts, by id.
        folder: The folder to write to; created if it does not exist.

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
    counts as it is. `nbgrader generate_assignment` removes them from the students' version.

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
    path = Path(source)
    notebook = json.loads(path.read_text(encoding="utf-8"))
    student = student_version(notebook, notebook["cells"], key=rules)
    cells: list[dict[str, Any]] = []
    left = dict(rules)
    for cell in student["cells"]:
        cells.append(cell)
        names = [name for name in left if cell["cell_type"] == "code" and _asks(source_of(cell), name)]
        cells.extend(_graded_cell(name, left.pop(name)) for name in names)
    if left:
        raise AnswerError(f"{path.name} asks no question with id={next(iter(left))!r}, which the key has")
    target = Path(folder) / "source" / path.stem / path.name
    target.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(
        target, (json.dumps({**student, "cells": cells}, ensure_ascii=False, indent=1) + "\n").encode()
    )
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
