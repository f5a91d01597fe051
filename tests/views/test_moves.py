"""A change that a page of the browser saves reaches all its pages, whether the front end sends it or not."""

from __future__ import annotations

import logging
from unittest.mock import Mock

import pytest
from ipykernel.kernelbase import Kernel

import attnwidgets as aw


@pytest.fixture
def view(given):
    return aw.Heatmap(given())


@pytest.fixture
def sent(view):
    """Messages of the kernel about the selection from now on, as (method, content)."""
    told = []
    view.selection.comm.kernel = Mock(spec=Kernel)  # without a kernel, ipywidgets 7 sends no state
    view.selection._send = lambda msg, buffers=None: told.append(
        (msg["method"], msg["content"] if msg["method"] == "custom" else msg["state"])
    )
    return told


def test_what_a_page_saves_is_told_to_every_page_once_with_the_writer(view, sent):
    writer = {"page": 7, "count": 3, "names": ["layer", "pins", "pinned"]}
    cell = {"unit": "token", "query": 2, "key": 3}
    view.selection.set_state({"layer": 1, "pins": [cell], "pinned": cell, "writer": writer})
    assert sent == [
        (
            "custom",
            {"kind": "moved", "writer": writer, "values": {"layer": 1, "pins": [cell], "pinned": cell}},
        )
    ]
    assert view.selection.writer is None


def test_only_what_the_page_names_is_taken(view, sent):
    view.selection.layer = 1
    sent.clear()
    writer = {"page": 7, "count": 1, "names": ["head", "writer", "hover", "comm", "_esm"]}
    hover = {"unit": "token", "query": 0, "key": 0}
    view.selection.set_state({"layer": 0, "head": "max", "hover": hover, "_esm": "", "writer": writer})
    assert (view.selection.layer, view.selection.head, view.selection.hover) == (1, "max", None)
    assert view.selection._esm
    assert [content["values"] for _, content in sent] == [{"head": "max"}]


def test_a_widget_linked_in_the_browser_names_nothing_and_is_told_as_well(view, sent):
    view.selection.set_state({"layer": 1})
    assert sent == [("custom", {"kind": "moved", "writer": None, "values": {"layer": 1}})]


def test_a_refused_value_is_answered_with_what_it_is(view, sent, caplog):
    caplog.set_level(logging.CRITICAL)
    layer = view.selection.layer
    writer = {"page": 7, "count": 1, "names": ["layer"]}
    with pytest.raises(IndexError, match="out of range"):
        view.selection.set_state({"layer": 40, "writer": writer})
    assert view.selection.layer == layer
    assert sent[-1] == ("custom", {"kind": "moved", "writer": writer, "values": {"layer": layer}})


def test_what_follows_from_a_move_is_sent_as_state(view, sent):
    view.selection.heads = [(0, 1)]
    sent.clear()
    pair = {"unit": "token", "query": 1, "key": 0}
    writer = {"page": 1, "count": 1, "names": ["pins"]}
    view.selection.set_state({"pins": [pair], "writer": writer})
    moved = {"kind": "moved", "writer": writer, "values": {"pins": [pair]}}
    assert sent == [("update", {"pinned": pair}), ("custom", moved)]


def test_a_page_that_opens_is_told_where_the_reader_is(view, sent):
    view.selection.layer = 1
    sent.clear()
    view.selection._handle_custom_msg({"kind": "where"}, [])
    view.selection._handle_custom_msg({"kind": "else"}, [])
    [(method, told)] = sent
    assert (method, told["kind"], told["writer"]) == ("custom", "moved", None)
    assert sorted(told["values"]) == sorted(view.selection._chosen_names())
    assert told["values"]["layer"] == 1
