"""Answers are read wherever they were left, without running anything."""

from __future__ import annotations

import json
import warnings
import zipfile

import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.records import MIME, make_record

from .made import HEAD, NUMBER, ORDER, OTHER_HEAD, RECEIPT, UNANSWERED, notebook, sidecar, values, write

BOTH = {"q1": [5, 9], "q2": 0.847}


@pytest.fixture(autouse=True)
def _warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def test_outputs_alone(tmp_path):
    answers = aw.course.read_answers(write(tmp_path / "ps1.ipynb", notebook("# 1", [HEAD], [NUMBER])))
    assert values(answers) == BOTH
    assert answers["q1"].value == answers["q1"]["value"] == [5, 9]
    assert answers.notes == []


def test_an_unanswered_question_is_none_of_the_answers(tmp_path):
    path = write(tmp_path / "ps1.ipynb", notebook([HEAD], [UNANSWERED]))
    assert values(aw.course.read_answers(path)) == {"q1": [5, 9]}


def test_outputs_that_were_cleared_and_the_file_beside_the_notebook(tmp_path):
    write(tmp_path / "ps1.answers.json", sidecar(HEAD, NUMBER))
    assert values(aw.course.read_answers(write(tmp_path / "ps1.ipynb", notebook([], [])))) == BOTH
    assert values(aw.course.read_answers(write(tmp_path / "ps1.py", "# In[1]:\nq1"))) == BOTH
    assert values(aw.course.read_answers(tmp_path / "ps1.answers.json")) == BOTH


def test_the_file_where_a_name_cannot_be_known(tmp_path):
    write(tmp_path / "answers.json", sidecar(HEAD, NUMBER))
    assert values(aw.course.read_answers(write(tmp_path / "Untitled.ipynb", notebook([UNANSWERED])))) == BOTH


def test_beside_two_notebooks_a_file_of_neither_name_counts_for_neither(tmp_path):
    write(tmp_path / "ada" / "answers.json", sidecar(HEAD, NUMBER))
    write(tmp_path / "ada" / "a.ipynb", notebook([make_record("q1", "head", None)]))
    write(tmp_path / "ada" / "b.ipynb", notebook([UNANSWERED]))
    with pytest.warns(UserWarning, match=r"ada/answers\.json: no notebook of its folder has its name"):
        read = aw.course.read_answers(tmp_path)
    assert {name: values(answers) for name, answers in read.items()} == {
        "ada/a.ipynb": {},
        "ada/answers.json": BOTH,
        "ada/b.ipynb": {},
    }


def test_the_file_counts_before_the_output_and_both_are_named(tmp_path):
    write(tmp_path / "ps1.answers.json", sidecar(OTHER_HEAD))
    path = write(tmp_path / "ps1.ipynb", notebook([HEAD], [NUMBER]))
    with pytest.warns(UserWarning, match=r"'q1' has two answers: '\[0,1\]' in ps1.answers.json.*cell 1"):
        answers = aw.course.read_answers(path)
    assert values(answers) == {"q1": [0, 1], "q2": 0.847}


def test_two_cells_with_one_id_are_named(tmp_path):
    path = write(tmp_path / "ps1.ipynb", notebook([HEAD], [OTHER_HEAD]))
    with pytest.warns(UserWarning, match="two answers.*cell 2, which counts.*cell 1"):
        answers = aw.course.read_answers(path)
    assert answers["q1"] == OTHER_HEAD
    assert len(answers.notes) == 1


def test_the_same_answer_in_three_places_is_one(tmp_path):
    write(tmp_path / "ps1.answers.json", sidecar({**HEAD, "package": "0.0.9"}))
    path = write(tmp_path / "ps1.ipynb", notebook(f"My receipt: {RECEIPT}.", [HEAD]))
    assert values(aw.course.read_answers(path)) == {"q1": [5, 9]}


def test_a_renamed_notebook_finds_its_file_and_says_so(tmp_path):
    write(tmp_path / "ps1.answers.json", sidecar(HEAD))
    path = write(tmp_path / "ps1_ada (2).ipynb", notebook([]))
    with pytest.warns(UserWarning, match=r"ps1.answers.json is read, too: .* renamed"):
        assert values(aw.course.read_answers(path)) == {"q1": [5, 9]}


