"""The values of a view as CSV: all digits, every label, nothing that a spreadsheet would run."""

from __future__ import annotations

import csv
import io

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions as values
from attnwidgets.views.base.expressions import part_of_csv

LABELS = ["[CLS]", "a,b", '"q"', "=cmd()", "-5", "+x", "שלום", "two\nlines"]


@pytest.fixture
def view():
    weights = np.random.default_rng(0).dirichlet(np.ones(8), (2, 3, 8))
    return aw.Heatmap(aw.from_attentions(weights, LABELS))


def rows(view, **args):
    where = {"method": "attention", "stack": "self", "unit": "token", "layer": 1, "head": 2} | args
    table, first = "", 0
    while first is not None:
        part = part_of_csv(view.store, **where, first=first)
        table += part["text"]
        first = part["next"]
    return list(csv.reader(io.StringIO(table)))


def test_numbers_come_back_as_they_are(view):
    head, *lines = rows(view)
    exact = view.content.explanations[0].matrix(1, 2).astype(np.float32)
    np.testing.assert_array_equal(np.float32([line[1:] for line in lines]), exact)
    assert head == ["", *(line[0] for line in lines)]


def test_a_large_table_comes_in_parts_of_what_is_sent_at_once(view, monkeypatch):
    whole = rows(view)
    monkeypatch.setattr(values, "PART_BYTES", 3 * 13 * 8)  # three rows of eight numbers
    where = {"method": "attention", "stack": "self", "unit": "token", "layer": 1, "head": 2}
    assert [part_of_csv(view.store, **where, first=at)["next"] for at in (0, 3, 6)] == [3, 6, None]
    assert rows(view) == whole


def test_labels_are_whole_and_none_is_a_formula(view):
    labels = rows(view)[0][1:]
    assert labels == ["[CLS]", "a,b", '"q"', "'=cmd()", "-5", "'+x", "שלום", "two↵lines"]


@pytest.mark.parametrize(
    ("place", "error", "words"),
    [
        ({"method": "rollout"}, LookupError, "no longer shown"),
        ({"layer": 7}, IndexError, "layer=7"),
        ({"head": 9}, IndexError, "head=9"),
    ],
)
def test_what_is_not_there_is_named(view, place, error, words):
    with pytest.raises(error, match=words):
        rows(view, **place)
