"""Answers get shares by a key: each rule against a closed form or a library, each refusal with its reason."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.stats import kendalltau, somersd

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError
from attnwidgets.course.reading.answers import Answers

from .made import HEAD, NUMBER, ORDER, OTHER_HEAD, SUBJECT

course = aw.course


def share(rule, kind, value):
    answers = {"q": course.make_record("q", kind, value)}
    return course.grade(answers, {"q": rule})["q"].share


@pytest.mark.parametrize(
    ("rule", "kind", "value", "expected"),
    [
        (course.exact((5, 9)), "head", [5, 9], 1),
        (course.exact((5, 9)), "head", [9, 5], 0),
        (course.exact({(1, 0), (0, 2)}), "head", [[0, 2], [1, 0]], 1),
        (course.exact(0.1 + 0.2), "number", 0.3, 1),
        (course.exact(np.float64(2)), "number", 2, 1),
        (course.exact({"b", "a"}), "choice", ["a", "b"], 1),
        (course.exact("LRP"), "choice", "lrp", 0),
        (course.any_of((0, 3), (0, 0)), "head", [0, 0], 1),
        (course.any_of({(0, 3): 1, (0, 0): 0.5}), "head", [0, 0], 0.5),
        (course.any_of({(0, 3): 1, (0, 0): 0.5}), "head", [0, 1], 0),
        (course.overlap({5, 6, 11}), "tokens", [5, 6, 11], 1),
        (course.overlap({5, 6, 11}), "tokens", [5], 0.333333),
        (course.overlap({5, 6, 11}), "tokens", [], 0),
        (course.overlap(set()), "tokens", [], 1),
        (course.overlap([(0, 1), (0, 2)]), "head", [0, 1], 0.5),
        (course.overlap((2, 6)), "span", [3, 7], 0.5),
        (course.overlap((2, 6)), "span", [4, 8], 0),
        (course.overlap(["a", "b"]), "choice", ["b", "c"], 0),
        (course.overlap(["a", "b"], candidates=6), "choice", ["b", "c"], 0.25),
        (course.near(0.847, full=0.005, none=0.055), "number", 0.85, 1),
        (course.near(0.847, full=0.005, none=0.055), "number", 0.877, 0.5),
        (course.near(0.847, full=0.005, none=0.055), "number", 0.7, 0),
        (course.near(10, full=0, none=5), "number", 9, 0.8),
    ],
)
def test_shares(rule, kind, value, expected):
    assert share(rule, kind, value) == expected


def test_kendall_is_somers_d_as_scipy_has_it_for_every_order_with_and_without_ties():
    right = ["a", ["b", "c"], "d"]
    rank = {"a": 0, "b": 1, "c": 1, "d": 2}
    orders = [list(order) for order in itertools.permutations("abcd")]
    orders += [
        [["a", "b"], "c", "d"],
        [["c", "d"], ["a", "b"]],
        ["a", ["c", "b"], "d"],
        ["d", ["a", "b", "c"]],
    ]
    for order in orders:
        given = {name: number for number, names in enumerate(order) for name in names}
        d = somersd([rank[name] for name in "abcd"], [given[name] for name in "abcd"]).statistic
        assert share(course.kendall(right), "order", order) == pytest.approx(max(0, d), abs=1e-6)


def signed(order, right):
    """Kendall's tau of an order without ties, before negative values become 0."""
    return kendalltau([right.index(name) for name in right], [order.index(name) for name in right]).statistic


@pytest.mark.parametrize("tied", [["abcd"], ["ab", "cd"], ["a", "bcd"], ["abc", "d"], ["ab", "c", "d"]])
def test_a_tie_pays_as_much_as_breaking_it_at_random(tied):
    broken = [
        [name for names in group for name in names]
        for group in itertools.product(*(itertools.permutations(names) for names in tied))
    ]
    expected = np.mean([signed(order, list("abcd")) for order in broken])
    given = [list(names) for names in tied]
    assert share(course.kendall("abcd"), "order", given) == pytest.approx(expected, abs=1e-6)


OPTIONS = list("abcdef")


