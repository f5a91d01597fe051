"""Submissions of strangers: none takes another's marks, stops the class or costs another student anything."""

from __future__ import annotations

import base64
import contextlib
import csv
import io
import json
import os
import struct
import time
import warnings
import zipfile
import zlib

import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading import folders
from attnwidgets.course.records import make_record
from attnwidgets.course.sidecar import read_sidecar, write_answer

from .made import HEAD, NUMBER, OTHER_HEAD, RECEIPT, UNANSWERED, notebook, sidecar, values, write

course = aw.course
KEY = {"q1": course.exact((5, 9)), "q2": course.overlap((3, 6))}
ASKED = notebook([make_record("q1", "head", None)])
DEEP = "[" * 600 + "]" * 600


@pytest.fixture(autouse=True)
def _warnings_stay_quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def points(folder):
    return {name: grades["q1"].points for name, grades in course.grade_class(folder, KEY).items()}


def notes(folder):
    return [note for answers in course.read_answers(folder).values() for note in answers.notes]


def zipped(path, *files):
    path.parent.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")  # of two files with the same name
        for name, content in files:
            archive.writestr(name, content if isinstance(content, str) else json.dumps(content))
    return path


# -- whose answer it is --------------------------------------------------------------------------------


def test_rows_of_a_table_are_named_by_the_path_of_the_table(tmp_path):
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD]))
    write(tmp_path / "mallory" / "x.csv", f"ada/ps1.ipynb,{course.receipt(OTHER_HEAD)}\n")
    write(tmp_path / "form.csv", f"mallory,{RECEIPT}\n")
    assert points(tmp_path) == {"ada/ps1.ipynb": 1, "mallory/x.csv/ada/ps1.ipynb": 0, "form.csv/mallory": 1}


def test_rows_that_begin_alike_are_told_apart_and_noted(tmp_path):
    rows = [f"ada,{RECEIPT}", f"ada (row 1),{RECEIPT}", f"ada,{course.receipt(OTHER_HEAD)}"]
    read = course.read_answers(write(tmp_path / "form.csv", "\n".join(rows)))
    assert {name: values(answers) for name, answers in read.items()} == {
        "ada (row 1) (row 1)": {"q1": [5, 9]},
        "ada (row 1) (row 2)": {"q1": [5, 9]},
        "ada (row 3)": {"q1": [0, 1]},
    }
    assert all("another row begins with" in " ".join(answers.notes) for answers in read.values())


def test_of_two_submissions_with_one_name_neither_counts_and_both_are_named(tmp_path):
    rows = f"a.ipynb,{RECEIPT}\n"
    path = zipped(tmp_path / "all.zip", ("x.csv", rows), ("x.csv/a.ipynb", notebook([OTHER_HEAD])))
    read = course.read_answers(path)
    assert values(read) == {}
    files = "x.csv/a.ipynb, the output of cell 1 and x.csv, row 1"
    assert read.notes == [f"x.csv/a.ipynb: two submissions have this name ({files}), and neither counts"]
    twice = zipped(tmp_path / "twice.zip", ("ps1.ipynb", notebook([HEAD])), ("ps1.ipynb", ASKED))
    read = course.read_answers(twice)
    assert values(read) == {}
    assert read.notes == ["ps1.ipynb: two files have this name, and neither counts"]


def test_links_are_not_followed(tmp_path):
    secret = write(tmp_path / "elsewhere" / "key.answers.json", sidecar(HEAD))
    root = tmp_path / "class"
    write(root / "ada" / "ps1.ipynb", notebook([HEAD]))
    write(root / "ada" / "ps1.answers.json", sidecar(HEAD))
    for name, target in (("bo", "../ada/ps1.answers.json"), ("cy", secret)):
        write(root / name / "ps1.ipynb", ASKED)
        (root / name / "ps1.answers.json").symlink_to(target)
    (root / "dee").symlink_to(root / "ada")
    (root / "eve").mkdir()
    (root / "eve" / "ps1.ipynb").symlink_to("../ada/ps1.ipynb")
    assert points(root) == {
        "ada/ps1.ipynb": 1,
        "bo/ps1.ipynb": 0,
        "cy/ps1.ipynb": 0,
        "dee": 0,
        "eve/ps1.ipynb": 0,
    }
    assert len([note for note in notes(root) if "it is a link, which is not followed" in note]) == 4
    with pytest.raises(AnswerError, match=r"ps1\.ipynb: it is a link"):
        course.read_answers(root / "eve" / "ps1.ipynb")


