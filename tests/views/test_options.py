"""Options of views: Shift-Tab shows the options that a view takes."""

from __future__ import annotations

import inspect

import pytest

import attnwidgets as aw
from tests.views.every import public_views

COLOURS = {"scale", "color_range", "palette"}
FILTERS = {"hide_special", "keep_mass", "threshold"}


def shown_by(view):
    return inspect.signature(view).parameters


def test_a_view_shows_the_filters_that_it_takes_and_no_others():
    assert set(shown_by(aw.Heatmap)) >= COLOURS | FILTERS
    assert set(shown_by(aw.HeadGrid)) & (COLOURS | FILTERS) == COLOURS | {"hide_special"}
    assert not set(shown_by(aw.LayerSlider)) & (COLOURS | FILTERS)
    assert {"title", "layout", "height", "metric", "shown"} == set(shown_by(aw.views.ScorecardView))


def test_marks_and_methods_are_shown_where_they_mean_something():
    views = public_views()
    having = {name: {v for v in views if name in shown_by(views[v])} for name in ("marks", "methods")}
    assert having["marks"] == {"Heatmap", "TokenStrip", "Explorer"}
    expected = {"Explorer", "RemovalView", "CompareView", "LayerProfile", "TwoTexts", "ImageView"}
    assert having["methods"] == expected


@pytest.mark.parametrize("view", ["Heatmap", "LayerSlider", "HeadGrid", "HeadView", "TokenStrip", "Explorer"])
def test_every_option_shown_is_taken(given, view):
    view = getattr(aw, view)
    defaults = {name: p.default for name, p in shown_by(view).items() if p.default is not p.empty}
    assert view(given(), **defaults).options == view(given()).options


def test_functions_write_their_options_out():
    assert COLOURS | FILTERS | {"methods", "how"} <= set(shown_by(aw.compare))
    assert COLOURS | FILTERS | {"max_new_tokens", "features"} <= set(shown_by(aw.explore))


def test_explore_refuses_an_unknown_keyword_before_it_runs_the_model():
    with pytest.raises(TypeError, match=r"explore\(\) takes no keyword 'titel'.*'title'"):
        aw.explore(None, None, None, titel="")


def test_the_text_of_an_option_is_written_once():
    entry = next(line for line in aw.compare.__doc__.split("\n") if "palette:" in line)
    assert entry in aw.Heatmap.__doc__
    assert entry in aw.Explorer.__doc__