@pytest.mark.parametrize("size", range(1, 6))
def test_all_candidates_none_and_on_average_any_of_them_pay_nothing_in_a_set(size):
    rule = course.overlap(OPTIONS[:size], candidates=len(OPTIONS))
    assert share(rule, "choice", OPTIONS) == share(rule, "choice", []) == 0
    assert share(rule, "choice", OPTIONS[:size]) == 1
    guesses = [share(rule, "choice", list(some)) for some in itertools.combinations(OPTIONS, size)]
    unclipped = [
        len(set(some) & set(OPTIONS[:size])) / size - len(set(some) - set(OPTIONS[:size])) / (6 - size)
        for some in itertools.combinations(OPTIONS, size)
    ]
    assert guesses == pytest.approx(np.clip(unclipped, 0, 1), abs=1e-6)
    assert np.mean(unclipped) == pytest.approx(0)
    if size <= len(OPTIONS) / 2:  # a rule that is not told how many candidates there are
        assert share(course.overlap(OPTIONS[:size]), "choice", OPTIONS) == 0


@pytest.mark.parametrize(
    ("rule", "kind", "values"),
    [
        (course.exact((5, 9)), "head", [[[5, 9], [0, 1]], [[i, j] for i in range(6) for j in range(12)]]),
        (course.exact("ALTI"), "choice", [["ALTI", "LRP"], [], "alti"]),
        (course.any_of("A", "B"), "choice", [["A", "B"], ["A"], list("ABCD"), []]),
        (course.any_of((5, 9), (0, 1)), "head", [[[5, 9], [0, 1]], [9, 5]]),
        (course.overlap({5, 6, 11}), "tokens", [[], list(range(12)), list(range(10_000))]),
        (course.overlap((2, 6)), "span", [[0, 12], [0, 1]]),
        (course.overlap([(0, 1), (0, 2)]), "head", [[[i, j] for i in range(6) for j in range(12)]]),
        (course.kendall(["a", "b", "c", "d"]), "order", [[["a", "b", "c", "d"]], ["a"], list("abcx")]),
        (course.kendall([["a", "b"], "c"]), "order", [[["a", "b", "c"]]]),
        (course.near(0.847, 0.005, 0.05), "number", [0, -0.0, 0.5, 1, 1e300, -1e300]),
        (course.rubric({"any": r"\w*", "long": lambda text: True}), "text", ["", "  \n"]),
    ],
)
def test_an_answer_that_says_nothing_pays_nothing(rule, kind, values):
    assert [share(rule, kind, value) for value in values] == [0] * len(values)


def test_an_exchange_of_neighbours_among_four_is_two_thirds_and_no_order_is_nothing():
    rule = course.kendall(["a", "b", "c", "d"], points=4)
    graded = course.grade({"q": course.make_record("q", "order", ["b", "a", "c", "d"])}, {"q": rule})
    assert graded["q"].points == pytest.approx(2.666667)
    assert share(rule, "order", [["a", "b", "c", "d"]]) == 0
    other = course.grade({"q": course.make_record("q", "order", ["a", "b", "c", "x"])}, {"q": rule})["q"]
    assert other.share == 0
    assert "other items were to be put in order: d, x" in other.reason


def test_a_rubric_adds_weights_and_names_what_a_person_must_read():
    rule = course.rubric(
        {"feature": (2, r"plural"), "length": lambda text: len(text) > 10, "argument": None}, points=4
    )
    answers = {"q": course.make_record("q", "text", "It fires on PLURAL nouns")}
    mark = course.grade(answers, {"q": rule})["q"]
    assert (mark.share, mark.points, mark.unread, mark.proposed) == (0.75, 3, 1, True)
    assert mark.reason == "feature: 1 for 'PLURAL'; length: 1; argument: to be read"
    by_hand = course.grade(answers, {"q": rule}, marks={"q": 1})["q"]
    assert (by_hand.points, by_hand.reason, by_hand.proposed) == (4, "by hand", False)


