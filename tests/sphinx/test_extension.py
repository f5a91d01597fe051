"""A site of pages with views: their contents, and Sphinx's messages about wrong pages."""

from __future__ import annotations

import base64
import json
import re
import sys

import pytest

import attnwidgets as aw
from attnwidgets import sphinx as extension
from attnwidgets.course.records import MIME
from tests.sphinx.site import NASTY, attention, broken_links, build

INDEX = """
Course
======

.. toctree::

   second

.. attnwidgets:: attention.safetensors
   :view: Heatmap
   :layer: 1
   :head: 2
   :title: One head

.. attnwidgets:: attention.safetensors
   :view: TokenStrip
"""
SECOND = """
Second
======

.. attnwidgets:: /attention.safetensors
"""


@pytest.fixture
def site(tmp_path):
    """Builds pages beside a saved explanation."""
    (tmp_path / "source").mkdir()
    attention().save(tmp_path / "source" / "attention.safetensors")
    return lambda pages, *args, **settings: build(tmp_path, pages, *args, **settings)


def state_of(page):
    text = page.read_text(encoding="utf-8")
    return text, json.loads(
        re.search(r'<script type="application/json" id="aw-state">(.*?)</script>', text)[1]
    )


@pytest.mark.slow
def test_pages_hold_their_views_and_share_one_runtime(site):
    out, warnings = site(
        {"index.rst": INDEX, "second.rst": SECOND, "plain.rst": ":orphan:\n\nPlain\n=====\n"}
    )
    assert warnings == ""
    text, state = state_of(out / "index.html")
    views = re.findall(r'<div class="aw-view" data-model="([\w-]+)"', text)
    assert views == state["views"]
    heatmap, strip = (state["models"][name] for name in views)
    assert (heatmap["view"], strip["view"]) == ("Heatmap", "TokenStrip")
    assert heatmap["state"]["selection"] == strip["state"]["selection"]  # linked
    selection = state["models"][heatmap["state"]["selection"].removeprefix("anywidget:")]["state"]
    assert (selection["layer"], selection["head"]) == (1, 2)
    assert heatmap["state"]["options"]["title"] == "One head"
    assert state_of(out / "second.html")[1]["models"]
    scripts = {
        re.search(r'src="(_static/attnwidgets\.js[^"]*)"', (out / f"{name}.html").read_text())[1]
        for name in ("index", "second")
    }
    assert len(scripts) == 1
    assert "attnwidgets.js" not in (out / "plain.html").read_text()
    assert len(list(out.rglob("attnwidgets*.js"))) == 1
    assert broken_links(out) == []


def test_views_of_one_page_do_not_move_those_of_another(site):
    out, _ = site({"index.rst": INDEX, "second.rst": SECOND})
    _, state = state_of(out / "second.html")
    selection = next(model["state"] for model in state["models"].values() if model["kind"] == "selection")
    explanation = attention()
    view = explanation.view()
    assert (selection["layer"], selection["head"]) == (view.selection.layer, view.selection.head)


def test_text_stays_text(tmp_path):
    (tmp_path / "source").mkdir()
    attention(NASTY).save(tmp_path / "source" / "nasty.safetensors")
    page = ".. attnwidgets:: nasty.safetensors\n   :title: </div><script>hacked()</script>\n"
    out, warnings = build(tmp_path, {"index.rst": f"Nasty\n=====\n\n{page}"})
    assert warnings == ""
    text, _ = state_of(out / "index.html")
    assert "<script>window.hacked" not in text
    assert "<script>hacked" not in text
    assert "<img src=x" not in text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("directive", "words"),
    [
        ("nowhere.safetensors", "file 'nowhere.safetensors' does not exist"),
        ("index.rst", "not a saved explanation"),
        ("attention.safetensors\n   :view: Heatmp", "unknown view 'Heatmp'. Did you mean 'Heatmap'?"),
        ("attention.safetensors\n   :view: Heatmap\n   :layr: 1", "no keyword 'layr'. Did you mean 'layer'?"),
        ("attention.safetensors\n   :layer: 9", "layer"),
        ("attention.safetensors\n   :height: tall", "height"),
        ("attention.safetensors\n   :view: ScorecardView", ""),
    ],
)
def test_what_is_wrong_is_said_with_file_and_line(site, directive, words):
    out, warnings = site({"index.rst": f"Wrong\n=====\n\nText.\n\n.. attnwidgets:: {directive}\n\nMore.\n"})
    first = warnings.splitlines()[0]
    assert re.search(r"source/index\.rst:6: WARNING: attnwidgets: ", first), warnings
    assert words in warnings
    assert "More." in (out / "index.html").read_text()  # the rest of the page is built


def test_a_changed_file_is_read_again(site, tmp_path):
    out, _ = site({"index.rst": SECOND})
    before = state_of(out / "index.html")[0]
    attention(layers=3).save(tmp_path / "source" / "attention.safetensors")
    out, _ = site({})
    assert state_of(out / "index.html")[0] != before


@pytest.mark.slow
def test_a_page_keeps_to_its_budget(site, tmp_path):
    attention([f"t{index}" for index in range(60)], layers=6, heads=8).save(
        tmp_path / "source" / "attention.safetensors"
    )
    sizes = [
        (site({"index.rst": SECOND}, attnwidgets_budget=budget)[0] / "index.html").stat().st_size
        for budget in (60_000, 850_000)
    ]
    assert sizes[0] < 80_000 < sizes[1]


