"""Anyone's numbers, in every shape people have them, and errors that name the input."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertModel

from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.tracing.from_attentions import from_attentions
from tests.tracing import tiny

L, H, N = 3, 2, 4


def stochastic(*shape: int, causal: bool = False) -> torch.Tensor:
    scores = torch.randn(*shape, generator=torch.Generator().manual_seed(0))
    if causal:
        scores = scores.masked_fill(torch.ones(shape[-2:]).triu(1).bool(), -torch.inf)
    return scores.softmax(-1)


@pytest.mark.parametrize(
    ("wrap", "dtype"),
    [
        (lambda a: a, "float32"),
        (lambda a: a.numpy(), "float32"),
        (lambda a: a[:, None], "float32"),
        (lambda a: tuple(a[:, None]), "float32"),
        (list, "float32"),
        (lambda a: tuple(x.numpy() for x in a), "float32"),
        (lambda a: SimpleNamespace(attentions=tuple(a[:, None])), "float32"),
        (lambda a: SimpleNamespace(attentions=a.requires_grad_()), "float32"),
        (lambda a: a.tolist(), "float64"),  # Python's floats are
        (lambda a: a.double(), "float64"),
        (lambda a: tuple(x.double().numpy() for x in a), "float64"),
        (lambda a: [a[0], *a[1:].double()], "float64"),
    ],
)
def test_every_container_gives_the_same(wrap: Any, dtype: str) -> None:
    weights = stochastic(L, H, N, N)
    result = from_attentions(wrap(weights.clone()), list("abcd"))
    assert (result.n_layers(), result.n_heads(), result.tokens) == (L, H, tuple("abcd"))
    assert result.dtype == attention(result).dtype == attention(result).values.dtype == dtype
    for layer in range(L):
        torch.testing.assert_close(result.attention_layer(layer), weights[layer].to(getattr(torch, dtype)))
    assert not result.is_causal()
    assert result.model is None
    assert result.predictions() == ()


def test_causality_is_inferred() -> None:
    assert from_attentions(stochastic(L, H, N, N, causal=True)).is_causal()


def test_one_head_axis_is_one_layer() -> None:
    result = from_attentions(stochastic(H, N, N))
    assert (result.n_layers(), result.n_heads()) == (1, H)


def test_a_translation_models_alignment() -> None:
    result = from_attentions(
        stochastic(3, 2).numpy(), query_tokens=["je", "t'", "aime"], key_tokens=["love", "you"]
    )
    query, key = result.axes()
    assert (query.tokens, key.tokens) == (("je", "t'", "aime"), ("love", "you"))
    assert result.attention_layer(0).shape == (1, 3, 2)
    assert not result.is_causal()


def test_a_classifiers_one_vector() -> None:
    result = from_attentions([0.2, 0.5, 0.3], ["good", "bad", "ugly"])
    query, key = result.axes()
    assert key.tokens == ("good", "bad", "ugly")
    assert len(query) == 1


def test_heads_may_differ_from_layer_to_layer() -> None:
    result = from_attentions([stochastic(1, 2, N, N), stochastic(1, 4, N, N)])
    assert [result.n_heads(layer=i) for i in range(2)] == [2, 4]
    assert result.attention_layer(1).shape == (4, N, N)


def test_generation_steps_are_put_together() -> None:
    model = tiny.build(tiny.TEXT["Llama"], implementation="eager")
    ids = torch.tensor([[5, 6, 7]])
    out = model.generate(
        ids, attention_mask=torch.ones_like(ids), max_new_tokens=4, do_sample=False,
        return_dict_in_generate=True, output_attentions=True, pad_token_id=0, eos_token_id=None,
    )  # fmt: skip
    tokens = [str(int(i)) for i in out.sequences[0]]
    with torch.no_grad():
        whole = model(out.sequences[:, :-1], output_attentions=True).attentions
    for given in (out, out.attentions):
        result = from_attentions(given, tokens)
        assert result.tokens == tuple(tokens[:-1])
        assert "never read" in result.warning
        assert result.boundary == 3
        assert result.is_causal()
        for layer, weights in enumerate(whole):
            torch.testing.assert_close(result.attention_layer(layer), weights[0], atol=1e-6, rtol=0)


def test_an_encoder_decoder_output_has_its_stacks() -> None:
    model = tiny.build(tiny.SEQ2SEQ["Marian"], implementation="eager")
    with torch.no_grad():
        out = model(
            input_ids=torch.tensor([[5, 6, 7]]),
            decoder_input_ids=torch.tensor([[0, 8]]),
            output_attentions=True,
        )
    result = from_attentions(out, key_tokens=["a", "b", "c"], query_tokens=["x", "y"])
    assert set(result.stacks) == {"encoder", "decoder", "cross"}
    assert [a.tokens for a in result.axes("cross")] == [("x", "y"), ("a", "b", "c")]
    assert result.axes("encoder")[0].tokens == ("a", "b", "c")
    torch.testing.assert_close(result.attention_layer(1, "cross"), out.cross_attentions[1][0])


def test_tokens_are_decoded_and_joined_to_words() -> None:
    result = from_attentions(stochastic(1, 1, 4, 4), ["[CLS]", "un", "##able", "[SEP]"])
    assert result.units["word"].labels == ("[CLS]", "unable", "[SEP]")
    result = from_attentions(stochastic(1, 1, 4, 4), ["The", "Ġcat", "s", "Ċ"])
    assert result.tokens == ("The", "␣cat", "s", "↵")
    assert result.units["word"].labels == ("The", "cats", "↵")


@pytest.mark.parametrize("words", [[None, 0, 0, None], [[1, 2]]])
def test_words_may_be_given(words: Any) -> None:
    result = from_attentions(stochastic(1, 1, 4, 4), ["<s>", "New", "York", "</s>"], words=words)
    assert result.units["word"].spans == ((0,), (1, 2), (3,))


def test_words_may_be_torn_apart() -> None:
    result = from_attentions(stochastic(1, 1, 3, 3), ["ne", "vais", "pas"], words=[[0, 2], [1]])
    assert result.units["word"].spans == ((0, 2), (1,))


@pytest.mark.parametrize("nothing", [(), (None, None), None, ((), ()), SimpleNamespace(attentions=None)])
def test_missing_weights_explain_sdpa(nothing: Any) -> None:
    with pytest.raises(ValueError, match="sdpa") as caught:
        from_attentions(nothing, ["a"])
    assert "attn_implementation" in str(caught.value)
    assert "aw.trace" in str(caught.value)


@pytest.mark.parametrize(
    ("shape", "says"),
    [
        ((2, 3, 2, 4, 4), r"\(2, 3, 2, 4, 4\): a batch of 3"),
        ((1, 1, 1, 1, 2, 2), r"\(1, 1, 1, 1, 2, 2\); accepted: \(layer, head, query, key\)"),
        ((), r"\(\); accepted:"),
        ((2, 0, 3, 3), "it is empty"),
    ],
)
def test_wrong_shapes_are_named(shape: tuple[int, ...], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_attentions(np.zeros(shape))


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_numbers_that_are_none_are_located(bad: float) -> None:
    weights = stochastic(L, H, N, N).numpy().copy()
    weights[1, 1, 2, 3] = bad
    with pytest.raises(ValueError, match=r"layer 1, head 1, query 2, key 3"):
        from_attentions(weights)


def test_labels_must_fit() -> None:
    with pytest.raises(ValueError, match="tokens has 3 entries, and the attention has 4"):
        from_attentions(stochastic(L, H, N, N), ["a", "b", "c"])
    with pytest.raises(TypeError, match="list of strings"):
        from_attentions(stochastic(L, H, N, N), "abcd")
    with pytest.raises(ValueError, match="holds token 9"):
        from_attentions(stochastic(L, H, N, N), list("abcd"), words=[[9]])
    with pytest.raises(ValueError, match="not a numeric array"):
        from_attentions([["a", "b"]])


def test_the_second_text_of_a_pair_has_sentences_and_words_of_its_own() -> None:
    tokens = ["[CLS]", "the", "cat", "sat", "[SEP]", "it", "slept", ".", "[SEP]"]
    n = len(tokens)
    pair = from_attentions(stochastic(1, 1, n, n), tokens, second_text=5).axes()[0]
    assert pair.segment == (0,) * 5 + (1,) * 4
    assert pair.units["sentence"].spans == ((0,), (1, 2, 3), (4,), (5, 6, 7), (8,))
    assert pair.units["sentence"].labels[1::2] == ("the cat sat", "it slept .")
    single = from_attentions(stochastic(1, 1, n, n), tokens).axes()[0]
    assert set(single.segment) == {0}
    spelled = from_attentions(stochastic(1, 1, n, n), tokens, second_text=5, words=range(n)).axes()[0]
    assert spelled.segment == pair.segment
    with pytest.raises(ValueError, match="second_text is 9; the second text of 9 tokens begins at 1 to 8"):
        from_attentions(stochastic(1, 1, n, n), tokens, second_text=9)


def test_a_misspelt_keyword_is_answered() -> None:
    with pytest.raises(TypeError, match="'query_tokens'"):
        from_attentions(stochastic(2, 2), query_token=["a", "b"])


def test_hostile_labels_are_only_text() -> None:
    labels = ["<script>alert(1)</script>", "\x00", "\u202e", '"']
    result = from_attentions(stochastic(1, 1, 4, 4), labels)
    assert result.tokens == tuple(labels)


def test_an_encoders_empty_cross_attention_is_absent() -> None:
    model = BertModel(BertConfig(vocab_size=20, **tiny.SMALL, attn_implementation="eager")).eval()
    with torch.no_grad():
        out = model(torch.tensor([[5, 6, 7]]), output_attentions=True)
    assert out.cross_attentions == ()  # as transformers 5 returns it
    for given in (out, {"attentions": out.attentions, "cross_attentions": ()}):
        result = from_attentions(given, ["a", "b", "c"])
        assert result.stacks == ("self",)
        torch.testing.assert_close(result.attention_layer(0), out.attentions[0][0])
    with pytest.raises(ValueError, match="the output holds none"):
        from_attentions(SimpleNamespace(attentions=(), cross_attentions=()))


@pytest.mark.parametrize(("family", "table"), [("Llama", tiny.TEXT), ("Marian", tiny.SEQ2SEQ)])
def test_an_output_of_a_decoder_run_with_sdpa_says_so(family: str, table: Any) -> None:
    model = tiny.build(table[family], implementation="sdpa")
    ids = {"input_ids": torch.tensor([[5, 6, 7]])}
    ids |= {"decoder_input_ids": torch.tensor([[0, 8]])} if table is tiny.SEQ2SEQ else {}
    with torch.no_grad():
        out = model(**ids, output_attentions=True)
    with pytest.raises(ValueError, match=r"the output holds none.*sdpa.*attn_implementation"):
        from_attentions(out)
    with torch.no_grad():
        out = tiny.build(table[family], implementation="eager")(**ids, output_attentions=True)
    result = from_attentions(out)
    expected = {"self"} if table is tiny.TEXT else {"encoder", "decoder", "cross"}
    assert set(result.stacks) == expected
    assert all(result.n_layers(stack) == 2 for stack in expected)


def test_layers_of_different_sizes_are_refused() -> None:
    with pytest.raises(ValueError, match="differ in size from layer to layer: 4 queries and 4 keys, then 2"):
        from_attentions([stochastic(H, N, N), stochastic(H, 2, 2)])


class Cache:
    """TransformerLens' ActivationCache as far as it matters: no mapping, but with a mapping's methods."""

    def __init__(self, cache_dict: dict[str, torch.Tensor]) -> None:
        self.cache_dict = cache_dict

    def __getitem__(self, name: str) -> torch.Tensor:
        return self.cache_dict[name]

    def __len__(self) -> int:
        return len(self.cache_dict)

    def __iter__(self) -> Any:
        return iter(self.cache_dict)

    def keys(self) -> Any:
        return self.cache_dict.keys()

    def values(self) -> Any:
        return self.cache_dict.values()

    def items(self) -> Any:
        return self.cache_dict.items()


def cache_of(weights: torch.Tensor, *, batch: bool) -> dict[str, torch.Tensor]:
    result = {"hook_embed": torch.zeros(1, N, 8)}
    for layer in sorted(range(len(weights)), key=str):  # 10 before 2, as some caches list them
        result[f"blocks.{layer}.attn.hook_q"] = torch.zeros(1, N, H, 4)
        result[f"blocks.{layer}.attn.hook_pattern"] = weights[layer][None] if batch else weights[layer]
        result[f"blocks.{layer}.attn.hook_pattern_grad"] = torch.zeros(1, H, N, N)
    return result | {"ln_final.hook_normalized": torch.zeros(1, N, 8)}


@pytest.mark.parametrize("batch", [True, False])
@pytest.mark.parametrize("wrap", [dict, Cache])
def test_a_transformerlens_cache_is_its_patterns_layer_by_layer(wrap: Any, batch: bool) -> None:
    weights = stochastic(11, H, N, N, causal=True)
    result = from_attentions(wrap(cache_of(weights, batch=batch)), list("abcd"))
    assert (result.stacks, result.n_layers(), result.n_heads()) == (("self",), 11, H)
    for layer in range(11):
        torch.testing.assert_close(result.attention_layer(layer), weights[layer])


@pytest.mark.parametrize(
    "names",
    [
        ("encoder.0.attn", "decoder.0.attn", "decoder.0.cross_attn"),
        ("encoder_blocks.0.attn", "decoder_blocks.0.self_attn", "decoder_blocks.0.cross_attn"),  # a bridge's
    ],
)
def test_a_cache_of_an_encoder_decoder_has_its_stacks(names: tuple[str, ...]) -> None:
    weights = [stochastic(1, H, 3, 3), stochastic(1, H, 2, 2, causal=True), stochastic(1, H, 2, 3)]
    cache = {f"{name}.hook_pattern": each for name, each in zip(names, weights, strict=True)}
    result = from_attentions(cache, query_tokens=["x", "y"], key_tokens=["a", "b", "c"])
    assert set(result.stacks) == {"encoder", "decoder", "cross"}
    torch.testing.assert_close(result.attention_layer(0, "cross"), weights[2][0])


class Visited:
    """nnsight's cache of modules: a table that has no items, whose entries hold the output of each module."""

    def __init__(self, outputs: dict[str, Any]) -> None:
        self.outputs = outputs

    def keys(self) -> list[str]:
        return list(self.outputs)

    def __getitem__(self, path: str) -> Any:
        return SimpleNamespace(output=self.outputs[path], inputs=None)


