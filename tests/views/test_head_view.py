"""HeadView: its options, heads in one message, a token's numbers; and figures of views."""

from __future__ import annotations

import matplotlib as mpl
import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.figures.theme import LIGHT
from attnwidgets.views.wire import handlers
from attnwidgets.views.wire.thumbnails import decode


@pytest.fixture
def pair():
    """A trace of two texts: two tokens of the first, three of the second."""
    numbers = np.random.default_rng(1).dirichlet(np.ones(5), (2, 3, 5)).astype(np.float32)
    return aw.from_attentions(numbers, list("abcde"), second_text=2)


def layer_of(view, heads, layer=1):
    source = view.sources()[0]
    request = {"kind": "layer", "id": 5, "source": source.id, "layer": layer, "heads": heads}
    reply, buffers = view.store.answer(request)
    assert reply["id"] == 5
    result = {
        meta["head"]: decode(
            buffers[0][meta["offset"] : meta["offset"] + meta["length"]],
            meta["codec"],
            meta["rows"],
            meta["cols"],
            meta["scale"],
        )
        for meta in reply["tiles"]
    }
    return source, reply, result


def test_heads_and_texts_are_chosen_at_first(pair):
    view = aw.HeadView(pair, heads=[2, 0], between="A-B")
    assert view.options["heads"] == [2, 0]
    assert view.options["between"] == "A-B"
    assert aw.HeadView(pair).options["heads"] is None
    with pytest.raises(IndexError, match="heads: 3 is out of range: the heads are 0 to 2"):
        aw.HeadView(pair, heads=[3])
    with pytest.raises(ValueError, match="'A-B'"):
        aw.HeadView(pair, between="A-b")
    with pytest.raises(TypeError, match="Did you mean 'heads'"):
        aw.HeadView(pair, hedas=[1])
    with pytest.raises(IndexError, match="this map has no heads"):
        aw.HeadView(aw.rollout(pair), heads=[1])


def test_a_filter_between_texts_needs_two(given):
    with pytest.raises(ValueError, match="this input is one text"):
        aw.HeadView(given(), between="A-B")


def test_what_the_reader_chose_stays_when_the_view_is_shown_again(pair):
    view = aw.HeadView(pair)
    view.options = view.options | {"heads": [1]}  # as the browser does
    view.close()
    view._repr_mimebundle_(exclude={"image/png"})
    assert view.options["heads"] == [1]


def test_one_message_brings_several_heads_of_a_layer(given, causal):
    trace = aw.from_attentions(causal((2, 4, 9, 9)), [f"t{i}" for i in range(9)])
    source, reply, result = layer_of(aw.HeadView(trace), [3, 1, "mean"])
    assert list(result) == [3, 1, "mean"]
    assert reply["refused"] == []
    for head, matrix in result.items():
        np.testing.assert_allclose(matrix, source.matrix(1, head), atol=0.004)


def test_heads_that_a_layer_has_not_are_refused_in_words_and_the_others_come():
    numbers = [np.full((heads, 3, 3), 1 / 3, dtype=np.float32) for heads in (4, 2)]
    view = aw.HeadView(aw.from_attentions(numbers, list("abc")))
    _, reply, result = layer_of(view, [0, 1, 2, 3])
    assert list(result) == [0, 1]
    assert [refused["head"] for refused in reply["refused"]] == [2, 3]
    assert "head=2 is not in layer 1" in reply["refused"][0]["message"]


def test_a_message_takes_no_more_heads_than_fit(given, monkeypatch):
    monkeypatch.setattr(handlers, "LAYER_BYTES", 150)  # a head of 8 tokens takes 64
    view = aw.HeadView(given())
    _, reply, result = layer_of(view, [0, 1, 2, 3])
    assert list(result) == [0, 1]  # neither refused nor here: the browser asks again
    assert reply["refused"] == []
    assert list(layer_of(view, [2, 3])[2]) == [2, 3]


@pytest.mark.parametrize("side", ["query", "key"])
def test_a_token_is_told_exactly_in_every_head(given, side):
    view = aw.HeadView(given())
    source = view.sources()[0]
    args = {"source": source.id, "layer": 2, "side": side, "index": 3}
    meta, (data,) = view.requests.answer("token", args)
    assert meta["heads"] == [0, 1, 2, 3]
    told = np.frombuffer(data, dtype="<f4").reshape(4, 8)
    values = source.layer(2)
    np.testing.assert_array_equal(told, values[:, 3] if side == "query" else values[:, :, 3])
    with pytest.raises(IndexError, match="8 is out of range"):
        view.requests.answer("token", args | {"index": 8})
    with pytest.raises(LookupError, match="shows no"):
        view.requests.answer("token", args | {"source": "another"})


