"""The traits in Python and the interfaces in wire.ts say the same."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace

import anywidget
import pytest
from ipywidgets import Widget
from ipywidgets.embed import dependency_state

import attnwidgets as aw
from attnwidgets.views.base.selection import Selection
from attnwidgets.views.wire.media import MediaModel
from attnwidgets.views.wire.runtime import Runtime
from attnwidgets.views.wire.store import TileStore

from .every import every_view, kind_of, make


@pytest.fixture(scope="module")
def wire(root):
    folder = root / "js" / "src" / "wire"
    names = ("wire.ts", "viewState.ts", "mediaState.ts", "questions.ts", "studies.ts")
    return "".join((folder / name).read_text(encoding="utf-8") for name in names)


def interface(wire, name):
    """Field names of an interface, without inherited names."""
    body = re.search(rf"interface {name}\b[^{{]*{{(.*?)\n}}", wire, re.DOTALL)
    assert body, f"wire.ts has no interface {name}"
    without_comments = re.sub(r"/\*.*?\*/|//[^\n]*", "", body[1], flags=re.DOTALL)
    return re.findall(r"^\s*(\w+)\??:", without_comments, re.MULTILINE)


def traits_of(widget_class):
    shared = set(anywidget.AnyWidget.class_traits(sync=True)) | {"_esm", "_css", "_anywidget_id"}
    return sorted(set(widget_class.class_traits(sync=True)) - shared)


@pytest.mark.parametrize("name", every_view())
def test_views_have_five_traits_and_no_more(wire, name):
    assert traits_of(kind_of(name)) == sorted(interface(wire, "ViewState"))


def test_the_selection_has_the_traits_of_wire(wire):
    assert traits_of(Selection) == sorted(interface(wire, "SelectionState"))


def test_the_store_has_the_traits_of_wire(wire):
    assert traits_of(TileStore) == sorted(interface(wire, "StoreState"))


def test_media_have_the_traits_of_wire(wire):
    assert traits_of(MediaModel) == sorted(interface(wire, "MediaState"))


def test_the_runtime_carries_code_and_where_its_parts_are(wire):
    assert traits_of(Runtime) == sorted(interface(wire, "RuntimeState"))


def test_header_and_options_have_the_fields_of_wire(wire, given):
    view = aw.Explorer(given())
    header = view.store.header
    plain = interface(wire, "ViewOptions")
    assert sorted(view.options) == sorted([*plain, *interface(wire, "ExplorerOptions")])
    assert sorted(view.options["texts"]) == sorted(interface(wire, "Texts"))
    [item, _] = aw.Explorer([given(), given()]).options["texts"]["items"]
    assert sorted(item) == sorted(interface(wire, "TextItem"))
    added = interface(wire, "TokenStripOptions")
    assert sorted(aw.TokenStrip(given()).options) == sorted([*plain, *added])
    added = interface(wire, "HeadGridOptions")
    grid = aw.HeadGrid(given()).options
    assert sorted(grid) == sorted([*plain, *added])
    assert sorted(grid["grid"]) == sorted(interface(wire, "GridOptions"))
    added = interface(wire, "HeadViewOptions")
    assert sorted(aw.HeadView(given()).options) == sorted([*plain, *added])
    added = interface(wire, "TwoTextsOptions")
    assert sorted(make("TwoTexts", given).options) == sorted([*plain, *added])
    added = interface(wire, "QuestionOptions")
    asked = make("Question", given).options
    assert sorted(asked) == sorted([*plain, *added])
    assert sorted(asked["question"]) == sorted(interface(wire, "AskedQuestion"))
    assert sorted(asked["question"]["record"]) == sorted(interface(wire, "AnswerRecord"))
    asked = make("StudyView", given).options
    assert sorted(asked) == sorted([*plain, *interface(wire, "StudyOptions")])
    assert sorted(asked["study"]) == sorted(interface(wire, "AskedStudy"))
    assert sorted(asked["study"]["items"][0]) == sorted(interface(wire, "AskedItem"))
    [[shown], _] = asked["study"]["items"][0]["shown"]
    assert sorted(shown) == sorted(interface(wire, "ShownExplanation"))
    assert sorted(header) == sorted(interface(wire, "Header"))
    assert sorted(header["sources"][0]) == sorted(interface(wire, "Source"))
    assert sorted(header["methods"][0]) == sorted(interface(wire, "Offer"))
    assert sorted(next(iter(header["axes"].values()))) == sorted(interface(wire, "Axis"))
    placed = interface(wire, "Placed")
    assert sorted(header["tiles"][0]) == sorted(interface(wire, "TileMeta") + placed)
    assert sorted(header["thumbs"][0]) == sorted(interface(wire, "Thumbs") + placed)


@pytest.mark.parametrize("name", every_view())
def test_a_view_is_a_stub_that_asks_the_runtime(given, name):
    view = make(name, given)
    assert f".exports.render(c,'{name}'" in view._esm
    assert len(view._esm) <= 700
    state = view.get_state()
    for trait in ("runtime", "store", "selection"):
        assert state[trait] == f"anywidget:{getattr(view, trait).model_id}"
    assert set(view.needs.scripts) <= set(view.runtime.parts)


def test_a_part_is_one_model_for_all_views_and_only_of_those_that_need_it(given):
    Widget.close_all()
    assert set(aw.LayerSlider(given()).runtime.parts) == {"tools"}
    assert set(aw.Heatmap(given()).runtime.parts) == {"tools"}
    first = dict(aw.views.RelevanceMap(given()).runtime.parts)
    assert set(first) == {"filters", "layers", "tools"}
    both = aw.Explorer(given()).runtime.parts
    assert set(both) == {"explorer", "filters", "grid", "interventions", "layers", "tools"}
    assert both["layers"] is first["layers"]


def test_a_host_that_asks_a_view_for_its_models_finds_all(given):
    """Panel and `ipywidgets.embed` send the models that a view's traits refer to, and nothing else."""
    view = aw.Explorer(given())
    needed = {view.store, view.selection, view.runtime, *view.runtime.parts.values()}
    assert {model.model_id for model in needed} <= dependency_state([view]).keys()
    sent = view.runtime.get_state("parts")["parts"]
    assert sent == {name: f"anywidget:{part.model_id}" for name, part in view.runtime.parts.items()}


def test_every_reader_of_an_app_has_models_of_their_own(given, monkeypatch):
    """Solara and Panel make the kernel of the running reader the current kernel."""
    reader = SimpleNamespace(ident="first")
    kernels = SimpleNamespace(initialized=lambda: True, instance=lambda: reader)
    monkeypatch.setitem(sys.modules, "ipykernel.kernelbase", SimpleNamespace(Kernel=kernels))
    trace = given()
    first, same = aw.Heatmap(trace), aw.Heatmap(trace)
    reader.ident = "second"
    other = aw.Heatmap(trace)
    for name in ("runtime", "store", "selection"):
        assert getattr(first, name) is getattr(same, name)
        assert getattr(first, name) is not getattr(other, name)
