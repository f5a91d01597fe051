from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations import explain
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace as make_trace
from tests.explanations.made import shares


def test_it_is_what_the_model_used(minilm, sentence):
    import torch
    from transformers import AutoModel

    model, tokenizer = minilm
    result = attention(make_trace(model, tokenizer, sentence))
    eager = AutoModel.from_pretrained(
        model.name_or_path, add_pooling_layer=False, attn_implementation="eager"
    ).eval()
    with torch.no_grad():
        expected = eager(**tokenizer(sentence, return_tensors="pt"), output_attentions=True).attentions
    np.testing.assert_array_equal(result.values, torch.cat(expected).numpy())
    assert result.stochastic
    assert not result.causal
    assert result.provenance["text"] == sentence


def test_words_of_a_real_sentence(minilm, sentence):
    model, tokenizer = minilm
    result = attention(make_trace(model, tokenizer, sentence))
    words = result.to("word")
    position = words.query_labels.index("electroencephalographer")
    pieces = list(words.query_unit.spans[position])
    assert len(pieces) > 2
    layer = result.layer(4)
    np.testing.assert_allclose(
        words.layer(4)[:, position, position], layer[:, pieces][:, :, pieces].sum(-1).mean(-1), rtol=1e-5
    )
    np.testing.assert_allclose(words.values.sum(-1), 1.0, atol=1e-5)


def test_a_decoder_is_causal(tiny_llama):
    result = attention(make_trace(tiny_llama, None, [3, 5, 7, 9]))
    assert result.causal
    assert result.shape == (2, 4, 4, 4)
    assert result.predictions.title == "next token"
    assert result.predictions.items[0].probability >= result.predictions.items[1].probability


def test_stacks_by_name(tiny_stacks):
    cross = attention(tiny_stacks, "cross")
    assert cross.shape == (2, 3, 4, 5)
    assert (cross.query_labels, cross.key_labels) == (tuple("wxyz"), tuple("abcde"))
    assert "stack cross" in repr(cross)
    with pytest.raises(ValueError, match=r"'encoder', 'decoder', 'cross'. Did you mean 'cross'"):
        attention(tiny_stacks, "corss")


def test_some_layers_by_number(tiny_stacks):
    assert attention(tiny_stacks, layers=-1).layers == (1,)
    with pytest.raises(IndexError, match="layer 2 is out of range: there are layers 0 to 1"):
        attention(tiny_stacks, layers=[0, 2])


def test_given_numbers_that_are_no_shares_say_so():
    assert not attention(from_attentions(shares(2, 2, 3, 3) * 2, list("abc"))).stochastic
    assert attention(from_attentions(shares(2, 2, 3, 3), list("abc"))).stochastic


def test_what_is_no_trace_is_told_how_to_become_one():
    with pytest.raises(TypeError, match=r"trace is a str, not a trace; make one with aw.trace"):
        attention("The keys")
    with pytest.raises(TypeError, match=r"\[aw.attention\(t\) for t in traces\]"):
        attention([1])


def test_explain_finds_it_by_name(tiny_stacks):
    np.testing.assert_array_equal(
        explain(tiny_stacks, "attention", stack="decoder").values, attention(tiny_stacks, "decoder").values
    )
