"""Standalone pages: one file, nothing from elsewhere, nothing that runs but our script."""

from __future__ import annotations

import base64
import json
import re
import zlib

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.wire.thumbnails import decode

NASTY = [
    "</script><script>window.hacked=1</script>",
    "<img src=x onerror=hacked()>",
    "a\0b",
    "\u202eabc",
    "<!--",
    "'\"&",
]


def read(page):
    text = page.read_text(encoding="utf-8")
    state = json.loads(
        re.search(r'<script type="application/json" id="aw-state">(.*?)</script>', text, re.DOTALL)[1]
    )
    blobs = dict(
        re.findall(
            r'<script type="application/octet-stream;base64" id="(.*?)">(.*?)</script>', text, re.DOTALL
        )
    )
    return text, state, {name: base64.b64decode(blob) for name, blob in blobs.items()}


def tiles_of(state, blobs, store="store0"):
    """Every tile in the page, decoded."""
    eager = zlib.decompress(blobs[f"aw-data-{store}"])
    result = {}
    for tile in state["models"][store]["state"]["header"]["tiles"]:
        data = eager[tile["offset"] : tile["offset"] + tile["length"]]
        result[tile["source"], tile["layer"], tile["head"]] = (tile, data)
    for tile in state["archive"][store]:
        data = zlib.decompress(blobs[f"aw-tiles-{store}"][tile["offset"] : tile["offset"] + tile["length"]])
        result[tile["source"], tile["layer"], tile["head"]] = (tile, data)
    return {at: decode(d, t["codec"], t["rows"], t["cols"], t["scale"]) for at, (t, d) in result.items()}


def test_views_have_headings_and_links_to_them(given, tmp_path):
    views = [aw.Heatmap(given()), aw.LayerSlider(given())]
    text, _, _ = read(aw.to_html(views, tmp_path / "page.html", headings=["One", "<b>Two"]))
    assert re.findall(r'<a href="#(\w+)">(.*?)</a>', text) == [("view0", "One"), ("view1", "&lt;b&gt;Two")]
    assert re.findall(r'<h2 id="(\w+)">.*?</h2>\n<div class="aw-view" data-model="(\w+)">', text) == [
        ("view0", "view0"),
        ("view1", "view1"),
    ]
    assert "<nav" not in read(aw.to_html(views, tmp_path / "page.html"))[0]
    with pytest.raises(ValueError, match="1 for 2 views"):
        aw.to_html(views, tmp_path / "page.html", headings="One")


def test_a_page_holds_every_matrix(given, tmp_path):
    trace = given(80, layers=3, heads=4)
    view = aw.Heatmap(trace, layer=1, units=["token"])
    _, state, blobs = read(view.to_html(tmp_path / "page.html"))
    tiles = tiles_of(state, blobs)
    attention = aw.attention(trace)
    assert len(tiles) == 3 * (4 + 2)
    for (_, layer, head), values in tiles.items():
        assert np.abs(values - attention.matrix(layer, head)).max() <= 1 / 255
    assert state["models"]["selection0"]["state"]["layer"] == 1
    assert state["views"] == ["view0"]


def test_linked_views_stay_linked_and_others_do_not(given, tmp_path):
    trace = given()
    views = [aw.Heatmap(trace), aw.TokenStrip(aw.rollout(trace)), aw.Heatmap(given())]
    _, state, _ = read(aw.to_html(views, tmp_path / "page.html"))
    links = [(m["state"]["store"], m["state"]["selection"]) for m in map(state["models"].get, state["views"])]
    assert links[0] == links[1]
    assert not set(links[2]) & set(links[0])


@pytest.mark.parametrize("nasty", NASTY)
def test_text_stays_text(softmax, tmp_path, nasty):
    tokens = [nasty, "b", "c"]
    view = aw.Heatmap(aw.from_attentions(softmax((1, 1, 3, 3)), tokens), title=nasty)
    text, state, _ = read(view.to_html(tmp_path / "page.html", title=nasty))
    scripts = re.findall(r"<script\b[^>]*>", text, re.IGNORECASE)
    kinds = ("application/json", "application/octet-stream;base64", "text/javascript")
    assert all(any(f'type="{kind}"' in script for kind in kinds) for script in scripts)
    assert len(scripts) == 4
    assert not re.search(r"<img\b", text)
    assert "\0" not in text
    assert "\u202e" not in re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    labels = state["models"]["store0"]["state"]["header"]["axes"]["token"]["labels"]
    assert len(labels) == 3