@pytest.mark.parametrize("test", [float, len, lambda text: float("nan"), lambda text: "much"])
def test_a_function_that_fails_for_an_answer_leaves_it_to_a_person(test):
    answers = {"q": course.make_record("q", "text", "about a half")}
    grades = course.grade(answers, {"q": course.rubric({"half": "half", "value": test}, points=2)})
    assert (grades["q"].points, grades["q"].unread) == (1, 1)
    assert "value: to be marked by hand (" in grades["q"].reason
    assert repr(grades) == "1 of 2 points, 2 of the 2 only proposed: q 1 to 2 (proposed) of 2"
    with pytest.raises(AnswerError, match="give points="):
        grades.confirm("q")
    with pytest.raises(AnswerError, match="3 points are not from 0 to 2"):
        grades.confirm("q", 3)
    grades.confirm("q", 1.5)
    assert (grades.points, grades.proposed, grades["q"].share) == (1.5, 0, 0.75)


def test_the_mark_of_a_text_is_proposed_by_whatever_rule_and_that_of_a_choice_is_not():
    answers = {"q": course.make_record("q", "text", "LRP"), "p": course.make_record("p", "choice", "LRP")}
    grades = course.grade(answers, {"q": course.exact("LRP"), "p": course.exact("LRP")})
    assert [grades[name].proposed for name in "qp"] == [True, False]
    assert "1 (proposed)" in grades._repr_html_()
    grades.confirm("q")
    assert grades["q"] == (1, 1, 1, "LRP", "confirmed", False, 0)


@pytest.mark.parametrize(
    ("answer", "rule", "reason"),
    [
        (None, course.exact(1), "not answered"),
        ({**HEAD, "value": None}, course.exact(1), "not answered"),
        (HEAD, course.exact((5, 9), subject="f" * 16), "is about another model and text"),
        ({**HEAD, "subject": None}, course.exact((5, 9), subject=SUBJECT), "does not say about which"),
        ({**HEAD, "v": 3}, course.exact((5, 9)), "version 3"),
        ({**HEAD, "value": "5.9"}, course.exact((5, 9)), "not a head"),
        (HEAD, course.near(5, 0, 1), "a number is right here, and 'head' is not"),
        (HEAD, course.kendall(["a", "b"]), "an order is right here"),
        (NUMBER, course.overlap([1]), "a set is right here"),
        (NUMBER, course.exact((5, 9)), "not a number"),
        (NUMBER, course.near(0.847, 0, 1, unit="nats"), "in no unit, but the question needs nats"),
        ("nonsense", course.exact((5, 9)), "not the record"),
    ],
)
def test_what_does_not_count_has_a_share_of_nothing_and_a_reason(answer, rule, reason):
    mark = course.grade({} if answer is None else {"q1": answer, "q2": NUMBER}, {"q1": rule})["q1"]
    assert mark.share == mark.points == 0
    assert reason in mark.reason


def test_the_right_subject_counts():
    assert course.grade({"q1": HEAD}, {"q1": course.exact((5, 9), subject=SUBJECT)})["q1"].share == 1


def test_a_refused_answer_has_the_reason_with_which_it_was_read():
    result = Answers(refused={"q1": "of version 7"}, notes=["ps1.ipynb: q1 is of version 7"])
    graded = course.grade(result, {"q1": course.exact((5, 9))})
    assert graded["q1"].reason == "of version 7"
    assert "of version 7" in graded._repr_html_()


