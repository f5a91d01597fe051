"""A live page computes the same as torch: predictions, maps, units, ablations and edited rows."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForSequenceClassification,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
)

import attnwidgets as aw
from attnwidgets.zoo.characters import character_tokenizer
from attnwidgets.zoo.tokenizers import letter_tokenizer

from .live_pages import LivePage, asks, parts_of, row, sessions, typed

pytestmark = pytest.mark.slow

COMPILED = {
    "induction": (partial(aw.zoo.induction, letters="abcdefgh", length=16), "fadebcfade", "abcdabcda"),
    "same": (partial(aw.zoo.histogram, "same"), "abacabadab", "hhgaabcdef"),
    "all": (partial(aw.zoo.histogram, "all"), "abacabadab", "hhgaabcdef"),
    "different": (partial(aw.zoo.histogram, "different"), "abacabadab", "hhgaabcdef"),
    "additive": (aw.zoo.additive, "abca", "hhgb"),
    "negation": (aw.zoo.negation, "nab", "nnabd"),
    "two_hop": (aw.zoo.two_hop, "bc ef ab a", "ab ca c"),
    "dyck": (aw.zoo.dyck, "([]", "[()[]"),
}
TRAINED = {
    "trained induction": (partial(aw.zoo.trained, "induction"), "abcdabcda", "xyzwxyzwxy"),
    "trained dyck": (partial(aw.zoo.trained, "dyck"), "([]", "[()[]"),
    "trained histogram": (partial(aw.zoo.trained, "histogram"), "abacabadab", "hhgaabcdef"),
    "alice": (
        partial(aw.zoo.trained, "alice"),
        "Alice was beginning",
        "“Who are You?” said the Caterpillar…",
    ),
}
ZOO = COMPILED | TRAINED


def random_model(kind):
    """A model with random weights that float16 holds, and a tokenizer of letters."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 40}
    bert = partial(BertConfig, vocab_size=9, max_position_embeddings=20, initializer_range=0.3, **sizes)
    made = {
        "gpt2": lambda: GPT2LMHeadModel(
            GPT2Config(
                vocab_size=9,
                n_positions=20,
                n_embd=24,
                n_layer=2,
                n_head=3,
                initializer_range=0.3,
                scale_attn_by_inverse_layer_idx=True,
                bos_token_id=8,
                eos_token_id=None,
            )
        ),
        "llama": lambda: LlamaForCausalLM(
            LlamaConfig(
                vocab_size=9,
                num_key_value_heads=2,
                max_position_embeddings=20,
                initializer_range=0.3,
                attention_bias=True,
                **sizes,
            )
        ),
        "bert classes": lambda: BertForSequenceClassification(bert(num_labels=3)),
        "bert several": lambda: BertForSequenceClassification(
            bert(num_labels=3, problem_type="multi_label_classification", hidden_act="gelu_new")
        ),
        "bert numbers": lambda: BertForSequenceClassification(bert(num_labels=3, problem_type="regression")),
        "bert states": lambda: BertModel(bert()),
        "bert masks": lambda: BertForMaskedLM(bert()),
    }
    model = made[kind]().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter)).copy_(parameter.half().float())
    return model, letter_tokenizer("abcdefgh", 19)


RANDOM = {
    name: (partial(random_model, name), "abacab", "hgfedcba")
    for name in ("gpt2", "llama", "bert classes", "bert several", "bert numbers", "bert states", "bert masks")
}


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    with sessions(tmp_path_factory.mktemp("session")) as process:
        yield process


@pytest.fixture(scope="module", params=[*ZOO, *RANDOM])
def case(request, node, tmp_path_factory):
    """A live page, the trace of a text that it was not written with, and that text."""
    make, first, second = (ZOO | RANDOM)[request.param]
    model, tokenizer = make()
    page = LivePage(node, tmp_path_factory.mktemp("page"), aw.Explorer(aw.trace(model, tokenizer, first)))
    return page, aw.trace(model, tokenizer, second), second


def largest(logits):
    return max(1e-2, float(logits.abs().max()))


