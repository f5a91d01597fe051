from __future__ import annotations

import copy
import pickle
import threading

import numpy as np
import pytest
import torch

from attnwidgets.explanations import MixingMap
from attnwidgets.tracing.text.units import TokenAxis
from tests.explanations.made import TOKENS, attention_map, axis, shares


def counting(layers: int = 4):
    """A lazy map and the list of layers that were computed for it."""
    values = shares(layers, 2, len(TOKENS), len(TOKENS))
    computed: list[int] = []

    def compute(number: int) -> np.ndarray:
        computed.append(number)
        return values[number]

    result = MixingMap.lazy(compute, query=axis(), layers=range(layers), heads=range(2), method="made")
    return result, computed, values


def test_axes_are_labelled():
    result = attention_map()
    assert result.shape == (3, 2, 7, 7)
    assert result.axis_names == ("layer", "head", "query", "key")
    assert result.query_labels == TOKENS
    assert result.values.dtype == np.float32


@pytest.mark.parametrize("verb", ["unit", "values", "layers", "anything"])
def test_nothing_can_be_set(verb):
    with pytest.raises(AttributeError, match="immutable"):
        setattr(attention_map(), verb, 1)


def test_numbers_cannot_be_written_and_are_the_maps_own():
    given = shares(1, 2, 7, 7)
    result = MixingMap(given, query=axis())
    given[:] = 0
    assert result.values.sum() == pytest.approx(14, abs=1e-4)
    with pytest.raises(ValueError, match="read-only"):
        result.values[0] = 0
    with pytest.raises(TypeError):
        result.provenance["method"] = "other"


def test_copies_are_the_map_itself():
    result = attention_map()
    assert copy.copy(result) is result
    assert copy.deepcopy(result) is result


def test_a_layer_is_computed_when_asked_for_and_once():
    result, computed, values = counting()
    repr(result), result.shape, result.to("word"), result.mean("head"), result.select(layer=2)
    assert computed == []
    np.testing.assert_array_equal(result.layer(2), values[2])
    result.layer(2)
    result.to("word").layer(2)
    assert computed == [2]


def test_threads_compute_a_layer_once():
    result, computed, _ = counting()
    gate = threading.Barrier(4)

    def ask():
        gate.wait()
        for number in range(4):
            result.layer(number)

    threads = [threading.Thread(target=ask) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(computed) == [0, 1, 2, 3]


def test_pickling_computes_what_is_missing():
    result, computed, values = counting()
    result.layer(1)
    again = pickle.loads(pickle.dumps(result))
    assert sorted(computed) == [0, 1, 2, 3]
    np.testing.assert_array_equal(again.values, values)
    assert repr(again) == repr(result)
    assert again.query.units["word"] == result.query.units["word"]


def test_select_keeps_original_numbers():
    result = attention_map().select(layer=[2, 0], head=1)
    assert (result.layers, result.heads) == ((2, 0), (1,))
    np.testing.assert_array_equal(result.values[0, 0], attention_map().values[2, 1])
    np.testing.assert_array_equal(result.select(layer=2).values, result.values[:1])
    assert attention_map().select(layer=slice(1, None)).layers == (1, 2)
    assert attention_map().select(layer=-1).layers == (2,)


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda m: m.layer(3), "layer 3 is out of range: there are layers 0 to 2"),
        (lambda m: m.select(layer=-4), "layer -4 is out of range"),
        (lambda m: m.select(head=[0, 2]), "head 2 is out of range: there are heads 0 to 1"),
        (lambda m: m.matrix(0, 5), "head 5 is out of range"),
        (lambda m: m.mean("head").select(head=0), "no head axis"),
        (lambda m: m.select(layer=2).layer(0), "there is only layer 2"),
        (lambda m: m.select(layer=slice(9, 12)), "layer selects nothing"),
    ],
)
def test_out_of_range_names_the_range(ask, message):
    with pytest.raises(IndexError, match=message):
        ask(attention_map())


@pytest.mark.parametrize("index", [True, 1.0, "1"])
def test_a_layer_is_an_integer(index):
    with pytest.raises(TypeError, match="layer takes an integer"):
        attention_map().layer(index)


def test_reductions():
    result = attention_map()
    for how in ("mean", "max", "sum"):
        np.testing.assert_allclose(
            getattr(result, how)("head").values, getattr(result.values, how)(axis=1), rtol=1e-6
        )
        np.testing.assert_allclose(
            getattr(result, how)("layer").values[0], getattr(result.values, how)(axis=0), rtol=1e-6
        )
    assert result.mean("head").stochastic
    assert not result.sum("head").stochastic
    assert result.max("head").title == "attention, max over heads"
    second = result.reduce("head", lambda heads: heads[1])
    np.testing.assert_array_equal(second.values, result.values[:, 1])