def test_only_a_view_s_own_maps_are_told(given):
    trace = given()
    aw.Heatmap(aw.rollout(trace))
    view = aw.HeadView(trace)
    with pytest.raises(LookupError):
        view.requests.answer(
            "token", {"source": "rollout/token/self", "layer": 0, "side": "query", "index": 0}
        )


# Figures


def figure_of(view):
    return view.figure()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["HeadView", "Heatmap", "HeadGrid", "TokenStrip"])
@pytest.mark.parametrize(("ending", "magic"), [("svg", b"<?xml"), ("pdf", b"%PDF"), ("png", b"\x89PNG")])
def test_a_view_is_saved_without_a_browser(given, tmp_path, name, ending, magic):
    view = getattr(aw, name)(given(tokens=["$x_1$", "a_b", "\\frac{", "%", "#", "&", "<b>", "日本"]))
    path = view.save(tmp_path / f"figure.{ending}")
    assert path.read_bytes().startswith(magic)


def test_labels_are_no_formulas_for_readers_who_set_latex(given, tmp_path):
    with mpl.rc_context({"text.usetex": True}):  # there need not be a LaTeX here
        written = aw.HeadView(given(tokens=["$", "_", "^", "{", "}", "\\", "#", "%"])).save(
            tmp_path / "a.svg"
        )
        assert mpl.rcParams["text.usetex"] is True
    assert written.stat().st_size > 10_000


def test_a_heatmap_is_saved_as_it_is_looked_at(given):
    view = aw.Heatmap(given(), layer=2, head=1, hide_special=False, threshold=0.05)
    view.selection.pinned = (3, 5)
    axes = figure_of(view).axes[0]
    shown = np.ma.filled(axes.images[0].get_array(), np.nan)
    values = view.sources()[0].matrix(2, 1)
    np.testing.assert_allclose(shown, np.where(values < 0.05, np.nan, values))
    accent = mpl.colors.to_rgba(LIGHT.accent)
    outlined = [patch for patch in axes.patches if patch.get_edgecolor() == accent]
    assert [patch.get_xy() for patch in outlined] == [(4.5, 2.5)]


def test_masked_cells_are_left_empty(causal):
    view = aw.Heatmap(aw.from_attentions(causal((1, 1, 6, 6)), list("abcdef")))
    shown = np.ma.getmaskarray(np.ma.masked_invalid(figure_of(view).axes[0].images[0].get_array()))
    np.testing.assert_array_equal(shown, ~np.tri(6, dtype=bool))


def test_the_figure_of_heads_draws_the_strongest_lines_and_of_a_pinned_token_all_with_bars(pair):
    view = aw.HeadView(pair, heads=[0, 2], layer=1)
    lines, *_ = figure_of(view).axes[0].collections
    # Three of each token, but all of the current one: from two heads to five tokens.
    assert len(lines.get_paths()) == 4 * 3 + 2 * 5
    view.selection.pinned = (3, -1)
    axes = figure_of(view).axes[0]
    assert len(axes.collections[0].get_paths()) == 4 * 3 + 2 * 5
    tall = [abs(bar.get_height()) for bar in axes.patches]
    assert len(tall) == 2 * 5
    values = view.sources()[0].layer(1)[[0, 2], 3].ravel()
    np.testing.assert_allclose(np.square(np.array(tall) / max(tall)), values / values.max(), rtol=1e-5)


def test_the_figure_of_heads_keeps_to_the_texts_chosen(pair):
    view = aw.HeadView(pair, between="B-A", heads=range(3))
    lines, *_ = figure_of(view).axes[0].collections
    # Three of each token of B; all of the current one, from three heads to two tokens of A.
    assert len(lines.get_paths()) == 3 * 2 + 3 * 2


def test_a_page_tells_what_the_pinned_token_reads(pair):
    view = aw.HeadView(pair, layer=1)
    assert list(view.requests.for_page()) == []
    view.selection.pinned = (3, 1)
    told = [
        item for item in view.requests.for_page() if item[0] == "token" and "/token/" in item[1]["source"]
    ]
    assert [args["layer"] for _, args, _ in told] == [1, 0]  # the selected layer first
    for _, args, answer in told:
        meta, (data,) = answer()
        assert (args["side"], args["index"], meta["heads"]) == ("query", 3, [0, 1, 2])
        rows = np.frombuffer(data, "<f4").reshape(3, 5)
        np.testing.assert_array_equal(rows, aw.attention(pair).layer(args["layer"])[:, 3])


def test_a_negative_layer_counts_from_the_last() -> None:
    trace = aw.trace(*aw.demo_model("encoder"), "The cat sat.")
    last = trace.layers()[-1]
    assert aw.HeadView(trace, layer=-1).selection.layer == last
    with pytest.raises(IndexError, match=f"layer -{last + 2} is out of range"):
        aw.HeadView(trace, layer=-last - 2)
