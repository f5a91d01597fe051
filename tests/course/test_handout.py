"""The student's version holds nothing of a solution, and keys have a margin."""

from __future__ import annotations

import base64
import json
import zlib

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
    assert ["".join(item["source"]) for item in made["cells"]] == [
        "# Heads",
        "q1 = aw.ask.head('Which?', view=view, id='q1')\nq1",
        "def fidelity(a, b):\n    # Your code here\n",
        "Because.\n# Your code here",
    ]
    assert all(item["metadata"] == {} for item in made["cells"])
    assert all(
        item.get("outputs", []) == [] and item.get("execution_count") is None for item in made["cells"]
    )
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
        (
            cell("It is the head 5.9.", kind="markdown"),
            {},
            "of q1 is left in cell 5, as '5.9'",
        ),
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


VALUES = cell(
    "best = (5, 9)\nscore = -0.0847\nq1.answer = best\nq2.answer = score\n"
    "key = {'q3': aw.course.overlap({5, 6, 11}), 'q4': aw.course.near(0.847, 0.005, 0.05),\n"
    "       'q5': aw.course.overlap([(1, 2), (3, 0)])}",
    "solution",
)


@pytest.mark.parametrize("kind", ["markdown", "code"])
@pytest.mark.parametrize(
    ("text", "question"),
    [
        *((text, "q1") for text in (
            "(5,9)", "[5, 9]", "{5, 9}", "5.9", "`5.9`", "L5H9", "l5.h9", "L5 H9", "layer 5, head 9",
            "layer=5, head=9", "Layer 5 and head 9", "{'layer': 5, 'head': 9}", "head 9 of layer 5",
            "head 9 in the layer 5", "head=9, layer=5", "q1.answer = 5, 9",
        )),
        *((text, "q2") for text in ("-0.0847", "−0.0847", "-.0847", "-8.47e-2", "-8.47 %", "-0.084700")),
        *((text, "q3") for text in ("5, 6 and 11", "5 6 11", "[11, 5, 6]", "tokens 5; 6; 11")),
        *((text, "q5") for text in ("heads 3.0 and 1.2", "(1,2), (3,0)", "L1H2, and head 0 of layer 3")),
        *((text, "q4") for text in ("0.8470", ".847", "84.7%", "84.7 %", "8.47e-1", "0.84700")),
    ],
)  # fmt: skip
def test_a_value_is_seen_in_any_notation_and_by_way_of_a_variable(tmp_path, text, question, kind):
    shown = f"# It is {text}, as we saw." if kind == "code" else f"It is {text}, as we saw."
    with pytest.raises(AnswerError, match=f"of {question} is left in cell 1, as "):
        handed_out(tmp_path, source(cell(shown, kind=kind), VALUES))
    assert not (tmp_path / "s.ipynb").exists()


@pytest.mark.parametrize(
    "text",
    ["layer 9, head 5", "(9, 5)", "9.5", "15.9", "5.91", "(5, 9, 1)", "L15H9", "5, 6, 12",
     "head 5 of layer 9", "0.84", "0.0847", "10.847", "84.8%", "1, 2, 3, 4, 5", "version 1.5.9",
     "x5.9", "q5, q6, q11", "`x[5, 9]`", "`f(5, 9)`",
     "head 1.2"],
)  # fmt: skip
def test_another_value_may_stay(tmp_path, text):
    handed_out(tmp_path, source(cell(f"It is {text}, as we saw.", kind="markdown"), VALUES))


def png(kind, content):
    chunk = len(content).to_bytes(4, "big") + kind + content + b"\0\0\0\0"
    return base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0\0\0\x02IDAT5.\0\0\0\0" + chunk).decode()


TEXT = b"Comment\0head L5H9"
PACKED = b"Comment\0\0" + zlib.compress(b"head L5H9")
INTERNATIONAL = b"Comment\0\1\0en\0\0" + zlib.compress(b"head L5H9")
JPEG = base64.b64encode(b"\xff\xd8\xff\xfe\0\x20by head L5H9\xff\xd9").decode()