def test_other_builders_show_words(site):
    out, warnings = site({"index.rst": INDEX.replace("   second\n", "")}, "text")
    assert warnings == ""
    text = " ".join((out / "index.txt").read_text().split())
    assert "Attention in layer 1, head 2" in text
    assert "aw-state" not in text


def test_without_sphinx_it_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("attnwidgets.sphinx.")]:
        monkeypatch.delitem(sys.modules, name)
    for name in [name for name in sys.modules if name.partition(".")[0] in {"sphinx", "docutils"}]:
        monkeypatch.delitem(sys.modules, name)
    for name in ("sphinx", "docutils"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ModuleNotFoundError, match="pip install sphinx"):
        extension.setup(None)


def test_public_views_are_those_that_a_page_can_name(site):
    _, warnings = site({"index.rst": "A\n=\n\n.. attnwidgets:: attention.safetensors\n   :view: x\n"})
    named = re.search(r"The views are ([\w, ]+)", warnings)[1].split(", ")
    assert set(named) < {*aw.__all__, *aw.views.__all__}
    assert {"Explorer", "Heatmap", "TokenStrip", "LensView"} <= set(named)


def notebook_showing(data):
    """Return a notebook whose only cell has an output."""
    cell = {"cell_type": "code", "id": "b", "execution_count": 1, "metadata": {}}
    shown = {"output_type": "execute_result", "execution_count": 1, "metadata": {}, "data": data}
    notebook = {
        "cells": [
            {"cell_type": "markdown", "id": "a", "metadata": {}, "source": "# Kept"},
            {**cell, "source": "import attnwidgets as aw\nview", "outputs": [shown]},
        ],
        "metadata": {"kernelspec": {"name": "python3", "display_name": "Python 3"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(notebook)


@pytest.mark.slow
def test_a_notebook_that_was_not_executed_shows_its_pictures(tmp_path, root):
    pytest.importorskip("myst_nb", reason="pip install myst-nb (make test does it)")
    picture = base64.b64encode((root / "docs" / "design-light.png").read_bytes()).decode()
    widget = {"model_id": "0123", "version_major": 2, "version_minor": 0}
    data = {
        "application/vnd.jupyter.widget-view+json": widget,
        "image/png": picture,
        "text/plain": "Heatmap()",
    }
    pages = {"index.ipynb": notebook_showing(data)}
    extensions = ["myst_nb", "attnwidgets.sphinx"]
    out, warnings = build(tmp_path, pages, extensions=extensions, nb_execution_mode="off")
    assert "index.ipynb: WARNING: attnwidgets: this notebook was not executed" in warnings
    text = (out / "index.html").read_text()
    assert len(re.findall(r"<img [^>]*\.png", text)) == 1
    assert "shown_views" not in text
    assert "widget-view" not in text


@pytest.mark.slow
def test_the_record_of_an_answer_is_no_unknown_output_and_is_not_shown(tmp_path, monkeypatch):
    pytest.importorskip("myst_nb", reason="pip install myst-nb (make test does it)")
    monkeypatch.chdir(tmp_path)  # the folder of the answer
    question = aw.ask.number("How many?", id="sphinx-record")  # no other test asks by this name
    question.answer = 7
    data = {MIME: question.record, "text/html": "<p>How many?</p>", "application/x-other": "x"}
    extensions = ["myst_nb", "attnwidgets.sphinx"]
    pages = {"index.ipynb": notebook_showing(data)}
    out, warnings = build(tmp_path, pages, extensions=extensions, nb_execution_mode="off")
    unknown = re.findall(r"unknown output mime type: (\S+)", warnings)
    assert unknown == ["application/x-other"]
    text = (out / "index.html").read_text()
    assert "<p>How many?</p>" in text
    assert MIME not in text


COMPUTES = """---
file_format: mystnb
---
# Induction

```{code-cell}
import attnwidgets as aw
model, tokenizer = aw.zoo.induction()
aw.Heatmap(aw.trace(model, tokenizer, "TEXT"))
```
"""


@pytest.mark.slow
def test_notebooks_of_a_site_compute_and_share_a_model(tmp_path):
    pytest.importorskip("myst_nb", reason="pip install myst-nb (make test does it)")
    pages = {
        "index.md": COMPUTES.replace("TEXT", "fadebc") + "\n```{toctree}\nweek/two\n```\n",
        "week/two.md": COMPUTES.replace("TEXT", "abcabc"),
    }
    settings = {"extensions": ["myst_nb", "attnwidgets.sphinx"], "attnwidgets_live": "auto"}
    out, warnings = build(tmp_path, pages, nb_execution_mode="force", nb_execution_timeout=600, **settings)
    assert warnings == ""
    [model] = (out / "_static" / "attnwidgets-files").iterdir()
    for page, up in (("index.html", ""), ("week/two.html", "../")):
        text, state = state_of(out / page)
        [live] = state["live"]
        assert live["files"]["folder"] == f"{up}_static/attnwidgets-files/{model.name}/"
        bar, view = re.findall(r'<div class="aw-view"( data-live)? data-model="([\w-]+)"', text)
        assert bar == (" data-live", live["bar"])
        assert view == ("", state["views"][0])
        assert (out / page).parent.joinpath(live["files"]["folder"], "part-000.js").is_file()
