"""The student's version holds nothing of a solution, and keys have a margin."""

from __future__ import annotations

import json

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError, MarginError

from .made import HEAD, notebook, write

course = aw.course


def cell(source, *tags, kind="code", outputs=()):
    made = {"cell_type": kind, "metadata": {"tags": list(tags), "scrolled": True}, "source": source}
    return made | ({"outputs": list(outputs), "execution_count": 3} if kind == "code" else {})


def printed(text):
    return {"output_type": "stream", "name": "stdout", "text": text}


def source(*cells):
    return {"cells": list(cells), "metadata": {"author": "A teacher", "kernelspec": {"name": "python3"}},
            "nbformat": 4, "nbformat_minor": 5}  # fmt: skip


TEACHERS = source(
    cell("# Heads", kind="markdown"),
    cell("q1 = aw.ask.head('Which?', view=view, id='q1')\nq1", outputs=[printed("secretly 5.9")]),
    cell("q1.answer = (5, 9)", "solution"),
    cell("key = {'q1': aw.course.exact((5, 9))}", "key"),
    cell(
        "def fidelity(a, b):\n    ### BEGIN SOLUTION\n    lost = a - b\n    return lost\n"
        "    ### END SOLUTION\n"
    ),
    cell("Because.\n<!-- BEGIN SOLUTION -->\nThe head copies.\n<!-- END SOLUTION -->", kind="markdown"),
)


def handed_out(tmp_path, made, **options):
    path = course.handout(write(tmp_path / "t.ipynb", made), tmp_path / "s.ipynb", **options)
    return json.loads(path.read_text())


@pytest.mark.slow
def test_solutions_keys_outputs_and_metadata_are_gone(tmp_path):
    made = handed_out(tmp_path, TEACHERS)
    assert ["".join(one["source"]) for one in made["cells"]] == [
        "# Heads",
        "q1 = aw.ask.head('Which?', view=view, id='q1')\nq1",
        "def fidelity(a, b):\n    # Your code here\n",
        "Because.\n# Your code here",
    ]
    assert all(one["metadata"] == {} for one in made["cells"])
    assert all(one.get("outputs", []) == [] and one.get("execution_count") is None for one in made["cells"])
    text = (tmp_path / "s.ipynb").read_text()
    assert not [word for word in ("5, 9", "5.9", "lost", "copies", "solution", "teacher") if word in text]
    nbformat = pytest.importorskip("nbformat")
    nbformat.validate(nbformat.from_dict(made))


def test_the_same_source_gives_the_same_bytes_and_a_line_of_ones_own(tmp_path):
    handed_out(tmp_path, TEACHERS, placeholder="...")
    first = (tmp_path / "s.ipynb").read_bytes()
    handed_out(tmp_path, TEACHERS, placeholder="...")
    assert (tmp_path / "s.ipynb").read_bytes() == first
    assert b"    ...\\n" in first


@pytest.mark.parametrize(
    ("extra", "options", "words"),
    [
        (cell("It is the head 5.9.", kind="markdown"), {}, "answer 5.9 .* is left in cell 5"),
        (cell("best = (5, 9)"), {}, r"answer \(5, 9\)"),
        (cell("x", outputs=[printed("head (5, 9)\n")]), {"outputs": True}, "output of cell"),
        (cell("    return  lost"), {}, "line of a solution, 'return lost'"),
        (notebook([HEAD])["cells"][0], {"outputs": True}, "holds the answer to 'q1'"),
        (
            cell("q1.answer = 1", "Solutions"),
            {},
            "tag 'Solutions', which hides nothing. Did you mean 'solution'",
        ),
        (cell("### BEGIN SOLUTION\nx = 1"), {}, "no END SOLUTION"),
        (cell("x = 1\n### END SOLUTION"), {}, "no partner"),
        (cell("### BEGIN SOLUTION\n### BEGIN SOLUTION\n### END SOLUTION"), {}, "no partner"),
        (cell("x = 1  # BEGIN SOLUTION"), {}, "no partner"),
    ],
)
def test_nothing_is_written_while_something_of_a_solution_is_left(tmp_path, extra, options, words):
    made = {**TEACHERS, "cells": [*TEACHERS["cells"][:1], *TEACHERS["cells"][2:], extra]}
    made["cells"].insert(1, cell("q1"))
    with pytest.raises(AnswerError, match=words):
        handed_out(tmp_path, made, **options)
    assert not (tmp_path / "s.ipynb").exists()


def test_what_may_stay_is_allowed_by_name(tmp_path):
    made = {**TEACHERS, "cells": [*TEACHERS["cells"], cell("It is not 5.9.", kind="markdown")]}
    assert len(handed_out(tmp_path, made, allow=["5.9"])["cells"]) == 5


def test_the_source_is_never_overwritten(tmp_path):
    path = write(tmp_path / "t.ipynb", TEACHERS)
    with pytest.raises(AnswerError, match="the solutions would be lost"):
        course.handout(path, path)
    with pytest.raises(AnswerError, match="not a notebook"):
        course.handout(write(tmp_path / "x.ipynb", "{"), tmp_path / "s.ipynb")
    assert json.loads(path.read_text()) == TEACHERS


def test_a_key_from_scores_of_all_heads_has_its_margin():
    scores = np.full((6, 12), 0.1)
    scores[5, 9], scores[0, 2], scores[1, 1] = 0.8, 0.4, np.nan
    rule = course.key_of("q1", scores, points=2)
    assert repr(rule) == "exact((5, 9), points=2)"
    assert rule.margin == pytest.approx(0.5)
    assert rule.runner_up == (0, 2)
    least = course.key_of("q1", {"a": -3.0, "b": -1.0}, best="min")
    assert repr(least) == "exact('a', points=1)"
    assert least.margin == pytest.approx(2 / 3)


def test_a_question_whose_runner_up_is_near_fails_by_name_unless_both_count():
    scores = {"0.3": 2.45, "0.0": 2.416, "0.1": 1.9}
    with pytest.raises(MarginError, match=r"'broadest': 0.3 \(2.45\) is only 1.4% away from 0.0 \(2.416\)"):
        course.key_of("broadest", scores)
    rule = course.key_of("broadest", scores, shares=(1, 0.5))
    assert repr(rule) == "any_of({'0.3': 1.0, '0.0': 0.5}, points=1)"
    assert rule.margin == pytest.approx(1 - 1.9 / 2.416)
    assert course.key_of("broadest", {"a": 1.0, "b": 0.91}, margin=0.05).margin == pytest.approx(0.09)
    with pytest.raises(AnswerError, match="1 candidates, and needs 2"):
        course.key_of("broadest", {"a": 1.0, "b": np.nan})


def test_an_order_needs_a_margin_between_neighbours_and_ties_share_a_place():
    rule = course.order_of("q4", {"norms": 2, "ALTI": 2, "GlobEnc": 3, "rollout": 5}, best="min", points=3)
    assert repr(rule) == "kendall([['ALTI', 'norms'], 'GlobEnc', 'rollout'], points=3)"
    assert rule.margin == pytest.approx(1 / 3)
    with pytest.raises(MarginError, match=r"'q4': a \(1\) and b \(0.95\) are only 5.0% apart"):
        course.order_of("q4", {"a": 1.0, "b": 0.95, "c": 0.1})
