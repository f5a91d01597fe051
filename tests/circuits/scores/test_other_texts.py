"""Tokens of other texts: to a model with their states in a cell, and with a compiled rule."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

import attnwidgets as aw
from attnwidgets.circuits.scores import bank
from attnwidgets.circuits.scores.bank import SKIPPED
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing.families import FAMILIES, MORE
from tests.zoo.made import made

WORDS = (
    *("the", "a", "cat", "dog", "sat", "ran", "on", "mat", "road", "and", "it", "was", "red", "old", "tired"),
    *("when", "under", "by", "house", "then"),
)
TEXT = "the cat sat on the old mat"
TEXTS = [
    "a dog ran by the road and it was tired",
    "when it was red the cat sat under a house",
    "the old road and the mat",
    "then the dog and the cat ran on",
]
QUERY, KEY, LAYER, HEAD = 5, 2, 1, 1
# The modules of a block that make its keys and queries, and the norm before them.
PROJECTED = {
    "Llama": ("model.layers.1", "self_attn.{}_proj", "input_layernorm"),
    "Qwen3": ("model.layers.1", "self_attn.{}_proj", "input_layernorm"),
    "Gemma 2": ("model.layers.1", "self_attn.{}_proj", "input_layernorm"),
    "OLMo 2": ("model.layers.1", "self_attn.{}_proj", ""),
    "BERT": ("bert.encoder.layer.1", "attention.self.{}", ""),
    "T5": ("encoder.block.1", "layer.0.SelfAttention.{}", "layer.0.layer_norm"),
}
NAMES = {"BERT": ("query", "key")}


def by_words(special: bool = False) -> Any:
    """Return a tokenizer of whole words, whose ids the tiny models have; with [CLS] and [SEP] or without."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", "[CLS]", "[SEP]", *WORDS])}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]"}
    if special:
        ends = [("[CLS]", 2), ("[SEP]", 3)]
        backend.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=ends)
        names |= {"cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def traced(family: str) -> Any:
    model = (FAMILIES | MORE)[family].model()
    for part in model.modules():
        if getattr(part, "attn_logit_softcapping", None):
            part.attn_logit_softcapping = 0.05  # scores of random weights are small
    return aw.trace(model, by_words(special=family == "BERT"), TEXT)


def module(model: Any, path: str) -> Any:
    return model.get_submodule(path) if path else torch.nn.Identity()


class Put:
    """A model's attention in a cell, with the state of a token of another text as its key or query."""

    def __init__(self, family: str, trace: Any) -> None:
        self.model, self.trace = trace.model, trace
        self.block, self.path, self.norm = PROJECTED[family]
        self.names = NAMES.get(family, ("q", "k"))
        self.tokenizer = trace.tokenizer

    def states(self, text: str) -> Any:
        """The block's input [token, width]."""
        read: dict[str, Any] = {}

        def note(_: Any, args: Any, kwargs: Any) -> None:
            read["states"] = (*args, *kwargs.values())[0]

        handle = module(self.model, self.block).register_forward_pre_hook(note, with_kwargs=True)
        self.run(text)
        handle.remove()
        return read["states"][0]

    def run(self, text: str) -> Any:
        ids = torch.tensor([self.tokenizer(text)["input_ids"]])
        more = {"decoder_input_ids": torch.tensor([[0]])} if "t5" in type(self.model).__name__.lower() else {}
        with torch.no_grad():
            return self.model(input_ids=ids, output_attentions=True, **more)

    def attention(self, side: str, state: Any) -> float:
        """The weight of the cell with another state as its "key" or "query"."""
        block = module(self.model, self.block)
        linear = module(block, self.path.format(self.names[side == "key"]))
        with torch.no_grad():
            read = module(block, self.norm)(state[None])[0]
            replaced = torch.nn.functional.linear(read, linear.weight, getattr(linear, "bias", None))
        at = {"key": KEY, "query": QUERY}[side]

        def swap(_: Any, __: Any, output: Any) -> Any:
            output[0, at] = replaced
            return output

        handle = linear.register_forward_hook(swap)
        self.model.set_attn_implementation("eager")
        outputs = self.run(TEXT)
        handle.remove()
        maps = outputs["encoder_attentions" if "encoder_attentions" in outputs else "attentions"]
        return float(maps[LAYER][0, HEAD, QUERY, KEY])


@pytest.mark.parametrize("family", PROJECTED)
def test_weights_are_those_of_a_model_with_the_state_in_its_place(family: str) -> None:
    trace = traced(family)
    stack = "encoder" if family == "T5" else "self"
    other = aw.why(trace, QUERY, KEY, layer=LAYER, head=HEAD, stack=stack).in_other_texts(TEXTS, k=40)
    put = Put(family, trace)
    states = [put.states(text) for text in TEXTS]
    first = SKIPPED if trace.is_causal(stack) else 0
    ids = [put.tokenizer(text)["input_ids"] for text in TEXTS]
    every = [
        (text, token)
        for text, numbers in enumerate(ids)
        for token, number in enumerate(numbers)
        if token >= first and number > 3  # special tokens are left out
    ]
    assert other.count == len(every)
    for side, tokens, above in (
        ("key", other.keys, other.above_keys),
        ("query", other.queries, other.above_queries),
    ):
        expected = {token: put.attention(side, states[token[0]][token[1]]) for token in every}
        for token in tokens:
            assert token.attention == pytest.approx(expected[token.text, token.position], abs=2e-6)
            assert TEXTS[token.text].split()[token.position - (family == "BERT")] == token.token
        weights = [token.attention for token in tokens]
        assert weights == sorted(weights, reverse=True)
        # The first is the largest of all; a word is there once, with its largest.
        assert weights[0] == pytest.approx(max(expected.values()), abs=2e-6)
        assert len({token.word for token in tokens}) == len(tokens)
        assert above == pytest.approx(np.mean([w < other.attention - 1e-6 for w in expected.values()]))


@pytest.mark.parametrize("family", ["Llama", "Gemma 2"])
def test_the_mean_query_is_the_mean_of_their_queries(family: str) -> None:
    """Without a cap, the mean of scores is the score of the mean, and softmax leaves the ranking."""
    trace = traced(family)
    why = aw.why(trace, QUERY, KEY, layer=LAYER, head=HEAD)
    other = why.in_other_texts(TEXTS, k=40)
    reader, row = why.cell.reader, why.cell.row
    states = [Put(family, trace).states(text)[SKIPPED:] for text in TEXTS]
    every = torch.cat(states).double()
    queries, keys = (
        reader.vectors(side, every, [at] * len(every)) for side, at in (("query", QUERY), ("key", KEY))
    )
    mean = (row.scaling * queries @ keys.T).mean(0)
    mean = mean if row.softcap is None else row.softcap * torch.tanh(mean / row.softcap)
    assert other.keys_of_mean[0].score == pytest.approx(float(mean.max()), abs=1e-5)


def test_an_induction_head_looks_for_what_follows_its_token_in_any_text() -> None:
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    chance = np.random.default_rng(0)
    texts = ["".join(chance.choice(list("abcdefgh"), 12)) for _ in range(40)]
    trace = aw.trace(model, tokenizer, "fadebcfadeb")
    other = aw.why(trace, 11, 6, layer=1, head=0).in_other_texts(texts)
    every = [(text[at - 1], text[at]) for text in texts for at in range(SKIPPED - 1, len(text))]
    assert other.count == len(every)
    follows = [before == "b" for before, _ in every]
    assert {token.token for token in other.keys} == {
        token for (_, token), is_after in zip(every, follows, strict=True) if is_after
    }
    assert all(token.before.endswith("b") for token in other.keys)
    # It has the score of all others that follow b, and a larger score than the rest.
    assert other.above_keys == pytest.approx(1 - np.mean(follows))
    assert other.below_keys == 0
    assert other.is_sought
    assert [token.token for token in other.queries][:1] == ["b"]
    elsewhere = aw.why(trace, 11, 3, layer=1, head=0).in_other_texts(texts)
    assert not elsewhere.is_sought
    assert "is nothing special to it" in elsewhere.describe()


def test_states_are_computed_once_for_a_model_and_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    trace = traced("Llama")
    calls: list[int] = []
    made_by = bank._made
    monkeypatch.setattr(bank, "_made", lambda *args: calls.append(1) or made_by(*args))
    for cell in ((QUERY, KEY, 1, 1), (4, 2, 0, 3)):
        aw.why(trace, *cell[:2], layer=cell[2], head=cell[3]).in_other_texts(TEXTS)
    again = aw.trace(trace.model, trace.tokenizer, "a cat and a dog ran")
    aw.why(again, 4, 2, layer=1, head=0).in_other_texts(list(TEXTS))
    assert len(calls) == 1, "another text, layer and list of the same texts"
    assert bank.has_bank(again, "self", TEXTS)
    aw.why(again, 4, 2, layer=1, head=0).in_other_texts(TEXTS[:3])
    assert len(calls) == 2
    with torch.no_grad():
        trace.model.model.layers[0].mlp.down_proj.weight.mul_(1.5)
    assert not bank.has_bank(again, "self", TEXTS), "another model"


def test_positions_in_states_are_said() -> None:
    for family, is_said in (("BERT", True), ("Llama", False), ("T5", False)):
        stack = "encoder" if family == "T5" else "self"
        why = aw.why(traced(family), QUERY, KEY, layer=LAYER, head=HEAD, stack=stack)
        assert ("Positions are in" in why.in_other_texts(TEXTS).warning) == is_said


def test_texts_that_cannot_be_compared_are_refused() -> None:
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    why = aw.why(aw.trace(model, tokenizer, "fadebcfadeb"), 11, 6, layer=1, head=0)
    with pytest.raises(ValueError, match="cannot spell the demo's texts; pass texts in its vocabulary"):
        why.in_other_texts()
    with pytest.raises(ValueError, match="texts is empty"):
        why.in_other_texts([])
    with pytest.raises(ValueError, match="no token that counts"):
        why.in_other_texts(["ab"])
    with pytest.raises(ValueError, match="k must be at least 1"):
        why.in_other_texts(["abcdefgh"], k=0)
    unknown = aw.why(traced("Llama"), QUERY, KEY, layer=LAYER, head=HEAD)
    with pytest.raises(ValueError, match="100% of their tokens are unknown"):
        unknown.in_other_texts(["completely different words everywhere"])
    with pytest.raises(TypeError, match=r"texts\[0\] must be a string, not a Trace"):
        unknown.in_other_texts([traced("Llama")])
    without = aw.why(FAMILIES["Llama"].traced(), 6, 2, layer=1, head=1)
    with pytest.raises(UnsupportedModelError, match="must read texts by a tokenizer"):
        without.in_other_texts(TEXTS)
    first = aw.why(traced("Llama"), 0, 0, layer=1, head=0, foil=None)
    with pytest.raises(ValueError, match="reads no other token"):
        first.in_other_texts(TEXTS)


def test_tokens_stand_with_their_context_and_their_word() -> None:
    trace = aw.trace(*aw.demo_model("encoder"), "The film was unputdownable, they said.")
    other = aw.why(trace, 2, 4, layer=0, head=1).in_other_texts(
        ["She said the thriller was bewildering."], k=40
    )
    tokens = {token.position: token for token in other.keys}
    assert tokens[1].before == ""
    [said] = [token for token in other.keys if token.token == "said"]
    assert (said.before, said.after, said.word) == ("She ", "", "said")
    parts = [token for token in other.keys if token.word == "bewildering"]
    assert len(parts) == 1, "a word of several tokens is there once"
    assert parts[0].before.startswith("She said the thriller was ")
    assert "bewildering" in parts[0].before + parts[0].token + parts[0].after


def test_a_special_token_is_not_called_one_of_these_words() -> None:
    trace = traced("BERT")
    other = aw.why(trace, QUERY, 0, layer=LAYER, head=HEAD).in_other_texts(TEXTS)
    assert other.special
    assert not other.is_sought
    assert other.describe().startswith(
        "Of words of other texts, 'sat' would look at "
    ) or "would look at" in (other.describe())


def test_as_a_table() -> None:
    other = aw.why(traced("Llama"), QUERY, KEY, layer=LAYER, head=HEAD).in_other_texts(TEXTS, k=3)
    rows = other.to_rows()
    assert [(row["list"], row["rank"]) for row in rows] == [
        (name, rank) for name in ("keys", "queries", "keys_of_mean") for rank in (1, 2, 3)
    ]
    assert list(other.to_dataframe()["score"]) == [row["score"] for row in rows]
    html = other._repr_html_()
    assert "would look at" in html
    assert other.keys[0].token in html
    assert f"of {other.count} tokens of other texts" in repr(other)


def test_a_saved_score_holds_what_was_compared(tmp_path: Any) -> None:
    why = aw.why(traced("Gemma 2"), QUERY, KEY, layer=LAYER, head=HEAD)
    other = why.in_other_texts(TEXTS, k=5)
    for name in ("why.safetensors", "why"):
        loaded = aw.load(why.save(tmp_path / name))
        assert repr(loaded) == repr(why)
        np.testing.assert_array_equal(loaded.pairs, why.pairs)
        assert loaded.total == why.total
        assert loaded.place == why.place
        assert loaded.given == why.given
        assert loaded.top(4) == why.top(4)
        assert loaded.to(1).parts == why.to(1).parts
        assert loaded.to_rows() == why.to_rows()
        assert loaded.in_other_texts() == other
        assert loaded.in_other_texts(k=2).keys == other.keys[:2]
        assert aw.load(loaded.save(tmp_path / f"again-{name}")).in_other_texts() == other
    for call in (
        lambda: loaded.in_other_texts(TEXTS),
        loaded.view,
        loaded.without,
        lambda: aw.load(
            aw.why(traced("Llama"), 5, 2, layer=1, head=1).save(tmp_path / "w.safetensors")
        ).in_other_texts(),
    ):
        with pytest.raises(ValueError, match="loaded from a file, without its model"):
            call()
    assert why.save(tmp_path / "why.csv").read_text("utf-8").startswith("query_part,key_part,share")
