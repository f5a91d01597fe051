"""NeuronView takes a row apart: at once, exactly, in pages too; refused without its vectors."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.figures.theme import LIGHT
from attnwidgets.tracing.unsupported import UnsupportedModelError
from attnwidgets.views.heads.neuron_view import PAGE_BUDGET
from tests.tracing.families import FAMILIES


@pytest.fixture
def by_hand():
    draw = np.random.default_rng(0).normal
    states = [draw(size=shape) for shape in ((5, 6), (6, 8), (6, 8))]
    return aw.from_qkv(*states, heads=2, mask="causal", tokens=list("abcde"))


def told(view, topic, **args):
    meta, buffers = view.requests.answer(topic, args)
    return meta, [np.frombuffer(data, "<f4") for data in buffers]


def test_a_row_and_its_keys_are_told_exactly(by_hand):
    view = aw.NeuronView(by_hand)
    meta, (query, *series) = told(view, "attention_row", stack="self", layer=0, head=1, query=3)
    _, (keys,) = told(view, "attention_keys", stack="self", layer=0, head=meta["kvHead"])
    keys = keys.reshape(5, meta["dim"])
    by = dict(zip(meta["series"], series, strict=True))
    np.testing.assert_allclose(by["dot"], keys @ query, rtol=1e-5)
    np.testing.assert_allclose(by["scaled"], by["dot"] / 2, rtol=1e-6)
    np.testing.assert_array_equal(by["masked"][:4], by["scaled"][:4])
    assert by["masked"][4] == -np.inf
    np.testing.assert_array_equal(by["recorded"], by_hand.attention_layer(0)[1, 3].numpy().astype(np.float32))
    np.testing.assert_allclose(by["softmax"], by["recorded"], rtol=1e-6)


def test_it_opens_on_a_row_with_two_to_four_weights(by_hand):
    view = aw.NeuronView(by_hand)
    opens = view.options["opens"]
    query, key = opens["pair"]
    row = by_hand.attention_layer(0)[opens["head"], query].numpy()
    large = row[row >= 0.1]
    assert 2 <= len(large) <= 4
    assert large.sum() >= 0.8
    assert int(row.argmax()) == key
    meta, (_, *series) = told(view, "attention_row", stack="self", layer=0, head=opens["head"], query=query)
    np.testing.assert_allclose(series[meta["series"].index("recorded")], row, rtol=1e-6)
    assert f"“{by_hand.tokens[query]}” reads “{by_hand.tokens[key]}”" in view._still(LIGHT).title


def test_steps_that_change_nothing_are_left_out_and_others_are_there(by_hand):
    series = {
        "by hand": (by_hand, "self"),
        "Gemma 2": (FAMILIES["Gemma 2"].traced(), "self"),
        "T5": (FAMILIES["T5"].traced(), "encoder"),
    }
    result = {}
    for name, (trace, stack) in series.items():
        meta, _ = told(
            aw.NeuronView(trace), "attention_row", stack=stack, layer=1 % trace.n_layers(), head=0, query=2
        )
        result[name] = meta["series"]
    assert result["by hand"] == ["dot", "scaled", "masked", "softmax", "recorded"]
    assert result["Gemma 2"] == ["dot", "scaled", "capped", "masked", "softmax", "recorded"]
    assert result["T5"] == ["dot", "scaled", "biased", "masked", "softmax", "recorded"]


def test_additive_scores_are_told_with_their_weights():
    draw = np.random.default_rng(0).normal
    states = [draw(size=shape) for shape in ((5, 6), (6, 8), (6, 8))]
    weights = draw(size=8)
    trace = aw.from_qkv(*states, heads=2, score="additive", v_a=weights, tokens=list("abcde"))
    view = aw.NeuronView(trace)
    meta, (query, *series) = told(view, "attention_row", stack="self", layer=0, head=1, query=3)
    _, (keys,) = told(view, "attention_keys", stack="self", layer=0, head=meta["kvHead"])
    *numbers, told_weights = series
    by = dict(zip(meta["series"], numbers, strict=True))
    assert meta["additive"]
    np.testing.assert_allclose(told_weights, weights[4:], rtol=1e-6)
    scores = np.tanh(query + keys.reshape(5, 4)) @ told_weights
    np.testing.assert_allclose(by["dot"], scores, rtol=1e-5)
    np.testing.assert_allclose(by["scaled"], scores, rtol=1e-5)
    np.testing.assert_allclose(by["softmax"], by["recorded"], rtol=1e-6)
    steps = told(aw.Explorer(trace), "computed", stack="self", layer=0, head=1, query=3, key=2)[0]["steps"]
    assert [name for name, _ in steps] == ["v · tanh(q + k), over 4 dimensions", "softmax over 5 keys"]
    assert steps[0][1] == pytest.approx(scores[2], rel=1e-5)


@pytest.mark.parametrize(
    ("options", "words", "product"),
    [
        ({}, "q · k = 1, times 0.577", [0, 0, 1]),
        # The last token reads itself: 3 tanh(2).
        ({"score": "additive", "v_a": [1, 2, 3]}, "v · tanh(q + k) = 2.89", [0, 0, 3 * np.tanh(2)]),
    ],
)
def test_the_still_picture_shows_the_numbers_of_the_score(options, words, product):
    view = aw.NeuronView(aw.from_qkv(np.eye(3), np.eye(3), np.eye(3), **options))
    view.selection.pinned = (2, 2)
    said, drawn, *_ = view._still(LIGHT).parts
    assert words in said.text
    np.testing.assert_allclose(drawn.values[2], product, rtol=1e-6)


def test_what_a_page_asks_wrongly_is_refused_in_words(by_hand):
    view = aw.NeuronView(by_hand)
    with pytest.raises(IndexError, match="head 2 is out of range"):
        told(view, "attention_row", stack="self", layer=0, head=2, query=0)
    with pytest.raises(ValueError, match="stack 'cross' is not in this trace"):
        told(view, "attention_keys", stack="cross", layer=0, head=0)


def test_it_shows_tokens_and_attention_whatever_others_are_switched_to(by_hand):
    view = aw.NeuronView(by_hand)
    explorer = aw.Explorer(by_hand)
    explorer.selection.method = "rollout"
    assert (view.options["method"], view.options["unit"], view.options["stack"]) == (
        "attention",
        "token",
        None,
    )
    assert view.selection is explorer.selection
    view.close()
    view._repr_mimebundle_()  # shown again
    assert (view.options["method"], view.options["unit"]) == ("attention", "token")


def answers_of(page):
    state = json.loads(re.search(r'id="aw-state">(.*?)</script>', page.read_text(encoding="utf-8"))[1])
    return [(item["topic"], item["args"]) for item in next(iter(state["answers"].values()))]


def test_a_small_trace_goes_whole_into_a_page(by_hand, tmp_path):
    answers = answers_of(aw.NeuronView(by_hand, head=0).to_html(tmp_path / "page.html"))
    rows = {(args["head"], args["query"]) for topic, args in answers if topic == "attention_row"}
    assert rows == {(head, query) for head in (0, 1) for query in range(5)}
    keys = [args for topic, args in answers if topic == "attention_keys"]
    assert keys == [{"stack": "self", "layer": 0, "head": head} for head in (0, 1)]
    assert list(next(args for topic, args in answers if topic == "attention_row")) == [
        "stack", "layer", "head", "query",
    ]  # fmt: skip


def test_of_a_large_trace_a_page_holds_the_pinned_row_first(tmp_path):
    draw = np.random.default_rng(0).normal
    trace = aw.from_qkv(draw(size=(300, 8)), draw(size=(8, 512)), draw(size=(8, 512)), heads=8)
    view = aw.NeuronView(trace, head=5)
    view.selection.pinned = (7, 3)
    told_of = list(view.requests.for_page())
    rows = [args for topic, args, _ in told_of if topic == "attention_row"]
    keys = [args["head"] for topic, args, _ in told_of if topic == "attention_keys"]
    assert (rows[0]["head"], rows[0]["query"]) == (5, 7)
    assert keys[0] == 5
    size = sum(len(data) for _, _, answer in told_of for data in answer()[1])
    assert 0 < size <= PAGE_BUDGET


def test_given_weights_are_refused_with_what_to_do(given):
    with pytest.raises(UnsupportedModelError, match=r"aw\.trace\(.*aw\.from_qkv\("):
        aw.NeuronView(given())


def test_a_map_is_refused_in_favour_of_its_trace(by_hand):
    with pytest.raises(TypeError, match="shows a trace, not MixingMap; give the trace"):
        aw.NeuronView(aw.attention(by_hand))
    with pytest.raises(TypeError, match=r"takes no keyword 'layr'.*'layer'"):
        aw.NeuronView(by_hand, layr=1)


@pytest.fixture(scope="module")
def delta():
    """A delta rule by hand: the last token overwrites most of the first token's value."""
    states = np.array([[1.0, 0.0], [0.0, 1.0], [0.8, 0.6]])
    return aw.from_qkv(
        states,
        np.eye(2),
        np.eye(2),
        np.eye(2),
        rule=("delta", {"beta": 0.75, "decay": 0.8}),
        tokens=["the", "cat", "sat"],
    )


