"""Rows and tiles of attention are those of the layer, and only they are computed."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

import attnwidgets as aw
from attnwidgets.tracing import causal_mask
from attnwidgets.tracing.layers import GivenLayer
from attnwidgets.tracing.recording.attention_function import attention_weights
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
LONG = 300


class Largest(TorchDispatchMode):
    """Counts the numbers of the largest tensor that is made; a view of another is not."""

    numbers = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = func(*args, **(kwargs or {}))
        given = [part.untyped_storage().data_ptr() for part in args if isinstance(part, torch.Tensor)]
        if isinstance(made, torch.Tensor) and made.untyped_storage().data_ptr() not in given:
            self.numbers = max(self.numbers, made.untyped_storage().nbytes() // made.element_size())
        return made


def long_ids(count: int = LONG) -> list[int]:
    return torch.randint(3, tiny.VOCAB, (count,), generator=torch.Generator().manual_seed(0)).tolist()


def long_model() -> Any:
    """Return a Llama whose key/value heads are shared, for long texts."""
    return tiny._plain("Llama", "ForCausalLM", **tiny.GQA, max_position_embeddings=4096)


def assert_rows(trace: Any) -> None:
    """Assert that rows, tiles, permuted heads and blocks of every layer are those of the layer."""
    for stack in trace.stacks:
        for number in range(trace.n_layers(stack)):
            heads = trace.n_heads(stack, number)
            queries = len(trace.axes(stack)[0])
            rows = [trace.attention_rows(number, [heads - 1], [queries - 1], stack)]
            tile = trace.attention_rows(number, [0], None, stack)
            turned = trace.attention_rows(number, range(heads)[::-1], [queries - 1, 0], stack)
            ahead = trace.attention_rows(number, slice(1, None), slice(0, 2), stack)
            blocks = list(trace.attention_blocks(number, stack, limit=1))
            assert not trace._kept, "no layer was stored, so that these were computed alone"
            layer = trace.attention_layer(number, stack)
            expected = [
                (rows[0], layer[-1:, -1:]),
                (tile, layer[:1]),
                (turned, layer.flip(0)[:, [queries - 1, 0]]),
                (ahead, layer[1:, :2]),
                (torch.cat([block for _, block in blocks], dim=1), layer),
            ]
            for some, whole in expected:
                torch.testing.assert_close(some, whole, rtol=0, atol=1e-6)
            assert [at.start for at, _ in blocks] == list(range(0, max(1, queries - 15), 16))
            trace._kept[stack, number] = layer + 1
            stored = trace.attention_rows(number, [-1], [0], stack)
            assert torch.equal(stored, layer[-1:, :1] + 1), "a stored layer is read"
            trace._kept.clear()


@pytest.mark.parametrize("family", tiny.TEXT)
def test_rows_of_text_models(family: str) -> None:
    assert_rows(trace(tiny.build(tiny.TEXT[family]), None, IDS))


@pytest.mark.parametrize("family", tiny.SEQ2SEQ)
def test_rows_of_encoder_decoders(family: str) -> None:
    assert_rows(trace(tiny.build(tiny.SEQ2SEQ[family]), None, IDS, max_new_tokens=4))


@pytest.mark.parametrize("family", tiny.IMAGE)
def test_rows_of_vision_models(family: str) -> None:
    model = tiny.build(tiny.IMAGE[family])
    side = model.config.image_size
    picture = torch.randn(3, side, side, generator=torch.Generator().manual_seed(1))
    assert_rows(trace(model, None, image=picture))


@pytest.mark.parametrize("family", tiny.OUTSIDE)
def test_rows_of_given_weights(family: str) -> None:
    result = trace(tiny.build(tiny.OUTSIDE[family]), None, IDS)
    layer = result.attention_layer(0)
    result._kept.clear()
    assert torch.equal(result.attention_rows(0, [1], [3, 2]), layer[1:2, [3, 2]])


@pytest.mark.parametrize("family", ["BERT", "Llama", "Gemma 2", "Gemma 3", "ModernBERT"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_rows_of_a_long_text_have_the_bits_of_the_layer(family: str, dtype: torch.dtype) -> None:
    result = trace(tiny.build(tiny.TEXT[family]).to(dtype), None, long_ids(100))
    assert_rows(result)
    row = result.attention_rows(1, [2], [77])
    same = torch.equal(row, result.attention_layer(1)[2:3, 77:78])
    assert same or dtype == torch.float64


def test_weights_of_a_long_causal_text_have_the_bits_of_the_whole_softmax() -> None:
    layer = trace(long_model(), None, long_ids(1100)).stack_table["self"].layers[1]
    settings = layer.settings()
    assert isinstance(settings["mask"], causal_mask.CausalMask)
    query, key = (part[None] for part in layer.query_key())
    settings = {name: causal_mask.whole(added) for name, added in settings.items()}
    expected = attention_weights(query, key, **settings)[0].detach().numpy()
    np.testing.assert_array_equal(layer.weights(), expected)
    np.testing.assert_array_equal(layer.weights([1], [557])[0, 0], expected[1, 557])
    np.testing.assert_array_equal(layer.weights(None, range(32, 96)), expected[:, 32:96])


def test_rows_of_one_sample_of_a_padded_batch() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    rows = torch.tensor([IDS, IDS[:4] + [0] * 5])
    for result in trace(model, None, input_ids=rows, attention_mask=(rows > 0).long()):
        assert_rows(result)


def test_rows_of_weights_that_an_intervention_changed() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    plain = trace(model, None, IDS)
    with aw.ablate_heads(plain, {1: [2]}):
        result = plain.rerun()
    assert_rows(result)


def test_a_row_makes_no_more_than_a_few_rows_of_one_head() -> None:
    result = trace(long_model(), None, long_ids())
    with Largest() as made:
        row = result.attention_rows(1, [3], [LONG - 1])
    assert row.shape == (1, 1, LONG)
    assert made.numbers <= max(16 * LONG, result.query_key(1)[0].numel())
    with Largest() as made:
        result.attention_rows(1, [3])
    assert made.numbers == LONG * LONG
    with Largest() as made:
        for _, block in result.attention_blocks(1, limit=2**17):
            assert block.nbytes <= 2**17 + 15 * 4 * LONG * 4, "the last block has up to 15 queries more"
    assert made.numbers < LONG * LONG
    assert not result._kept


@pytest.mark.parametrize("family", ["BERT", "OPT", "Llama", "Gemma 3"])
def test_whether_a_trace_is_causal_builds_no_layer(family: str) -> None:
    result = trace(tiny.build(tiny.TEXT[family]), None, long_ids())
    with Largest() as made:
        assert result.is_causal() == (family != "BERT")
    assert made.numbers < result.n_heads() * LONG * LONG
    assert not result._kept


@pytest.mark.parametrize(
    ("heads", "queries", "words"),
    [([4], None, "head 4 is out of range: there are 0 to 3"), (None, [-10], "query -10 is out of range")],
)
def test_rows_that_are_not_there_are_named(heads: Any, queries: Any, words: str) -> None:
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    with pytest.raises(IndexError, match=words):
        result.attention_rows(0, heads, queries)
    with pytest.raises(TypeError, match=r"head must be a list of numbers or a slice, not 1; one is \[1\]"):
        result.attention_rows(0, 1)  # type: ignore[arg-type]


def test_a_block_of_rows_of_a_kept_layer_copies_no_others() -> None:
    layer = GivenLayer(np.ones((8, 512, 512), np.float32))
    tracemalloc.start()
    try:
        block = layer.weights(list(range(8)), slice(16, 32))
        largest = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert block.shape == (8, 16, 512)
    assert largest < 2 * block.nbytes