def test_points_are_added_and_the_table_says_what_counts():
    key = {
        "q1": course.exact((5, 9), points=2),
        "q2": course.near(0.9, 0.003, 0.1),
        "q3": course.exact(["x"]),
    }
    graded = course.grade({"q1": HEAD, "q2": NUMBER, "q3": ORDER}, key)
    assert graded.of == 4
    assert graded.points == pytest.approx(2 + (0.1 - 0.053) / 0.097)
    assert next(row["answer"] for row in graded.to_rows()) == "[5,9]"
    assert (
        "<script"
        not in course.grade(
            {"q": course.make_record("q", "text", "<script>alert(1)</script>")}, {"q": course.exact("x")}
        )._repr_html_()
    )


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: course.exact(1, points=0), "points=0"),
        (lambda: course.exact(float("nan")), "finite"),
        (lambda: course.exact(object()), "object cannot be an answer"),
        (lambda: course.exact(1, subject="my sentence"), "not a hash"),
        (course.any_of, "one at least"),
        (lambda: course.any_of({"a": "x"}), "'x' is not a number from 0 to 1"),
        (lambda: course.rubric(["a"]), "criteria by name"),
        (lambda: course.any_of({1: 2}), "share of 2"),
        (lambda: course.overlap(5), "a set of answers"),
        (lambda: course.overlap({1, 2}, candidates=2), "not more than the 2"),
        (lambda: course.kendall(["a"]), "two places"),
        (lambda: course.near(1, full=0.1, none=0.1), "none must be larger"),
        (lambda: course.rubric({}), "criteria"),
        (lambda: course.rubric({"a": "("}), "not a regular expression"),
        (lambda: course.rubric({"a": 3}), "neither a regular expression"),
        (lambda: course.grade({}, {"q": course.exact(1)}, marks={"p": 1}), "which the key does not have"),
        (lambda: course.grade({}, {"q": course.exact(1)}, marks={"q": 2}), "from 0 to 1"),
    ],
)
def test_a_key_that_cannot_be_right_is_refused_when_it_is_made(make, words):
    with pytest.raises(AnswerError, match=words):
        make()


def test_a_key_without_rules_and_answers_of_a_class_are_named():
    with pytest.raises(TypeError, match="not a rule"):
        course.grade({}, {"q1": (5, 9)})
    with pytest.raises(TypeError, match="grade_class"):
        course.grade({"a": Answers({"q1": OTHER_HEAD})}, {"q1": course.exact((5, 9))})
    with pytest.raises(KeyError, match="Did you mean 'q1'"):
        course.grade({}, {"q1": course.exact(1)})["q_1"]


@pytest.mark.parametrize(
    "rule",
    [
        course.exact((5, 9), points=2, subject=SUBJECT),
        course.any_of({(0, 3): 1, (0, 0): 0.5}),
        course.any_of("a", "b"),
        course.overlap({5, 6}),
        course.overlap({5, 6}, candidates=12),
        course.kendall(["a", ["b", "c"]], points=4),
        course.near(0.847, full=0.005, none=0.05, unit="nats"),
        course.rubric({"a": (2, "x|y"), "b": None}),
    ],
)
def test_a_rule_is_shown_as_the_code_that_makes_it_again_and_is_read_from_a_file(rule, tmp_path):
    again = course.read_key(course.write_key({"q": rule}, tmp_path / "ps1.key.json"))["q"]
    assert repr(again) == repr(eval(f"aw.course.{rule!r}", {"aw": aw})) == repr(rule)
    assert (again.points, again.subject, again.unit, again.steps) == (
        rule.points,
        rule.subject,
        rule.unit,
        rule.steps,
    )


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{", "not the file of a key"),
        ('{"q1": "exact(1)"}', "not the file of a key"),
        ('{"v": 2, "key": {"q1": "exact(1)"}}', "no key of version 1"),
        ('{"v": 1, "key": {"q1": "print(1)"}}', "q1: 'print\\(1\\)' is not a rule"),
        ('{"v": 1, "key": {"q1": "exact(open(1))"}}', "is not a rule"),
        ('{"v": 1, "key": {"q1": "exact(__import__(\'os\'))"}}', "is not a rule"),
        ('{"v": 1, "key": {"q1": "exact"}}', "is not a rule"),
        ('{"v": 1, "key": {"q1": "exact(' + "[" * 5000 + '"}}', "is not a rule"),
        ("[" * 100_000, "not the file of a key"),
    ],
)
def test_a_file_that_is_no_key_runs_nothing_and_is_named(text, words, tmp_path):
    path = tmp_path / "ps1.key.json"
    path.write_text(text)
    with pytest.raises(AnswerError, match=words):
        course.grade({}, path)


def test_answers_are_graded_by_the_file_of_a_key(tmp_path):
    path = course.write_key({"q1": course.exact((5, 9), points=2)}, tmp_path / "ps1.key.json")
    assert course.grade({"q1": HEAD}, path).points == 2
    assert course.grade_class({"Ada": {"q1": HEAD}}, str(path))["Ada"].points == 2
    with pytest.raises(AnswerError, match="contains a function"):
        course.write_key({"q1": course.rubric({"long": lambda text: True})}, path)