def test_only_our_script_may_run_and_nothing_may_be_loaded(given, tmp_path):
    text = aw.Heatmap(given()).to_html(tmp_path / "page.html").read_text(encoding="utf-8")
    policy = re.search(r'Content-Security-Policy" content="(.*?)"', text)[1]
    assert "default-src 'none'" in policy
    assert re.search(r"script-src 'sha256-[\w+/=]+'", policy)
    assert not re.findall(r"""(?:src|href)=["']?\s*(?:https?:)?//""", text)


@pytest.mark.slow
def test_over_the_budget_a_page_says_what_it_lacks(given, tmp_path):
    view = aw.HeadGrid(given(160, layers=6, heads=12), layer=4, head=7, units=["token"])
    everything = view.to_html(tmp_path / "all.html")
    assert "All 84 matrices" in everything.read_text()
    budget = everything.stat().st_size * 2 // 3
    page = view.to_html(tmp_path / "page.html", budget=budget)
    text, state, blobs = read(page)
    tiles = tiles_of(state, blobs)
    assert page.stat().st_size <= budget
    assert f"It holds {len(tiles)} of 84 matrices" in text
    assert ("attention/token/self", 4, 7) in tiles
    assert state["models"]["store0"]["state"]["header"]["thumbs"]


@pytest.mark.slow
@pytest.mark.parametrize("share", [0.75, 0.9, 0.98])
def test_signs_of_several_bytes_count_towards_the_budget(softmax, tmp_path, share):
    view = aw.HeadGrid(aw.from_attentions(softmax((3, 4, 160, 160)), [f"漢字{i}" * 9 for i in range(160)]))
    budget = int(view.to_html(tmp_path / "all.html").stat().st_size * share)
    page = view.to_html(tmp_path / "page.html", budget=budget)
    assert 0.9 * budget < page.stat().st_size <= budget


@pytest.mark.parametrize("budget", [10_000_000, 1])
def test_thumbnails_always_come(given, tmp_path, budget):
    trace = given(140, layers=4, heads=3)
    view = aw.Explorer(trace, units=["token"])
    _, state, blobs = read(view.to_html(tmp_path / "page.html", budget=budget))
    header = state["models"]["store0"]["state"]["header"]
    archived = state["thumbs"]["store0"]
    sources = {source["id"] for source in header["sources"]}
    assert {t["source"] for t in header["thumbs"]} | {t["source"] for t in archived} == sources
    (thumbs,) = archived
    data = zlib.decompress(blobs["aw-tiles-store0"][thumbs["offset"] : thumbs["offset"] + thumbs["length"]])
    assert len(data) == 4 * thumbs["rows"] * thumbs["cols"]
    assert thumbs["scale"][3] == [pytest.approx(aw.rollout(trace).layer(3).max())]


def test_the_size_is_printed(given, tmp_path):
    page = aw.Heatmap(given()).to_html(tmp_path / "page.html")
    printed = float(re.search(r"([\d.]+) MB, works offline", page.read_text())[1])
    assert printed == pytest.approx(page.stat().st_size / 1e6, abs=0.006)


def test_layers_and_heads_can_be_chosen(given, tmp_path):
    view = aw.Heatmap(given(160, layers=6, heads=12), layer=4, head=7, units=["token"])
    _, state, blobs = read(view.to_html(tmp_path / "page.html", heads=[3, "mean"], layers=[1, 2]))
    at = {(layer, head) for _, layer, head in tiles_of(state, blobs)}
    assert at == {(4, 7), (1, 3), (2, 3), (1, "mean"), (2, "mean")}
    with pytest.raises(IndexError, match="0 to 11"):
        view.to_html(tmp_path / "page.html", heads=[12])
    with pytest.raises(IndexError, match="0 to 5"):
        view.to_html(tmp_path / "page.html", layers=[6])
    with pytest.raises(ValueError, match="'all'"):
        view.to_html(tmp_path / "page.html", layers="first")