def test_a_typed_text_has_the_model_s_tokens_units_and_predictions(case):
    page, trace, text = case
    answer = page.ask("text", text=text)
    assert answer.meta["shown"] == 1
    expected = aw.Explorer(trace).store.header
    assert answer.header["text"] == expected["text"] == text
    for unit in ("token", "word", "sentence"):
        assert answer.header["axes"][unit] == expected["axes"][unit]
    assert [item["id"] for item in answer.header["sources"]] == [item["id"] for item in expected["sources"]]
    predictions = answer.header["predictions"]
    assert predictions["title"] == expected["predictions"]["title"]
    for prediction, wanted in zip(predictions["items"], expected["predictions"]["items"], strict=True):
        if wanted["probability"] is not None:
            assert prediction["probability"] == pytest.approx(wanted["probability"], abs=1e-4)
            continue
        assert prediction["probability"] is None
        (name, digits), (expected_name, number) = (
            item["label"].replace("−", "-").rsplit(" ", 1) for item in (prediction, wanted)
        )
        assert name == expected_name
        assert float(digits) == pytest.approx(float(number), abs=1e-3)


def test_attention_and_rollout_are_those_of_torch_in_every_unit(case):
    page, trace, text = case
    query = len(trace.tokens) - 1
    layers, heads = range(trace.n_layers()), range(trace.n_heads())
    rows = [row("attention", layer, head, query) for layer in layers for head in heads]
    rolled = [row("rollout", layer, "-", query) for layer in layers]
    words = aw.attention(trace).to("word")
    last = len(words.query_labels) - 1
    rows_by_word = [row("attention", 0, "mean", last, "word"), row("rollout", 0, "-", last, "word")]
    _, *answers = page.answers(typed(text), *rows, *rolled, *rows_by_word)
    expected = [trace.attention_layer(layer)[head, query].numpy() for layer in layers for head in heads]
    expected += [aw.rollout(trace).layer(layer)[query] for layer in layers]
    expected += [words.layer(0).mean(0)[last], aw.rollout(trace).to("word").layer(0)[last]]
    for answer, numbers in zip(answers, expected, strict=True):
        np.testing.assert_allclose(answer.numbers(), numbers, atol=2e-6)


SPECS = {
    "zero": [{"kind": "ablate", "layer": 0, "head": 0}],
    "mean": [{"kind": "ablate", "layer": 0, "head": 0, "how": "mean"}],
    "uniform": [{"kind": "row", "layer": 0, "head": 0, "query": 2, "to": "uniform"}],
    "one key": [{"kind": "row", "layer": 0, "head": 0, "query": 3, "to": "one_hot", "key": 1}],
    "both": [
        {"kind": "row", "layer": 0, "head": 0, "query": 3, "to": "uniform"},
        {"kind": "ablate", "layer": -1, "head": -1},
    ],
}


def test_ablations_and_row_edits_are_those_of_rerun(case):
    page, trace, text = case
    ends = {"layer": trace.n_layers() - 1, "head": trace.n_heads() - 1}
    explorer = aw.Explorer(trace)
    layer, last = trace.n_layers() - 1, len(trace.tokens) - 1
    steps, expected = [typed(text)], []
    for number, given in enumerate(SPECS.values()):
        specs = [spec | {name: n for name, n in ends.items() if spec[name] < 0} for spec in given]
        explorer.selection.interventions = specs
        specs = [dict(spec) for spec in explorer.selection.interventions]
        changed = trace.rerun(*explorer.interventions())
        attention = changed.attention_layer(layer)[0, last].numpy()
        expected.append((explorer._changed(specs)[0], attention))
        method = f"#changed{number}"
        steps += [asks("changed", interventions=specs), asks("follow", interventions=specs)]
        steps += [row(f"attention{method}", layer, 0, last)]
    told = page.answers(*steps)[1:]
    for number, (change, attention) in enumerate(expected):
        result, follow, attended = told[3 * number : 3 * number + 3]
        assert follow.meta == {"method": f"attention#changed{number}"}
        np.testing.assert_allclose(attended.numbers(), attention, atol=2e-6)
        assert_same_change(result.meta, change)


