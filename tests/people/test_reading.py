"""Responses that were handed in: files, lines, and their mistakes; nothing is lost."""

from __future__ import annotations

import json
import re
import warnings

import pytest

import attnwidgets as aw
from attnwidgets.people.reading import ROW, as_line, digest_of

from .made import study


@pytest.fixture
def made():
    return study(count=4)


def payload(made, code, answers=("no", "yes", "no", "yes"), **changes):
    rows = [
        [
            "item",
            made.ids[turn.item],
            *made.cell_names(turn.cell),
            position,
            turn.side,
            answers[turn.item],
            500,
            900,
        ]
        for position, turn in enumerate(made.turns(code))
    ]
    whole = {
        "v": 1, "study": made.hash, "kind": made.kind, "code": code, "finished": True, "rows": rows,
        "package": aw.__version__, **changes,
    }  # fmt: skip
    return {**whole, "digest": digest_of(whole)}


def save(path, content):
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def test_files_lines_and_folders_give_the_same(made, tmp_path):
    codes = made.codes(3)
    for code in codes[:2]:
        save(tmp_path / f"study-{code}.json", payload(made, code))
    save(tmp_path / "form.csv", f"who,what\nx,{as_line(payload(made, codes[2]))}\n")
    read = aw.people.read_responses(tmp_path, made)
    assert sorted(read.people) == sorted(codes)
    assert read.notes == read.set_aside == ()
    assert len(read.rows) == 12
    truth = dict(zip(made.ids, made.truths, strict=True))
    for row in read.rows:
        assert row["score"] == float(row["answer"] == truth[row["item"]])
        assert (row["first_ms"], row["ms"]) == (500, 900)
    responses = aw.people.read_responses(tmp_path / f"study-{codes[0]}.json", made)
    assert responses.people == (codes[0],)
    assert len(read.analyse(resamples=100).means) == 2
    without = aw.people.read_responses(tmp_path)
    assert without.kind == "forward"
    with pytest.raises(ValueError, match="no answer has a score: give read_responses"):
        without.analyse()


def told(match, *arguments):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        read = aw.people.read_responses(*arguments)
    said = [str(item.message) for item in caught]
    assert any(re.search(match, item) for item in said), said
    assert [item.split(": ", 1)[1] for item in said] == [f"{note}." for note in read.notes]
    return read


def test_edited_answers_are_set_aside_with_all_rows(made, tmp_path):
    first, second = made.codes(2)
    edited = payload(made, first)
    edited["rows"][0][ROW.index("answer")] = "yes" if edited["rows"][0][6] == "no" else "no"
    save(tmp_path / "a.json", edited)
    save(tmp_path / "b.json", payload(made, second))
    read = told(r"a\.json: its answers were edited or cut", tmp_path, made)
    assert read.people == (second,)
    assert len(read.set_aside) == 4
    assert {row["person"] for row in read.set_aside} == {first}
    assert "4 set aside" in repr(read)
    line = as_line(payload(made, first))
    save(tmp_path / "a.json", "")
    save(
        tmp_path / "c.txt",
        line[:-9] + "\n" + line.replace("awp1.e", "awp1.f") + "\n" + line.replace("awp1", "awp7"),
    )
    read = told("edited or cut|cut or changed", tmp_path, made)
    assert len([note for note in read.notes if note.startswith("c.txt")]) == 3
    assert "version is 7" in " ".join(read.notes)


def test_two_people_with_one_code_both_count(made, tmp_path):
    (code,) = made.codes(1)
    save(tmp_path / "a.json", payload(made, code))
    save(tmp_path / "b.json", payload(made, code, ("yes",) * 4))
    read = told(rf"a\.json and b\.json have one code, {code}.*two people shared it", tmp_path, made)
    assert read.people == (code, f"{code}-2")
    assert len(read.rows) == 8


