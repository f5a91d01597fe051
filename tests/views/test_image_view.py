"""ImageView: rows instead of matrices, and shares beside the picture, against the attention itself."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.views.media.handlers import FEW_BYTES, OUTLIER
from attnwidgets.views.still.patches import picture_sheet
from attnwidgets.views.wire.thumbnails import dequantise
from attnwidgets.vision.token_norms import TIMES
from tests.tracing import tiny
from tests.tracing.picture_families import FAMILIES
from tests.tracing.picture_families import traced as picture_and_text
from tests.tracing.pictures import PICTURES, _model
from tests.views.test_html import read
from tests.vision import planted
from tests.vision.test_captions import traced

GRID = (4, 6)


def pixels(rows=GRID[0], columns=GRID[1], side=8):
    return torch.rand(3, rows * side, columns * side, generator=torch.Generator().manual_seed(3))


@pytest.fixture(scope="module")
def trace():
    options = {"image_size": (32, 48), "patch_size": 8, "initializer_range": 0.3, "num_labels": 3}
    return aw.trace(tiny.build(_model("ViT", "ForImageClassification", **options)), None, image=pixels())


def rows_of(view, **args):
    """The numbers of the browser: values of patches [layer, head, patch], their sums, and the others."""
    [source] = [item for item in view.sources() if item.method == "attention" and item.unit == "patch"]
    asked = {"source": source.id, "side": "query", "index": 0, "computed": None} | args
    meta, (codes, scale, sums, rest, *_) = view.requests.answer("reads", asked)
    scale = np.frombuffer(scale, "<f4").reshape(len(meta["layers"]), meta["heads"])
    codes = np.frombuffer(codes, np.uint8).reshape(*scale.shape, -1)
    values = np.stack(
        [
            [dequantise(head, float(top), signed=meta["signed"]) for head, top in zip(*line, strict=True)]
            for line in zip(codes, scale, strict=True)
        ]
    )
    others = np.frombuffer(rest, "<f4").reshape(*scale.shape, -1)
    return meta, values, np.frombuffer(sums, "<f4").reshape(scale.shape), others, scale


@pytest.mark.parametrize("index", [0, 7])
def test_what_an_element_reads_is_its_row_of_every_head(trace, index):
    meta, values, sums, others, scale = rows_of(aw.ImageView(trace), index=index)
    exact = np.stack([trace.attention_layer(layer)[:, index].numpy() for layer in meta["layers"]])
    assert meta["grid"] == list(GRID)
    assert np.abs(values - exact[..., 1:]).max() <= (scale / 127).max()
    np.testing.assert_allclose(others[..., 0], exact[..., 0], rtol=1e-6)
    np.testing.assert_allclose(scale, exact[..., 1:].max(-1), rtol=1e-6)
    # Shares beside the picture and on it sum to 1, without rescaling.
    np.testing.assert_allclose(sums + others.sum(-1), 1.0, atol=1e-5)


def test_who_reads_an_element_is_its_column(trace):
    view = aw.ImageView(trace)
    source = view.sources()[0]
    asked = {"source": source.id, "side": "key", "index": 5, "computed": None}
    _, (_, scale, *_) = view.requests.answer("readers", asked)
    exact = np.stack([trace.attention_layer(layer)[:, 1:, 5].numpy().max(-1) for layer in source.layers])
    np.testing.assert_allclose(np.frombuffer(scale, "<f4").reshape(exact.shape), exact, rtol=1e-6)


def test_patches_of_windows_are_told_row_by_row():
    qwen = PICTURES["Qwen2-VL"]
    recorded = qwen.trace_of(tiny.build(qwen.make), qwen.picture())
    view = aw.ImageView(recorded)
    source = next(item for item in view.sources() if (item.stack, item.unit) == ("vision", "patch"))
    asked = {"source": source.id, "side": "query", "index": 0, "computed": None}
    meta, (codes, scale, *_) = view.requests.answer("reads", asked)
    unit = recorded.axes("vision")[1].units["patch"]
    exact = recorded.attention_layer(0, "vision")[0, 0].numpy()
    [order] = meta["patches"]
    assert [unit.cells[element] for element in order] == list(range(24))
    first = np.frombuffer(codes, np.uint8)[:24]
    decoded = dequantise(first, float(np.frombuffer(scale, "<f4")[0]), signed=False)
    assert np.abs(decoded - exact[order]).max() < exact.max() / 100


def test_no_matrix_travels_with_it_unless_another_view_reads_them(trace):
    view = aw.ImageView(trace)
    assert view.store.header["tiles"] == view.store.header["thumbs"] == []
    assert view.store.eager == b""
    heatmap = aw.Heatmap(trace)
    assert heatmap.store is view.store
    assert view.store.header["tiles"]


def test_it_shows_patches_whatever_unit_a_linked_view_shows(trace):
    aw.Heatmap(trace, unit="token")
    view = aw.ImageView(trace)
    assert view.selection.unit == "token"
    assert "4 × 6 patches" in view.describe()
    view.selection.unit = "patch"  # other tests share the selection of this trace


def test_it_opens_on_the_class_token_and_says_its_shares(trace):
    view = aw.ImageView(trace)
    opening = view.selection.opening
    assert (opening.query, opening.words) == (0, "reads few adjacent patches from [CLS]")
    row = trace.attention_layer(view.selection.layer)[view.selection.head, 0].numpy()
    words = view.describe()
    shares = [float(share) / 100 for share in re.findall(r"([\d.]+)%", words)]
    assert shares == pytest.approx([row[0], row[1:].sum()], abs=1e-3)
    at = divmod(int(row[1:].argmax()), GRID[1])
    assert f"patch {at[0]},{at[1]}" in words


def test_without_a_class_token_it_opens_on_the_patch_in_the_middle():
    siglip = PICTURES["SigLIP"]
    view = aw.ImageView(siglip.trace_of(tiny.build(siglip.make), siglip.picture()))
    assert view.options["stack"] == "vision"  # not that of the text, which comes first
    assert "patch 1,1 gives" in view.describe()


def test_a_page_holds_the_picture_once_and_rows_instead_of_matrices(trace, tmp_path):
    views = [aw.ImageView(trace), aw.ImageView(trace)]
    _, state, blobs = read(aw.to_html(views, tmp_path / "page.html"))
    assert [name for name in blobs if "media" in name] == ["aw-data-media0"]
    assert state["models"]["store0"]["state"]["media"] == "anywidget:media0"
    assert state["models"]["media0"]["state"]["media"]["kind"] == "picture"
    assert state["archive"]["store0"] == []
    in_page = [answer["args"] for answer in state["answers"]["view0"] if answer["topic"] == "reads"]
    attention = [args["index"] for args in in_page if args["source"] == "attention/patch/self"]
    assert FEW_BYTES > 2 * 4 * 24 * 25  # so few that every patch is there
    assert attention == list(range(25))


def test_a_page_of_a_heatmap_holds_no_picture(trace, tmp_path):
    aw.ImageView(trace)
    _, state, _ = read(aw.Heatmap(trace).to_html(tmp_path / "page.html"))
    assert "media0" not in state["models"]


def test_norms_are_those_of_hidden_states(trace):
    view = aw.ImageView(trace)
    meta, [data, _] = view.requests.answer("norms", {"stack": "self"})
    norms = np.frombuffer(data, "<f4").reshape(meta["layers"], -1)
    with torch.no_grad():
        states = trace.model(trace.inputs["pixel_values"], output_hidden_states=True).hidden_states
    assert meta["outlier"] == OUTLIER == TIMES
    np.testing.assert_allclose(norms[0], states[1][0].norm(dim=-1).numpy(), rtol=1e-5)


def test_norms_with_test_time_registers_are_those_of_the_pass_with_them():
    full = aw.trace(planted.models()[0], None, image=planted.picture())
    neurons = [(planted.LAYER, planted.UNIT)]
    view = aw.ImageView(full, registers=neurons)
    assert view.options["registers"]
    meta, [data, added] = view.requests.answer("norms", {"stack": "self", "registers": True})
    with aw.vision.test_time_registers(full, neurons):
        expected = aw.vision.token_norms(full.rerun()).values
    assert meta["registers"] == ["[REG0]"]
    norms = np.frombuffer(data, "<f4").reshape(meta["layers"], -1)
    np.testing.assert_allclose(norms, expected[:, :-1], rtol=1e-5)
    np.testing.assert_allclose(np.frombuffer(added, "<f4"), expected[:, -1], rtol=1e-5)
    without, [data, _] = view.requests.answer("norms", {"stack": "self"})
    assert without["registers"] == []
    assert np.frombuffer(data, "<f4").max() > 10 * norms.max()
    assert full.rerun().tokens == full.tokens


def test_registers_that_cannot_be_are_refused(trace):
    with pytest.raises(IndexError, match="unit 999 is out of range"):
        aw.ImageView(trace, registers=[(0, 999)])
    with pytest.raises(ValueError, match="norms with registers need the neurons"):
        aw.ImageView(trace).requests.answer("norms", {"stack": "self", "registers": True})


def test_attributions_have_a_map_for_every_target_in_one_scale_of_signs(trace):
    given = [aw.input_x_gradient(trace, target=target) for target in range(3)]
    view = aw.ImageView(given)
    [source] = view.sources()
    asked = {"source": source.id, "side": "query", "index": 0, "computed": None}
    meta, (codes, scale, sums, *_) = view.requests.answer("reads", asked)
    assert (meta["signed"], meta["heads"]) == (True, 3)
    exact = np.stack([item.to("patch").values for item in given])
    decoded = dequantise(
        np.frombuffer(codes, np.uint8).reshape(3, -1)[1], float(np.frombuffer(scale, "<f4")[1]), signed=True
    )
    assert np.abs(decoded - exact[1, 1:]).max() < np.abs(exact[1, 1:]).max() / 60
    np.testing.assert_allclose(np.frombuffer(sums, "<f4"), exact[:, 1:].sum(1), rtol=1e-5)
    assert view.store.media is not None  # its trace is in memory


def test_maps_of_a_picture_are_shown_on_it(trace):
    assert type(aw.rollout(trace).view()).__name__ == "ImageView"
    assert type(aw.saliency(trace).view()).__name__ == "ImageView"
    explorer = aw.Explorer(trace)
    assert "image" in explorer.runtime.parts
    assert explorer.selection.unit == "patch"
    assert explorer.store.media is not None


def test_an_explorer_of_a_picture_and_its_caption_opens_on_the_picture():
    clip = PICTURES["CLIP"]
    recorded = clip.trace_of(tiny.build(clip.make), clip.picture().sigmoid())
    explorer = aw.Explorer(recorded)
    assert (explorer.selection.stack, explorer.selection.unit) == ("vision", "patch")
    assert {source.stack for source in explorer.sources()} == {"vision", "text"}
    assert explorer._shows_picture


def test_a_picture_with_padding_opens_on_a_patch():
    siglip = PICTURES["SigLIP 2"]
    recorded = siglip.trace_of(tiny.build(siglip.make), siglip.picture().sigmoid())
    assert "[PAD]" in recorded.units["patch"].labels
    view = aw.ImageView(recorded)
    assert "patch 1,1 gives" in view.describe()
    assert view.selection.opening.query == recorded.units["patch"].labels.index("1,1")


def test_words_of_a_caption_are_in_the_menu_of_a_model_that_compares_and_nowhere_else(trace):
    recorded = traced("CLIP")[1]
    explorer = aw.Explorer(recorded, methods=["attention", "caption_words"])
    explorer.selection.method = "caption_words"
    [source] = {
        item for item in explorer.sources() if item.method == "caption_words" and item.unit == "patch"
    }
    assert source.axes()[0]["labels"] == ["the", "unbelievable", "cat"]
    result = aw.explain(recorded, "caption_words")
    np.testing.assert_allclose(source.layer(0)[0], result.layer(0), rtol=1e-5)
    assert explorer.describe().startswith("Chefer's relevance for words")
    assert aw.methods(recorded).refusals["caption_words"] == ""
    assert "compares a picture with a caption" in aw.methods(trace).refusals["caption_words"]


def test_an_explorer_of_a_text_has_no_part_for_pictures(given):
    explorer = aw.Explorer(given())
    assert "image" not in explorer.needs.scripts
    assert explorer.store.media is None


@pytest.mark.parametrize(
    ("queries", "words"),
    [([(4, 0)], "no patch (4, 0); rows are 0 to 3"), ("none", "queries 'none' is not one of 'all'")],
)
def test_patches_that_are_not_there_are_named(trace, queries, words):
    with pytest.raises(ValueError, match=re.escape(words)):
        aw.ImageView(trace, queries=queries)


def test_a_text_is_refused_with_what_to_give(given):
    with pytest.raises(ValueError, match=r"aw.trace\(model, processor, image=picture\)"):
        aw.ImageView(given())


def test_several_views_of_a_picture_are_refused_with_the_view_that_shows_them():
    family = FAMILIES["Idefics 3"]
    picture = np.random.default_rng(0).integers(0, 256, (*family.size, 3), dtype=np.uint8)
    trace = picture_and_text(family.model(), family.processor(), picture)
    with pytest.raises(ValueError, match=r"several views of it, or padding: aw\.vision\.sources"):
        aw.ImageView(trace)


@pytest.mark.slow
def test_a_figure_shows_the_map_over_the_picture(trace, tmp_path):
    view = aw.ImageView(trace)
    view.save(tmp_path / "figure.svg")
    text = (tmp_path / "figure.svg").read_text(encoding="utf-8")
    assert "head 3" in text  # every head of the layer
    assert "24 patches" in text
    row = trace.attention_layer(view.selection.layer)[view.selection.head, 0, 1:].numpy()
    large, _ = picture_sheet(view).parts[0].left.parts
    np.testing.assert_allclose(large.maps[0], row.reshape(GRID), rtol=1e-6)
    np.testing.assert_array_equal(large.pixels, trace.picture.seen)