@pytest.mark.parametrize(
    ("kind", "picture"),
    [("png", png(b"tEXt", TEXT)), ("png", png(b"zTXt", PACKED)), ("png", png(b"iTXt", INTERNATIONAL)),
     ("jpeg", JPEG)],
)  # fmt: skip
def test_text_in_a_picture_is_searched(tmp_path, kind, picture):
    output = {"output_type": "display_data", "metadata": {}, "data": {f"image/{kind}": picture}}
    with pytest.raises(AnswerError, match="left in the output of cell 1, as 'L5H9'"):
        handed_out(tmp_path, source(cell("x", outputs=[output]), VALUES), outputs=True)
    attached = cell("![a](attachment:a)", kind="markdown") | {
        "attachments": {"a": {f"image/{kind}": picture}}
    }
    with pytest.raises(AnswerError, match="left in the attachments of cell 1"):
        handed_out(tmp_path, source(attached, VALUES))


@pytest.mark.parametrize(
    "part",
    [
        {"text": ["x\n", "L5H9\n"]},
        {"data": {"text/html": "<b>L5H9</b>"}},
        {"data": {"application/json": {"L5H9": 1}}},
        {"data": {"application/json": {"a": 0.847}}},
        {"data": {}, "metadata": {"a": "L5H9"}},
    ],
)
def test_outputs_are_searched_with_their_metadata(tmp_path, part):
    output = {"output_type": "display_data", "metadata": {}, **part}
    with pytest.raises(AnswerError, match="left in the output of cell 1"):
        handed_out(tmp_path, source(cell("x", outputs=[output]), VALUES), outputs=True)


@pytest.mark.parametrize(("text", "is_left"), [("0.102", False), ("0.1017", True), ("0.10168", True)])
def test_a_number_that_outputs_round_is_searched_for_by_four_digits(tmp_path, text, is_left):
    made = source(cell("x", outputs=[printed(text)]), cell("q1.answer = 0.101675", "solution"))
    if is_left:
        with pytest.raises(AnswerError, match=f"left in the output of cell 1, as '{text}'"):
            handed_out(tmp_path, made, outputs=True)
    else:
        handed_out(tmp_path, made, outputs=True)
        prose = source(cell(f"It is {text}.", kind="markdown"), made["cells"][1])
        with pytest.raises(AnswerError, match=f"left in cell 1, as '{text}'"):
            handed_out(tmp_path, prose)


def test_the_metadata_that_stays_is_searched(tmp_path):
    made = source(VALUES)
    made["metadata"]["kernelspec"] = {"name": "python3", "display_name": "Python for L5H9"}
    with pytest.raises(AnswerError, match="left in the notebook's metadata"):
        handed_out(tmp_path, made)


def test_feedback_is_refused_unless_it_is_allowed(tmp_path):
    asked = cell("q1 = aw.ask.number('?', id='q1', feedback={4: 'Right!'})")
    with pytest.raises(AnswerError, match="feedback= tells the answer in cell 1"):
        handed_out(tmp_path, source(asked))
    assert len(handed_out(tmp_path, source(asked), allow=["feedback"])["cells"]) == 1


def test_answers_that_the_source_computes_are_named_and_searched_for_by_the_key(tmp_path):
    made = source(
        cell("It is L5H9.", kind="markdown"),
        cell("q1.answer = best(trace)\nq2.answer = 'LRP'", "solution"),
        cell("key = {'q1': aw.course.key_of('q1', scores), 'q2': aw.course.exact('LRP')}", "key"),
    )
    with pytest.warns(UserWarning, match="answers of q1 are computed: their values were not"):
        handed_out(tmp_path, made)
    key = {"q1": course.exact((5, 9)), "q2": course.exact("LRP")}
    with pytest.raises(AnswerError, match=r"answer \(5, 9\) of q1 is left in cell 1, as 'L5H9'"):
        handed_out(tmp_path, made, key=course.write_key(key, tmp_path / "key.json"))
    handed_out(tmp_path, made, key=key, allow=["L5H9"])


def test_the_answers_of_a_list_are_searched_for(tmp_path):
    heads = cell("heads = [(3, 0), (5, 9)]\nkey = {'q1': aw.course.any_of(*heads)}", "key")
    with pytest.raises(AnswerError, match="of q1 is left in cell 1, as 'L5H9'"):
        handed_out(tmp_path, source(cell("It is L5H9.", kind="markdown"), heads))
    computed = cell("key = {'q1': aw.course.any_of(*best(trace))}", "key")
    with pytest.warns(UserWarning, match="answers of q1 are computed"):
        handed_out(tmp_path, source(cell("It is L5H9.", kind="markdown"), computed))


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
