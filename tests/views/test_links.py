"""Links: a line of code and an address that open a view at the same selection again."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions

WORDS = ["The", "cat", "sat", "on", "it", "."]


@pytest.fixture
def trace():
    weights = np.random.default_rng(3).dirichlet(np.ones(6), (4, 3, 6))
    return aw.from_attentions(weights, WORDS)


@pytest.fixture
def review():
    return aw.trace(*aw.demo_model("classifier"), "a dull film with a good end")


def chosen(view):
    """The state that a link has to bring back."""
    selection = view.selection
    return {name: getattr(selection, name) for name in selection._chosen_names()}


def named(monkeypatch, **names):
    monkeypatch.setattr(expressions, "running_shell", lambda: SimpleNamespace(user_ns=names))


PLACES = [
    {},
    {"layer": 2, "head": "mean"},
    {"method": "rollout", "unit": "word", "layer": 3, "head": 1, "pins": [(3, 1)]},
    {"pins": [(3, 1, "token"), (2, -1, "token", 1)], "unit": "word", "heads": [(1, 2), (0, 0)]},
    {"span": (1, 3)},
    {"span": (0, 2, "word", "key"), "pins": [(1, 1, "token")]},
    {"interventions": [{"kind": "ablate", "layer": 1, "head": 2}]},
]


@pytest.mark.parametrize("place", PLACES)
def test_the_line_of_code_opens_the_same_place(trace, monkeypatch, place):
    view = aw.Explorer(trace).at(**place)
    wanted = chosen(view)
    named(monkeypatch, aw=aw, trace=trace, other=object())
    code = view.link()
    assert code.startswith("aw.Explorer(trace).at(")
    # Somebody has been elsewhere meanwhile.
    view.at(method="attention", unit="token", layer=1, head=0, pins=[(0, 0)], heads=[(3, 0)], span=(4, 6))
    again = eval(code, {"aw": aw, "trace": trace})
    assert chosen(again) == wanted
    assert again.link() == code


def test_the_line_of_code_uses_the_names_there_are(trace, monkeypatch):
    view = aw.Heatmap(trace, hide_special=True, layer=1, title="of\n'cats'")
    named(monkeypatch, aw=aw, trace=trace)
    called = """aw.Heatmap(trace, hide_special=True, title="of\\n'cats'")"""
    assert view.link() == f"{called}.at(method='attention', unit='token', layer=1, head=0)"
    named(monkeypatch, Heatmap=aw.Heatmap, t=trace)
    assert view.link().startswith("Heatmap(t, hide_special=True, ")
    named(monkeypatch, aw=aw, mine=view)  # the trace has no name
    assert view.link() == "mine.at(method='attention', unit='token', layer=1, head=0)"
    named(monkeypatch)
    assert view.link().startswith("view.at(")
    answer, _ = view.requests.answer("expression", {"of": "place"})
    assert answer["code"].startswith("view.at(")
    assert "write view = " in answer["note"]


def test_what_a_view_fixes_is_not_in_its_link(trace, monkeypatch):
    rolled = aw.rollout(trace)
    named(monkeypatch, aw=aw, rolled=rolled)
    assert aw.Heatmap(rolled).at(layer=2).link() == "aw.Heatmap(rolled).at(unit='token', layer=2)"
    assert aw.Heatmap(rolled).link("a.html") == "a.html#unit=token&layer=2"


def test_a_target_and_its_explanation_come_back(review, monkeypatch):
    named(monkeypatch, aw=aw, review=review)
    view = aw.Explorer(review).at(method="input_x_gradient", target=0, pins=[(0, 2)])
    assert view.selection.method == "input_x_gradient@0"
    wanted, code = chosen(view), view.link()
    assert "target=0" in code
    view.at(method="attention")
    assert view.selection.target is None
    assert chosen(eval(code, {"aw": aw, "review": review})) == wanted
    assert "&target=0&" in view.link("a.html")


def test_nothing_is_moved_if_something_is_out_of_range(review):
    view = aw.Explorer(review).at(method="input_x_gradient", target=0, layer=1, pins=[(1, 2)], span=(1, 2))
    before = chosen(view)
    for wrong in ({"pins": [(1, 99)]}, {"head": 99}, {"unit": "line"}, {"method": "magic"}, {"target": 9}):
        with pytest.raises((IndexError, ValueError)):
            view.at(**{"method": "attention", "layer": 0, "target": 1} | wrong)
        assert chosen(view) == before


def test_an_address_names_everything_and_escapes_it(trace):
    view = aw.Explorer(trace).at(method="rollout", layer=3, head=2, pins=[(3, 1), (2, -1)], heads=[(1, 0)])
    address = view.link("my page.html#old", number=2)
    head, _, text = address.rpartition("&of=")
    assert head == ("my page.html#view=2&method=rollout&unit=token&layer=3&head=2&heads=1.0&pin=3,1&pin=2,-1")
    assert re.fullmatch("[0-9a-f]{8}", text)
    odd = aw.from_attentions([[[[1.0]]]], ["\ud800 & = # ü"])
    assert "#" not in aw.Heatmap(odd).at(pins=[(0, 0)]).link("p").partition("#")[2]
    with pytest.raises(ValueError, match="counted from 1"):
        view.link("page.html", number=0)


def test_the_text_that_is_counted_is_recognised(trace):
    def mark(labels):
        view = aw.Heatmap(aw.from_attentions(np.full((1, 1, 2, 2), 0.5), labels)).at(pins=[(0, 1)])
        return view.link("a").rpartition("&of=")[2]

    assert mark(["a", "b"]) == mark(["a", "b"]) != mark(["a", "c"])
    assert "of=" not in aw.Heatmap(trace).link("a")  # nothing is counted


def test_of_several_texts_the_shown_one_is_named(trace, monkeypatch):
    other = aw.from_attentions(np.full((4, 3, 2, 2), 0.5), ["A", "dog"])
    view = aw.Explorer([trace, other])
    view.show_text(1)
    assert view.at(layer=2, head=1).link("a") == "a#text=1&method=attention&unit=token&layer=2&head=1"
    named(monkeypatch, view=view)
    code = view.link()
    view.show_text(0)
    assert eval(code, {"view": view}).trace is other
    named(monkeypatch, aw=aw, dog=other)
    assert view.at(text=1).link().startswith("aw.Explorer(dog).at(method=")
