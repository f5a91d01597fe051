"""Other texts in a view: switched in a list, or typed and traced."""

from __future__ import annotations

import gc
import json
import weakref

import pytest

import attnwidgets as aw
from attnwidgets._progress import Cancelled, observing
from attnwidgets.tracing import retrace
from attnwidgets.views.base import texts as texts_module
from attnwidgets.views.base.texts import corresponding

HE, SHE, LONG = "He said he was ill.", "She said she was ill.", "The doctor said he was very ill."


@pytest.fixture(scope="module")
def classifier():
    return aw.demo_model("classifier")


@pytest.fixture
def traces(classifier):
    return aw.trace(*classifier, [HE, SHE, LONG])


def sent_by(view):
    """Bytes that a view and its store send as they open."""
    return sum(
        len(json.dumps(model.get_state(drop_defaults=False), default=lambda buffer: buffer.hex()))
        for model in (view, view.store, view.selection)
    )


def test_a_list_of_traces_opens_with_the_first_and_lists_the_others(traces):
    explorer = aw.Explorer(traces)
    assert explorer.trace is traces[0]
    assert explorer.traces == tuple(traces)
    shown = explorer.options["texts"]
    assert [item["text"] for item in shown["items"]] == [HE, SHE, LONG]
    best = traces[1].predictions()[0]
    assert shown["items"][1]["prediction"] == {
        "label": best.label,
        "probability": best.probability,
        "id": best.id,
    }
    assert shown["refusal"] == ""


def test_another_text_has_its_own_numbers_and_the_same_layer_head_method_and_filters(traces):
    explorer = aw.Explorer(traces, hide_special=True)
    explorer.selection.layer, explorer.selection.head, explorer.selection.method = 4, 7, "rollout"
    explorer.options = {**explorer.options, "filters": {**explorer.options["filters"], "least": 0.25}}
    explorer.show_text(1)
    selection = explorer.selection
    assert (selection.layer, selection.head, selection.method) == (4, 7, "rollout")
    assert explorer.options["filters"]["least"] == 0.25
    assert explorer.options["filters"]["special"] == "hide"
    assert explorer.store.header["text"] == SHE
    shown = explorer.explanation("attention").value(1, 2, layer=4, head=7)
    assert shown == aw.attention(traces[1]).value(1, 2, layer=4, head=7)


def test_a_method_that_was_computed_for_the_text_before_is_computed_for_this_one(traces):
    explorer = aw.Explorer(traces[:2])
    explorer.selection.method = "value_zeroing"
    explorer.show_text(1)
    assert explorer.selection.method == "value_zeroing"
    layer = explorer.selection.layer
    mine = explorer.explanation().value(1, 2, layer=layer)
    assert mine == pytest.approx(aw.value_zeroing(traces[1]).value(1, 2, layer=layer), rel=1e-5)


def test_a_target_of_the_text_before_is_gone(traces):
    explorer = aw.Explorer(traces[:2])
    explorer.selection.method = "input_x_gradient"
    explorer.selection.target = "negative"
    explorer.show_text(1)
    assert explorer.selection.method == "input_x_gradient"
    assert explorer.selection.target is None
    assert explorer.selection.interventions == ()


@pytest.mark.parametrize(
    ("pins", "kept"),
    [
        ([(2, 4)], [(2, 4)]),  # said reads was: in both
        ([(1, 2)], []),  # he is she
        ([(2, 4), (2, 3)], [(2, 4)]),  # the second he is she as well
        ([(-1, 5)], [(-1, 5)]),
        ([(2, 4, "word")], [(2, 4, "word")]),
    ],
)
def test_a_pin_stays_where_its_tokens_are_in_both_texts(traces, pins, kept):
    explorer = aw.Explorer(traces)
    explorer.selection.pins = pins
    explorer.show_text(1)
    assert [(*pin, pin.unit)[: len(pins[0])] for pin in explorer.selection.pins] == kept


