"""Where views open: on the head with the strongest pattern, unless somebody chose another one."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import opening
from attnwidgets.views.still.view_state import ViewState

TOKENS = ["[CLS]", "a", "b", "c", "d", "[SEP]"]


def recorded():
    values = np.full((3, 4, 6, 6), 1 / 6, dtype=np.float32)
    values[0, 0] = np.eye(6)[0]
    values[2, 1] = np.eye(6)[[0, 0, 1, 2, 3, 4]]
    return aw.from_attentions(values, TOKENS)


@pytest.mark.parametrize("name", ["Heatmap", "HeadGrid", "TokenStrip", "HeadView", "Explorer"])
def test_every_view_opens_on_the_strongest_pattern(name):
    view = getattr(aw, name)(recorded())
    assert (view.selection.layer, view.selection.head) == (2, 1)
    found = view.selection.opening
    assert (found.words, found.query, found.value) == ("reads the token before", 4, pytest.approx(1))
    assert view.selection.pinned is None
    state = ViewState.of(view)
    assert (state.layer, state.head) == (2, 1)


def test_a_pair_of_different_content_tokens_is_the_strongest():
    assert opening.opening_of(aw.attention(recorded()), "token").pair == (2, 1)


def test_what_was_chosen_is_never_overridden():
    assert aw.Heatmap(recorded(), layer=1).selection.layer == 1
    assert aw.Heatmap(recorded(), head=3).selection.head == 3
    trace = recorded()
    first = aw.Heatmap(trace)
    first.selection.layer, first.selection.head = 1, 3
    second = aw.HeadGrid(trace)
    assert (second.selection.layer, second.selection.head) == (1, 3)


def test_too_many_weights_are_not_searched(monkeypatch):
    monkeypatch.setattr(opening, "MOST_WEIGHTS", 3 * 4 * 36 - 1)
    selection = aw.Heatmap(recorded()).selection
    assert (selection.layer, selection.head, selection.opening.words) == (0, 0, "")
    assert "too long" in selection.opening.note