def test_a_file_that_was_downloaded_again_belongs_to_its_notebook(tmp_path):
    write(tmp_path / "ps1.ipynb", notebook([]))
    write(tmp_path / "ps1.answers (1).json", sidecar(HEAD))
    assert values(aw.course.read_answers(tmp_path / "ps1.ipynb")) == {"q1": [5, 9]}
    write(tmp_path / "ps1.answers.json", sidecar(OTHER_HEAD))
    with pytest.warns(UserWarning, match="two answers"):
        assert aw.course.read_answers(tmp_path)["ps1.ipynb"]["q1"] == OTHER_HEAD


def test_a_file_of_another_notebook_is_not_taken(tmp_path):
    write(tmp_path / "ps1.answers.json", sidecar(HEAD))
    write(tmp_path / "ps1.ipynb", notebook([]))
    assert values(aw.course.read_answers(write(tmp_path / "ps2.ipynb", notebook([NUMBER])))) == {"q2": 0.847}


def test_receipts_in_pages_texts_and_scripts(tmp_path):
    page = f"<html><p>{RECEIPT[:20]}<wbr>{RECEIPT[20:]}</p><p>aw1.html</p></html>"
    assert values(aw.course.read_answers(write(tmp_path / "a.html", page))) == {"q1": [5, 9]}
    assert values(aw.course.read_answers(write(tmp_path / "b.txt", f"Ada:\n{RECEIPT}"))) == {"q1": [5, 9]}
    script = f"# # Question\n# {RECEIPT}\nprint('never run')\nraise SystemExit"
    assert values(aw.course.read_answers(write(tmp_path / "c.py", script))) == {"q1": [5, 9]}
    (tmp_path / "d.txt").write_text(RECEIPT, encoding="utf-16")
    assert values(aw.course.read_answers(tmp_path / "d.txt")) == {"q1": [5, 9]}


def test_an_edited_receipt_is_named_and_the_others_count(tmp_path):
    changed = RECEIPT[:30] + "A" + RECEIPT[31:]
    path = write(tmp_path / "a.txt", f"{changed}\n{aw.course.receipt(NUMBER)}")
    with pytest.warns(UserWarning, match="a.txt: the receipt was changed"):
        assert values(aw.course.read_answers(path)) == {"q2": 0.847}


def test_an_output_of_a_later_version_is_named_with_what_to_do(tmp_path):
    path = write(tmp_path / "ps1.ipynb", notebook([{**HEAD, "v": 7}], [NUMBER]))
    with pytest.warns(UserWarning, match="cell 1: .*'q1' is of version 7.*pip install"):
        answers = aw.course.read_answers(path)
    assert values(answers) == {"q2": 0.847}
    assert "version 7" in answers.refused["q1"]


def test_a_table_has_a_row_a_student(tmp_path):
    path = write(
        tmp_path / "form.csv", f"name,first,second\nAda,{RECEIPT},\nBo,no idea,{aw.course.receipt(NUMBER)}\n"
    )
    read = aw.course.read_answers(path)
    assert {name: values(item) for name, item in read.items()} == {"Ada": {"q1": [5, 9]}, "Bo": {"q2": 0.847}}


def test_an_archive_is_one_submission_or_several(tmp_path):
    packed = tmp_path / "one.zip"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("work/ps1.ipynb", json.dumps(notebook([], [NUMBER])))
        archive.writestr("work/ps1.answers.json", json.dumps(sidecar(HEAD)))
        archive.writestr("__MACOSX/hw/._ps1.ipynb", b"\x00")
    assert values(aw.course.read_answers(packed)) == BOTH
    several = tmp_path / "all.zip"
    with zipfile.ZipFile(several, "w") as archive:
        for name, record in (("ada", HEAD), ("bo", OTHER_HEAD)):
            archive.writestr(f"{name}/ps1.ipynb", json.dumps(notebook([record])))
    assert sorted(aw.course.read_answers(several)) == ["ada/ps1.ipynb", "bo/ps1.ipynb"]
    read = aw.course.read_answers(tmp_path)
    assert sorted(read) == ["all.zip/ada/ps1.ipynb", "all.zip/bo/ps1.ipynb", "one.zip"]