@pytest.mark.parametrize("name", ["answers.json", "ada.answers.json", "answers (1).json"])
def test_in_a_flat_folder_a_file_of_answers_counts_for_no_notebook_of_another_name(tmp_path, name):
    write(tmp_path / "bo.ipynb", ASKED)
    write(tmp_path / name, sidecar(HEAD))
    assert points(tmp_path) == {"bo.ipynb": 0, name: 1}
    assert "no notebook of its folder has its name" in " ".join(notes(tmp_path))
    write(tmp_path / "cy.ipynb", ASKED)
    assert points(tmp_path) == {"bo.ipynb": 0, "cy.ipynb": 0, name: 1}


def test_in_a_folder_of_its_student_a_file_of_answers_belongs_to_the_only_notebook(tmp_path):
    write(tmp_path / "ada" / "Untitled.ipynb", ASKED)
    write(tmp_path / "ada" / "answers.json", sidecar(HEAD))
    assert points(tmp_path) == {"ada/Untitled.ipynb": 1}
    assert notes(tmp_path) == []


def test_who_handed_in_without_an_answer_has_a_row(tmp_path):
    write(tmp_path / "ada" / "ps1.answers.json", sidecar())
    zipped(tmp_path / "bo.zip", ("report.md", "nothing"))
    write(tmp_path / "cy" / "PS1.IPYNB", notebook([]))
    assert set(points(tmp_path)) == {"ada/ps1.answers.json", "bo.zip", "cy/PS1.IPYNB"}


def test_a_name_that_is_not_utf_8_can_be_shown_and_written(tmp_path):
    write(tmp_path / "class" / "ada.ipynb", notebook([HEAD]))
    try:
        write(tmp_path / "class" / os.fsdecode(b"b\xff.ipynb"), notebook([HEAD]))
    except OSError:
        pytest.skip("this file system has only names in UTF-8")
    grades = course.grade_class(tmp_path / "class", KEY)
    assert list(grades) == ["ada.ipynb", r"b\xff.ipynb"]
    assert grades[r"b\xff.ipynb"]["q1"].points == 1
    assert grades.to_csv(tmp_path / "grades.csv").exists()


def test_archives_of_students_within_the_archive_of_a_class_are_read(tmp_path):
    inner = zipped(tmp_path / "inner.zip", ("ps1.ipynb", notebook([HEAD]))).read_bytes()
    with zipfile.ZipFile(tmp_path / "class.zip", "w") as archive:
        archive.writestr("ada.zip", inner)
        archive.writestr("bo/ps1.ipynb", json.dumps(ASKED))
    assert points(tmp_path / "class.zip") == {"bo/ps1.ipynb": 0, "ada.zip": 1}


# -- evidence of a mark ------------------------------------------------------------------------------


