"""Notebooks and files of answers, as students hand them in."""

from __future__ import annotations

import json

from attnwidgets.course.records import MIME, encode, make_record

SUBJECT = "0123456789abcdef"


def notebook(*cells):
    """A notebook as JSON; a str is a text cell, a list the records in a code cell's outputs."""
    made = []
    for cell in cells:
        if isinstance(cell, str):
            made.append({"cell_type": "markdown", "id": "a", "metadata": {}, "source": cell})
            continue
        outputs = [
            {
                "output_type": "display_data",
                "metadata": {},
                "data": {MIME: record, "text/plain": "a question"},
            }
            for record in cell
        ]
        made.append(
            {"cell_type": "code", "id": "b", "metadata": {}, "source": "q", "outputs": outputs,
             "execution_count": 1}
        )  # fmt: skip
    return {"cells": made, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}


def write(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def sidecar(*records):
    return {"v": 1, "answers": {record["id"]: record for record in records}}


def values(answers):
    return {name: record["value"] for name, record in answers.items()}


HEAD = make_record("q1", "head", (5, 9), subject=SUBJECT)
OTHER_HEAD = make_record("q1", "head", (0, 1), subject=SUBJECT)
NUMBER = make_record("q2", "number", 0.847)
ORDER = make_record("q3", "order", ["ALTI", "rollout", "attention"])
UNANSWERED = make_record("q2", "number", None)
RECEIPT = encode(HEAD)
