"""Records are the same bytes everywhere, and a receipt names its mistakes."""

from __future__ import annotations

import json
import math
import shutil
import subprocess

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.course.errors import AnswerError, NewerVersionError
from attnwidgets.course.records import FIELDS, check_record, checksum, encode, make_record
from attnwidgets.course.values import canonical

NUMBERS = [
    0.1 + 0.2, 1e-7, 1e-6, 1.5e-6, 123456.7, 1e21, 1.23456789e20, 1e22, 3.0, -0.0, 1.5e300, 5e-324, -2.5e-10,
    2**60, 1234567.0, 999999.5, 1 / 3, -17, 0.000012345678,
]  # fmt: skip


@pytest.mark.parametrize(
    ("kind", "given", "kept"),
    [
        ("head", (5, np.int64(9)), [5, 9]),
        ("head", [(1, 0), (0, 2), (1, 0)], [[0, 2], [1, 0]]),
        ("layer", 3, 3),
        ("tokens", {11, 5, 6}, [5, 6, 11]),
        ("tokens", [], []),
        ("span", (2, 4), [2, 4]),
        ("cell", (3, 1), [3, 1]),
        ("order", ["b", ["d", "a"], "c"], ["b", ["a", "d"], "c"]),
        ("number", np.float32(0.1), 0.1),
        ("number", 3.0, 3),
        ("choice", ["no", "a yes"], ["a yes", "no"]),
        ("text", "because\nit does", "because\nit does"),
    ],
)
def test_every_kind_is_kept_in_one_form_and_comes_back_from_its_receipt(kind, given, kept):
    record = make_record("q1", kind, given, unit="token", subject="0123456789ab")
    assert record["value"] == kept
    assert tuple(record) == FIELDS
    assert aw.course.decode(encode(record)) == record


@pytest.mark.parametrize(
    ("kind", "value", "words"),
    [
        ("head", (1,), "give .layer, head."),
        ("head", (1, -2), "counts from 0"),
        ("head", (1, True), "counts from 0"),
        ("layer", 1.5, "counts from 0"),
        ("tokens", "abc", "list of positions"),
        ("span", (4, 2), "is empty"),
        ("cell", (1, 2, 3), "query, key"),
        ("order", ["a", "b", "a"], "'a' appears twice"),
        ("order", ["1", 1], "appears twice"),
        ("number", math.nan, "finite"),
        ("number", -math.inf, "finite"),
        ("number", 10**400, "308 digits"),
        ("number", "0.5", "not a number"),
        ("number", True, "not a number"),
        ("choice", " ", "not a name"),
        ("text", "x" * 20_001, "20,001 characters"),
        ("text", "\ud800", "half a character"),
        ("heads", (1, 2), "Did you mean 'head'"),
    ],
)
def test_a_value_of_another_form_is_refused_by_name(kind, value, words):
    with pytest.raises(AnswerError, match=words):
        make_record("q1", kind, value)


@pytest.mark.parametrize("name", ["", "a b", "<b>", "x" * 65, "../q1", None])
def test_an_id_that_could_harm_a_page_or_a_file_is_refused(name):
    with pytest.raises(AnswerError, match="id "):
        make_record(name, "number", 1)


@pytest.mark.slow
def test_numbers_are_written_as_a_browser_writes_them():
    node = shutil.which("node")
    if node is None:
        pytest.skip("Node.js is not installed")
    script = (
        "for (const x of JSON.parse(process.argv[1])) console.log(JSON.stringify(Number(x.toPrecision(6))))"
    )
    done = subprocess.run(
        [node, "-e", script, json.dumps(NUMBERS)], capture_output=True, text=True, check=True
    )
    assert [canonical(number) for number in NUMBERS] == done.stdout.split()


def test_numbers_that_differ_in_the_seventh_digit_are_the_same_bytes():
    assert encode(make_record("q", "number", 0.12345649)) == encode(make_record("q", "number", 0.1234561))
    assert encode(make_record("q", "number", 0.123456)) != encode(make_record("q", "number", 0.123457))


def test_a_receipt_survives_what_forms_do_to_text():
    record = make_record("q1", "text", "Überraschung: <b>\u202e כן 🙂")
    receipt = encode(record)
    wrapped = "\r\n".join(receipt[at : at + 40] for at in range(0, len(receipt), 40))
    assert aw.course.decode(f"  {wrapped} ") == record
    assert receipt.isascii()


def test_every_single_mistyped_character_is_noticed():
    receipt = encode(make_record("q1", "head", (5, 9)))
    for index in range(4, len(receipt)):
        typed = receipt[:index] + ("x" if receipt[index] != "x" else "y") + receipt[index + 1 :]
        with pytest.raises(AnswerError):
            aw.course.decode(typed)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:-3], "was cut"),
        (lambda text: text[:60], "was cut"),
        (lambda text: text[:20] + text[21:], "was changed"),
        (lambda text: text.replace("aw1.", "aw2.", 1), "version 2.*pip install --upgrade"),
        (lambda _: "I think it is head 5.9", "no receipt"),
        (lambda _: f"aw1.AAAA.{checksum('AAAA')}", "no record"),
    ],
)
def test_a_receipt_says_what_is_wrong_with_it(change, words):
    with pytest.raises(AnswerError, match=words):
        aw.course.decode(change(encode(make_record("q1", "head", (5, 9)))))


def test_a_receipt_with_a_right_checksum_and_a_wrong_value_is_refused():
    from base64 import urlsafe_b64encode

    edited = {**make_record("q1", "head", (5, 9)), "value": [5, -9]}
    body = urlsafe_b64encode(canonical(edited).encode()).decode().rstrip("=")
    with pytest.raises(AnswerError, match="counts from 0"):
        aw.course.decode(f"aw1.{body}.{checksum(body)}")


def test_a_record_of_a_later_version_says_what_to_install():
    with pytest.raises(NewerVersionError, match="pip install --upgrade attnwidgets"):
        check_record({**make_record("q1", "head", (5, 9)), "v": 2, "kind": "neuron"})


def test_subjects_differ_by_model_and_by_text_only():
    subject = aw.course.subject_of("model", [101, 2])
    assert subject == aw.course.subject_of("model", np.array([101, 2]))
    assert (
        len({subject, aw.course.subject_of("other", [101, 2]), aw.course.subject_of("model", [101, 3])}) == 3
    )


@pytest.mark.slow
def test_reading_and_grading_load_neither_torch_nor_a_front_end():
    code = (
        "import sys, attnwidgets as aw; [getattr(aw.course, name) for name in dir(aw.course)]; "
        "heavy = {'torch', 'transformers', 'ipywidgets', 'anywidget', 'matplotlib', 'IPython', 'pandas'}; "
        "print(sorted(heavy & set(sys.modules)))"
    )
    import sys

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