def test_a_pin_moves_with_its_token(classifier):
    before, after = aw.trace(*classifier, ["The film was good.", "The film was really good."])
    explorer = aw.Explorer([before, after])
    explorer.selection.pinned = (before.tokens.index("good"), 1)
    explorer.show_text(1)
    assert tuple(explorer.selection.pinned) == (after.tokens.index("good"), 1)


def test_places_are_those_in_a_beginning_or_an_end_that_two_texts_share():
    before, after = list("abcde"), list("abXYde")
    position_of = corresponding(before, after)
    assert [position_of(at) for at in range(5)] == [0, 1, None, 4, 5]
    assert [corresponding(list("aa"), list("aaa"))(at) for at in range(2)] == [0, 1]
    assert [corresponding(list("abcd"), list("xbyd"))(at) for at in range(4)] == [None, 1, None, 3]


def test_linked_views_follow_and_maps_of_the_first_text_stay(traces):
    explorer, linked = aw.Explorer(traces), aw.Heatmap(traces[0])
    fixed, other = aw.Heatmap(aw.attention(traces[0])), aw.Heatmap(traces[1])
    explorer.show_text(2)
    assert linked.trace is traces[2]
    assert linked.selection is explorer.selection
    assert fixed.store.header["text"] == HE
    assert fixed.selection is not explorer.selection
    explorer.show_text(1)
    assert other.selection is explorer.selection
    explorer.show_text(0)
    assert other.trace is traces[1]
    assert (linked.trace, explorer.trace) == (traces[0], traces[0])
    assert fixed.selection is explorer.selection


@pytest.mark.slow
def test_every_view_of_the_trace_follows(traces):
    explorer = aw.Explorer(traces)
    names = ["HeadGrid", "HeadView", "TokenStrip", "LayerSlider", "NeuronView", "Predictions"]
    views = [getattr(aw, name)(traces[0]) for name in [*names, "InterventionView", "FlowView"]]
    views += [
        aw.RemovalView(traces[0], "saliency"),
        aw.views.CompareView(traces[0], methods=["saliency", "attention"]),
    ]
    explorer.show_text(1)
    for view in views:
        assert view.store.header["text"] == SHE, view
        assert view.selection is explorer.selection, view


def test_what_belongs_to_one_text_alone_stays_with_it(traces):
    explorer = aw.Explorer(traces)
    removal = aw.RemovalView(traces[0], aw.saliency(traces[0]))
    marked = aw.Heatmap(traces[0], marks=[(1, 2)])
    before, left = dict(removal.options), removal.left(1)
    explorer.show_text(2)
    assert removal.store.header["text"] == HE
    assert removal.options == before
    assert removal.left(1) == left
    assert marked.options["marks"] == []


def test_typed_text_is_traced_with_the_options_of_the_first(minilm):
    first = aw.trace(*minilm, "He was in the U.S. then.", words="abbreviations", memory="5MB")
    view = aw.Heatmap(first)
    view.show_text("She was in the U.S. too.")
    assert view.trace.text == "She was in the U.S. too."
    assert "U.S." in view.trace.units["word"].labels
    assert view.trace.memory == 5_000_000
    assert view.trace.model is first.model


@pytest.mark.slow
def test_a_typed_prompt_is_continued_as_the_first_was(smollm2):
    model, tokenizer = smollm2
    first = aw.trace(model, tokenizer, "The cat", max_new_tokens=3)
    explorer = aw.Explorer(first)
    assert explorer.options["texts"]["text"] == "The cat"
    explorer.show_text("The dog")
    assert explorer.trace.boundary is not None
    assert len(explorer.trace.tokens) - explorer.trace.boundary == 3


def test_the_readers_own_objects_mean_what_they_did(traces):
    explorer = aw.Explorer(traces[0])
    weight = aw.attention(traces[0]).value(1, 2, layer=0, head=0)
    explorer.show_text(SHE)
    assert traces[0].text == HE
    assert aw.attention(traces[0]).value(1, 2, layer=0, head=0) == weight
    assert aw.Heatmap(traces[0]).trace is traces[0]
    assert explorer.trace.text == SHE