def test_a_person_who_handed_in_twice_counts_once_with_the_longer_one(made, tmp_path):
    (code,) = made.codes(1)
    whole = payload(made, code)
    part = payload(made, code, rows=whole["rows"][:2], finished=False)
    save(tmp_path / "a.json", whole)
    save(tmp_path / "b.json", part)
    read = told("of one person", tmp_path, made)
    assert (read.people, len(read.rows)) == ((code,), 4)
    read = told("answered 2 of 4 items", tmp_path / "b.json", made)
    assert len(read.rows) == 2


def test_other_studies_and_answers_that_were_not_asked_for_do_not_count(made, tmp_path):
    first, second = made.codes(2)
    save(tmp_path / "a.json", payload(made, first, study="0123456789abcdef"))
    strange = payload(made, second)
    rows = [list(row) for row in strange["rows"]]
    rows[0][1], rows[1][2], rows[2][6] = "nothing", "other", "maybe"
    save(tmp_path / "b.json", payload(made, second, rows=[*rows, rows[3]]))
    read = told("it answers another study", tmp_path, made)
    assert len(read.rows) == 1
    why = {row["why"] for row in read.set_aside if row["file"] == "b.json"}
    assert {
        "the item is not in the study",
        "this code does not lead to this condition",
        "'maybe' is not an answer",
    } < why
    assert "it was answered twice" in why
    assert len(read.set_aside) == 4 + 4


@pytest.mark.parametrize(
    ("content", "match"),
    [
        ("[1, 2]", "holds no responses of a study"),
        ("{", "holds no responses"),
        ("<script>alert(1)</script>", "holds no responses"),
        ({"v": 9, "study": "", "code": "", "rows": [], "digest": ""}, "version is 9"),
        ({"v": 1, "study": "", "code": "", "rows": [[]], "digest": ""}, "edited or cut"),
    ],
)
def test_what_holds_no_responses_is_an_error_that_says_so(tmp_path, content, match):
    path = save(tmp_path / "a.json", content)
    if not isinstance(content, str) or content == "[1, 2]":  # the existing file stays
        assert told(match, path).rows == ()
        return
    with pytest.raises(ValueError, match=rf"no responses in .*a\.json.*{match}"):
        aw.people.read_responses(path)


def test_malformed_rows_with_a_right_digest_are_refused_in_words(made, tmp_path):
    (code,) = made.codes(1)
    rows = payload(made, code)["rows"]
    for changes, match in (
        ({"rows": [rows[0][:3]]}, "do not hold 9 values"),
        ({"rows": [["boss", *rows[0][1:]]]}, "a malformed row"),
        ({"code": "Eve Smith"}, "4 to 16 small letters"),
        ({"kind": "guess"}, "its kind is 'guess'"),
    ):
        whole = payload(made, code) | changes
        save(tmp_path / "a.json", whole | {"digest": digest_of(whole)})
        told(match, tmp_path / "a.json", made)
    with pytest.raises(FileNotFoundError, match="does not exist"):
        aw.people.read_responses(tmp_path / "nowhere")


def test_a_file_that_raises_costs_no_other_person(made, tmp_path, monkeypatch):
    first, second, third = made.codes(3)
    save(tmp_path / "a.json", payload(made, first))
    deep = "[" * 600 + "]" * 600
    save(tmp_path / "b.json", json.dumps(payload(made, second) | {"rows": "deep"}).replace('"deep"', deep))
    huge = payload(made, second)
    huge["rows"][0][:2] = "check", f"check {'9' * 5000}"
    save(tmp_path / "c.json", huge | {"digest": digest_of(huge)})
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "d.json").symlink_to(save(tmp_path.parent / "d.json", payload(made, third)))
    read = told("more than 100 lists", tmp_path, made)
    assert read.people == (first,)
    text = " ".join(read.notes)
    assert "c.json: it is damaged (ValueError" in text
    assert "d.json is a link, which is not followed" in text
    assert {row["file"] for row in read.set_aside} == {"b.json", "c.json"}


def test_a_view_gives_what_was_answered_in_it_and_forgets_it(made):
    view = made.view()
    assert view.responses is None
    (code,) = made.codes(1)
    view._receive(payload(made, code), 1)
    assert view.responses.people == (code,)
    view._receive(None, 2)
    assert view.responses is None
