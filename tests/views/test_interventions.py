"""Interventions as views share them: checked, real, undone, answered, and in pages."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.intervene.preview import preview
from attnwidgets.views.interventions import intervention_view
from tests.intervene.made import t5, vit
from tests.models.build import Kind, build
from tests.tracing import tiny

OUT = {"kind": "ablate", "layer": 1, "head": 2}
ROW = {"kind": "row", "layer": 0, "head": 1, "query": 3}


@pytest.fixture(scope="module")
def read():
    import transformers as hf

    config = hf.GPT2Config(vocab_size=262, n_embd=16, n_layer=2, n_head=4, initializer_range=0.4)
    model = tiny.build(lambda: hf.GPT2LMHeadModel(config))
    return aw.trace(model, tiny.byte_level(), "the cat sat on the mats")


@pytest.fixture(scope="module")
def classified():
    return aw.trace(*aw.demo_model("classifier"), "a great film")


def asked(view, topic="changed", **args):
    return view.requests.answer(topic, args)


def after(trace, *interventions):
    logits = preview(trace, *interventions).logits
    return (logits if logits.dim() == 1 else logits[-1]).double().softmax(-1).numpy()


# -- shared state ----------------------------------------------------------------------------------


def test_all_views_of_a_trace_see_one_list_and_undo_takes_the_last_back(read):
    grid, explorer = aw.HeadGrid(read), aw.Explorer(read)
    grid.selection.interventions = [OUT, ROW | {"to": "uniform"}]
    assert explorer.selection.interventions == (
        {"kind": "ablate", "stack": "self", "layer": 1, "head": 2, "how": "zero"},
        {"kind": "row", "stack": "self", "layer": 0, "head": 1, "query": 3, "to": "uniform"},
    )
    explorer.selection.undo()
    assert [spec["kind"] for spec in grid.selection.interventions] == ["ablate"]
    explorer.selection.undo()
    explorer.selection.undo()
    assert grid.selection.interventions == ()


def test_what_a_browser_sends_is_the_list_of_python(read):
    view = aw.InterventionView(read)
    sent = {"kind": "row", "stack": "self", "layer": 0, "head": 1, "query": 3, "to": "free", "amount": 1}
    view.selection.set_state({"interventions": [sent]})
    assert view.selection.interventions == (sent,)
    assert view.selection.get_state(key="interventions")["interventions"] == [sent]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("specs", "error", "words"),
    [
        ([{"kind": "ablatte", "layer": 1, "head": 2}], ValueError, "'ablate'"),
        ([OUT | {"how": "zeros"}], ValueError, "'zero'"),
        ([OUT | {"layer": 2}], IndexError, "0 to 1"),
        ([OUT | {"head": 4}], IndexError, "0 to 3"),
        ([OUT | {"head": -1}], IndexError, "out of range"),
        ([OUT | {"head": "2"}], TypeError, "is not a number"),
        ([OUT | {"heads": 2}], ValueError, "'head'"),
        ([OUT | {"stack": "cross"}], ValueError, "'self'"),
        ([OUT, OUT | {"how": "mean"}], ValueError, "already"),
        ([ROW], ValueError, "'uniform'"),
        ([ROW | {"to": "uniform", "query": 23}], IndexError, "0 to 16"),
        ([ROW | {"to": "one_hot"}], ValueError, "goes with to='one_hot'"),
        ([ROW | {"to": "uniform", "key": 2}], ValueError, "goes with to='one_hot'"),
        ([ROW | {"to": "one_hot", "key": 99}], IndexError, "0 to 16"),
        ([ROW | {"to": "free", "amount": 1.5}], ValueError, "to 1"),
        ([ROW | {"to": "uniform", "amount": 1}], ValueError, "'amount'"),
        ([ROW | {"to": "uniform"}, ROW | {"to": "free"}], ValueError, "already"),
        (OUT, TypeError, "list of dicts"),
        ("ablate", TypeError, "list of dicts"),
        ([(1, 2)], TypeError, "not a dict"),
    ],
)
def test_what_there_is_not_is_refused_in_words_and_changes_nothing(read, specs, error, words):
    view = aw.InterventionView(read)
    view.selection.interventions = [OUT]
    with pytest.raises(error, match=re.escape(words)):
        view.selection.interventions = specs
    assert len(view.selection.interventions) == 1


# -- real interventions ----------------------------------------------------------------------------


def test_they_are_the_interventions_of_the_library_in_words(read):
    view = aw.Explorer(read)
    view.selection.interventions = [
        OUT,
        OUT | {"head": 3, "how": "mean"},
        ROW | {"to": "one_hot", "key": 2},
        ROW | {"head": 0, "to": "uniform"},
    ]
    wanted = [
        aw.ablate_heads(read, (1, 2)),
        aw.ablate_heads(read, (1, 3), "mean", reference=read),
        aw.edit_attention(read, (0, 1), "one_hot", query=3, key=2),
        aw.edit_attention(read, (0, 0), "uniform", query=3),
    ]
    made = view.interventions()
    assert [item.said for item in made] == [item.said for item in wanted]
    torch.testing.assert_close(read.rerun(*made).logits, read.rerun(*wanted).logits, atol=1e-6, rtol=0)
    assert aw.interventions(read) == ()


def test_a_free_row_moves_by_its_amount_and_the_prediction_stands_still(read):
    query = len(read.tokens) - 1
    view = aw.InterventionView(read)
    result = aw.statistics.free_attention(read, 1, 2, query)
    (row,) = result.rows.values()
    movable = float(result.movable[0, 0, 0])
    assert movable > 0.1
    before = read.attention_layer(1)[2, query].numpy()
    for amount in (0, 0.5, 1):
        view.selection.interventions = [
            ROW | {"layer": 1, "head": 2, "query": query, "to": "free", "amount": amount}
        ]
        traced = read.rerun(*view.interventions())
        np.testing.assert_allclose(
            traced.attention_layer(1)[2, query], before + amount * (row - before), atol=1e-6
        )
        told, _ = asked(view, interventions=view.selection.interventions)
        assert told["distance"] < 1e-5
    meta, (packed,) = asked(view, "free_row", stack="self", layer=1, head=2, query=query)
    assert meta["movable"] == pytest.approx(movable)
    np.testing.assert_allclose(np.frombuffer(packed, "<f4"), row, atol=1e-6)
    assert "of what is free" in view.interventions()[0].said


# -- predictions afterwards -----------------------------------------------------------------------


def test_before_and_after_are_what_a_preview_predicts(read):
    view = aw.InterventionView(read)
    ablation = aw.ablate_heads(read, (1, 2))
    told, _ = asked(view, interventions=[OUT])
    was, now = read.logits[-1].double().softmax(-1).numpy(), after(read, ablation)
    assert told["kind"] == "distribution"
    assert told["distance"] == pytest.approx(np.abs(now - was).sum() / 2, abs=1e-6)
    for number, label, before, later in told["rows"]:
        assert (before, later) == pytest.approx((was[number], now[number]), abs=1e-6)
        if number == was.argmax():
            assert label == read.predictions()[0].label
    assert {was.argmax(), now.argmax()} <= {row[0] for row in told["rows"]}
    rare = int(was.argsort()[-150])
    assert rare not in {row[0] for row in told["rows"]}
    told, _ = asked(view, interventions=[OUT], target=rare)
    assert rare in {row[0] for row in told["rows"]}


def test_classes_and_models_that_predict_nothing_are_compared_too(classified, minilm_trace):
    told, _ = asked(aw.InterventionView(classified), interventions=[OUT])
    now = after(classified, aw.ablate_heads(classified, (1, 2)))
    assert {row[1] for row in told["rows"]} == {"positive", "negative"}
    assert [row[3] for row in told["rows"]] == pytest.approx(sorted(now, reverse=True), abs=1e-6)
    told, _ = asked(aw.InterventionView(minilm_trace), interventions=[OUT])
    model, inputs = minilm_trace.model, dict(minilm_trace.inputs)
    with torch.no_grad():
        before = model(**inputs).last_hidden_state[0]
        with aw.ablate_heads(model, (1, 2)):
            later = model(**inputs).last_hidden_state[0]
    assert (told["kind"], told["rows"]) == ("states", [])
    assert told["distance"] == pytest.approx(float((later - before).norm() / before.norm()), rel=1e-3)


def test_a_change_after_an_error_leaves_the_model_as_it_was(read):
    trace = read.rerun()  # views of a trace remember what they answered: of this one nothing was asked
    view = aw.InterventionView(trace)

    def fails(*_):
        raise KeyboardInterrupt

    handle = trace.model.transformer.h[1].mlp.register_forward_hook(fails)
    try:
        with pytest.raises(KeyboardInterrupt):
            asked(view, interventions=[OUT | {"head": 1}])
    finally:
        handle.remove()
    assert aw.interventions() == ()
    assert torch.equal(trace.rerun().logits, trace.logits)
    assert asked(view, interventions=[OUT | {"head": 1}])[0]["distance"] > 0


def test_without_a_model_it_says_so_and_shows_the_rows(given):
    view = aw.InterventionView(given())
    assert "without one" in asked(view, "interventions")[0]["refusal"]
    view.selection.interventions = [OUT]
    with pytest.raises(ValueError, match="needs the model"):
        view.interventions()
    with pytest.raises(ValueError, match="needs the model"):
        asked(view, interventions=[OUT])
    assert asked(view, "own_row", stack="self", layer=0, head=0, query=1)[0]["keys"][0] == "t0"
    with pytest.raises(ValueError, match="needs a trace"):
        aw.Explorer(aw.attention(given())).interventions()
    with pytest.raises(TypeError, match=r"aw\.trace"):
        aw.InterventionView(aw.attention(given()))


def test_inside_of_another_intervention_nothing_is_pulled(read):
    with aw.ablate_heads(read, (0, 0)):
        view = aw.InterventionView(read)
        assert "recorded before" in asked(view, "interventions")[0]["refusal"]
        assert "changed" not in {topic for topic, _, _ in view.requests.for_page()}


# -- pages -----------------------------------------------------------------------------------------


def answers_of(page, topic="changed"):
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page.read_text(encoding="utf-8"))[1])
    return state, [item for told in state["answers"].values() for item in told if item["topic"] == topic]


def test_a_page_plays_what_undo_leads_through_and_each_head_alone(read, tmp_path):
    view = aw.InterventionView(read, layer=1, head=0)
    view.selection.interventions = [OUT, ROW | {"to": "uniform"}, OUT | {"head": 0}]
    state, told = answers_of(view.to_html(tmp_path / "page.html"))
    active = state["models"]["selection0"]["state"]["interventions"]
    answered = [item["args"]["interventions"] for item in told]
    assert [active, active[:2], active[:1]] == answered[:3]
    alone = [specs[0]["head"] for specs in answered if len(specs) == 1 and specs[0]["kind"] == "ablate"]
    assert sorted(alone) == [0, 1, 2, 3]
    assert answered.count(active[:1]) == 1
    wanted = after(read, *view.interventions())
    assert all(row[3] == pytest.approx(wanted[row[0]], abs=1e-6) for row in told[0]["meta"]["rows"])


def test_an_assignment_s_page_does_not_hold_its_answer(read, tmp_path):
    shown, hidden = (
        aw.Explorer(read, methods=[name]).to_html(tmp_path / name) for name in ("attention", "rollout")
    )
    assert len(answers_of(shown, "own_row")[1]) == 4
    assert answers_of(hidden, "own_row")[1] == []


@pytest.mark.slow
@pytest.mark.parametrize("make", [t5, vit])
def test_every_stack_and_kind_of_model_is_served(make, tmp_path):
    trace = make()
    view = aw.InterventionView(trace)
    for stack in trace.stacks:
        at = {"stack": stack, "layer": 1, "head": 1}
        view.selection.interventions = [
            {"kind": "ablate", **at},
            {"kind": "row", **at, "query": 1, "to": "free"},
        ]
        told, _ = asked(view, interventions=view.selection.interventions)
        logits = trace.rerun(*view.interventions()).logits
        now = (logits if logits.dim() == 1 else logits[-1]).double().softmax(-1)
        assert told["rows"]
        assert all(row[3] == pytest.approx(float(now[row[0]]), abs=1e-6) for row in told["rows"])
    view.selection.stack = trace.stacks[-1]
    assert len(answers_of(view.to_html(tmp_path / "page.html"))[1]) > 4


def test_a_page_does_not_run_a_large_model_for_what_nobody_asked(read, tmp_path, monkeypatch):
    monkeypatch.setattr(intervention_view, "PAGE_WORK", 0)
    view = aw.Explorer(read)
    view.selection.interventions = [OUT]
    assert len(answers_of(view.to_html(tmp_path / "page.html"))[1]) == 1


# -- blocks that do not attend, or not only --------------------------------------------------------

IDS = torch.tensor([21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12])


def mixing(name):
    return aw.trace(build(Kind(name, "causal")), None, IDS)


def groups(trace, explanation, layer):
    view = aw.Heatmap(explanation)
    mixers = view.sources()[0].describe("", "")["mixers"]["layers"]
    return [(group["heads"], group["attends"], group["fixed"]) for group in mixers[str(layer)]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "layer", "head"), [("falcon_h1", 1, 6), ("qwen3_5_text", 1, 2), ("mamba2", 1, 3)]
)
def test_a_head_of_a_kernel_is_knocked_out_by_its_number_in_the_map(name, layer, head):
    trace = mixing(name)
    view = aw.Explorer(trace)
    assert asked(view, "interventions")[0]["refusal"] == ""
    view.selection.interventions = [OUT | {"layer": layer, "head": head}]
    answer, _ = asked(view, interventions=list(view.selection.interventions))
    expected = after(trace, aw.ablate_heads(trace, (layer, head)))
    assert max(abs(row[3] - expected[row[0]]) for row in answer["rows"]) < 1e-7
    assert answer["distance"] > 1e-4
    assert groups(trace, aw.mixing(trace), layer)[-1] == (4, False, "")


@pytest.mark.slow
def test_what_is_not_a_head_is_not_offered_and_says_why():
    zamba, llama = mixing("zamba"), mixing("diffllama")
    view = aw.Explorer(zamba)
    reason = "a state space has channels and not heads"
    assert groups(zamba, aw.mixing(zamba), 1) == [(4, True, ""), (0, False, reason)]
    with pytest.raises(ValueError, match=f"all channels of layer 1 cannot be knocked out: {reason}"):
        view.selection.interventions = [OUT | {"layer": 1, "head": 4}]
    ((_, _, why),) = groups(llama, aw.mixing(llama), 0)
    assert why.startswith("it is the difference of two heads")
    channels = aw.InterventionView(mixing("mamba"))
    with pytest.raises(ValueError, match=reason):
        channels.selection.interventions = [OUT | {"layer": 0, "head": 0}]
    assert not list(channels._changes_for_page())


def test_rows_and_means_are_of_attention():
    trace = mixing("qwen3_5_text")
    view = aw.Explorer(trace)
    with pytest.raises(ValueError, match=r"cannot be set for head 1 \(gated delta rule\)"):
        view.selection.interventions = [ROW | {"to": "uniform", "query": 3}]
    with pytest.raises(ValueError, match="use 'zero' for head 1"):
        view.selection.interventions = [OUT | {"head": 1, "how": "mean"}]
