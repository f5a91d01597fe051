"""The menu of methods: its entries, the jobs of choosing, and the maps of a page."""

from __future__ import annotations

import json
import re
import threading

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry import registry
from attnwidgets.explanations.registry.documentation import QUESTIONS
from attnwidgets.views.base.accepts import NEEDS_KERNEL
from attnwidgets.views.wire.sources import Source
from attnwidgets.views.wire.thumbnails import decode

from .slow import Front, Slow


@pytest.fixture
def slow():
    made = Slow()
    registry.put(made.method())
    yield made
    registry.remove("slow")


@pytest.fixture
def front(monkeypatch):
    return lambda store: Front(store, monkeypatch)


def offered(store):
    return {offer["method"]: offer for offer in store.header["methods"]}


def computed(store, method="slow"):
    result = [source["computed"] for source in store.header["sources"] if source["method"] == method]
    assert len({json.dumps(layers) for layers in result}) == 1  # the same in every unit
    return result[0]


def state_of(page):
    return json.loads(re.search(r'id="aw-state">(.*?)</script>', page.read_text(encoding="utf-8"))[1])


# -- entries ---------------------------------------------------------------------------------------


def test_the_menu_is_the_registry(given):
    store = aw.Explorer(given()).store
    shown = {source["method"] for source in store.header["sources"]}
    assert shown | set(offered(store)) == {
        method.name for method in aw.methods() if method.returns.startswith(("MixingMap", "Attributions"))
    }
    for name, offer in offered(store).items():
        method = aw.methods()[name]
        assert offer["cost"] == method.cost
        assert offer["summary"] == method.summary
        wanted = (method.answers, method.reads, method.speed)
        assert (offer["question"], offer["gist"], offer["speed"]) == wanted
    sources = {source["method"]: source for source in store.header["sources"]}
    assert sources["attention"]["question"] == "Attention"
    assert sources["attention"]["gist"] == aw.methods()["attention"].gist


def test_the_page_sorts_by_the_same_questions(root):
    page = (root / "js" / "src" / "views" / "base" / "navigation.ts").read_text(encoding="utf-8")
    assert f"const QUESTIONS = {json.dumps(QUESTIONS)};" in page


def test_what_cannot_serve_the_trace_ends_its_group_with_the_reason(given):
    trace = given()
    offers = list(offered(aw.Explorer(trace).store).values())
    order = [(QUESTIONS.index(offer["question"]), bool(offer["refusal"])) for offer in offers]
    assert order == sorted(order)
    assert {refused for _, refused in order} == {True, False}
    zeroing = offered(aw.Explorer(trace).store)["value_zeroing"]
    assert zeroing["refusal"] == aw.methods()["value_zeroing"].refusal(trace)
    assert "model" in zeroing["refusal"]
    assert offered(aw.Explorer(trace).store)["attention_flow"]["refusal"] == ""


def test_a_method_that_must_be_told_something_says_how_to_use_it(given, slow):
    def asked(trace, target):
        """Takes a target."""

    registry.put(slow.method("asked", function=asked))
    try:
        assert "target=" in offered(aw.Explorer(given()).store)["asked"]["refusal"]
    finally:
        registry.remove("asked")


def test_nothing_is_computed_before_it_is_chosen(given, slow):
    explorer = aw.Explorer(given())
    assert slow.layers == []
    assert "slow" not in {source["method"] for source in explorer.store.header["sources"]}


def test_a_restricted_menu_lists_what_was_named(given, slow):
    explorer = aw.Explorer(given(), methods=["attention", "slow"])
    assert list(offered(explorer.store)) == ["slow"]
    assert explorer.options["methods"] == ["attention", "slow"]
    assert slow.layers == []


def test_the_first_method_named_is_made_at_once(given, slow):
    explorer = aw.Explorer(given(), methods=["slow", "rollout"], layer=2)
    assert slow.layers == [2]
    assert explorer.selection.method == "slow"
    assert computed(explorer.store) == [2]


def test_what_a_reader_should_know_of_a_method_of_his_own_is_told(given, slow):
    registry.put(slow.method(mark="fails: causal"))
    assert offered(aw.Explorer(given()).store)["slow"]["mark"] == "fails: causal"


# -- choosing --------------------------------------------------------------------------------------


def test_choosing_makes_a_method_with_the_layer_looked_at(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)
    number = page.choose("slow", layer=1)
    assert page.of(number) == ["waits", "progress", "made"]
    assert slow.layers == [1]
    assert computed(store) == [1]
    assert "slow" not in offered(store)
    tile = next(t for t in store.header["tiles"] if t["source"] == "slow/token/self")
    assert tile["layer"] == 1  # it travels with the header