def test_evidence_lists_the_file_the_answer_and_the_time_of_every_mark(tmp_path):
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD], [make_record("q2", "span", (3, 6))]))
    write_answer(tmp_path / "ada" / "ps1.answers.json", HEAD)
    os.utime(tmp_path / "ada" / "ps1.ipynb", (86_400, 86_400))
    write(tmp_path / "form.csv", f"name,receipt\nbo,{RECEIPT}\n")
    grades = course.grade_class(tmp_path, KEY)
    first, second, third, fourth = grades.evidence.to_rows()
    when = read_sidecar(tmp_path / "ada" / "ps1.answers.json").answered["q1"]
    assert when.startswith(time.strftime("%Y-", time.gmtime()))
    assert first == {
        "submission": "ada/ps1.ipynb",
        "question": "q1",
        "answer": "[5,9]",
        "points": 1.0,
        "file": "ada/ps1.answers.json",
        "part": "",
        "answered": when,
        "saved": first["saved"],
        "reason": "",
    }
    assert (second["file"], second["part"]) == ("ada/ps1.ipynb", "the output of cell 2")
    assert (second["answered"], second["saved"]) == ("", "1970-01-02 00:00 UTC")
    assert (third["submission"], third["file"], third["part"]) == ("form.csv/bo", "form.csv", "row 2")
    assert (fourth["answer"], fourth["reason"]) == (None, "not answered")
    assert "ada/ps1.answers.json" in grades.evidence._repr_html_()
    of_one = grades["ada/ps1.ipynb"].evidence.to_rows()
    assert [row["file"] for row in of_one] == ["ada/ps1.answers.json", "ada/ps1.ipynb"]
    assert "submission" not in of_one[0]
    archive = zipped(tmp_path / "zip" / "cy.zip", ("ps1.ipynb", notebook([HEAD])))
    source = course.read_answers(archive).sources["q1"]
    assert str(source) == "ps1.ipynb, the output of cell 1"
    assert source.saved.startswith(time.strftime("%Y-"))


def test_the_time_of_an_answer_changes_with_the_answer_alone(tmp_path, monkeypatch):
    path = tmp_path / "ps1.answers.json"
    now = time.gmtime
    for day, record in ((1, HEAD), (2, NUMBER), (3, HEAD), (4, UNANSWERED), (5, OTHER_HEAD)):
        monkeypatch.setattr(time, "gmtime", lambda day=day: now(day * 86_400))
        write_answer(path, record)
        if day == 3:
            assert read_sidecar(path).answered == {"q1": "1970-01-02 00:00 UTC", "q2": "1970-01-03 00:00 UTC"}
    assert read_sidecar(path).answered == {"q1": "1970-01-06 00:00 UTC"}


# -- boundaries and budgets ----------------------------------------------------------------------


def broken_zip():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("ps1.ipynb", json.dumps(notebook([HEAD])) * 40)
    data = bytearray(buffer.getvalue())
    for at in range(40, 99):
        data[at] ^= 0x5A
    return bytes(data)


