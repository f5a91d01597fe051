"""The file of answers: beside the notebook, whoever runs it; no answer is lost."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stdout

import pytest

import attnwidgets as aw
from attnwidgets.course.sidecar import read_sidecar


def saved(path):
    return {name: record["value"] for name, record in read_sidecar(path).records.items()}


def test_answers_are_kept_beside_the_notebook_and_read_again(folder, notebook):
    asked = aw.ask.number("How many?", id="q")
    asked.answer = 6
    assert saved(folder / "homework.answers.json") == {"q": 6}
    assert "homework.answers.json" in asked.options["question"]["saved"]
    again = aw.ask.number("How many?", id="q")
    assert again.answer == 6
    assert again.receipt == asked.receipt


def test_vs_code_says_the_name_in_the_notebooks_names(folder, monkeypatch):
    import types

    from attnwidgets.ask import keeping

    shell = types.SimpleNamespace(user_ns={"__vsc_ipynb_file__": str(folder / "in code.ipynb")})
    monkeypatch.setattr(keeping, "running_shell", lambda: shell)
    assert keeping.answers_path().name == "in code.answers.json"


def test_a_renamed_notebook_finds_its_answers_and_says_so(folder, notebook):
    aw.ask.number("How many?", id="q").answer = 6
    (folder / "homework.ipynb").rename(folder / "mine.ipynb")
    notebook("mine.ipynb")
    again = aw.ask.number("How many?", id="q")
    assert again.answer == 6
    assert "Rename it to mine.answers.json" in again.options["question"]["problem"]
    again.answer = 7
    assert saved(folder / "mine.answers.json") == {"q": 7}
    assert saved(folder / "homework.answers.json") == {"q": 6}


def test_the_answers_of_another_notebook_are_not_taken(folder, notebook):
    aw.ask.number("How many?", id="q").answer = 6
    notebook("other.ipynb")  # the first is still there
    assert aw.ask.number("How many?", id="q").answer is None


def test_an_autograder_that_knows_no_name_finds_the_only_file(folder, notebook, monkeypatch):
    aw.ask.number("How many?", id="q").answer = 6
    monkeypatch.delenv("JPY_SESSION_NAME")
    again = aw.ask.number("How many?", id="q")
    assert again.answer == 6
    again.answer = 8
    assert saved(folder / "homework.answers.json") == {"q": 8}
    assert not (folder / "answers.json").exists()


def test_two_files_that_disagree_are_named_and_none_is_taken(folder, notebook, monkeypatch):
    for name, value in (("one.ipynb", 1), ("two.ipynb", 2)):
        notebook(name)
        aw.ask.number("How many?", id="q").answer = value
    monkeypatch.delenv("JPY_SESSION_NAME")
    again = aw.ask.number("How many?", id="q")
    assert again.answer is None
    assert "one.answers.json, two.answers.json have different answers" in again.options["question"]["problem"]


def test_an_answer_about_another_text_is_refused_and_kept_aside(folder, notebook, traced):
    aw.ask.head("Which?", view=traced(), id="q").answer = (1, 1)
    other = aw.ask.head("Which?", view=traced(["a", "b", "c", "d", "e", "f"]), id="q")
    assert other.answer is None
    assert "about another model or text" in other.options["question"]["problem"]
    other.answer = (0, 0)
    assert saved(folder / "homework.answers.json") == {"q": [0, 0]}
    assert saved(folder / "homework.answers.json.earlier-1") == {"q": [1, 1]}


def test_an_answer_of_another_kind_is_refused(notebook):
    asked = aw.ask.number("How many?", id="q")
    asked.answer = 6
    asked.close()
    other = aw.ask.text("Why?", id="q")
    assert other.answer is None
    assert "another kind (number)" in other.options["question"]["problem"]


def test_an_answer_that_is_no_option_any_more_is_left_out(notebook):
    aw.ask.choice("Which?", id="q", options=["a", "b"]).answer = "b"
    assert aw.ask.choice("Which?", id="q", options=["a", "c"]).answer is None


DEEP = '{"v": 1, "answers": {"q": ' + "[" * 600 + "]" * 600 + "}}"


@pytest.mark.parametrize("damage", ["{", "[]", '{"v": 1, "answers": 3}', '{"v": 9, "answers": {}}', DEEP])
def test_a_damaged_file_is_said_and_never_lost(folder, notebook, damage):
    path = folder / "homework.answers.json"
    path.write_text(damage)
    asked = aw.ask.number("How many?", id="q")
    assert asked.answer is None
    assert "homework.answers.json" in asked.options["question"]["problem"]
    asked.answer = 6
    assert asked.answer == 6
    assert asked.receipt
    assert damage in {file.read_text() for file in folder.iterdir() if file.suffix != ".ipynb"}


def test_an_edited_record_is_not_taken(folder, notebook):
    aw.ask.number("How many?", id="q").answer = 6
    path = folder / "homework.answers.json"
    contents = json.loads(path.read_text())
    contents["answers"]["q"]["value"] = "six"
    path.write_text(json.dumps(contents))
    asked = aw.ask.number("How many?", id="q")
    assert asked.answer is None
    assert "'six'" in asked.options["question"]["problem"]


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root writes everywhere")
def test_a_folder_that_cannot_be_written_leaves_answer_and_receipt(folder, notebook):
    folder.chmod(0o500)
    try:
        _refused()
    finally:
        folder.chmod(0o700)


def test_a_disk_that_refuses_leaves_answer_and_receipt(folder, notebook, monkeypatch):
    def refuse(*_):
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("attnwidgets.course.sidecar.write_bytes", refuse)
    _refused()


def _refused():
    asked = aw.ask.number("How many?", id="q")
    asked.answer = 6
    assert asked.answer == 6
    assert "receipt can be handed in" in asked.options["question"]["problem"]
    assert asked.options["question"]["saved"] == ""
    assert aw.course.decode(asked.receipt)["value"] == 6


def test_two_questions_with_one_id_are_refused_by_name():
    first = aw.ask.number("How many heads?", id="q")
    first.answer = 12
    with pytest.raises(ValueError, match="id='q' is the question 'How many heads"):
        aw.ask.number("How many layers?", id="q")
    assert first.answer == 12
    assert aw.ask.number("How many heads?", id="q").answer == 12  # the same again
    first.close()


def other_seed():
    """A seed by which a string's hash differs from here."""
    code = "print(hash('head'))"
    for seed in "01":
        environment = os.environ | {"PYTHONHASHSEED": seed}
        said = subprocess.check_output([sys.executable, "-c", code], env=environment, text=True)
        if int(said) != hash("head"):
            return seed
    raise AssertionError("hashes do not depend on the seed")