def visited(table: Any, family: str, implementation: str) -> tuple[Visited, Any]:
    """Return the outputs of every module of a model, and of the model."""
    model, outputs = tiny.build(table[family], implementation=implementation), {}
    for path, module in model.named_modules():
        if path:
            module.register_forward_hook(
                lambda _, inputs, output, path=path: outputs.__setitem__(f"model.{path}", output)
            )
    ids = {"input_ids": torch.tensor([[5, 6, 7]])}
    ids |= {"decoder_input_ids": torch.tensor([[0, 8]])} if table is tiny.SEQ2SEQ else {}
    with torch.no_grad():
        out = model(**ids, output_attentions=True)
    return Visited(outputs), out


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "OPT", "Llama", "T5", "Marian"])
def test_a_cache_of_modules_is_the_weights_that_attention_returned(family: str) -> None:
    table = tiny.SEQ2SEQ if family in tiny.SEQ2SEQ else tiny.TEXT
    cache, out = visited(table, family, "eager")
    result, expected = from_attentions(cache), from_attentions(out)
    assert set(result.stacks) == set(expected.stacks)
    for stack in expected.stacks:
        assert result.n_layers(stack) == 2
        for layer in range(2):
            assert torch.equal(result.attention_layer(layer, stack), expected.attention_layer(layer, stack))