def assert_same_change(actual, expected):
    for name in ("kind", "title", "count"):
        assert actual[name] == expected[name]
    if expected["distance"] is not None:
        assert actual["distance"] == pytest.approx(expected["distance"], abs=1e-4)
    here, there = ({item[0]: item[2:] for item in rows} for rows in (actual["rows"], expected["rows"]))
    assert bool(here) == bool(there)
    for outcome in here.keys() & there.keys():
        assert here[outcome] == pytest.approx(there[outcome], abs=1e-4)


def test_a_followed_change_moves_the_rollout_as_well(node, tmp_path):
    model, tokenizer = random_model("llama")
    trace = aw.trace(model, tokenizer, "abacabad")
    explorer = aw.Explorer(trace, methods=["rollout"])
    specs = [{"kind": "ablate", "stack": "self", "layer": 0, "head": 1, "how": "zero"}]
    page = LivePage(node, tmp_path, explorer)
    follow, rolled = page.answers(asks("follow", interventions=specs), row("rollout#changed0", 1, "-", 7))
    explorer.selection.interventions = specs
    changed = trace.rerun(*explorer.interventions())
    assert follow.meta == {"method": "rollout#changed0"}
    np.testing.assert_allclose(rolled.numbers(), aw.rollout(changed).layer(1)[7], atol=2e-6)


def test_the_decoy_changes_nothing_and_without_the_first_head_all_is_equal(node, tmp_path):
    model, tokenizer = aw.zoo.induction()
    page = LivePage(node, tmp_path, aw.Explorer(aw.trace(model, tokenizer, "fadebcfadeb")))
    without = [
        [{"kind": "ablate", "stack": "self", "layer": 0, "head": head, "how": "zero"}] for head in (1, 0)
    ]
    decoy, head = page.answers(*(asks("changed", interventions=specs) for specs in without))
    assert decoy.meta["distance"] == 0
    assert {round(item[3], 6) for item in head.meta["rows"]} == {round(1 / 17, 6)}


@pytest.mark.parametrize("how", ["same", "all", "different"])
def test_a_model_of_classes_says_that_of_every_token(node, tmp_path, how):
    model, tokenizer = aw.zoo.histogram(how)
    page = LivePage(node, tmp_path, aw.Explorer(aw.trace(model, tokenizer, "abacabadab")))
    told = page.ask("preview", text="aaabbcdefg").meta["each"]
    assert told == [[letter, str("aaabbcdefg".count(letter))] for letter in "aaabbcdefg"]


def test_outcomes_surprisal_and_one_weight_are_those_of_python(node, tmp_path):
    model, tokenizer = random_model("llama")
    text = "abacabadab"
    trace = aw.trace(model, tokenizer, text)
    explorer = aw.Explorer(trace)
    neurons = aw.NeuronView(trace)
    page = LivePage(node, tmp_path, aw.Explorer(aw.trace(model, tokenizer, "ab")))
    at = {"stack": "self", "layer": 1, "head": 3, "query": 6}
    handlers = {**explorer._handlers(), **neurons._handlers()}
    source = "attention/token/self"
    asked = {
        "outcomes": [{}, {"position": 4}],
        "surprisal": [{}],
        "own_row": [at],
        "attention_row": [at],
        "attention_keys": [{"stack": "self", "layer": 1, "head": 1}],
        "pair": [{"source": source, "query": 5, "key": 2}],
        "computed": [{**at, "key": 3}, {**at, "key": 8}],
    }
    steps = [(topic, args) for topic, many in asked.items() for args in many]
    _, *answers = page.answers(typed(text), *(asks(topic, **args) for topic, args in steps))
    for (topic, args), answer in zip(steps, answers, strict=True):
        meta, buffers = handlers[topic].answer(**args)
        for number, data in enumerate(buffers):
            kind = "<f8" if (topic, number) == ("outcomes", 1) else "<f4"
            np.testing.assert_allclose(
                answer.numbers(number, kind), np.frombuffer(data, kind), atol=1e-5, err_msg=topic
            )
        assert_alike(answer.meta, meta)