def test_another_layer_is_computed_when_it_is_opened(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)
    page.choose("slow", layer=1)
    number = page.tile(2)
    assert page.of(number) == ["waits", "progress", "tile"]
    assert slow.layers == [1, 2]
    assert computed(store) == [1, 2]
    meta, (data,) = next((r, b) for r, b in page.replies if r["id"] == number and r["kind"] == "tile")
    values = decode(bytes(data), meta["codec"], meta["rows"], meta["cols"], meta["scale"])
    assert np.abs(values - slow.values(8, 2)).max() <= 1 / 255
    assert page.of(page.tile(2)) == ["tile"]  # at once
    assert slow.layers == [1, 2]


def test_a_row_and_thumbnails_compute_nothing(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)
    page.choose("slow", layer=1)
    row = page.ask(kind="row", source="slow/token/self", layer=0, head="-", row=1)
    assert "not computed" in page.last(row)["message"]
    thumbs = page.last(page.ask(kind="thumbs", source="slow/token/self"))
    assert [len(scale) for scale in thumbs["scale"]] == [0, 1, 0]
    assert slow.layers == [1]


def test_progress_is_told_in_words_and_steps(given, slow, front, monkeypatch):
    monkeypatch.setattr("attnwidgets.views.wire.jobs._PROGRESS_EVERY", 0.0)
    page = front(aw.Explorer(given()).store)
    number = page.choose("slow")
    told = [(r["text"], r["done"], r["total"]) for r, _ in page.replies if r["kind"] == "progress"]
    assert told[0] == ("slow", None, None)
    steps = [item for item in told if item[0] == "slow, layer 0"]  # thumbnails tell theirs after it
    assert steps[-4:] == [("slow, layer 0", step, 3) for step in range(4)]
    assert page.of(number)[-1] == "made"


def test_what_is_stopped_can_be_chosen_again(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)
    first = page.number + 1
    slow.at_step = lambda _, step: step == 1 and page.ask(kind="cancel", job=first)
    assert page.choose("slow") == first
    assert page.of(first)[-1] == "cancelled"
    assert slow.layers == []
    assert offered(store)["slow"]["refusal"] == ""
    slow.at_step = lambda layer, step: None
    assert page.of(page.choose("slow"))[-1] == "made"
    assert slow.layers == [0]


def test_interrupting_the_kernel_stops_it_cleanly(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)

    def interrupt(_layer, step):
        if step == 1:
            raise KeyboardInterrupt

    slow.at_step = interrupt
    assert page.of(page.choose("slow"))[-1] == "cancelled"
    slow.at_step = lambda layer, step: None
    assert page.of(page.choose("slow"))[-1] == "made"


@pytest.mark.parametrize("error", [ValueError("too long: pass force=True"), RuntimeError("out of memory")])
def test_an_error_is_told_and_greys_the_entry(given, slow, front, error):
    store = aw.Explorer(given()).store
    page = front(store)

    def fail(_layer, _step):
        raise error

    slow.at_step = fail
    number = page.choose("slow")
    assert page.last(number) == {"kind": "error", "id": number, "message": str(error)}
    assert offered(store)["slow"]["refusal"] == str(error)
    aw.Explorer(store.sources()[0].explanation)  # something else
    assert "slow" not in {source["method"] for source in store.header["sources"]}


def test_a_layer_that_fails_says_why_and_leaves_the_others(given, slow, front):
    store = aw.Explorer(given()).store
    page = front(store)
    page.choose("slow")

    def fail(layer, _step):
        if layer == 1:
            raise ValueError("layer 1 is not a number")

    slow.at_step = fail
    assert page.last(page.tile(1))["message"] == "layer 1 is not a number"
    assert page.of(page.tile(2))[-1] == "tile"


def test_only_what_is_offered_can_be_made(given, slow, front):
    explorer = aw.Explorer(given(), methods=["attention"])
    page = front(explorer.store)
    number = page.choose("slow")
    assert page.last(number)["kind"] == "error"
    assert slow.layers == []


def test_python_chooses_as_well(given, slow):
    explorer = aw.Explorer(given(), layer=2)
    explorer.selection.method = "slow"
    assert explorer.selection.method == "slow"
    assert slow.layers == [2]
    with pytest.raises(ValueError, match="'slow'"):
        explorer.selection.method = "slwo"