SUBJECT = """import attnwidgets as aw
trace = aw.trace(*aw.demo_model("encoder"), "The cat sat.")
asked = aw.ask.head("Which?", view=trace, id="q")
asked.answer = (0, 2)
print(asked.receipt)"""


@pytest.mark.slow
def test_receipts_are_equal_between_runs(minilm, folder):
    elsewhere = subprocess.run(
        [sys.executable, "-c", SUBJECT],
        env=os.environ | {"PYTHONHASHSEED": other_seed(), "OMP_NUM_THREADS": "2"},
        cwd=folder,
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (folder / "answers.json").unlink()
    with redirect_stdout(io.StringIO()) as here:
        exec(SUBJECT, {})
    assert here.getvalue() == elsewhere


@pytest.mark.slow
def test_the_subject_is_of_model_text_and_interventions(minilm):
    import torch

    from attnwidgets.ask.given import subject_of_view

    model, tokenizer = minilm

    def subject(text="The cat sat.", model=model):
        return subject_of_view(aw.Explorer(aw.trace(model, tokenizer, text)))

    first = subject()
    assert first == subject()
    assert first != subject("The cat ran.")
    with aw.ablate_heads(model, [(0, 1)]):
        assert first != subject()
    weight = next(model.parameters())
    with torch.no_grad():
        before = weight[0, 0].item()
        weight[0, 0] += 1
        assert first != subject()
        weight[0, 0] = before
    assert first == subject()
