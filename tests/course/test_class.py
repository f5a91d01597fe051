"""A class as a table, and statistics of its questions: against closed forms."""

from __future__ import annotations

import csv
import math
import statistics

import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError

from .made import HEAD, NUMBER, notebook, write

course = aw.course
KEY = {
    "q1": course.exact((5, 9), points=2),
    "q2": course.near(10, full=0, none=10),
    "q3": course.exact("yes"),
}
GIVEN = {
    "Ada": ((5, 9), 10, "yes"),
    "Bo": ((5, 9), 8, "yes"),
    "Cy": ((0, 1), 7, "no"),
    "Dee": ((0, 1), 4, "yes"),
    "Eve": ((2, 2), 1, "no"),
    "Fay": (None, 0, "maybe"),
}


def answers_of(head, number, word):
    made = course.make_record
    result = {"q2": made("q2", "number", number), "q3": made("q3", "choice", word)}
    return result if head is None else {**result, "q1": made("q1", "head", head)}


@pytest.fixture
def graded():
    return course.grade_class({name: answers_of(*given) for name, given in GIVEN.items()}, KEY)


def test_every_submission_has_its_grades(graded):
    assert list(graded) == list(GIVEN)
    assert graded["Bo"].points == pytest.approx(2 + 0.8 + 1)
    assert graded.points.shape == (6, 3)
    assert graded.points.sum(axis=1).tolist() == pytest.approx([4, 3.8, 0.7, 1.4, 0.1, 0])


def test_share_right_and_the_commonest_wrong_answer(graded):
    result = graded.statistics
    assert [result[name].right for name in KEY] == pytest.approx([2 / 6, 30 / 60, 3 / 6])
    assert (result["q1"].wrong, result["q1"].times, result["q1"].unanswered) == ([0, 1], 2, 1)
    assert (result["q3"].wrong, result["q3"].times) == ("no", 2)


def test_discrimination_is_the_correlation_with_the_points_of_the_other_questions(graded):
    rows = graded.points.tolist()
    for column, name in enumerate(KEY):
        item = [row[column] for row in rows]
        rest = [sum(row) - row[column] for row in rows]
        assert graded.statistics[name].discrimination == pytest.approx(statistics.correlation(item, rest))


def test_discrimination_by_its_closed_form_from_item_and_total(graded):
    # Corrected item-total correlation from r(item, total), s(item) and s(total): Henrysson 1963.
    rows = graded.points.tolist()
    total = [sum(row) for row in rows]
    for column, name in enumerate(KEY):
        item = [row[column] for row in rows]
        r, s, t = statistics.correlation(item, total), statistics.stdev(item), statistics.stdev(total)
        expected = (r * t - s) / math.sqrt(s**2 + t**2 - 2 * r * s * t)
        assert graded.statistics[name].discrimination == pytest.approx(expected)


def test_a_question_that_all_have_right_or_a_class_of_two_discriminates_nothing():
    same = {name: answers_of((5, 9), number, "yes") for name, number in (("a", 1), ("b", 5), ("c", 10))}
    result = course.grade_class(same, KEY).statistics
    assert math.isnan(result["q1"].discrimination)
    assert math.isnan(result["q2"].discrimination)
    assert result["q1"].wrong is None
    two = course.grade_class(dict(list(same.items())[:2]), KEY)
    assert all(math.isnan(item.discrimination) for item in two.statistics.values())


def test_the_table_is_shown_written_and_given_to_pandas(graded, tmp_path):
    html = graded._repr_html_()
    for words in ("share right", "discrimination", "commonest wrong answer", "[0,1] (2)", "33%", "Ada"):
        assert words in html
    rows = list(csv.DictReader(graded.to_csv(tmp_path / "class.csv").open(encoding="utf-8")))
    assert [row["submission"] for row in rows] == list(GIVEN)
    assert rows[5]["reasons"] == "q1: not answered"
    assert float(rows[1]["points"]) == pytest.approx(3.8)
    pytest.importorskip("pandas", reason="pip install pandas (make test does it)")
    assert graded.to_dataframe()["q2"].tolist() == pytest.approx([1, 0.8, 0.7, 0.4, 0.1, 0])


def test_names_that_a_spreadsheet_or_a_page_would_run_stay_text(tmp_path):
    graded = course.grade_class({"=cmd()": {}, "<script>x</script>": {}}, KEY)
    assert "<script>" not in graded._repr_html_()
    assert "'=cmd()" in graded.to_csv(tmp_path / "class.csv").read_text()


NAMES = [
    "=HYPERLINK(1)",
    "\t=1+1",
    "\r=1+1",
    " =1",
    "+1+cmd",
    "-2+3",
    "@SUM(1)",
    "\uff1d1+1",
    "\uff0d1",
    "a\rb",
]


def test_a_spreadsheet_gets_a_row_for_every_student_and_no_name_that_it_runs(tmp_path):
    path = course.grade_class({name: {} for name in NAMES}, KEY).to_csv(tmp_path / "class.csv")
    with path.open(newline="", encoding="utf-8") as file:
        names = [row["submission"] for row in csv.DictReader(file)]
    assert names == [f"'{name}" for name in NAMES[:-1]] + NAMES[-1:]


TEXTS = {"Ada": "Plural nouns, as the heads show.", "Bo": "No idea", "=Cy": "Plural!"}
TEXT_KEY = {
    "q1": course.exact((5, 9)),
    "q2": course.rubric({"names the feature": "plural", "gives a reason": None}, points=2),
}


def texts(**changed):
    given = {**TEXTS, **changed}
    return {name: {"q2": course.make_record("q2", "text", text)} for name, text in given.items()}


