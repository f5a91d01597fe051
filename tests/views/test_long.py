"""Views of long texts: reads and messages are bounded, and shown numbers are the model's."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry import registry
from attnwidgets.statistics import row_shares as rows
from attnwidgets.views.base import opening
from attnwidgets.views.heads import handlers
from attnwidgets.views.wire import header, store, thumbnails
from attnwidgets.views.wire.reader import Pooled, even, pool
from attnwidgets.views.wire.sources import Source
from attnwidgets.views.wire.thumbnails import decode
from tests.views.long import HEADS, LAYERS, Counted, text_of, traced

WORDS = 2000
FOUR_MB = 4_000_000
ROWS = 16  # rows that are computed at least, also for a single row


@pytest.fixture(scope="module")
def long():
    return traced(WORDS)


@pytest.fixture
def counted(monkeypatch):
    return Counted(monkeypatch)


def head_of(trace):
    """How many weights a head has."""
    return len(trace.tokens) ** 2


def sent(view, bundle):
    """Bytes that a view sends at once: header, eager bytes, opening answers, and its cell's output."""
    store = view.store
    return (
        len(store.eager)
        + len(json.dumps(store.header))
        + len(view.opening or b"")
        + len(json.dumps(bundle[0]))
    )


def asked(view, unit="token", **request):
    """The reply to a request about attention, and its bytes."""
    meta, buffers = view.store.answer({"id": 1, "source": f"attention/{unit}/self", **request})
    return meta, b"".join(buffers)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Heatmap", "TokenStrip", "LayerSlider", "HeadGrid", "HeadView", "Explorer"])
def test_opening_reads_and_sends_no_more_of_a_long_text(long, counted, monkeypatch, name):
    monkeypatch.setattr(header, "OPENING_VALUES", 3 * head_of(long))
    monkeypatch.setattr(opening, "MOST_WEIGHTS", LAYERS * HEADS * head_of(long) - 1)
    view = getattr(aw, name)(long)
    bundle, beside = counted.of(view._repr_mimebundle_)
    shows_heads = name in {"HeadGrid", "Explorer"}
    sampled = 64 * LAYERS * HEADS * len(long.tokens)  # for the head to open on
    few = 8 * ROWS * HEADS * len(long.tokens) + sampled
    assert counted.weights <= (1 + 3 * shows_heads) * head_of(long) + few
    assert beside <= few  # the picture is of the rows that were read
    assert sent(view, bundle) < FOUR_MB
    assert bool(view.store.header["thumbs"]) is shows_heads
    if shows_heads:
        (sheet,) = view.store.header["thumbs"]
        assert [len(heads) for heads in sheet["scale"]] == [3, 0]


def test_opening_is_within_the_promise():
    # Thumbnails, and the matrix looked at: of 16 heads at 4,096 tokens, 2**24 each.
    assert header.OPENING_VALUES + 2**24 <= 2**28


@pytest.mark.slow
def test_the_same_cell_again_reads_some_rows_only(long, counted, monkeypatch):
    monkeypatch.setattr(long, "memory", 1)  # no layer stays in memory
    first = aw.Heatmap(long)
    _, weights = counted.of(lambda: aw.Heatmap(long))
    assert [s.id for s in first.store.sources()] == [
        f"attention/{u}/self" for u in ("token", "word", "sentence")
    ]
    assert weights <= 5 * ROWS * LAYERS * HEADS * len(long.tokens)


