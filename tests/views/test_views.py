"""Views: their arguments and refusals, their cost, and that they end."""

from __future__ import annotations

import base64
import json

import numpy as np
import pytest
import torch
from IPython.core.formatters import DisplayFormatter

import attnwidgets as aw
from attnwidgets.views.wire.runtime import COMMON_PARTS
from attnwidgets.views.wire.thumbnails import decode

from .every import every_view, make


@pytest.mark.parametrize("name", every_view())
def test_an_unknown_keyword_is_refused_with_the_nearest(given, name):
    with pytest.raises(TypeError, match=rf"{name}\(\) takes no keyword 'titl'.*'title'"):
        make(name, given, titl="")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"index_base": 2}, "0 or 1"),
        ({"units": ["wrod"]}, "'token'"),
        ({"units": "token"}, "units=\\['token'\\]"),
        ({"methods": ["atention"]}, "attention"),
        ({"layer": 3}, "0 to 2"),
        ({"head": 9}, "0 to 3"),
    ],
)
def test_options_out_of_range_are_refused(given, models, options, words):
    with pytest.raises((ValueError, IndexError, TypeError), match=words):
        aw.Explorer(given(), **options)
    assert not {"Explorer", "TileStore", "Selection"} & set(models())


@pytest.mark.parametrize("shown", [None, "text", [[0.5, 0.5]], 3])
def test_what_cannot_be_shown_is_refused_with_what_can(shown):
    with pytest.raises(TypeError, match=r"aw\.trace"):
        aw.Heatmap(shown)


def test_a_list_of_traces_is_refused(given):
    with pytest.raises(TypeError, match="a view of each"):
        aw.Heatmap([given(), given()])


def test_marks_are_cells_of_a_heatmap_and_elements_of_a_strip(given):
    trace = given()
    assert aw.Heatmap(trace, marks=[(0, 1), (2, 3)]).options["marks"] == [[0, 1], [2, 3]]
    assert aw.TokenStrip(trace, marks=[4]).options["marks"] == [4]
    with pytest.raises(ValueError, match="query, key"):
        aw.Heatmap(trace, marks=[4])
    with pytest.raises(ValueError, match="indices"):
        aw.TokenStrip(trace, marks=[(0, 1)])
    with pytest.raises(ValueError, match="none"):
        aw.HeadGrid(trace, marks=[1])
    with pytest.raises(IndexError, match="0 to 7"):
        aw.Heatmap(trace, marks=[(0, 8)])
    with pytest.raises(IndexError, match="0 to 7"):
        aw.TokenStrip(trace, marks=[8])


def test_an_explorer_offers_attention_and_rollout_in_every_unit(minilm_trace):
    offered = {(s["method"], s["unit"]) for s in aw.Explorer(minilm_trace).store.header["sources"]}
    assert offered == {(m, u) for m in ("attention", "rollout") for u in ("token", "word", "sentence")}


@pytest.mark.slow
def test_an_assignment_does_not_hold_its_answer(minilm_trace, tmp_path):
    explorer = aw.Explorer(minilm_trace, methods=["attention"], units=["token"])
    assert [s["id"] for s in explorer.store.header["sources"]] == ["attention/token/self"]
    assert explorer.options["methods"] == ["attention"]
    assert explorer.options["units"] == ["token"]
    aw.Explorer(minilm_trace)  # the teacher's, beside it
    page = explorer.to_html(tmp_path / "page.html").read_text()
    assert "rollout/token/self" not in page
    assert "attention/word/self" not in page


def test_an_explorer_of_a_map_offers_it_and_its_rollout(given):
    sources = aw.Explorer(aw.attention(given())).store.header["sources"]
    assert list(dict.fromkeys(s["method"] for s in sources)) == ["attention", "rollout"]


def test_an_explanation_shows_itself(given):
    trace = given()
    assert type(aw.attention(trace).view()).__name__ == "Heatmap"
    assert type(aw.results.Attributions([1.0, -1.0], axis=["a", "b"]).view()).__name__ == "TokenStrip"


@pytest.mark.parametrize("name", every_view())
def test_a_view_without_its_data_saves_in_2400_bytes(given, name):
    view = make(name, given)
    for drop_defaults in (True, False):
        assert len(json.dumps(view._get_embed_state(drop_defaults=drop_defaults))) <= 2400


def test_a_view_displays_as_widget_picture_and_text(given):
    view = aw.Heatmap(given())
    data, _ = view._repr_mimebundle_()
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert base64.b64decode(data["image/png"]).startswith(b"\x89PNG")
    assert data["text/plain"].startswith("Heatmap(")
    assert DisplayFormatter().format(view)[0] == data, "with every ipywidgets"


@pytest.mark.parametrize("name", every_view())
def test_closing_the_last_view_leaves_only_code(given, models, name):
    views = [make(name, given) for _ in range(10)]
    assert models()[name] == 10
    for view in views:
        view.close()
        view.close()  # twice does no harm
    alive = models()
    assert alive.pop("Part", 0) == len({*views[0].needs.scripts, *COMMON_PARTS})
    assert alive == {"Runtime": 1, "Layout": 1}


def test_closing_one_of_two_linked_views_keeps_what_they_share(given, models):
    trace = given()
    first, second = aw.Heatmap(trace), aw.Heatmap(trace)
    first.close()
    assert models()["TileStore"] == models()["Selection"] == 1
    second.close()
    assert models()["TileStore"] == models()["Selection"] == 0


def test_a_runtime_closed_by_others_is_made_again(given):
    from ipywidgets import Widget

    trace = given()
    aw.Heatmap(trace)
    Widget.close_all()
    view = aw.Heatmap(trace)
    assert None not in (view.runtime.comm, view.store.comm, view.selection.comm)