def test_marks_of_texts_are_proposed_in_the_table_until_a_person_confirms_them():
    graded = course.grade_class(texts(), TEXT_KEY)
    assert "3 marks are only proposed" in repr(graded)
    assert [row["proposed"] for row in graded.to_rows()] == [2, 2, 2]
    html = graded._repr_html_()
    assert ">1 to 2 ?<" in html
    assert ">1 of 3 (2 ?)<" in html
    assert "Plural nouns, as the heads show." in graded.proposals._repr_html_()
    graded.confirm("Ada", "q2", 2)
    graded.confirm("Bo", "q2", 0)
    assert [each.proposed for each in graded.values()] == [0, 0, 2]
    assert [row["submission"] for row in graded.proposals.to_rows()] == ["=Cy"]
    graded.confirm("=Cy", "q2", 1)
    assert "proposed" not in graded._repr_html_() + repr(graded)
    with pytest.raises(KeyError, match="no submission 'Dee'"):
        graded.confirm("Dee", "q2", 1)


def filled(path, *confirmed, delimiter=","):
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for row, given in zip(rows, confirmed, strict=True):
        row["confirmed"] = given
    with path.open("w", newline="", encoding="utf-8-sig") as file:
        writer = csv.DictWriter(file, rows[0], delimiter=delimiter)
        writer.writeheader()
        writer.writerows(rows)
    return path


@pytest.mark.parametrize(("half", "delimiter"), [("1.5", ","), ("1,5", ";"), ("1,5", "\t")])
def test_a_table_of_proposals_is_filled_in_a_spreadsheet_and_read_back(tmp_path, half, delimiter):
    path = course.grade_class(texts(), TEXT_KEY).proposals.to_csv(tmp_path / "read.csv")
    graded = course.grade_class(texts(), TEXT_KEY, marks=filled(path, half, "", "2", delimiter=delimiter))
    assert [each["q2"].points for each in graded.values()] == [1.5, 0, 2]
    assert [each["q2"].proposed for each in graded.values()] == [False, True, False]


def test_a_row_of_an_answer_that_was_changed_since_does_not_count(tmp_path):
    path = course.grade_class(texts(), TEXT_KEY).proposals.to_csv(tmp_path / "read.csv")
    filled(path, "2", "", "")
    with pytest.warns(UserWarning, match="answer of Ada to q2 was changed since"):
        graded = course.grade_class(texts(Ada="Something else"), TEXT_KEY, marks=path)
    assert (graded["Ada"]["q2"].points, graded["Ada"]["q2"].proposed) == (0, True)


def test_ok_confirms_what_is_proposed_but_no_criterion_that_a_person_must_read(tmp_path):
    key = {"q2": course.rubric({"names the feature": "plural"}, points=2)}
    path = filled(course.grade_class(texts(), key).proposals.to_csv(tmp_path / "a.csv"), "ok", "OK", "x")
    graded = course.grade_class(texts(), key, marks=path)
    assert [(each.points, each.proposed) for each in graded.values()] == [(2, 0), (0, 0), (2, 0)]
    path = course.grade_class(texts(), TEXT_KEY).proposals.to_csv(tmp_path / "b.csv")
    with pytest.raises(AnswerError, match=r"line 2: 'ok' .*a criterion is left to you"):
        course.grade_class(texts(), TEXT_KEY, marks=filled(path, "ok", "", ""))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("submission,question\nAda,q2\n", "no column confirmed, digest"),
        ("submission,question,digest,confirmed\nDee,q2,#1,1\n", "line 2: there is no 'q2' of 'Dee'"),
        ("submission,question,digest,confirmed\nAda,q9,#1,1\n", "there is no 'q9'"),
    ],
)
def test_a_table_that_fits_no_class_is_named(tmp_path, text, words):
    path = tmp_path / "read.csv"
    path.write_text(text)
    with pytest.raises(AnswerError, match=words):
        course.grade_class(texts(), TEXT_KEY, marks=path)


@pytest.mark.parametrize("given", ["3", "-1", "nan", "good"])
def test_points_that_cannot_be_are_refused(tmp_path, given):
    path = course.grade_class(texts(), TEXT_KEY).proposals.to_csv(tmp_path / "read.csv")
    with pytest.raises(AnswerError, match=rf"line 2: '{given}' is neither points nor 'ok'"):
        course.grade_class(texts(), TEXT_KEY, marks=filled(path, given, "", ""))


def test_of_long_paths_the_table_shows_what_tells_them_apart():
    names = [f"lecture 5/{name}_4711/ps1.ipynb" for name in ("ada", "bo")]
    html = course.grade_class({name: {} for name in names}, KEY)._repr_html_()
    assert ">ada_4711<" in html
    assert "title='lecture 5/bo_4711/ps1.ipynb'" in html


def test_a_folder_of_notebooks_is_graded_at_once(tmp_path):
    write(tmp_path / "ada" / "ps1.ipynb", notebook([HEAD], [NUMBER]))
    write(tmp_path / "bo" / "ps1.ipynb", notebook([NUMBER]))
    graded = course.grade_class(tmp_path, KEY, marks={"bo/ps1.ipynb": {"q1": 0.5}})
    assert {name: item["q1"].points for name, item in graded.items()} == {
        "ada/ps1.ipynb": 2,
        "bo/ps1.ipynb": 1,
    }
    with pytest.raises(KeyError, match=r"Did you mean 'bo/ps1\.ipynb'"):
        course.grade_class(tmp_path, KEY, marks={"bo/ps2.ipynb": {"q1": 1}})


def test_answers_of_one_submission_are_named(graded):
    with pytest.raises(TypeError, match=r"aw\.course\.grade"):
        course.grade_class({"q1": HEAD}, KEY)
    assert repr(course.grade_class({}, KEY)) == "no submissions"
    assert "6 submissions, on average 1.67 of 4 points" in repr(graded)