@pytest.mark.slow
def test_what_is_asked_for_is_read_alone(long, counted):
    view = aw.Heatmap(long)
    layer = long.stack_table["self"].layers[1].weights()
    before = counted.weights
    meta, data = asked(view, kind="row", layer=1, head=2, row=1234)
    assert counted.weights - before <= ROWS * len(long.tokens) + ROWS * HEADS * len(long.tokens)
    np.testing.assert_array_equal(np.frombuffer(data, "<f4"), layer[2, 1234])
    before = counted.weights
    meta, data = asked(view, kind="tile", layer=1, head=3)
    assert counted.weights - before <= head_of(long)
    assert len(data) < FOUR_MB
    n = len(long.tokens)
    assert meta["whole"] == [n, n]
    rows, cols = meta["rows"], meta["cols"]
    assert max(rows, cols) <= 1024
    step = -(-n // rows)
    codes = rows * (rows + 1) // 2 if meta["codec"] == "u8tri" else rows * cols
    drawn = decode(data[:codes], meta["codec"], rows, cols, meta["scale"])
    largest = np.maximum.reduceat(
        np.maximum.reduceat(layer[3], np.arange(0, n, step)), np.arange(0, n, step), 1
    )
    assert np.abs(drawn - largest).max() <= 1 / 255
    means = np.frombuffer(data[codes:], "<f4")
    np.testing.assert_allclose(means, layer[3].mean(axis=0, dtype=np.float64), rtol=1e-6)
    # Reductions over heads, and a word's matrix, are those of the map.
    _, data = asked(view, kind="row", layer=1, head="mean", row=700)
    np.testing.assert_allclose(np.frombuffer(data, "<f4"), layer[:, 700].mean(0), atol=1e-6)
    _, data = asked(view, unit="sentence", kind="row", layer=1, head=0, row=50)
    by_sentence = aw.attention(long).to("sentence").matrix(1, 0)
    np.testing.assert_allclose(np.frombuffer(data, "<f4"), by_sentence[50], atol=1e-6)


@pytest.mark.slow
def test_every_reply_stays_below_four_megabytes(long):
    view = aw.HeadView(long)
    heads = [0, 1, 2, 3, "mean", "max"]
    got = []
    while wanted := [head for head in heads if head not in got]:
        meta, data = asked(view, kind="layer", layer=0, heads=wanted)
        assert len(data) + len(json.dumps(meta)) < FOUR_MB
        assert meta["tiles"]
        got += [tile["head"] for tile in meta["tiles"]]
    source = view.store.header["sources"][0]["id"]
    for side in ("query", "key"):
        told, (values,) = view.requests.answer(
            "token", {"source": source, "layer": 1, "side": side, "index": 900}
        )
        layer = long.stack_table["self"].layers[1].weights()
        exact = layer[:, 900] if side == "query" else layer[:, :, 900]
        np.testing.assert_allclose(np.frombuffer(values, "<f4").reshape(HEADS, -1), exact, atol=1e-6)
        assert told == {"heads": [0, 1, 2, 3]}


@pytest.mark.slow
def test_thumbnails_come_in_parts_that_make_the_whole(long, counted, monkeypatch):
    monkeypatch.setattr(thumbnails, "PART_VALUES", 2 * head_of(long))
    monkeypatch.setattr(header, "OPENING_VALUES", 0)
    view = aw.HeadGrid(long)
    assert view.store.header["thumbs"] == []
    assert view.store.header["sources"][0]["parts"]
    scale, codes = [[], []], [b"", b""]
    for layer in range(LAYERS):
        while len(scale[layer]) < HEADS:
            before = counted.weights
            meta, data = asked(view, kind="thumbs", **{"from": [layer, len(scale[layer])]})
            assert counted.weights - before <= 2 * head_of(long) + ROWS * HEADS * len(long.tokens)
            assert meta["part"] == [layer, len(scale[layer])]
            scale[layer] += meta["scale"][layer]
            codes[layer] += data
    [source, *_] = view.store.sources()
    whole = thumbnails.thumbnails(source)
    assert scale == whole.scale
    assert b"".join(codes) == whole.data
    rows, cols = source.content  # special tokens stand apart
    small = pool(long.attention_layer(0).numpy()[:, rows][:, :, cols], whole.rows, whole.cols)
    assert scale[0] == pytest.approx(small.max(axis=(1, 2)).tolist())
    for bad in ([LAYERS, 0], [0, HEADS], [-1, 0]):
        assert asked(view, kind="thumbs", **{"from": bad})[0]["kind"] == "error"


def test_pooling_by_blocks_is_pooling_at_once():
    draw = np.random.default_rng(0)
    values = draw.normal(size=(3, 101, 83)).astype(np.float32)
    pooled = Pooled((3,), even(101, 16), even(83, 16))
    at = 0
    for length in (1, 7, 40, 2, 51):
        pooled.add(at, values[:, at : at + length])
        at += length
    assert at == 101
    np.testing.assert_array_equal(pooled.values, pool(values, 16, 16))


@pytest.mark.slow
def test_an_explorer_of_a_long_text_opens_on_sentences_and_says_so(long):
    view = aw.Explorer(long)
    assert view.selection.unit == "sentence"
    n = len(long.tokens)
    notes = {s["id"]: s["note"] for s in view.store.header["sources"]}
    assert f"{n:,} tokens: shown by sentences; choose tokens" in notes["attention/sentence/self"]
    assert f"{n:,} tokens: each cell drawn is the largest of 3 × 3" in notes["attention/token/self"]
    assert {tile["source"] for tile in view.store.header["tiles"]} == {"attention/sentence/self"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("options", "unit"), [({"unit": "token"}, "token"), ({"units": ["word", "token"]}, "word")]
)
def test_the_unit_it_opens_on_can_be_chosen(long, options, unit):
    view = aw.Explorer(long, **options)
    assert view.selection.unit == unit
    assert view.store.header["tiles"][0]["source"] == f"attention/{unit}/self"


@pytest.mark.slow
def test_a_text_of_one_sentence_and_a_short_one_open_on_tokens():
    explorer = aw.Explorer(traced(1600, None))
    assert explorer.selection.unit == "token"
    (tile,) = (tile for tile in explorer.store.header["tiles"] if tile["source"] == "attention/token/self")
    assert tile["whole"] == [len(explorer.store.header["axes"]["token"]["labels"])] * 2
    short = aw.Explorer(traced(40))
    assert short.selection.unit == "token"
    assert {s["note"] for s in short.store.header["sources"] if s["unit"] == "token"} == {""}
    assert not any(s["coarse"] or s["parts"] for s in short.store.header["sources"])


@pytest.mark.slow
def test_what_reads_much_is_a_job_that_tells_its_progress(long, monkeypatch):
    monkeypatch.setattr(store, "SLOW_VALUES", 2 * head_of(long))
    monkeypatch.setattr("attnwidgets.views.wire.reader.SLOW_VALUES", 2 * head_of(long))
    view = aw.Heatmap(long)
    told = []
    monkeypatch.setattr(view.store, "send", lambda content, buffers=None: told.append(content))
    ask = {"kind": "tile", "id": 7, "source": "attention/token/self", "layer": 0}
    view.store._answer(None, ask | {"head": 1}, [])
    assert [reply["kind"] for reply in told] == ["tile"]
    told.clear()
    view.store._answer(None, ask | {"head": "mean"}, [])
    kinds = [reply["kind"] for reply in told]
    assert kinds[0] == "progress"
    assert kinds[-1] == "tile"


@pytest.mark.slow
def test_a_rollout_of_a_long_text_waits_until_it_is_looked_at(long):
    view = aw.Explorer(long)
    (rollout,) = [s for s in view.store.header["sources"] if s["id"] == "rollout/token/self"]
    assert rollout["computed"] == []


def test_a_heatmap_makes_no_thumbnails(given):
    assert aw.Heatmap(given(80), units=["token"]).store.header["thumbs"] == []
    assert aw.HeadGrid(given(80), units=["token"]).store.header["thumbs"] != []


def test_a_flow_of_too_many_elements_is_refused_with_what_to_do(long):
    with pytest.raises(ValueError, match=r"draws up to 1,448 elements.*\.to\('sentence'\)"):
        aw.FlowView(long)
    assert aw.FlowView(aw.attention(long).to("sentence")).describe()


@pytest.mark.slow
def test_a_page_of_a_long_text_holds_what_it_opens_with(long, tmp_path):
    view = aw.Explorer(aw.attention(long), methods=["attention"], head=2)
    path = view.to_html(tmp_path / "page.html", budget=1_200_000)
    assert path.stat().st_size <= 1_200_000
    text = path.read_text()
    assert "the thumbnails of what it opens with; the others were left out for its size" in text
    state = json.loads(text.split('id="aw-state">')[1].split("</script>")[0])
    tiles = {(t["source"], t["layer"], t["head"]) for t in state["archive"]["store0"]}
    tiles |= {
        (t["source"], t["layer"], t["head"]) for t in state["models"]["store0"]["state"]["header"]["tiles"]
    }
    assert {
        ("attention/sentence/self", n, h) for n in range(LAYERS) for h in [*range(HEADS), "mean"]
    } <= tiles
    tokens = {(n, h) for source, n, h in tiles if source == "attention/token/self"}
    assert {(n, 2) for n in range(LAYERS)} <= tokens  # the slider moves along the head that is looked at
    assert len(tokens) < LAYERS * HEADS
    assert [t["source"] for t in state["thumbs"]["store0"]] == ["attention/sentence/self"]
    assert [len(heads) for heads in state["thumbs"]["store0"][0]["scale"]] == [HEADS, HEADS]


@pytest.mark.slow
def test_a_page_of_a_long_text_ranks_its_heads_by_the_sentences_that_it_keeps(long, monkeypatch):
    counted = Counted(monkeypatch)
    monkeypatch.setattr(handlers, "OPENING_CELLS", 1_000_000)
    view = aw.Explorer(aw.attention(long), methods=["attention"])
    assert "patterns" not in {topic for topic, *_ in view.requests.for_page()}, "that would read every token"
    view.sources()[2].keep_layers()
    asked = [(topic, args, answer) for topic, args, answer in view.requests.for_page() if topic == "patterns"]
    ((_, args, answer),) = asked
    assert args == {"source": "attention/sentence/self"}
    (meta, (data,)), weights = counted.of(answer)
    assert weights == 0
    expected = aw.statistics.head_patterns(long, unit="sentence")
    np.testing.assert_allclose(
        np.frombuffer(data, "<f4").reshape(-1, LAYERS, HEADS), expected.values, atol=1e-6, equal_nan=True
    )
    assert [item["name"] for item in meta["patterns"] if not (item["refusal"] or item["run"])] == [
        *expected.names
    ]


def test_pruned_heads_of_a_long_map_are_marked(softmax):
    numbers = [softmax((3, 1300, 1300), 1), softmax((2, 1300, 1300), 2)]
    trace = aw.from_attentions(numbers, [f"t{i}" for i in range(1300)])
    source = Source(aw.attention(trace), "attention", "token")
    assert source.long
    assert [source.count(n) for n in (0, 1)] == [3, 2]
    made = thumbnails.some_thumbnails(source, 1, 0)
    assert made.scale[1][:2] == pytest.approx([float(numbers[1][h].max()) for h in range(2)])
    assert made.scale[1][2] == thumbnails.PRUNED
    with pytest.raises(IndexError, match="head=2 is not in layer 1"):
        source.tile(1, 2)


def test_the_text_is_long_enough():
    assert len(text_of(WORDS).split()) == WORDS


@pytest.mark.slow
def test_an_explorer_opens_where_a_rollout_has_no_room(long, monkeypatch):
    def refuse(trace):
        raise ValueError("rollout takes about 9 GB, and 1 GB are free.")

    rollout = dataclasses.replace(registry.methods()["rollout"], function=lambda trace, **_: refuse(trace))
    monkeypatch.setitem(registry._METHODS, "rollout", rollout)
    view = aw.Explorer(long)
    assert {s["method"] for s in view.store.header["sources"]} == {"attention"}
    (offer,) = [item for item in view.store.header["methods"] if item["method"] == "rollout"]
    assert offer["refusal"] == "rollout takes about 9 GB, and 1 GB are free."
    with pytest.raises(ValueError, match="9 GB"):
        aw.Explorer(long, methods=["rollout"])


@pytest.mark.slow
def test_statistics_of_heads_are_read_in_blocks_and_are_those_of_layers(long, counted, monkeypatch):
    monkeypatch.setattr(rows, "_BLOCK_BYTES", head_of(long))  # some queries at a time
    layers = []
    monkeypatch.setattr(type(long), "attention_layer", lambda *args: layers.append(args))
    view = aw.HeadGrid(long)
    source = view.store.header["sources"][0]["id"]
    meta, (values,) = view.requests.answer("head_statistics", {"source": source})
    assert layers == []
    told = np.frombuffer(values, "<f4").reshape(len(meta["names"]), LAYERS, HEADS)
    monkeypatch.undo()
    monkeypatch.setattr(rows, "_WHOLE_LAYER", 2**40)
    whole = aw.statistics.head_statistics(long, ["entropy", "previous_token"])
    for name in ("entropy", "previous_token"):
        np.testing.assert_allclose(told[meta["names"].index(name)], whole[name], rtol=1e-5)
