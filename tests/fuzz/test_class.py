"""A class with a strange submission: it is graded, and the marks of the others stay as they are."""

from __future__ import annotations

import base64
import contextlib
import io
import json
import struct
import warnings
import zipfile
import zlib
from pathlib import Path
from typing import Any

import attnwidgets as aw
from attnwidgets.course.records import MIME
from attnwidgets.people.reading import as_line

from .fuzzing import fuzz, told
from .test_archives import VALUES, changed

course = aw.course
KEY = {
    "q1": course.exact((5, 9)),
    "q2": course.overlap((3, 6)),
    "q3": course.kendall(["a", "b", "c"]),
    "q4": course.near(0.5, 0.01, 0.1),
    "q5": course.rubric({"plural": "plural", "a number": lambda text: float(text) > 0}),
}
RECORDS = [
    course.make_record("q1", "head", (5, 9)),
    course.make_record("q2", "span", (3, 6), unit="token"),
    course.make_record("q3", "order", ["a", ["b", "c"]]),
    course.make_record("q4", "number", 0.5, subject="0123456789abcdef"),
    course.make_record("q5", "text", "plural"),
    course.make_record("q2", "tokens", [3, 4, 5]),
    course.make_record("q9", "choice", ["x", "y"]),
]
NAMES = [
    "ps1.ipynb",
    "ps1.answers.json",
    "answers.json",
    "form.csv",
    "ps1.txt",
    "ps1.html",
    "ps1.zip",
    "ps1.py",
]
STRANGE = [*VALUES, [0, 10**12], 10**400, "=1+1", [[0, 1]] * 50, {"v": 1}, "9" * 5000]


UTF_8 = 0x800
FIELDS = [
    (6, 99),
    (6, 99),
    (8, UTF_8),
    (8, UTF_8),
    (8, 1),
    (10, 9),
    (10, 12),
    (20, 1),
    (20, 65535),
    (24, 1),
    (24, 65535),
]


def strange(r: Any, content: Any) -> Any:
    """JSON with a few items lost, doubled, renamed or replaced."""
    for _ in range(r.choice([0, 1, 1, 2, 4])):
        content = r.choice(STRANGE) if r.random() < 0.1 else changed(r, content)
    return content


def dumped(r: Any, content: Any) -> str:
    """JSON, in which a value may be nested deeply or be no JSON."""
    text = json.dumps(content)
    if r.random() < 0.25:
        depth = r.choice([50, 150, 600, 600, 900, 100_000])
        other = r.choice(
            ["[" * depth + "]" * depth, "[" * depth, '{"a":' * depth + "1" + "}" * depth, "9" * 5000]
        )
        there = [value for value in ('"head"', "0.5", '"q1"', "null", "9", '"a"') if value in text]
        text = text.replace(r.choice(there), other, 1) if there else text
    return text


def receipt(r: Any) -> str:
    body = base64.urlsafe_b64encode(dumped(r, strange(r, dict(r.choice(RECORDS)))).encode("utf-8", "replace"))
    text = body.decode().rstrip("=")
    made = f"aw{r.choice([1, 1, 1, 0, 2, 9999])}.{text}.{zlib.crc32(text.encode()) & 0xFFFFFF:06x}"
    return made[: r.randrange(len(made))] if r.random() < 0.1 else made


def notebook(r: Any) -> str:
    cells: list[Any] = []
    for _ in range(r.randint(0, 4)):
        record = dict(r.choice(RECORDS))
        stored = r.choice([record, json.dumps(record), [json.dumps(record)]])
        data = {MIME: stored} if r.random() < 0.8 else {"text/html": f"<p>{receipt(r)}"}
        cells.append({"cell_type": "code", "source": "q", "outputs": [{"data": data}], "metadata": {}})
        cells.append({"cell_type": "markdown", "source": [f"# {receipt(r)}"]})
    return dumped(r, strange(r, {"cells": cells, "metadata": {}, "nbformat": 4}))


def answers(r: Any) -> str:
    records = {record["id"]: dict(record) for record in r.sample(RECORDS, r.randint(0, 5))}
    when = dict.fromkeys(records, "2026-01-31 12:00 UTC")
    return dumped(r, strange(r, {"v": 1, "answers": records, "answered": when}))


def table(r: Any) -> str:
    end, between = r.choice(["\n", "\r\n", "\r"]), r.choice(",;\t")
    names = ["ada/ps1.ipynb", "zoe", "zoe", "../../zoe", "", "\0", '"', "zoe (row 1)", "a\nb", "x" * 200_000]
    rows = [between.join([r.choice(names), receipt(r), r.choice(names)]) for _ in range(r.randint(0, 5))]
    return end.join(rows)