def test_a_weight_of_a_kernel_is_told_step_by_step(delta):
    view = aw.NeuronView(delta)
    meta, (weights,) = told(view, "attention_row", stack="self", layer=0, head=0, query=2)
    assert meta == {"channels": 0, "channel": None, "opens": 0}
    np.testing.assert_allclose(weights, aw.mixing(delta, "kernel").matrix(0, 0)[2], rtol=1e-6)
    chain, _ = told(view, "kernel_chain", stack="self", layer=0, head=0, query=2, key=0)
    # By hand: 0.75 k of "the" is read by q, fades twice, and "sat" erases 0.75 of the value under its key.
    assert chain["start"] == pytest.approx(0.6)
    assert [step["value"] for step in chain["steps"]] == pytest.approx([0.48, 0.384 * 0.25])
    assert chain["steps"][1]["erased"] == pytest.approx(0.384 * 0.75)
    assert chain["words"] == (
        "“sat” keeps 0.16 of what “the” wrote: each of 2 tokens after it multiplies it by 0.8; overwriting "
        "by “sat” takes it from 0.384 to 0.096. Weight 0.096 = 0.6 × 0.16."
    )


def test_the_figure_and_its_words_say_the_same_of_a_kernel(delta):
    view = aw.NeuronView(delta)
    view.selection.pinned = (2, 0)
    sheet = view._still(LIGHT)
    assert sheet.title == "“sat” reads “the” in layer 0, head 0 (delta rule)"
    words, table, bars = sheet.parts
    chain, _ = told(view, "kernel_chain", stack="self", layer=0, head=0, query=2, key=0)
    assert words.text == chain["words"]
    assert view.describe() == f"{sheet.title}: {words.text}"
    assert [row[0] for row in table.rows] == ["the writes", "cat", "sat"]
    assert table.rows[-1][-1] == pytest.approx(chain["weight"])
    assert bars.bars[0].value == pytest.approx(chain["weight"])