def test_every_method_of_the_registry_can_be_made_of_a_small_model(tiny_bert):
    trace = aw.trace(tiny_bert, None, [1, 2, 3, 4])
    store = aw.Explorer(trace, layer=1).store
    wanted = [key for key, entry in store.menu.items() if not entry.refusal]
    assert {"value_zeroing", "alti", "attention_norm", "hidden_token_attribution"} <= set(wanted)
    for key in wanted:
        store.make(key, 1)
    sources = {source.method: source for source in store.sources() if source.unit == "token"}
    for key in wanted:
        source = sources[key]
        layer = 0 if source.attributions else 1
        assert layer in source.ready
        assert source.tile(layer, source.heads_of_tiles(layer)[0]).cols == 4
        if source.on_demand and key != "globenc":
            assert 0 not in source.ready, key
    assert not set(wanted) & set(offered(store))


# -- views of one map, and running a cell again ----------------------------------------------------


def test_a_heatmap_computes_the_layer_it_opens_with(given, slow, front):
    trace = given()
    view = aw.Heatmap(slow(trace).to("token"), layer=1)
    view._repr_mimebundle_()  # with its picture
    assert slow.layers == [1]
    page = front(view.store)
    assert page.of(page.tile(2))[-1] == "tile"
    assert slow.layers == [1, 2]
    view.selection.layer = 0
    aw.Heatmap(slow(trace))  # linked: it opens where the others look
    assert slow.layers[-1] == 0


@pytest.mark.parametrize("error", [ValueError("too long"), KeyboardInterrupt()])
def test_a_view_that_could_not_be_made_leaves_nothing(given, slow, models, error):
    trace = given()

    def fail(_layer, _step):
        raise error

    slow.at_step = fail
    with pytest.raises(type(error)):
        aw.Heatmap(slow(trace))
    with pytest.raises(type(error)):
        aw.Explorer(trace, methods=["slow"])
    assert not {"Heatmap", "Explorer", "TileStore", "Selection"} & set(models())


def test_a_menu_keeps_to_the_units_of_its_view(given, slow, front):
    explorer = aw.Explorer(given(), units=["word"])
    page = front(explorer.store)
    page.choose("slow", layer=1)
    assert {source["unit"] for source in explorer.store.header["sources"]} == {"word"}
    assert page.of(page.tile(2, source="slow/word/self"))[-1] == "tile"
    assert slow.layers == [1, 2]


def test_what_a_reader_must_know_of_one_method_is_not_said_of_another(given, slow):
    trace = given()
    marked = slow(trace)
    vars(marked)["warning"] = "fails: causal"
    aw.Heatmap(marked)
    sources = aw.Heatmap(trace).store.header["sources"]
    assert {s["method"]: s["warning"] for s in sources} == {"slow": "fails: causal", "attention": ""}


def test_running_a_cell_again_keeps_what_was_computed(given, slow, front):
    trace = given()
    first = aw.Heatmap(slow(trace))
    page = front(first.store)
    page.tile(1)
    page.tile(2)
    again = aw.Heatmap(slow(trace))
    assert again.options["method"] == "slow"
    assert computed(again.store) == [0, 1, 2]
    assert slow.layers == [0, 1, 2, 0]  # one layer, to compare


def test_the_menu_shares_what_another_view_computed(given, slow, front):
    trace = given()
    heatmap = aw.Heatmap(slow(trace), layer=2)
    explorer = aw.Explorer(trace)
    page = front(explorer.store)
    key = next(key for key, offer in offered(explorer.store).items() if offer["title"] == "slow")
    page.choose(key, layer=2)
    assert computed(explorer.store, key) == [2]
    page.tile(1, source=f"{key}/token/self")
    assert heatmap.sources()[0].ready == (1, 2)


def test_attributions_come_with_what_they_say_of_every_layer(given, slow, front):
    trace = given()

    def explain(trace):
        """Attributions and the map behind them."""
        layers = slow(trace)
        return aw.results.Attributions(
            layers.layer(2)[0], axis=layers.key, target="yes", map=layers, trace_id=trace.id
        )

    registry.put(slow.method("why", function=explain, returns="Attributions [source]"))
    try:
        explorer = aw.Explorer(trace)
        front(explorer.store).choose("why", layer=1)
        sources = {source["method"]: source for source in explorer.store.header["sources"]}
        assert sources["why"]["kind"] == "attributions"
        assert sources["why:layers"]["kind"] == "map"
        assert sources["why:layers"]["computed"] == [2]
        assert sources["why:layers"]["title"].endswith("by layer")
        assert {"why", "why:layers"} <= set(explorer.options["methods"])
        explorer.close()
        assert explorer.store.sources() == ()
        shown = aw.Explorer(explain(trace)).store.header["sources"]
        assert {source["kind"] for source in shown} == {"attributions", "map"}
    finally:
        registry.remove("why")