@pytest.mark.parametrize("text", ["", "   ", "word " * 600])
def test_text_that_cannot_be_traced_changes_nothing(traces, text):
    explorer = aw.Explorer(traces[0])
    state = explorer.get_state()
    message = "602 tokens, and the model takes 512" if text.strip() else "empty"
    with pytest.raises(ValueError, match=message):
        explorer.requests.answer("text", {"text": text})
    assert explorer.get_state() == state
    assert explorer.traces == (traces[0],)


def test_a_cancelled_text_changes_nothing(traces):
    explorer, linked = aw.Explorer(traces[0]), aw.Heatmap(traces[0])
    before = explorer.get_state()
    seen = []

    def observe(done, total, desc):
        seen.append((done, total))
        if done == 3:
            raise Cancelled

    with observing(observe), pytest.raises(Cancelled):
        explorer.show_text(SHE)
    assert (2, 6) in seen  # it reports the layers of the pass
    assert explorer.get_state() == before
    assert linked.trace is traces[0]


def test_a_text_that_the_view_cannot_show_leaves_it_as_it_was(classifier, traces):
    explorer = aw.Explorer(traces[0], methods=["input_x_gradient"])
    other = aw.from_attentions([[[[1.0]]]], ["a"])
    before = explorer.get_state()
    with pytest.raises(ValueError, match="input_x_gradient"):
        explorer.show_text(other)
    assert explorer.get_state() == before
    assert explorer.traces == (traces[0],)
    assert explorer.explanation().trace_id == traces[0].id
    explorer.show_text(SHE)
    assert explorer.trace.text == SHE


def test_what_show_text_takes(traces):
    explorer = aw.Explorer(traces)
    explorer.show_text(-1)
    assert explorer.trace is traces[2]
    with pytest.raises(IndexError, match="0 to 2"):
        explorer.show_text(3)
    with pytest.raises(TypeError, match="a text, a place"):
        explorer.show_text(1.5)
    explorer.show_text(HE)  # it has this text
    assert explorer.trace is traces[0]
    with pytest.raises(TypeError, match="give it the trace"):
        aw.Heatmap(aw.attention(traces[0])).show_text(SHE)


def test_why_a_text_cannot_be_typed(minilm, given, traces):
    model, tokenizer = minilm
    assert "without a model" in retrace.refusal(given())
    pair = aw.trace(model, tokenizer, HE, text_pair=SHE)
    assert "a pair of texts" in retrace.refusal(pair)
    assert "a list of words" in retrace.refusal(aw.trace(model, tokenizer, words=["He", "sat"]))
    assert "token ids" in retrace.refusal(aw.trace(model, tokenizer, input_ids=[101, 102]))
    changed = traces[0].rerun(aw.ablate_heads(traces[0], {0: [1]}))
    assert "changed" in retrace.refusal(changed)
    explorer = aw.Explorer(pair)
    assert "a pair of texts" in explorer.options["texts"]["refusal"]
    with pytest.raises(ValueError, match="a pair of texts"):
        explorer.show_text(HE)
    with aw.ablate_heads(traces[0], {0: [1]}), pytest.raises(ValueError, match="now changed"):
        aw.Explorer(traces[0]).show_text(SHE)


def test_copied_code_gives_the_number_of_the_typed_text(traces, monkeypatch):
    explorer = aw.Explorer(traces[0])
    explorer.show_text(SHE)
    names = {"explorer": explorer, "trace": traces[0], "traces": traces, "aw": aw}

    class Shell:
        user_ns = names

    monkeypatch.setattr("attnwidgets.views.base.expressions.running_shell", Shell)
    source = next(
        entry for entry in explorer.store.sources() if entry.method == "attention" and entry.unit == "token"
    )
    cell = {"of": "cell", "source": source.id, "layer": 2, "head": 3, "query": 1, "key": 2}
    code = explorer.requests.answer("expression", cell)[0]["code"]
    assert "explorer" in code
    assert eval(code, dict(names)) == explorer.trace.attention_layer(2)[3, 1, 2].item()
    outcome = explorer.trace.predictions()[0]
    code = explorer.requests.answer("expression", {"of": "outcome", "id": outcome.id})[0]["code"]
    assert eval(code, dict(names)) == outcome.probability


