"""Circuits of a head's weights: to plain matrices, to a model's projections, and on compiled models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny


def induction() -> tuple[Any, Any]:
    return aw.zoo.induction(letters="abcdefgh", length=16)


def test_rows_and_columns_of_a_map_are_called_what_they_are():
    head = aw.circuits.head_circuits(*induction(), 1, 0)
    writes, looks = head.ov_tokens(["a", "b", "c"]), head.qk_tokens(["a", "b", "c"])
    assert "gets most" in writes.describe()
    axes = writes.figure().axes[0]
    assert (axes.get_ylabel(), axes.get_xlabel()) == ("input", "output")
    for shown, row, column, verb in (
        (writes, "input", "output", "adds to"),
        (looks, "query", "key", "looks for"),
        (writes.select(layer=1), "input", "output", "adds to"),
    ):
        [source] = aw.Heatmap(shown).store.sources()
        assert source.words[:3] == (row, column, verb)
    # Patterns are of attention over a text.
    for shown in (writes, looks):
        opening = aw.Heatmap(shown).selection.opening
        assert (opening.words, opening.note) == ("", "")
    trace = aw.trace(*induction(), "fadebcfadeb")
    by_layer = aw.explain(trace, "alti_logit", target="c").map.figure().axes[0]
    assert (by_layer.get_ylabel(), by_layer.get_xlabel()) == ("target", "source")
    assert aw.attention(trace).select(0, 0).figure().axes[0].get_xlabel() == "key (from)"
    words = [(0, 1), (1, 5), (5, 7), (7, 12)]
    suppressed = aw.circuits.sentence_attribution(trace, unit=words).figure().axes[0]
    assert (suppressed.get_ylabel(), suppressed.get_xlabel()) == ("sentence", "suppressed")


def biases(family: str, model: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """The biases of query and key of head 3 in layer 0."""
    if family == "GPT-2":
        whole = model.transformer.h[0].attn.c_attn.bias.detach()
        return whole[24:32], whole[56:64]
    if family == "GPT-NeoX":
        whole = model.gpt_neox.layers[0].attention.query_key_value.bias.detach().reshape(4, 3, 8)
        return whole[3, 0], whole[3, 1]
    return torch.zeros(8), torch.zeros(8)


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "GPT-NeoX"])
def test_a_first_token_is_projected_as_the_model_does(family):
    model = tiny.build(tiny.TEXT[family]).double()
    trace = aw.trace(model, None, input_ids=[5, 9, 9])
    result = aw.circuits.head_circuits(model, None, 0, 3)
    query, key = trace.query_key(0)
    group = len(query) // len(key)
    # The first token is not rotated, and GPT-2's first position is in its state.
    state = model.get_input_embeddings().weight.detach()[[5]]
    if family == "GPT-2":
        state = state + model.transformer.wpe.weight.detach()[0]
    names = ("0.input_layernorm", "0.ln_1")
    state = next(module for name, module in model.named_modules() if name.endswith(names))(state).detach()
    for matrix, recorded, bias in zip(
        (result.query, result.key), (query[3, :1], key[3 // group, :1]), biases(family, model), strict=True
    ):
        torch.testing.assert_close(state @ matrix + bias, recorded.to(state), atol=1e-5, rtol=1e-4)
    if family == "Llama":
        score = result.scaling * (state @ result.qk @ state.T)
        assert result.qk_tokens([5]).values[0, 0, 0, 0] == pytest.approx(float(score), rel=1e-4)


def test_what_a_head_writes_is_its_slice_of_the_projections():
    model = tiny.build(tiny.TEXT["Llama"]).double()
    result = aw.circuits.head_circuits(model, None, 1, 3)
    attention = model.model.layers[1].self_attn
    with torch.no_grad():
        value = attention.v_proj.weight.T[
            :, 8:16
        ]  # 4 heads over 2 of keys and values: head 3 reads the second
        output = attention.o_proj.weight.T[24:32]
        embedded = model.model.layers[1].input_layernorm(model.model.embed_tokens.weight[[5, 9]])
        logits = (embedded @ value @ output * model.model.norm.weight) @ model.lm_head.weight.T
        whole = model.model.layers[1].input_layernorm(model.model.embed_tokens.weight) @ value @ output
        square = whole * model.model.norm.weight @ model.lm_head.weight.T
    torch.testing.assert_close(result.ov, value @ output)
    np.testing.assert_allclose(result.ov_tokens([5, 9]).values[0, 0], logits[:, [5, 9]], atol=1e-6)
    # The eigenvalues of the matrix over the vocabulary that are not zero
    expected = np.linalg.eigvals(square.numpy())
    expected = expected[np.argsort(-np.abs(expected))][:8]
    np.testing.assert_allclose(np.abs(result.eigenvalues), np.abs(expected), rtol=1e-5)
    assert result.copying == pytest.approx(expected.sum().real / np.abs(expected).sum(), abs=1e-6)


def test_known_heads_by_their_weights():
    model, tokenizer = induction()
    head = aw.circuits.head_circuits(model, tokenizer, 1, 0)
    assert head.copying == pytest.approx(1, abs=0.02)
    writes = head.ov_tokens(list("abcdefgh")).values[0, 0]
    assert (writes.argmax(1) == np.arange(8)).all()
    previous = aw.circuits.head_circuits(model, tokenizer, 0, 0)
    assert np.isnan(previous.copying)
    scores = previous.qk_positions(12).values[0, 0]
    assert (scores[1:].argmax(1) == np.arange(11)).all()
    equal = aw.circuits.head_circuits(model, tokenizer, 0, 1).qk_tokens(list("abcdefgh")).values[0, 0]
    assert (equal.argmax(1) == np.arange(8)).all()
    assert "copying 1.00" in repr(head)


def test_positions_begin_with_the_row_that_the_first_token_reads():
    model = tiny.build(tiny.TEXT["RoBERTa"])  # its positions follow the padding index, 1
    before = aw.circuits.head_circuits(model, None, 0, 0).qk_positions(4).values
    table = model.roberta.embeddings.position_embeddings.weight.data
    table[:2] += 1
    np.testing.assert_array_equal(aw.circuits.head_circuits(model, None, 0, 0).qk_positions(4).values, before)
    table[2] += 1
    after = aw.circuits.head_circuits(model, None, 0, 0).qk_positions(4).values[0, 0]
    assert (after != before[0, 0]).nonzero()[0].tolist() == [0, 0, 0, 0, 1, 2, 3]


def test_maps_of_weights_open_and_are_saved(tmp_path):
    result = aw.circuits.head_circuits(*induction(), 1, 0).ov_tokens()
    assert result.query_labels[:2] == ("a", "b")
    np.testing.assert_array_equal(aw.load(result.save(tmp_path / "map.safetensors")).values, result.values)
    assert aw.Heatmap(result)


def test_what_has_no_circuits_is_said():
    model, tokenizer = induction()
    with pytest.raises(IndexError, match="heads 0 to 1"):
        aw.circuits.head_circuits(model, tokenizer, 0, 7)
    with pytest.raises(ValueError, match="out of range"):
        aw.circuits.head_circuits(model, tokenizer, 0, 0).ov_tokens([99])
    with pytest.raises(ValueError, match="2 tokens"):  # a single token, not its letters
        aw.circuits.head_circuits(model, tokenizer, 0, 0).ov_tokens("ab")
    llama = aw.circuits.head_circuits(tiny.build(tiny.TEXT["Llama"]), None, 0, 0)
    with pytest.raises(ValueError, match="has no position embeddings"):
        llama.qk_positions()
    with pytest.raises(ValueError, match="the vocabulary has 120"):
        llama.ov_tokens()
    with pytest.raises(ValueError, match="not a projection"):
        aw.circuits.head_circuits(tiny.build(tiny.TEXT["Qwen3"]), None, 0, 0)


def test_composition_is_a_share_of_the_norms_of_whole_matrices():
    model = tiny.build(tiny.TEXT["Llama"]).double()
    first, second = (aw.circuits.head_circuits(model, None, layer, 2) for layer in (0, 1))
    shares = second.composition(first)
    products = {"query": first.ov @ second.qk, "key": first.ov @ second.qk.T, "value": first.ov @ second.ov}
    for name, product in products.items():
        read = second.ov if name == "value" else second.qk
        assert shares[name] == pytest.approx(float(product.norm() / (first.ov.norm() * read.norm())))
    with pytest.raises(ValueError, match="earlier is in layer 1, which does not come before layer 0"):
        first.composition(second)
    with pytest.raises(ValueError, match="they are of different models"):
        second.composition(aw.circuits.head_circuits(*induction(), 0, 0))


def test_an_induction_head_composes_by_its_key_alone():
    first, second = (aw.circuits.head_circuits(*induction(), layer, 0) for layer in (0, 1))
    shares = second.composition(first)
    assert shares["key"] > 1 / len(first.query) ** 0.5
    assert shares["query"] == shares["value"] == 0