def archive(r: Any, depth: int = 0) -> bytes:
    buffer = io.BytesIO()
    method = r.choice([*[zipfile.ZIP_DEFLATED] * 4, zipfile.ZIP_STORED, zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
    with warnings.catch_warnings(), zipfile.ZipFile(buffer, "w", method) as made:
        warnings.simplefilter("ignore")  # of two files with the same name
        for _ in range(r.randint(0, 4)):
            folder = r.choice(["", "", "work/", "../ada/", "/", "form.csv/", "a\\"])
            name = r.choice(NAMES[:-1] if depth else NAMES)
            made.writestr(folder + name, content(r, name, depth + 1))
    data = bytearray(buffer.getvalue())
    for _ in range(r.choice([0, 0, 1, 3, 30])):
        data[r.randrange(len(data))] = r.randrange(256)
    if r.random() < 0.4:  # a field of the directory: version, flags, method, sizes
        at, (offset, number) = data.rfind(b"PK\x01\x02"), r.choice(FIELDS)
        data[at + offset : at + offset + 2] = struct.pack("<H", number)
        data = data.replace(b"ps1", b"\xff\xfe\xfd") if number == UTF_8 else data
    return bytes(data[: r.randrange(len(data))] if r.random() < 0.1 else data)


def content(r: Any, name: str, depth: int = 0) -> bytes:
    """The contents of a file, by its name."""
    suffix = Path(name).suffix
    if suffix == ".zip" and depth < 3:
        return archive(r, depth)
    make = {".ipynb": notebook, ".json": answers, ".csv": table}.get(suffix, receipt)
    data = make(r).encode("utf-8", "surrogatepass")
    kind = r.random()
    if kind < 0.05:
        return r.randbytes(300)
    if kind < 0.1:
        return b"\xff\xfe" + data.decode("utf-8", "replace").encode("utf-16-le")[: r.choice([None, -1])]
    return data[: r.randrange(len(data) + 1)] if kind < 0.15 else data


def test_a_class_with_a_strange_submission(tmp_path: Any) -> None:
    others = [tmp_path / "class" / name for name in ("ada", "zoe")]
    for number, folder in enumerate(others):
        folder.mkdir(parents=True)
        cells = [
            {"cell_type": "code", "outputs": [{"data": {MIME: RECORDS[at]}}]} for at in range(5 - number)
        ]
        (folder / "ps1.ipynb").write_text(json.dumps({"cells": cells}))
    folder = tmp_path / "class" / "mallory"
    folder.mkdir()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        right = {
            name: list(grades.values())
            for name, grades in course.grade_class(tmp_path / "class", KEY).items()
        }

    def a_class(r: Any) -> None:
        for path in folder.iterdir():
            path.unlink()
        for name in dict.fromkeys(r.choices([*NAMES, "ps1.zip", "ps1.zip"], k=r.randint(1, 3))):
            if r.random() < 0.1:
                (folder / name).symlink_to(
                    r.choice(["../ada/ps1.ipynb", "../zoe/ps1.ipynb", "..", "nowhere"])
                )
            else:
                (folder / name).write_bytes(content(r, name))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            graded = course.grade_class(tmp_path / "class", KEY)
            for name, marks in right.items():
                assert list(graded[name].values()) == marks, f"the marks of {name} are others"
            assert all(name.startswith("mallory/") for name in graded if name not in right)
            for name, grades in graded.items():
                assert all(0 <= mark.share <= 1 for mark in grades.values())
                assert len(grades.notes) <= 25, name
            assert repr(graded)
            assert graded._repr_html_().encode()
            graded.to_csv(tmp_path / "grades.csv")
            graded.evidence.to_csv(tmp_path / "evidence.csv")
            for path in folder.iterdir():
                told(lambda path=path: course.read_answers(path))

    fuzz(a_class, 400)


def test_keys_receipts_and_responses(tmp_path: Any) -> None:
    rules = [course.exact, course.any_of, course.overlap, course.kendall]
    tests = ["plural", None, (2, "["), (-1, "a"), float, len, lambda text: 1 / 0]
    payload = {"v": 1, "study": "0" * 16, "kind": "forward", "code": "abcd", "finished": True, "package": "0"}
    rows = [["item", "0", "none", "", 0, 0, "yes", 1, 2], ["check", "check 0", "", "", 1, 0, "a", None, 3]]
    path = tmp_path / "person.json"

    def a_key(r: Any) -> None:
        make, value = r.choice(rules), strange(r, r.choice(RECORDS)["value"])
        if r.random() < 0.2:
            make, value = course.rubric, {name: r.choice(tests) for name in "ab"}
        elif isinstance(value, dict) or (make is course.kendall and not isinstance(value, list)):
            value = [value]
        rule = told(lambda: make(value, points=r.choice([1, 2, 0.5, 0])))
        record = strange(r, dict(r.choice(RECORDS)))
        if rule is not None:
            grades = course.grade({"q": record, "q1": RECORDS[0]}, {"q": rule, "q1": KEY["q1"]})
            assert 0 <= grades["q"].share <= 1
            assert grades["q1"].share == 1
            assert grades._repr_html_()
        for _ in range(5):
            told(lambda: course.decode(receipt(r)))
        person = strange(r, {**payload, "rows": rows})
        with contextlib.suppress(ValueError):  # no line without a canonical form
            is_line = isinstance(person, dict) and r.random() < 0.5
            path.write_text(as_line({**payload, "rows": rows, **person}) if is_line else dumped(r, person))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            told(lambda: aw.people.read_responses(path))

    path.write_text("")
    fuzz(a_key, 1200)