def test_a_folder_gives_every_submission_and_names_what_is_damaged(tmp_path):
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD], [ORDER]))
    write(tmp_path / "bo" / "ps1.ipynb", "{ half a note")
    write(tmp_path / "cy" / "ps1.html", f"<p>{RECEIPT}</p>")
    write(tmp_path / "dee" / "ps1.ipynb", notebook([]))
    write(tmp_path / "dee" / "ps1.answers.json", "{")
    write(tmp_path / "dee" / "helper.py", "print(1)")
    write(tmp_path / "dee" / "data.json", "{}")
    write(tmp_path / ".ipynb_checkpoints" / "ps1.ipynb", notebook([OTHER_HEAD]))
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        read = aw.course.read_answers(tmp_path)
    assert {name: set(item) for name, item in read.items()} == {
        "ada/ps1.ipynb": {"q1", "q3"},
        "bo/ps1.ipynb": set(),
        "cy/ps1.html": {"q1"},
        "dee/ps1.ipynb": set(),
    }
    text = " ".join(str(item.message) for item in said)
    assert "bo/ps1.ipynb: ps1.ipynb cannot be read: it is not JSON" in text
    assert "ps1.answers.json is damaged" in text


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("ps1.ipynb", "{", "not JSON"),
        ("ps1.ipynb", "{}", "without the cells"),
        ("ps1.pdf", "", "cannot hold answers"),
        ("ps1.zip", "no archive", "not a zip archive"),
        ("ps1.json", "[1]", "not a file of answers"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error_with_its_name(tmp_path, name, content, words):
    with pytest.raises(AnswerError, match=f"{name}.*{words}"):
        aw.course.read_answers(write(tmp_path / name, content))
    with pytest.raises(FileNotFoundError, match=r"gone\.ipynb"):
        aw.course.read_answers(tmp_path / "gone.ipynb")


def test_hostile_outputs_are_named_and_nothing_is_run(tmp_path):
    made = notebook([{"id": "<script>", "v": 1}], [None], [[1, 2]], [NUMBER])
    made["cells"] += [
        None,
        {"cell_type": "code", "outputs": 3},
        {"cell_type": "code", "outputs": [1, {"data": 2}]},
    ]
    made["cells"].append(
        {"cell_type": "code", "outputs": [{"data": {MIME: json.dumps(HEAD)}}], "source": "exit()"}
    )
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        answers = aw.course.read_answers(write(tmp_path / "ps1.ipynb", made))
    assert [f"cell {number}" in str(item.message) for number, item in enumerate(said, 1)] == [True] * 3
    assert values(answers) == BOTH
    assert "<script" not in answers._repr_html_()


@pytest.mark.slow
def test_converted_to_html_and_to_a_script_by_nbconvert(tmp_path):
    nbconvert = pytest.importorskip("nbconvert", reason="pip install nbconvert (make test does it)")
    nbformat = pytest.importorskip("nbformat")
    made = notebook("# 1", [HEAD])
    made["cells"][1]["outputs"][0]["data"]["text/html"] = f"<p>5.9<br><code>{RECEIPT}</code></p>"
    node = nbformat.from_dict(made)
    page, _ = nbconvert.HTMLExporter(embed_images=True).from_notebook_node(node)
    assert MIME not in page
    assert values(aw.course.read_answers(write(tmp_path / "page" / "ps1.html", page))) == {"q1": [5, 9]}
    script, _ = nbconvert.PythonExporter().from_notebook_node(node)
    write(tmp_path / "script" / "ps1.answers.json", sidecar(HEAD))
    assert values(aw.course.read_answers(write(tmp_path / "script" / "ps1.py", script))) == {"q1": [5, 9]}
    assert [path.name for path in (tmp_path / "page").iterdir()] == ["ps1.html"]