def test_running_a_cell_ten_times_leaks_no_models(given, models, notebook):
    trace = given()
    notebook.run("a", lambda: aw.Explorer(trace))
    after_one = models()
    for _ in range(10):
        view = notebook.run("a", lambda: aw.Explorer(trace))
    assert models() == after_one
    assert view.comm is not None


def test_tracing_again_in_the_cell_leaks_no_models(given, models, notebook):
    notebook.run("a", lambda: aw.Explorer(given()))
    after_one = models()
    for _ in range(10):
        notebook.run("a", lambda: aw.Explorer(given()))
    assert models() == after_one


def test_running_a_cell_again_keeps_the_selection_and_the_other_cells(given, notebook):
    trace = given()
    other = notebook.run("b", lambda: aw.Heatmap(trace))
    notebook.run("a", lambda: aw.Heatmap(trace))
    other.selection.layer = 2
    again = notebook.run("a", lambda: aw.Heatmap(trace))
    assert other.comm is not None
    assert again.selection is other.selection
    assert again.selection.layer == 2


def test_a_cell_that_shows_nothing_any_more_closes_its_view(given, models, notebook):
    view = notebook.run("a", lambda: aw.Heatmap(given()))
    notebook.run("a", lambda: None)
    assert view.comm is None
    assert models()["Heatmap"] == models()["TileStore"] == 0


def test_a_view_made_in_one_cell_lives_in_the_cell_that_shows_it(given, notebook):
    made = []
    trace = given()

    def make():
        made.append(aw.Heatmap(trace))

    notebook.run("make", make)
    notebook.run("show", lambda: made[0])
    notebook.run("make", make)
    assert made[0].comm is not None  # still on the page
    notebook.run("show", lambda: made[1])
    assert made[0].comm is None
    assert made[1].comm is not None


def test_a_closed_view_can_be_shown_again(given):
    view = aw.Heatmap(given(), layer=2, head=1)
    view.close()
    data, _ = view._repr_mimebundle_(exclude={"image/png"})
    assert data["application/vnd.jupyter.widget-view+json"]["model_id"] == view.model_id
    assert (view.selection.layer, view.selection.head) == (2, 1)
    assert None not in (view.comm, view.store.comm, view.selection.comm, view.layout.comm)


def test_explore_traces_and_shows(minilm, sentence):
    explorer = aw.explore(*minilm, sentence, units=["word"], index_base=1, title="mine")
    assert {s["unit"] for s in explorer.store.header["sources"]} == {"word"}
    assert (explorer.options["indexBase"], explorer.options["title"]) == (1, "mine")
    assert explorer.selection.unit == "word"


def test_explore_takes_the_options_of_trace_and_one_or_several_texts(minilm, sentence):
    with pytest.raises(TypeError, match="truncation"):
        aw.explore(*minilm, sentence, truncatoin=True)
    explorer = aw.explore(*minilm, [sentence, "He spoke."])
    assert [trace.text for trace in explorer.traces] == [sentence, "He spoke."]


def test_an_encoder_decoder_offers_every_stack_and_rolls_out_within_one():
    torch = pytest.importorskip("torch")
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    trace = aw.trace(T5ForConditionalGeneration(config).eval(), None, [3, 4, 5, 1])
    explorer = aw.Explorer(trace, units=["token"])
    offered = {(s["method"], s["stack"]) for s in explorer.store.header["sources"]}
    assert offered >= {("attention", s) for s in ("encoder", "decoder", "cross")}
    assert offered >= {("rollout", "encoder"), ("rollout", "decoder")}
    assert ("rollout", "cross") not in offered
    assert explorer.selection.stack == trace.default_stack
    assert aw.Heatmap(aw.attention(trace, stack="cross")).options["stack"] == "cross"


def test_a_view_answers_with_a_copy_of_itself(given, monkeypatch):
    view = aw.Heatmap(given(), title="<i>A")
    told = []
    monkeypatch.setattr(view, "send", lambda reply, buffers: told.append(reply))
    question = {"kind": "ask", "id": "page", "topic": "page", "args": {"why": "Error: <b>gone</b>."}}
    view._handle_custom_msg(question, [])
    answer = next(reply for reply in told if reply["kind"] == "answer")
    assert answer["id"] == "page"
    assert "(&lt;b&gt;gone&lt;/b&gt;)" in answer["meta"]
    assert 'sandbox="allow-scripts allow-downloads"' in answer["meta"]
    assert view.frame()._repr_html_() in answer["meta"]


@pytest.mark.parametrize("number", [0.0, -0.25])
def test_zeros_and_negative_numbers_are_shown_as_what_they_are(tmp_path, number):
    numbers = np.full((2, 3, 4, 4), number, dtype=np.float32)
    trace = aw.from_attentions(numbers, list("abcd"))
    views = [
        getattr(aw, name)(trace) for name in ("Heatmap", "HeadGrid", "HeadView", "TokenStrip", "Explorer")
    ]
    source = next(s for s in views[0].store.sources() if s.id == "attention/token/self")
    assert not source.causal  # a triangle of zeros is a mask only beside something else
    assert source.signed == (number < 0)
    tile = source.tile(1, 2)
    result = decode(tile.data, tile.codec, tile.rows, tile.cols, tile.scale)
    np.testing.assert_allclose(result, numbers[1, 2], atol=1e-6)
    assert aw.to_html(views, tmp_path / "page.html").exists()


@pytest.mark.parametrize("name", every_view())
def test_the_picture_of_a_display_runs_no_model(given, name, monkeypatch):
    view = make(name, given)
    monkeypatch.setattr(torch.nn.LayerNorm, "forward", lambda *_: pytest.fail("the model ran"))
    picture = view._png()
    assert (picture is None) == (name == "LayerSlider")