def test_what_a_later_cell_registers_is_offered_where_everything_is(given, slow, notebook):
    registry.remove("slow")
    trace = given()
    explorer = notebook.run("a", lambda: aw.Explorer(trace))
    named = notebook.run("b", lambda: aw.Explorer(trace, methods=["attention", "value_zeroing"]))
    assert "slow" not in offered(explorer.store)
    notebook.run("c", lambda: registry.put(slow.method()))
    assert "slow" in offered(explorer.store)
    assert "slow" in explorer.options["methods"]
    assert "slow" not in named.options["methods"]
    notebook.run("d", lambda: registry.put(slow.method(mark="fails: causal")))
    assert offered(explorer.store)["slow"]["mark"] == "fails: causal"
    assert slow.layers == []


def test_a_function_registered_anew_is_another_method(given, slow, front):
    trace = given()
    first = aw.Explorer(trace)
    front(first.store).choose("slow")
    newer = Slow()
    registry.put(newer.method())
    second = aw.Explorer(trace)
    page = front(second.store)
    key = next(key for key in offered(second.store) if key.startswith("slow"))
    assert key != "slow"
    page.choose(key)
    assert newer.layers == [0]


def test_a_closed_view_computes_nothing_more(given, slow, front):
    explorer = aw.Explorer(given())
    page = front(explorer.store)
    slow.at_step = lambda _, step: step == 1 and explorer.close()
    page.choose("slow")
    assert slow.layers == []
    assert explorer.store.sources() == ()


# -- pages -----------------------------------------------------------------------------------------


def test_what_a_page_lacks_is_named_as_text(given, slow, front, tmp_path, monkeypatch):
    explorer = aw.Explorer(given())
    front(explorer.store).choose("slow", layer=1)
    monkeypatch.setattr(Source, "title", property(lambda source: f"<b>{source.method}"))
    page = explorer.to_html(tmp_path / "page.html")
    assert "Not computed: &lt;b&gt;slow (2 layers)." in page.read_text(encoding="utf-8")


def test_a_page_holds_what_was_computed_and_greys_the_rest(given, slow, front, tmp_path):
    explorer = aw.Explorer(given())
    front(explorer.store).choose("slow", layer=1)
    page = explorer.to_html(tmp_path / "page.html")
    assert slow.layers == [1]
    header = state_of(page)["models"]["store0"]["state"]["header"]
    assert {t["layer"] for t in header["tiles"] if t["source"].startswith("slow")} == {1}
    assert "Not computed: slow (2 layers)." in page.read_text(encoding="utf-8")
    refusals = {offer["method"]: offer["refusal"] for offer in header["methods"]}
    assert refusals["attention_flow"] == NEEDS_KERNEL
    assert refusals["value_zeroing"] == offered(explorer.store)["value_zeroing"]["refusal"] != NEEDS_KERNEL


@pytest.mark.parametrize("layers", ["all", [0, 2]])
def test_a_page_computes_what_was_named(given, slow, tmp_path, layers):
    explorer = aw.Explorer(given(), methods=["attention", "slow"])
    page = explorer.to_html(tmp_path / "page.html", layers=layers)
    header = state_of(page)["models"]["store0"]["state"]["header"]
    wanted = [0, 1, 2] if layers == "all" else layers
    assert sorted(slow.layers) == wanted
    assert next(s["computed"] for s in header["sources"] if s["method"] == "slow") == wanted
    assert header["methods"] == []


def test_a_page_of_one_map_holds_all_of_it(given, slow, tmp_path):
    page = aw.Heatmap(slow(given())).to_html(tmp_path / "page.html")
    assert sorted(slow.layers) == [0, 1, 2]
    assert "Not computed" not in page.read_text(encoding="utf-8")


def test_a_page_does_not_tell_what_an_assignment_hides(given, slow, tmp_path):
    trace = given()
    aw.Explorer(trace)
    page = aw.Explorer(trace, methods=["attention"]).to_html(tmp_path / "page.html")
    assert state_of(page)["models"]["store0"]["state"]["header"]["methods"] == []


def test_without_a_kernel_a_request_is_served_where_it_arrives(given, slow, front):
    page = front(aw.Explorer(given()).store)
    thread = threading.Thread(target=page.choose, args=("slow",))
    thread.start()
    thread.join()
    assert slow.threads == [thread]