def test_reduction_mistakes_are_named():
    with pytest.raises(ValueError, match=r"'haed'.*Did you mean 'head'"):
        attention_map().mean("haed")
    with pytest.raises(ValueError, match=r"'maen'.*Did you mean 'mean'"):
        attention_map().reduce("head", "maen")
    with pytest.raises(ValueError, match=r"returned shape \(2, 7, 7\)"):
        attention_map().reduce("head", lambda heads: heads).layer(0)
    with pytest.raises(ValueError, match="no head axis"):
        attention_map().mean().mean()


def test_matrix_says_what_must_be_chosen():
    result = attention_map()
    np.testing.assert_allclose(result.matrix(1, "mean"), result.values[1].mean(0), rtol=1e-6)
    with pytest.raises(ValueError, match="layer is needed: this map has layers 0 to 2"):
        result.matrix()
    with pytest.raises(ValueError, match="head is needed: this map has heads 0 to 1"):
        result.matrix(0)


def test_facts_are_read_from_the_numbers():
    signed = MixingMap([[[1.0, -1.0], [0.0, 0.5]]], query=["a", "b"])
    assert (signed.signed, signed.stochastic, signed.causal) == (True, False, False)
    causal = attention_map(causal=True)
    assert (causal.signed, causal.stochastic, causal.causal) == (False, True, True)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_not_numbers_are_refused(bad):
    values = shares(1, 2, 2)
    values[0, 1, 0] = bad
    with pytest.raises(ValueError, match=r"1 values that are NaN or infinite \(first at \[0, 1, 0\]\)"):
        MixingMap(values, query=["a", "b"])
    lazy = MixingMap.lazy(lambda _: values[0], query=TokenAxis.plain("ab"), layers=[4], method="made")
    with pytest.raises(ValueError, match="layer 4 of 'made'"):
        lazy.layer(4)


@pytest.mark.parametrize(
    ("values", "options", "message"),
    [
        (np.zeros(3), {}, r"shape \(3,\)"),
        (np.zeros((1, 2, 3)), {}, r"shape \(2, 3\).*need \(2, 2\)"),
        (np.zeros((2, 2, 2)), {"layers": [0]}, "layers names 1 layers, values has 2"),
        (
            np.zeros((1, 2, 2)),
            {"unit": "word", "query": axis("ab", None, None)},
            "unit 'word' is not on the query",
        ),
    ],
)
def test_shapes_and_labels_must_agree(values, options, message):
    with pytest.raises(ValueError, match=message):
        MixingMap(values, **({"query": ["a", "b"]} | options))


def test_torch_tensors_of_any_precision_are_taken():
    values = torch.tensor([[[1.0, 0.0], [0.25, 0.75]]], dtype=torch.bfloat16, requires_grad=True)
    np.testing.assert_array_equal(MixingMap(values, query=["a", "b"]).values, [[[1, 0], [0.25, 0.75]]])


def test_layers_with_different_numbers_of_heads():
    layers = {0: shares(3, 7, 7), 1: shares(1, 7, 7)}
    result = MixingMap.lazy(layers.__getitem__, query=axis(), layers=[0, 1], heads=range(3), method="pruned")
    assert result.mean("head").values.shape == (2, 7, 7)
    with pytest.raises(ValueError, match=r"different numbers of heads \(3, 1\)"):
        _ = result.values
    with pytest.raises(IndexError, match="head 2 is out of range"):
        result.select(head=2).layer(1)


def test_dataframe_is_tidy():
    table = attention_map().select(layer=1).to_dataframe()
    assert list(table.columns) == ["layer", "head", "query_index", "query", "key_index", "key", "value"]
    row = table[(table["head"] == 1) & (table["query_index"] == 2) & (table["key_index"] == 4)].iloc[0]
    assert (row["layer"], row["query"], row["key"]) == (1, "##believ", "news")
    assert row["value"] == attention_map().values[1, 1, 2, 4]
    assert "head" not in attention_map().mean().to_dataframe().columns


def test_repr_says_what_it_is():
    assert repr(attention_map().to("word").mean()) == (
        "<MixingMap attention, by word, mean over heads [layer 3, query 5, key 5]; "
        "made; 'unbelievable news.'>"
    )


def test_numpy_takes_it_for_an_array():
    assert np.asarray(attention_map()).shape == (3, 2, 7, 7)
    np.testing.assert_allclose(np.sum(np.asarray(attention_map()), axis=-1), 1.0, atol=1e-5)