@pytest.mark.slow
def test_sixty_four_texts_send_what_one_does_and_their_list(classifier):
    many = aw.trace(*classifier, [f"Film number {number} was good." for number in range(64)])
    single = sent_by(aw.Explorer(many[0]))
    explorer = aw.Explorer(many)
    listed = len(json.dumps(explorer.options["texts"]))
    assert listed < 15_000
    assert sent_by(explorer) <= single + listed + 100


@pytest.mark.slow
def test_typed_texts_are_kept_up_to_a_limit_and_given_ones_for_ever(traces, monkeypatch):
    monkeypatch.setattr(texts_module, "MOST_TYPED", 2)
    explorer = aw.Explorer(traces[:2])
    for count in range(4):
        explorer.show_text(f"Film {count}.")
        explorer.show_text(0)
    assert [trace.text for trace in explorer.traces] == [HE, SHE, "Film 2.", "Film 3."]
    assert explorer.trace is traces[0]
    texts = explorer.options["texts"]
    assert texts["items"][texts["previous"]]["text"] == "Film 3."


@pytest.mark.slow
def test_a_closed_view_lets_go_of_its_texts(traces, alive):
    before = set(alive)
    explorer, linked = aw.Explorer(traces[0]), aw.Heatmap(traces[0])
    for text in (SHE, LONG):
        explorer.show_text(text)
    typed = weakref.ref(explorer.trace)
    explorer.close()
    linked.close()
    left = {type(alive[name]).__name__ for name in set(alive) - before}
    assert left <= {"Runtime", "Part", "Layout"}
    del explorer, linked
    gc.collect()
    assert typed() is None


def test_features_of_one_text_are_not_shown_with_another(traces):
    model, tokenizer = traces[0].model, traces[0].tokenizer
    site = "blocks.3.hook_resid_post"
    sae = aw.SAE.train(model, tokenizer, [HE, SHE, LONG] * 4, site=site, d_sae=16, k=4, steps=2, batch_size=8)
    features = aw.sae_features(traces[0], sae)
    with pytest.raises(TypeError, match="give the SAE"):
        aw.Explorer(traces, features=features)
    explorer = aw.Explorer(traces[0], features=features)
    assert "features" in explorer.options["texts"]["refusal"]
    explorer = aw.Explorer(traces, features=sae)
    explorer.show_text(1)
    answer, _ = explorer.requests.answer("activations", {"of": 0, "unit": "token"})
    assert answer
    assert explorer.options["saes"][0]["features"] == 16


@pytest.mark.slow
def test_a_page_holds_every_text_and_unpacks_it_when_it_is_chosen(traces, tmp_path):
    explorer, linked, fixed = aw.Explorer(traces), aw.Heatmap(traces[0]), aw.Heatmap(aw.attention(traces[0]))
    page = aw.to_html([explorer, linked, fixed], tmp_path / "page.html").read_text()
    state = json.loads(page.split('id="aw-state">')[1].split("</script>")[0])
    assert state["views"] == ["view0", "view1", "view2"]
    [group] = state["texts"]
    assert group["shown"] == 0
    assert [line[0] for line in group["views"]] == ["view0", "view1"]
    stores = [state["models"][name]["state"]["store"].split(":")[1] for name in group["views"][0]]
    assert "header" in state["models"][stores[0]]["state"]
    for name in stores[1:]:
        assert "header" not in state["models"][name]["state"]
        assert page.index(f'id="aw-head-{name}"') > page.index("globalThis.awParts")
    second = state["models"][group["views"][0][1]]["state"]["options"]["texts"]
    assert (second["shown"], second["refusal"]) == (1, "needs a running kernel")
    assert SHE not in page.split("</main>")[0]
    assert explorer.trace is traces[0]


@pytest.mark.slow
def test_a_page_of_one_text_holds_no_other(traces, tmp_path):
    several = aw.Explorer(traces)
    page = aw.to_html(aw.Explorer(traces[0]), tmp_path / "page.html").read_text()
    assert "doctor" not in page
    assert several.trace is traces[0]