def assert_alike(actual, expected):
    """Two answers agree: names and texts exactly, numbers nearly."""
    if isinstance(expected, dict):
        assert actual.keys() == expected.keys()
        for name, value in expected.items():
            assert_alike(actual[name], value)
    elif isinstance(expected, (list, tuple)):
        assert len(actual) == len(expected)
        for first, second in zip(actual, expected, strict=True):
            assert_alike(first, second)
    elif isinstance(expected, float):
        assert actual == pytest.approx(expected, abs=1e-5)
    else:
        assert actual == expected


def test_a_greedy_continuation_is_that_of_generate(node, tmp_path):
    model, tokenizer = aw.zoo.trained("alice")
    trace = aw.trace(model, tokenizer, "The White Rabbit")
    page = LivePage(node, tmp_path, aw.Explorer(trace))
    how = {"how": "greedy", "n": 1, "length": 30, "temperature": 1, "top_k": 0, "top_p": 1, "seed": 0}
    [item] = page.ask("continuations", **how).meta["items"]
    [continuation] = aw.continuations(trace, max_new_tokens=30)
    assert (item["tokens"], item["text"]) == (list(continuation.tokens), continuation.text)
    assert item["logs"] == pytest.approx(continuation.log_probabilities, abs=1e-3)


def test_samples_follow_the_model_s_distribution_top_k_and_the_seed(node, tmp_path):
    model, tokenizer = random_model("gpt2")
    trace = aw.trace(model, tokenizer, "abacab")
    page = LivePage(node, tmp_path, aw.Explorer(trace))
    how = {"how": "sample", "n": 4000, "length": 1, "temperature": 0.7, "top_k": 3, "top_p": 1, "seed": 1}
    items = page.ask("continuations", **how).meta["items"]
    shares = (trace.logits[-1].double() / 0.7).softmax(-1)
    best = shares.topk(3)
    for label, share in zip((trace.predictions(9)[i].label for i in range(3)), best.values, strict=True):
        result = sum(item["tokens"] == [label] for item in items) / len(items)
        assert result == pytest.approx(float(share / best.values.sum()), abs=0.03)
    assert len({item["text"] for item in items}) <= 3
    again = page.ask("continuations", **how).meta["items"]
    assert [item["text"] for item in again] == [item["text"] for item in items]


@pytest.fixture(scope="module")
def page_of_letters(node, tmp_path_factory):
    trace = aw.trace(*aw.zoo.induction(letters="abcdefgh", length=16), "fade")
    return LivePage(node, tmp_path_factory.mktemp("letters"), aw.Explorer(trace))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("abcz", "does not know “z”"),
        ("a" * 17, "has 17 characters, and this model reads at most 16"),
        ("  ", "empty"),
        ("<script>alert(1)</script>", "does not know “<”"),
        ("a\0b", "does not know"),
    ],
)
def test_a_text_that_the_model_cannot_read_is_refused_in_words(page_of_letters, text, words):
    answer = page_of_letters.ask("text", text=text)
    assert answer.reply["kind"] == "error"
    assert words in answer.reply["message"]
    assert answer.header["text"] == "fade"


@pytest.fixture(scope="module")
def alice(node, tmp_path_factory):
    """A model of characters, its tokenizer, and a page of them."""
    model, tokenizer = aw.zoo.trained("alice")
    explorer = aw.Explorer(aw.trace(model, tokenizer, "Alice"))
    return model, tokenizer, LivePage(node, tmp_path_factory.mktemp("alice"), explorer)


@pytest.mark.parametrize(
    "text",
    [
        "“Curiouser and curiouser!” cried Alice… she wasn't—oh dear—3.5 inches tall.",
        "Mr. Rabbit sat.\r\n\r\nCafé naïve\tend ",
        "<s>a special one<s> inside",
        "don't state-of-the-art U.S. e.g. this!? yes",
    ],
)
def test_texts_are_read_as_by_the_tokenizer(alice, text):
    model, tokenizer, page = alice
    answer = page.ask("text", text=text)
    try:
        expected = aw.Explorer(aw.trace(model, tokenizer, text)).store.header["axes"]
    except ValueError:
        assert answer.reply["kind"] == "error"
        return
    assert answer.meta["shown"] == 1, answer.reply
    assert answer.header["axes"] == expected


