"""Messages and answers of the store, and their bytes."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.views.wire import header as eager
from attnwidgets.views.wire import reader, thumbnails
from attnwidgets.views.wire.thumbnails import decode


def tile_of(store, source, layer, head):
    reply, buffers = store.answer({"kind": "tile", "id": 7, "source": source, "layer": layer, "head": head})
    assert reply["kind"] == "tile", reply
    assert reply["id"] == 7
    values = decode(bytes(buffers[0]), reply["codec"], reply["rows"], reply["cols"], reply["scale"])
    return values, len(buffers[0])


@pytest.mark.parametrize("head", [0, 3, "mean", "max"])
def test_a_tile_is_the_map(given, head):
    trace = given()
    values, size = tile_of(aw.Heatmap(trace).store, "attention/token/self", 2, head)
    expected = aw.attention(trace).matrix(2, head)
    assert np.abs(values - expected).max() <= 1 / 255
    assert size <= expected.size


def test_a_row_is_exact(given):
    trace = given()
    request = {"kind": "row", "id": 1, "source": "attention/token/self", "layer": 1, "head": 2, "row": 5}
    reply, buffers = aw.Heatmap(trace).store.answer(request)
    assert reply == request
    assert np.array_equal(np.frombuffer(buffers[0], "<f4"), aw.attention(trace).matrix(1, 2)[5])


@pytest.mark.parametrize(
    ("request_", "words"),
    [
        ({"kind": "tile", "source": "attention/token/self", "layer": 9, "head": 0}, "0 to 2"),
        ({"kind": "tile", "source": "attention/token/self", "layer": 0, "head": 40}, "0 to 3"),
        ({"kind": "tile", "source": "nothing/token/self", "layer": 0, "head": 0}, "no longer shown"),
        ({"kind": "row", "source": "attention/token/self", "layer": 0, "head": 0, "row": 8}, "0 to 7"),
        ({"kind": "tile"}, "source of a request for 'tile' must be a text, and is missing"),
        ({"kind": "thumbs", "source": "nothing/token/self"}, "no longer shown"),
        ({"kind": "dance"}, "dance"),
    ],
)
def test_a_request_that_cannot_be_met_is_answered_in_words(given, request_, words):
    reply, buffers = aw.Heatmap(given()).store.answer({**request_, "id": 3})
    assert reply["kind"] == "error"
    assert reply["id"] == 3
    assert words in reply["message"]
    assert buffers == []


SOUND = {"kind": "tile", "id": 3, "source": "attention/token/self", "layer": 0, "head": 0}
ASKED = {"kind": "ask", "id": 3, "topic": "csv", "args": {}}


@pytest.mark.parametrize(
    "field", ["kind", "source", "layer", "head", "row", "heads", "topic", "args", "job", "id"]
)
def test_a_request_of_a_wrong_type_is_answered_in_words(given, monkeypatch, field):
    view = aw.Heatmap(given())
    told = []
    for receiver in (view, view.store):
        monkeypatch.setattr(receiver, "send", lambda reply, buffers=None: told.append(reply))
    wrongs = [None, [0], {"a": 1}, 2.5, float("inf"), True, [[]], b"x"]
    sound = {"heads": [[0]], "args": [{"a": 1}, None]}.get(field, [])
    method, cancel = {**SOUND, "kind": "method"}, {"kind": "cancel", "id": 3, "job": 1}
    for wrong in [wrong for wrong in wrongs if wrong not in sound]:
        for receiver, request in (
            (view.store, SOUND),
            (view.store, method),
            (view.store, cancel),
            (view, ASKED),
        ):
            told.clear()
            # An error here is only logged, and the view waits for ever.
            receiver._msg_callbacks.callbacks[-1](receiver, {**request, field: wrong}, [])
            if receiver is view and field == "kind":
                assert told == []  # anywidget's messages pass here as well
                continue
            (reply,) = told
            assert reply["kind"] == "error"
            assert reply["id"] == (None if field == "id" else 3)
            assert (field if field != "kind" else "unknown request") in reply["message"]


def test_a_ping_is_answered(given):
    assert aw.Heatmap(given()).store.answer({"kind": "ping", "id": 5}) == ({"kind": "pong", "id": 5}, [])


@pytest.mark.parametrize("n", [8, 64, 65, 130])
def test_eager_bytes_stay_within_their_budgets_and_one_byte_a_value(given, n):
    store = aw.Heatmap(given(n, layers=4, heads=6)).store
    header = store.header
    tiles = [(t["source"], t["layer"], t["head"]) for t in header["tiles"]]
    values = sum(t["rows"] * t["cols"] for t in header["tiles"])
    assert len(set(tiles)) == len(tiles)
    assert sum(t["length"] for t in header["thumbs"]) <= thumbnails.THUMB_BUDGET
    assert sum(t["length"] for t in header["tiles"]) <= eager.TILE_BUDGET + n * n
    pooled = sum(t["length"] for t in header["thumbs"]) if n > thumbnails.THUMB_SIDE else 0
    assert len(store.eager) <= values + pooled
    for part in (*header["tiles"], *header["thumbs"]):
        assert part["offset"] + part["length"] <= len(store.eager)


def test_eager_tiles_hold_the_map(given):
    trace = given()
    store = aw.Heatmap(trace, units=["token"]).store
    attention = aw.attention(trace)
    assert len(store.header["tiles"]) == 3 * (4 + 2)
    for tile in store.header["tiles"]:
        data = store.eager[tile["offset"] : tile["offset"] + tile["length"]]
        values = decode(data, tile["codec"], tile["rows"], tile["cols"], tile["scale"])
        assert np.abs(values - attention.matrix(tile["layer"], tile["head"])).max() <= 1 / 255


def test_what_is_large_comes_as_thumbnails_and_the_tile_that_is_looked_at(given):
    trace = given(140, layers=6, heads=12)
    store = aw.HeadGrid(trace, units=["token"], layer=2, head=3).store
    assert [(t["layer"], t["head"]) for t in store.header["tiles"]] == [(2, 3)]
    (thumbs,) = store.header["thumbs"]
    assert (thumbs["rows"], thumbs["cols"]) == (64, 64)
    peak = aw.attention(trace).layer(0)[0].max()
    assert thumbs["scale"][0][0] == pytest.approx(peak)
    first = np.frombuffer(store.eager[thumbs["offset"] : thumbs["offset"] + 64 * 64], np.uint8)
    assert first.max() == 255


def test_thumbnails_are_sent_on_demand_also_for_maps_without_heads(given):
    trace = given(140, layers=4, heads=3)
    rollout = aw.rollout(trace)
    store = aw.Explorer(trace, units=["token"]).store
    assert [t["source"] for t in store.header["thumbs"]] == ["attention/token/self"]
    reply, (data,) = store.answer({"kind": "thumbs", "id": 4, "source": "rollout/token/self"})
    assert (reply["kind"], reply["id"]) == ("thumbs", 4)
    assert len(data) == 4 * reply["rows"] * reply["cols"]
    for layer, scale in enumerate(reply["scale"]):
        assert scale == [pytest.approx(rollout.layer(layer).max())]
        codes = np.frombuffer(data, np.uint8).reshape(4, reply["rows"], reply["cols"])[layer]
        assert codes.max() == 255


def test_thumbnails_on_demand_are_those_sent_eagerly(given):
    store = aw.HeadGrid(given(140, layers=4, heads=3), units=["token"]).store
    (placed,) = store.header["thumbs"]
    reply, (data,) = store.answer({"kind": "thumbs", "id": 1, "source": placed["source"]})
    assert data == store.eager[placed["offset"] : placed["offset"] + placed["length"]]
    assert {**reply, "offset": placed["offset"], "length": len(data)} == {**placed, "kind": "thumbs", "id": 1}


def test_causal_tiles_are_packed(causal):
    trace = aw.from_attentions(causal((2, 2, 100, 100)), [str(i) for i in range(100)])
    _, size = tile_of(aw.Heatmap(trace).store, "attention/token/self", 1, 1)
    assert size == 100 * 101 // 2


def test_pruned_layers_are_sent_with_the_heads_they_have(softmax):
    numbers = (softmax((1, 4, 6, 6)), softmax((1, 2, 6, 6), 1))
    store = aw.Heatmap(aw.from_attentions(numbers, list("abcdef")), units=["token"]).store
    assert [t["head"] for t in store.header["tiles"] if t["layer"] == 1] == [0, 1, "mean", "max"]
    values, _ = tile_of(store, "attention/token/self", 1, "mean")
    assert np.abs(values - numbers[1][0].mean(0)).max() <= 1 / 255
    reply, _ = store.answer(
        {"kind": "tile", "id": 1, "source": "attention/token/self", "layer": 1, "head": 3}
    )
    assert reply["kind"] == "error"
    assert "heads 0 to 1" in reply["message"]


@pytest.mark.parametrize("side", [6, 80])
def test_thumbnails_tell_pruned_heads_from_dark_ones(softmax, side):
    numbers = (softmax((1, 4, side, side)), softmax((1, 2, side, side), 1))
    store = aw.HeadGrid(aw.from_attentions(numbers, [str(i) for i in range(side)]), units=["token"]).store
    [thumbs] = store.header["thumbs"]
    assert [[value < 0 for value in layer] for layer in thumbs["scale"]] == [
        [False] * 4,
        [False] * 2 + [True] * 2,
    ]


def test_a_view_of_all_heads_has_those_of_its_layer_without_asking(softmax):
    trace = aw.from_attentions(softmax((6, 8, 160, 160)), [str(i) for i in range(160)])
    store = aw.Heatmap(trace, units=["token"], layer=2, head=3).store
    sent = [(t["layer"], t["head"]) for t in store.header["tiles"]]
    assert sent == [(2, 3)]
    aw.HeadView(trace, units=["token"])
    sent = [(t["layer"], t["head"]) for t in store.header["tiles"]]
    assert sent == [(2, head) for head in (*range(8), "mean", "max")]
    assert len(store.eager) < 1_200_000


def test_options_that_are_added_leave_the_reader_s_filters_alone(given):
    view = aw.HeadView(given())
    view.options = {**view.options, "filters": {"mass": 0.5}, "heads": [1]}  # as the browser does
    view.add_options(saes=[])
    assert (view.options["filters"], view.options["heads"], view.options["saes"]) == ({"mass": 0.5}, [1], [])


def test_words_are_aggregated_as_the_map_does(minilm_trace):
    store = aw.Explorer(minilm_trace).store
    values, _ = tile_of(store, "attention/word/self", 3, 5)
    assert np.abs(values - aw.attention(minilm_trace).to("word").matrix(3, 5)).max() <= 1 / 255
    values, _ = tile_of(store, "rollout/sentence/self", 5, "-")
    assert np.abs(values - aw.rollout(minilm_trace).to("sentence").matrix(5)).max() <= 1 / 255


def test_axes_tell_which_tokens_are_behind_a_word(minilm_trace):
    axes = aw.Explorer(minilm_trace).store.header["axes"]
    words = axes["word"]
    split = words["labels"].index("electroencephalographer")
    assert len(words["spans"][split]) > 3
    assert axes["token"]["spans"] is None
    assert [token for span in words["spans"] for token in span] == list(range(len(axes["token"]["labels"])))
    assert words["special"][0] == words["special"][-1] == 1


def test_attributions_are_one_row_a_target():
    scores = aw.results.Attributions(
        [[0.5, -2.0, 0.0], [1.0, 1.0, 1.0]], axis=["a", "b", "c"], target=["yes", "no"]
    )
    store = aw.TokenStrip(scores).store
    (source,) = store.header["sources"]
    assert source["kind"] == "attributions"
    assert source["signed"]
    values, _ = tile_of(store, source["id"], 0, "-")
    assert np.abs(values - scores.values).max() <= 2.0 / 100
    assert store.header["axes"][source["query"]]["labels"] == ["yes", "no"]
    assert store.header["axes"][source["key"]]["labels"] == ["a", "b", "c"]


def test_running_a_cell_again_adds_no_source_and_other_numbers_get_another_key(given):
    trace = given()
    store = aw.Heatmap(aw.rollout(trace)).store
    assert aw.Heatmap(aw.rollout(trace)).options["method"] == "rollout"
    assert aw.Heatmap(aw.rollout(trace, residual_weight=0.2)).options["method"] == "rollout#2"
    ids = [source["id"] for source in store.header["sources"]]
    assert ids.count("rollout/token/self") == ids.count("rollout#2/token/self") == 1


def test_a_key_never_comes_to_mean_other_numbers(given):
    trace = given()
    aw.Heatmap(trace)
    aw.Heatmap(aw.rollout(trace)).close()
    # The browser may still hold tiles of the closed view under "rollout".
    assert aw.Heatmap(aw.rollout(trace, residual_weight=0.1)).options["method"] == "rollout#2"


@pytest.mark.slow
def test_the_warning_of_a_cut_text_reaches_the_view(minilm):
    long = aw.trace(*minilm, "word " * 600, truncation=True)
    assert all("512" in source["warning"] for source in aw.Explorer(long).store.header["sources"])


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("sentence-transformers/all-MiniLM-L6-v2", "sentence-transformers/all-MiniLM-L6-v2"),
        ("/home/someone/models/mine", "models/mine"),
        ("", ""),
    ],
)
def test_a_page_does_not_tell_where_the_model_lies(softmax, name, shown):
    trace = aw.from_attentions(softmax((1, 1, 3, 3)), list("abc"), model_id=name)
    assert aw.Heatmap(trace).store.header["model"] == shown


def test_requests_from_threads_get_their_own_answers(given):
    trace = given(40, layers=6, heads=4)
    store = aw.Explorer(trace).store
    attention = aw.attention(trace)
    faults = []

    def ask(layer):
        for head in range(4):
            values, _ = tile_of(store, "attention/token/self", layer, head)
            if np.abs(values - attention.matrix(layer, head)).max() > 1 / 255:
                faults.append((layer, head))

    threads = [threading.Thread(target=ask, args=(layer,)) for layer in range(6)]
    for thread in threads:
        thread.start()
    aw.Heatmap(aw.rollout(trace, start_layer=1))  # registers while they ask
    for thread in threads:
        thread.join()
    assert not faults


def test_a_large_map_is_read_only_where_a_view_opens(minilm_trace, monkeypatch):
    monkeypatch.setattr(reader, "OVERVIEW_VALUES", aw.attention(minilm_trace).values.size - 1)
    store = aw.HeadView(minilm_trace, layer=3, head=1).store
    header = store.header
    assert {(tile["source"], tile["layer"]) for tile in header["tiles"]} == {("attention/token/self", 3)}
    assert header["thumbs"] == []
    others = [source for source in store.sources() if source.unit != "token"]
    assert others
    assert all(source._in_unit is None for source in others)  # nothing was aggregated
    aw.HeadGrid(minilm_trace)
    assert [thumbs["source"] for thumbs in store.header["thumbs"]] == ["attention/token/self"]


def test_thumbnails_in_a_unit_that_no_view_opens_in_wait_until_they_are_requested(softmax, monkeypatch):
    pieces = [f"{'##' * (at % 2)}{at}" for at in range(200)]
    maps = softmax((2, 2, 200, 200))

    def opened(quick):
        monkeypatch.setattr("attnwidgets.views.wire.store.QUICK_VALUES", quick)
        store = aw.HeadGrid(aw.from_attentions(maps, pieces), unit="word").store
        return store, {thumbs["source"]: thumbs for thumbs in store.header["thumbs"]}

    at_once, sent = opened(maps.size)
    assert {"attention/token/self", "attention/word/self"} <= set(sent)
    store, others = opened(maps.size - 1)
    assert "attention/word/self" in others
    assert "attention/token/self" not in others
    reply, (data,) = store.answer({"kind": "thumbs", "id": 1, "source": "attention/token/self"})
    start = sent[reply["source"]]["offset"]
    assert at_once.eager[start : start + len(data)] == data


def test_thumbnails_that_take_long_show_how_far_they_are(softmax, monkeypatch):
    steps = []
    monkeypatch.setattr("attnwidgets.views.wire.thumbnails.SLOW_VALUES", 2**12)
    monkeypatch.setattr(
        "attnwidgets.views.wire.thumbnails.progress", lambda items, desc: steps.append(desc) or items
    )
    aw.HeadGrid(aw.from_attentions(softmax((2, 2, 9, 9)), list("abcdefghi")), units=["token"])
    assert steps == []
    aw.HeadGrid(aw.from_attentions(softmax((2, 2, 80, 80)), [str(i) for i in range(80)]), units=["token"])
    assert steps == ["thumbnails"]


@pytest.mark.slow
def test_what_a_view_shows_is_sent_along_when_python_has_moved_it():
    view = aw.Explorer(aw.trace(*aw.demo_model("encoder"), "The cat sat."))
    view.at(method="value_zeroing", layer=3)
    assert "value_zeroing/token/self" not in {item["source"] for item in view.store.header["thumbs"]}
    view._repr_mimebundle_()
    header = view.store.header
    assert "value_zeroing/token/self" in {item["source"] for item in header["thumbs"]}
    view.selection.set_state({"layer": 2})  # a reader's page asks for the tiles that it needs
    view.follow_cell()
    assert view.store.header == header
