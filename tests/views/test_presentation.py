"""Presentation: resolved from sources and the values of a selection, without a widget."""

from __future__ import annotations

from dataclasses import replace
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


def with_sink(head):
    """A presentation of rows that give 0.5 of themselves to no token, and 0.2 in head 3."""
    decays = np.where(np.arange(4) == 3, 0.8, 0.5).astype(np.float32)
    weights = WEIGHTS * decays[:, None, None]
    axis = aw.attention(aw.from_attentions(WEIGHTS, ["a", "cat", "sat"])).query
    shown = aw.results.MixingMap.lazy(
        weights.__getitem__, query=axis, layers=(0, 1), heads=range(4), sink=True, method="attention"
    )
    state = presented(head=head)
    source = Source(shown, "attention", "token")
    return replace(state, sources=(source,), source=source)


@pytest.mark.parametrize(("head", "share"), [(2, 0.5), (3, 0.2), ("mean", 0.425)])
def test_what_goes_to_a_sink_is_a_column_of_the_map_and_in_its_words(head, share):
    shown = with_sink(head)
    drawn, scale, hatched = matrix_sheet(shown, LIGHT).parts
    np.testing.assert_allclose(drawn.sink, [share] * 3, atol=1e-6)
    np.testing.assert_allclose(drawn.values.sum(axis=1) + drawn.sink, 1, atol=1e-6)
    assert drawn.sink_name == "no token (sink)"
    assert (drawn.sink_norm.vmin, drawn.sink_norm.vmax) == (0, 1)
    assert not drawn.apart
    assert scale.name == "share of the row"
    assert hatched.text == "hatched, from 0 to 1: share to no token (sink)"
    assert f"{share:.0%} of a row goes to no token (sink) on average." in words_of(shown)
    # Shares of a row, not of a column.
    top = shown.source.matrix(1, head).mean(axis=0).max()
    assert f"{top:.0%} of a row on average" in words_of(shown)
    tile = shown.source.tile(1, head)
    assert tile.meta()["sink"] == pytest.approx([share] * 3, abs=1e-4)
    assert shown.source.describe("q", "k")["sink"]


def test_the_largest_of_several_heads_has_no_share_of_a_sink():
    shown = with_sink("max")
    assert "sink" not in shown.source.tile(1, "max").meta()
    assert "sink" not in words_of(shown)
    drawn, _ = matrix_sheet(shown, LIGHT).parts
    assert not drawn.sink


def test_without_special_tokens_the_sink_keeps_its_share():
    """The rest of a row is not divided by its sum: the sink's share would be hidden."""
    shown = with_sink(2)
    left = replace(shown, options=PLAIN_OPTIONS | {"filters": {"special": "renormalise"}})
    np.testing.assert_allclose(left.filtered(shown.source.matrix(1, 2)), WEIGHTS[1, 2] / 2, atol=1e-6)
    assert "nothing rescaled" in left.title(2)