def renamed_zip(name, raw, needs=20):
    """An archive whose name is replaced by bytes, and whose least version to unpack it by a number."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr(name, json.dumps(notebook([HEAD])))
    data = bytearray(buffer.getvalue().replace(name.encode(), raw))
    at = data.rfind(b"PK\x01\x02")
    data[at + 6 : at + 8] = struct.pack("<H", needs)
    return bytes(data)


def output(text):
    mime = "application/vnd.attnwidgets.answer+json"
    return '{"cells":[{"cell_type":"code","outputs":[{"data":{"%s":%s}}]}]}' % (mime, text)  # noqa: UP031


def receipt_of(text):
    body = base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")
    return f"aw1.{body}.{zlib.crc32(body.encode()) & 0xFFFFFF:06x}"


RECORD = '{"v":1,"id":"q2","kind":"span","package":"0","value":%s}'
HOSTILE = {
    "broken deflate": ("ps1.zip", broken_zip(), "damaged archive"),
    "version 9.9": ("ps1.zip", renamed_zip("a.ipynb", b"a.ipynb", 99), "zip file version 9.9"),
    "a name that is no UTF-8": ("ps1.zip", renamed_zip("aé.ipynb", b"a\xff\xfe.ipynb"), "damaged archive"),
    "no zip": ("ps1.zip", b"", "not a zip archive"),
    "a deep value": ("ps1.ipynb", output(RECORD % DEEP), "more than 100 lists"),
    "a deep record": ("ps1.ipynb", output(DEEP), "more than 100 lists"),
    "a deep record as text": ("ps1.ipynb", output(json.dumps("[" * 100_000)), "is not the record"),
    "deep answers": ("ps1.answers.json", f'{{"v":1,"answers":{{"q1":{DEEP}}}}}', "more than 100 lists"),
    "a deep receipt": ("ps1.txt", receipt_of(RECORD % DEEP), "more than 100 lists"),
    "a long field": ("form.csv", "name\n" + "y" * 11_000_000, "damaged table"),
    "a long span": ("ps1.ipynb", output(RECORD % "[0, 1000000000000]"), "more than an answer can hold"),
    "many names": (
        "ps1.ipynb",
        output(RECORD.replace("span", "order") % json.dumps([list(range(20_000))])),
        "more than an answer can hold",
    ),
    "many outputs": (
        "ps1.ipynb",
        notebook([make_record("q1", "head", (5, number)) for number in range(20_000)]),
        "more than 2,000 answers",
    ),
    "many receipts": ("ps1.txt", "aw1.QUJD.000000 " * 3000, "more than 2,000 answers"),
    "many values": ("ps1.ipynb", '{"cells": [' + "[]," * 11_000_000 + "1]}", "more than 10,000,000 values"),
}  # fmt: skip


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_submission_is_a_note_of_its_student_and_the_others_count(tmp_path, name):
    file, content, words = HOSTILE[name]
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD]))
    write(tmp_path / "zoe" / "ps1.ipynb", notebook([HEAD]))
    path = tmp_path / "mallory" / file
    path.parent.mkdir()
    if isinstance(content, dict):
        content = json.dumps(content)
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    limit = csv.field_size_limit()
    start = time.process_time()
    graded = course.grade_class(tmp_path, KEY)
    assert time.process_time() - start < 5
    assert csv.field_size_limit() == limit
    assert [graded[f"{who}/ps1.ipynb"]["q1"].points for who in ("ada", "zoe")] == [1, 1]
    (other,) = [name for name in graded if "mallory" in name]
    assert words in " ".join(graded[other].notes)
    assert len(graded[other].notes) <= 21
    with contextlib.suppress(AnswerError):  # and nothing else
        course.read_answers(path)


def test_whatever_a_file_raises_hides_neither_the_answers_beside_it_nor_other_students(tmp_path, monkeypatch):
    from attnwidgets.course.reading import read_answers

    def fails(data, into):
        if b"fail" in data:
            raise OverflowError("for no reason")
        return reads(data, into)

    reads = read_answers.read_notebook
    monkeypatch.setattr(read_answers, "read_notebook", fails)
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD]))
    write(tmp_path / "bo" / "ps1.ipynb", notebook("fail", [HEAD]))
    write(tmp_path / "bo" / "ps1.answers.json", sidecar(HEAD))
    assert points(tmp_path) == {"ada/ps1.ipynb": 1, "bo/ps1.ipynb": 1}
    assert notes(tmp_path) == [
        "bo/ps1.ipynb: ps1.ipynb cannot be read: it is damaged (OverflowError: for no reason)"
    ]
    with pytest.raises(AnswerError, match=r"ps1\.ipynb: it is damaged \(OverflowError"):
        course.read_answers(tmp_path / "bo" / "ps1.ipynb")


def test_a_rule_that_raises_on_an_answer_leaves_it_to_a_person(tmp_path):
    rule = course.rubric({"is 0.5": lambda text: abs(float(text) - 0.5) < 0.01})
    answers = {
        name: {"q": make_record("q", "text", text)} for name, text in (("ada", "0.5"), ("bo", "a half"))
    }
    graded = course.grade_class(answers, {"q": rule})
    assert graded["ada"]["q"].share == 1
    assert graded["bo"]["q"].answer == "a half"
    assert "to be marked by hand" in graded["bo"]["q"].reason
    assert course.grade_class(answers, {"q": rule}, marks={"bo": {"q": 1}})["bo"]["q"].share == 1


def test_a_submission_has_a_budget_of_bytes_that_others_cannot_use_up(tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "_LARGEST", 50_000)
    monkeypatch.setattr(folders, "_FREE", 20_000)
    monkeypatch.setattr(folders, "_SHARED", 60_000)
    big = notebook([HEAD], "x" * 40_000)
    for name in ("ada", "bo", "cy", "dee"):
        zipped(tmp_path / f"{name}.zip", ("ps1.ipynb", big))
    zipped(tmp_path / "eve.zip", ("ps1.ipynb", notebook([HEAD], "x" * 60_000)))
    bomb = [(f"{number}.txt", " " * 45_000) for number in range(20)]
    zipped(tmp_path / "mallory.zip", ("ps1.ipynb", notebook([HEAD])), *bomb)
    write(tmp_path / "zoe.ipynb", notebook([HEAD]))
    assert points(tmp_path) == {
        "zoe.ipynb": 1, "ada.zip": 1, "bo.zip": 1, "cy.zip": 0, "dee.zip": 0, "eve.zip": 0,
        "mallory.zip/ps1.ipynb": 1, **{f"mallory.zip/{name}": 0 for name, _ in bomb},
    }  # fmt: skip
    text = " ".join(notes(tmp_path))
    assert "other large files have used up the bytes of the class: read it by itself" in text
    assert "bytes, more than 50,000" in text
    assert values(course.read_answers(tmp_path / "dee.zip")) == {"q1": [5, 9]}


def test_an_archive_of_a_hundred_notebooks_is_read_and_of_more_is_a_note(tmp_path):
    for count in (100, 101):
        files = [(f"{number}/ps1.ipynb", ASKED) for number in range(count)]
        zipped(tmp_path / str(count) / "ps1.zip", *files, ("right/ps1.txt", RECEIPT))
    zipped(tmp_path / "10001" / "ps1.zip", *[(f"{number}.txt", "") for number in range(10_001)])
    text = {name: grades.notes for name, grades in course.grade_class(tmp_path, KEY).items()}
    assert len([name for name in text if name.startswith("100/")]) == 1
    assert "more than 100 submissions" in text["101/ps1.zip"][0]
    assert "10,001 files" in text["10001/ps1.zip"][0]


def test_an_archive_that_says_less_than_it_unpacks_to_is_damaged(tmp_path):
    data = bytearray(zipped(tmp_path / "ps1.zip", ("ps1.txt", " " * 5_000_000 + RECEIPT)).read_bytes())
    at = data.rfind(b"PK\x01\x02")
    data[at + 24 : at + 28] = struct.pack("<I", 100)
    (tmp_path / "ps1.zip").write_bytes(data)
    assert points(tmp_path) == {"ps1.zip": 0}
    assert "damaged archive" in " ".join(notes(tmp_path))


def test_time_is_linear_in_the_number_of_outputs(tmp_path, monkeypatch):
    from attnwidgets.course.reading import answers

    monkeypatch.setattr(answers, "_MOST_RECORDS", 100_000)
    seconds = []
    for count in (500, 4_000):
        records = [make_record("q1", "head", (5, number)) for number in range(count)]
        path = write(tmp_path / f"{count}.ipynb", notebook(records))
        start = time.process_time()
        read = course.read_answers(path)
        seconds.append(time.process_time() - start)
        assert read.notes[-1].endswith(f"and {count - 21:,} more of these")
    assert seconds[1] < 24 * seconds[0] + 0.1


def test_a_long_class_shows_how_far_it_is(tmp_path):
    from attnwidgets._progress import observing

    steps = []
    for name in ("ada.ipynb", "bo.ipynb"):
        write(tmp_path / name, ASKED)
    zipped(tmp_path / "cy.zip", ("ps1.ipynb", ASKED))
    with observing(lambda *step: steps.append(step)):
        course.grade_class(tmp_path, KEY)
    assert steps == [(done, 3, "reading submissions") for done in range(4)]