def test_a_kernel_opens_on_a_weight_of_its_row_beside_a_view_of_shares() -> None:
    """In this model shares name the letter before the marker, and weights the marker itself."""
    trace = aw.trace(*aw.zoo.last_marked(), "cf#bd#aheg")
    aw.Explorer(trace)
    view = aw.NeuronView(trace)
    assert view.describe().startswith("“g” reads “#” in layer 0")
    assert "“g” reads all of what “#” wrote: no token after it changes it." in view.describe()
    view.selection.pinned = (10, 5)
    assert "“g” does not ask for what “d” wrote: q · β k is 0." in view.describe()


def test_a_kernel_reads_no_later_key(delta):
    view = aw.NeuronView(delta)
    view.selection.pinned = (0, 2)
    assert "“the” reads what it writes itself" in view.describe()
    with pytest.raises(IndexError, match="key 2 is out of range: query 0 reads 0 to 0"):
        told(view, "kernel_chain", stack="self", layer=0, head=0, query=0, key=2)


def test_a_hybrid_shows_kernels_and_attention_and_leaves_convolutions_out():
    from tests.models.build import Kind, build

    view = aw.NeuronView(aw.trace(build(Kind("qwen3_5_text", "causal")), None, input_ids=list(range(20, 33))))
    assert view.content.main.layers == (0, 1, 2, 3)
    assert "(gated delta rule)" in view.describe()
    view.selection.layer = 3
    assert "after the softmax" in view.describe()
    trace = aw.trace(build(Kind("lfm2_moe", "causal")), None, input_ids=list(range(20, 33)))
    attending = trace.layers()
    assert aw.NeuronView(trace).content.main.layers == attending
    assert set(attending) < set(trace.mixing_layers())


def test_channels_with_kernels_of_their_own_are_named():
    from tests.models.build import Kind, build

    trace = aw.trace(build(Kind("mamba", "causal")), None, input_ids=list(range(20, 33)))
    view = aw.NeuronView(trace)
    meta, _ = told(view, "attention_row", stack="self", layer=0, head=0, query=12)
    assert f"layer 0, channel {meta['channel']} (state space)" in view.describe()
    other = (meta["channel"] + 1) % meta["channels"]
    again, (weights,) = told(view, "attention_row", stack="self", layer=0, head=0, query=12, channel=other)
    assert again["channel"] == other
    chain, _ = told(view, "kernel_chain", stack="self", layer=0, head=0, query=12, key=3, channel=other)
    assert chain["weight"] == pytest.approx(weights[3], rel=1e-6)
    assert "components of the state decay at different rates" in chain["note"]


def test_a_page_holds_the_chains_of_the_rows_it_holds(delta, tmp_path):
    answers = answers_of(aw.NeuronView(delta).to_html(tmp_path / "page.html"))
    rows = [args for topic, args in answers if topic == "attention_row"]
    chains = [args for topic, args in answers if topic == "kernel_chain"]
    assert {row["query"] for row in rows} == {0, 1, 2}
    assert {(args["query"], args["key"]) for args in chains} == {
        (q, k) for q in range(3) for k in range(q + 1)
    }
    assert list(chains[0]) == ["stack", "layer", "head", "query", "key"]


@pytest.mark.parametrize(
    ("factors", "words"),
    [
        ([0.5], "1 token after it multiplies it by 0.5."),
        ([0.5, 0.25, 0.1], "3 tokens after it multiply it by 0.5, 0.25 and 0.1."),
        ([1.0, 1.0], "no token after it changes it."),
        ([0.9, 0.9, 0.2, 0.9, 0.9], "5 tokens after it multiply it by 0.131, “d” most (0.2)."),
    ],
)
def test_what_passes_between_is_said_in_words(factors, words):
    from attnwidgets.tracing.mixers.chains import faded
    from attnwidgets.views.heads.chain_words import _happens

    chain = faded("q · k", torch.tensor(2.0).double(), torch.tensor(factors).double(), 1)
    said = _happens(chain, len(factors), 0, list("abcdef"))
    assert said.endswith(words)
    share = "reads all" if words.startswith("no token") else "keeps "
    assert said.startswith(f"“{'abcdef'[len(factors)]}” {share}")