def test_to_html_takes_views_only(given, tmp_path):
    for nothing in ([], [given()], given(), None, "a view"):
        with pytest.raises(ValueError, match=r"aw\.Explorer"):
            aw.to_html(nothing, tmp_path / "page.html")


def test_the_folder_of_a_page_must_be_there(given, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"make '.*missing' first"):
        aw.Heatmap(given()).to_html(tmp_path / "missing" / "page.html")


def test_a_view_in_a_frame_cannot_touch_the_notebook(given):
    page = aw.Heatmap(given()).frame(height=300)
    shown = page._repr_html_()
    assert shown.count("<iframe") == 1
    assert "<script" not in shown  # escaped: it runs inside the frame only
    assert 'sandbox="allow-scripts allow-downloads"' in shown
    assert "height:300px" in shown
    assert "<script" in page.data
    assert repr(page).startswith("<Page of ")


def test_a_page_of_one_matrix_says_one(tmp_path):
    single = aw.results.MixingMap(
        np.full((1, 3, 3), 1 / 3), query=list("abc"), key=list("abc"), method="made"
    )
    page = aw.to_html(aw.Heatmap(single), tmp_path / "page.html").read_text(encoding="utf-8")
    assert "The one matrix is in it." in page


def test_what_is_unpacked_first_does_not_grow_with_the_number_of_matrices(softmax, tmp_path):
    """The first picture must not wait for matrices that it does not show."""
    lengths = []
    for layers in (2, 6):
        explorer = aw.Explorer(aw.from_attentions(softmax((layers, 4, 80, 80)), ["t"] * 80), units=["token"])
        text, state, blobs = read(explorer.to_html(tmp_path / "page.html"))
        lengths.append(len(zlib.decompress(blobs["aw-data-store0"])))
        assert len(tiles_of(state, blobs)) == layers * 6 + layers  # each head, mean and max; and rollout
        script = text.index("globalThis.awParts")
        assert text.index('id="aw-data-store0"') < script < text.index('id="aw-tiles-store0"')
    thumbnails = 4 * 80 * 80  # at most this for each further layer
    assert lengths[1] - lengths[0] < 4 * thumbnails


@pytest.mark.slow
@pytest.mark.parametrize("unit", ["token", "word"])
def test_only_thumbnails_that_a_view_opens_with_come_first(minilm, sentence, tmp_path, unit):
    trace = aw.trace(*minilm, f"{sentence} " * 3)
    _, state, _ = read(aw.Explorer(trace, unit=unit).to_html(tmp_path / "page.html"))
    first = {t["source"] for t in state["models"]["store0"]["state"]["header"]["thumbs"]}
    later = {t["source"] for t in state["thumbs"]["store0"]}
    units = {f"attention/{name}/self" for name in ("token", "word")}
    assert first & units == {f"attention/{unit}/self"}
    assert later & units == units - first


@pytest.mark.parametrize(("text", "same"), [("the cat sat there", True), ("an electroencephalogram", False)])
def test_matrices_that_are_the_same_take_room_once(minilm, tmp_path, text, same):
    trace = aw.trace(*minilm, f"{text} " * 8)
    _, state, blobs = read(aw.HeadGrid(trace).to_html(tmp_path / "page.html"))
    tiles = [*state["models"]["store0"]["state"]["header"]["tiles"], *state["archive"]["store0"]]
    of = {(t["source"], t["layer"], t["head"]): (t["offset"], t["length"]) for t in tiles}
    for layer in range(6):
        of_token, of_word = (of[f"attention/{unit}/self", layer, 3] for unit in ("token", "word"))
        assert (of_token == of_word) is same
        values = tiles_of(state, blobs)["attention/word/self", layer, 3]
        assert np.abs(values - aw.attention(trace).to("word").matrix(layer, 3)).max() < 0.01