def test_the_page_holds_weights_of_two_bytes_and_little_else(tmp_path):
    model, tokenizer = aw.zoo.trained("alice")
    trace = aw.trace(model, tokenizer, "Alice was beginning to get very tired.")
    live = aw.to_html(aw.Explorer(trace), tmp_path / "live.html", live=True).stat().st_size
    plain = aw.to_html(aw.Explorer(trace), tmp_path / "plain.html").stat().st_size
    parameters = sum(parameter.numel() for parameter in model.parameters())
    assert live - plain < 150_000 + 2.7 * parameters
    state, blobs = parts_of(tmp_path / "live.html")
    assert len(blobs["aw-live-0"]) < 2.7 * parameters
    assert state["live"][0]["parameters"] == parameters


def test_what_cannot_run_in_a_page_is_refused_by_name(tmp_path):
    def refused(*views):
        with pytest.raises(ValueError, match="live=True") as error:
            aw.to_html(list(views), tmp_path / "page.html", live=True)
        assert not (tmp_path / "page.html").exists()
        return str(error.value)

    model, tokenizer = random_model("gpt2")
    trace = aw.trace(model, tokenizer, "abacab")
    assert "no view of this page was given a trace" in refused(aw.Heatmap(aw.attention(trace)))
    hook = model.transformer.h[1].mlp.register_forward_hook(lambda *given: given[2] * 1.5)
    assert "differs from what it returns" in refused(aw.Heatmap(aw.trace(model, tokenizer, "abacab")))
    hook.remove()
    model.config.activation_function = "quick_gelu"
    assert "quick_gelu" in refused(aw.Heatmap(trace))
    model.config.activation_function = "gelu_new"
    with torch.no_grad():
        model.transformer.wte.weight[0, 0] = 1e6
    assert "float16" in refused(aw.Heatmap(aw.trace(model, tokenizer, "abacab")))
    bart, dates = aw.zoo.trained("dates")
    of_dates = aw.trace(bart, dates, "July 4, 1976", target_text="1976-07-04")
    assert "Bart" in refused(aw.Heatmap(of_dates))


def test_the_model_is_left_as_it_was(tmp_path):
    model, tokenizer = random_model("bert masks")
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    aw.to_html(aw.Heatmap(aw.trace(model.eval(), tokenizer, "abc")), tmp_path / "page.html", live=True)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert not model.training


def test_views_of_methods_that_a_page_does_not_compute_stay_with_their_text(tmp_path):
    model, tokenizer = random_model("gpt2")
    trace = aw.trace(model, tokenizer, "abacab")
    views = [
        aw.Explorer(trace),
        aw.views.CompareView(trace, methods=["attention", "rollout"]),
        aw.HeadGrid(trace),
    ]
    state, _ = parts_of(aw.to_html(views, tmp_path / "page.html", live=True))
    [group] = state["texts"]
    assert sorted(line[0] for line in group["views"]) == ["live0", "view0", "view2"]


def test_a_page_without_live_has_nothing_of_it(tmp_path):
    model, tokenizer = random_model("gpt2")
    state, blobs = parts_of(aw.to_html(aw.Heatmap(aw.trace(model, tokenizer, "abc")), tmp_path / "page.html"))
    assert "live" not in state
    assert not any(name.startswith("aw-live") for name in blobs)
    assert "awLive" not in (tmp_path / "page.html").read_text(encoding="utf-8").split("globalThis")[1]


def test_character_tokenizers_of_any_alphabet_travel(node, tmp_path):
    model, _ = random_model("gpt2")
    tokenizer = character_tokenizer("ab[]\\^-*", 19)
    trace = aw.trace(model, tokenizer, "a[b]")
    page = LivePage(node, tmp_path, aw.Explorer(trace))
    answer = page.ask("text", text="\\^-*[]ab<s>")
    expected = aw.trace(model, tokenizer, "\\^-*[]ab<s>")
    assert tuple(answer.header["axes"]["token"]["labels"]) == expected.tokens
