"""Presentation: resolved from sources and the values of a selection, without a widget."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.base.options import PLAIN_OPTIONS
from attnwidgets.views.base.selectable import Cell
from attnwidgets.views.presentation import Presentation, words_of
from attnwidgets.views.still.matrices import matrix_sheet, preview_sheet, strip_sheet
from attnwidgets.views.wire.sources import Source

WEIGHTS = np.random.default_rng(0).dirichlet(np.ones(3), (2, 4, 3)).astype(np.float32)


def presented(**selected):
    shown = aw.attention(aw.from_attentions(WEIGHTS, ["a", "cat", "sat"]))
    values = {
        "method": "attention", "stack": "self", "unit": "token", "layer": 1, "head": 2,
        "pinned": None, "opening": None, "interventions": (),
    }  # fmt: skip
    selection = SimpleNamespace(**values | selected)
    return Presentation.of([Source(shown, "attention", "token")], selection, PLAIN_OPTIONS)


@pytest.fixture(autouse=True)
def no_widget(monkeypatch):
    def refuse(*_, **__):
        pytest.fail("a widget was made")

    monkeypatch.setattr("ipywidgets.Widget.__init__", refuse)


def test_a_figure_a_strip_and_words_come_from_one_presentation():
    shown = presented(pinned=Cell(1, 2, "token"))
    drawn, _ = matrix_sheet(shown, LIGHT).parts
    np.testing.assert_allclose(drawn.values, WEIGHTS[1, 2])
    assert drawn.outlines == [(1, 2)]
    text, _ = strip_sheet(shown, LIGHT).parts
    np.testing.assert_allclose(text.values[0], WEIGHTS[1, 2, 1])
    assert "layer 1, head 2" in words_of(shown)
    assert [type(part).__name__ for part in preview_sheet(shown, LIGHT).parts] == [
        "Text",
        "Scale",
        "Map",
        "Scale",
    ]


@pytest.mark.parametrize(
    ("selected", "layer", "head"),
    [
        ({"layer": 9, "head": 9}, 1, 3),
        ({"head": "max"}, 1, "max"),
        ({"method": "none", "head": "-"}, 1, "mean"),
    ],
)
def test_a_selection_that_the_sources_lack_shows_the_nearest(selected, layer, head):
    shown = presented(**selected)
    assert (shown.source.method, shown.layer, shown.head) == ("attention", layer, head)
