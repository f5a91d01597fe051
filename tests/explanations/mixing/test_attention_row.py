"""Each step of a row follows from the step before, and the last step gives the model's weights."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.mixing.attention import attention_row, key_vectors
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing.families import FAMILIES

NAMES = ("BERT", "GPT-2", "GPT-NeoX", "Llama", "Qwen3", "Gemma 2", "ModernBERT", "T5", "Marian", "ViT")


def rows(trace):
    """Some rows of every stack, layer and head: the first, a middle row, the last."""
    for stack in trace.stacks:
        queries = len(trace.axes(stack)[0])
        for layer in range(trace.n_layers(stack)):
            for head in range(trace.n_heads(stack, layer)):
                for query in {0, queries // 2, queries - 1}:
                    yield stack, layer, head, query


@pytest.mark.parametrize("name", NAMES)
def test_the_last_number_is_the_recorded_attention(name):
    trace = FAMILIES[name].traced()
    for stack, layer, head, query in rows(trace):
        row = attention_row(trace, layer, head, query, stack=stack)
        recorded = trace.attention_layer(layer, stack)[head, query].numpy()
        np.testing.assert_array_equal(row.recorded, recorded)
        np.testing.assert_allclose(row.weights, recorded, rtol=2e-5, atol=1e-9)
        assert row.weights[row.masked].sum() == 0


def test_a_model_in_doubles_agrees_to_their_rounding():
    trace = FAMILIES["Llama"].traced(torch.float64)
    for stack, layer, head, query in rows(trace):
        row = attention_row(trace, layer, head, query, stack=stack)
        np.testing.assert_allclose(row.weights, row.recorded, rtol=1e-12, atol=1e-300)


def test_every_step_follows_from_the_one_before():
    trace = FAMILIES["Gemma 2"].traced()
    row = attention_row(trace, 0, 3, 5)
    np.testing.assert_allclose(row.dot, (row.query * row.keys).sum(axis=1), rtol=1e-12)
    np.testing.assert_array_equal(row.scaled, row.dot * row.scaling)
    assert row.softcap == 50.0
    np.testing.assert_allclose(row.capped, 50 * np.tanh(row.scaled / 50), rtol=1e-12)
    assert row.bias is None
    np.testing.assert_array_equal(row.scores[~row.masked], row.capped[~row.masked])
    assert (row.scores[row.masked] == -np.inf).all()
    # Causal, and this layer looks four tokens back.
    assert row.masked.tolist() == [True, True, False, False, False, False, True, True]


def test_heads_that_share_keys_name_the_head_they_share():
    trace = FAMILIES["Llama"].traced()
    assert [attention_row(trace, 0, head, 0).kv_head for head in range(4)] == [0, 0, 1, 1]
    np.testing.assert_array_equal(attention_row(trace, 1, 3, 2).keys, key_vectors(trace, 1, 1))


def test_a_position_bias_is_a_step_of_its_own():
    trace = FAMILIES["T5"].traced()
    row = attention_row(trace, 1, 2, 3, stack="encoder")
    assert row.scaling == 1
    assert row.bias is not None
    assert not row.masked.any()
    np.testing.assert_array_equal(row.scores, row.capped + row.bias)
    decoder = attention_row(trace, 1, 2, 1, stack="decoder")
    assert decoder.masked.tolist() == [False, False] + [True] * (len(decoder.masked) - 2)
    cross = attention_row(trace, 1, 2, 1, stack="cross")
    assert len(cross.weights) == len(trace.axes("cross")[1])


def test_a_mask_between_zero_and_never_is_a_bias():
    slope = np.array([[0.0, -np.inf], [-0.5, 0.0]])
    trace = aw.from_qkv(np.eye(2), np.eye(2), np.eye(2), mask=slope)
    row = attention_row(trace, 0, 0, 1)
    assert row.bias is not None
    assert row.bias.tolist() == [-0.5, 0.0]
    assert not row.masked.any()
    assert attention_row(trace, 0, 0, 0).masked.tolist() == [False, True]


def test_a_query_that_may_read_nothing_reads_everything_alike():
    from attnwidgets.tracing.recording.attention_function import attention_weights

    hidden = np.full((3, 3), torch.finfo(torch.float32).min, dtype=np.float64)
    trace = aw.from_qkv(np.eye(3), np.eye(3), np.eye(3), mask=hidden)
    query, key = (states[None] for states in trace.query_key(0))
    row = attention_row(trace, 0, 0, 1)
    np.testing.assert_allclose(
        row.weights, attention_weights(query, key, **trace.attention_settings(0))[0, 0, 1]
    )
    np.testing.assert_allclose(row.weights, row.recorded)
    assert not row.masked.any()


def test_half_precision_says_what_it_is():
    trace = FAMILIES["Llama"].traced(torch.bfloat16)
    row = attention_row(trace, 0, 0, 7)
    assert row.dtype == "bfloat16"
    np.testing.assert_allclose(row.weights, row.recorded, atol=2e-2)


@pytest.mark.parametrize(
    ("place", "words"),
    [
        ((0, 4, 0), "head 4 is out of range: layer 0 has head 0 to 3"),
        ((0, 0, 8), "query 8 is out of range"),
        ((0, -1, 0), "head -1"),
        ((7, 0, 0), "layers 0 to 1"),
    ],
)
def test_places_that_are_not_there_are_named(place, words):
    trace = FAMILIES["BERT"].traced()
    with pytest.raises(IndexError, match=words):
        attention_row(trace, *place)
    with pytest.raises(IndexError, match="key/value head 9"):
        key_vectors(trace, 0, 9)


def test_given_weights_have_no_queries():
    with pytest.raises(UnsupportedModelError, match="queries and keys were not recorded"):
        attention_row(aw.from_attentions(np.eye(3)), 0, 0, 0)