def test_a_cache_of_modules_without_weights_or_a_layer_says_what_to_do() -> None:
    cache, _ = visited(tiny.TEXT, "Llama", "sdpa")
    with pytest.raises(ValueError, match=r"none of which returned attention weights.*eager.*aw\.trace"):
        from_attentions(cache)
    cache, _ = visited(tiny.TEXT, "Llama", "eager")
    del cache.outputs["model.model.layers.0.self_attn"]
    with pytest.raises(ValueError, match=r"layers 1, without those of 0.*attention module"):
        from_attentions(cache)


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (["blocks.0.attn.hook_pattern", "blocks.3.attn.hook_pattern"], "layers 0, 3, without those of 1, 2"),
        (["blocks.1.attn.hook_pattern"], "layers 1, without those of 0"),
        (["blocks.0.attn.hook_q", "hook_embed"], "without attention patterns"),
        (["blocks.0.attn.hook_pattern", "loss"], "'loss' does not name a hook"),
        (["atentions"], "'atentions'.*'attentions'"),
        ([0, 1], "with the name 0"),
    ],
)
def test_mappings_that_cannot_be_read_are_refused(names: list[Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        from_attentions(dict.fromkeys(names, stochastic(1, H, N, N)))


def test_the_batch_of_a_cache_is_refused_as_elsewhere() -> None:
    with pytest.raises(ValueError, match="a batch of 2"):
        from_attentions({"blocks.0.attn.hook_pattern": stochastic(2, H, N, N)})
