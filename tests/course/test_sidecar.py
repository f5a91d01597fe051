"""The file beside a notebook: nothing that was answered is lost."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from attnwidgets.course import sidecar as module
from attnwidgets.course.errors import AnswerError, AnswersFileError, NewerVersionError
from attnwidgets.course.records import make_record
from attnwidgets.course.sidecar import read_sidecar, sidecar_of, write_answer

from .made import HEAD, NUMBER, OTHER_HEAD, UNANSWERED

WRITER = """
import sys
from attnwidgets.course.records import make_record
from attnwidgets.course.sidecar import write_answer
for number in range(10):
    write_answer(sys.argv[1], make_record(f"{sys.argv[2]}-{number}", "number", number))
"""


def test_answers_are_kept_beside_those_of_other_questions(tmp_path):
    path = sidecar_of(tmp_path / "ps1.ipynb")
    assert path.name == "ps1.answers.json"
    assert sidecar_of(None, tmp_path).name == "answers.json"
    assert write_answer(path, NUMBER) == write_answer(path, OTHER_HEAD) == write_answer(path, HEAD) == []
    assert dict(read_sidecar(path).records) == {"q1": HEAD, "q2": NUMBER}


def test_an_answer_that_is_taken_back_leaves_the_file(tmp_path):
    path = tmp_path / "ps1.answers.json"
    write_answer(path, UNANSWERED)
    assert not path.exists()
    write_answer(path, HEAD)
    write_answer(path, NUMBER)
    write_answer(path, UNANSWERED)
    assert dict(read_sidecar(path).records) == {"q1": HEAD}


def test_the_same_answers_in_another_order_are_the_same_bytes(tmp_path):
    for name, records in (("a", (HEAD, NUMBER)), ("b", (NUMBER, HEAD))):
        for record in records:
            write_answer(tmp_path / f"{name}.answers.json", record)
    assert (tmp_path / "a.answers.json").read_bytes() == (tmp_path / "b.answers.json").read_bytes()


@pytest.mark.slow
def test_two_kernels_that_write_at_once_lose_nothing(tmp_path):
    path = tmp_path / "ps1.answers.json"
    command = [sys.executable, "-c", WRITER, str(path)]
    running = [subprocess.Popen([*command, name]) for name in ("one", "two", "three")]
    assert [process.wait(timeout=120) for process in running] == [0, 0, 0]
    assert len(read_sidecar(path).records) == 30
    assert [result.name for result in tmp_path.iterdir()] == ["ps1.answers.json"]


def test_a_damaged_file_is_kept_aside_and_said(tmp_path):
    path = tmp_path / "ps1.answers.json"
    for number in (1, 2):
        path.write_text('{"v": 1, "answers": {"q1": ')
        notes = write_answer(path, HEAD)
        assert f"kept as ps1.answers.json.broken-{number}" in notes[0]
        assert (tmp_path / f"ps1.answers.json.broken-{number}").read_text() == '{"v": 1, "answers": {"q1": '
        assert dict(read_sidecar(path).records) == {"q1": HEAD}


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"v": 1}', '{"v": 1, "answers": {"q": NaN}}', "\udc80"])
def test_what_is_not_a_file_of_answers_says_so(tmp_path, text):
    path = tmp_path / "ps1.answers.json"
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(AnswerError, match=r"ps1\.answers\.json|finite"):
        read_sidecar(path)


def test_a_file_of_a_later_version_is_not_touched(tmp_path):
    path = tmp_path / "ps1.answers.json"
    path.write_text('{"v": 2, "sealed": "abc"}')
    with pytest.raises(NewerVersionError, match="left as it is"):
        write_answer(path, HEAD)
    with pytest.raises(NewerVersionError):
        read_sidecar(path)
    assert path.read_text() == '{"v": 2, "sealed": "abc"}'


def test_an_answer_of_a_later_version_stays_and_hides_no_other(tmp_path):
    path = tmp_path / "ps1.answers.json"
    later = {**HEAD, "v": 2, "id": "q9", "more": [1]}
    path.write_text(json.dumps({"v": 1, "answers": {"q9": later, "q2": NUMBER}, "course": "X"}))
    sidecar = read_sidecar(path)
    assert dict(sidecar.records) == {"q2": NUMBER}
    assert "version 2" in sidecar.notes[0]
    assert "version 2" in sidecar.refused["q9"]
    write_answer(path, HEAD)
    with pytest.raises(NewerVersionError):
        write_answer(path, make_record("q9", "number", 1))
    contents = json.loads(path.read_text())
    assert contents["answers"] == {"q1": HEAD, "q2": NUMBER, "q9": later}
    assert contents["course"] == "X"


@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOSPC, errno.EACCES])
def test_a_folder_that_cannot_be_written_is_an_error_that_says_where_the_answer_is(
    tmp_path, monkeypatch, code
):
    def fails(path, _):
        raise OSError(code, os.strerror(code), str(path))

    path = tmp_path / "ps1.answers.json"
    write_answer(path, NUMBER)
    monkeypatch.setattr(module, "write_bytes", fails)
    with pytest.raises(AnswersFileError, match="its receipt can be handed in") as caught:
        write_answer(path, HEAD)
    assert caught.value.errno == code
    assert dict(read_sidecar(path).records) == {"q2": NUMBER}


def test_a_folder_that_is_not_there_is_the_same_error(tmp_path):
    with pytest.raises(AnswersFileError, match="could not be written next to the notebook"):
        write_answer(tmp_path / "gone" / "ps1.answers.json", HEAD)


def test_no_file_is_no_answers():
    assert read_sidecar(Path("no such file.answers.json")) == ({}, [], {}, {})
