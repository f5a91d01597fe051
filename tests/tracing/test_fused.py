"""A very long text is recorded through torch's fused attention, without a whole mask: the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.explanations.mixing.attention import attention_row
from attnwidgets.tracing import pass_memory, row_sums
from attnwidgets.tracing.causal_mask import CausalMask
from attnwidgets.tracing.recording import attention_function, proof
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_rows import Largest, long_ids, long_model

IDS = long_ids(61)
WITHOUT_MASK = ("GPT-2", "GPT-NeoX", "OPT", "Llama", "Qwen3")
# Layers with a window have a mask, others none.
MIXED = hf.Gemma3TextConfig(
    vocab_size=tiny.VOCAB, **tiny.SMALL | tiny.GQA | {"num_hidden_layers": 6}, sliding_window=4
)


def fused(model: Any, *texts: Any, **options: Any) -> Any:
    """Return a trace of a text that is taken for a very long text."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LONG_BYTES", "LONG_MASK"):
            patch.setattr(attention_function, name, 0)
        return trace(model, None, *texts, **options)


def kept_mask(trace: Any, layer: int = 0, stack: str = "self") -> Any:
    return trace.stack_table[stack].layers[layer].settings()["mask"]


def assert_alike(actual: Any, expected: Any) -> None:
    """Assert that two traces have the same numbers but for rounding, and the same masks."""
    for stack in expected.stacks:
        for layer in range(expected.n_layers(stack)):
            ours, theirs = (item.attention_layer(layer, stack) for item in (actual, expected))
            torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)
            ours, theirs = (item.attention_settings(layer, stack)["mask"] for item in (actual, expected))
            assert ours is theirs is None or torch.equal(*torch.broadcast_tensors(ours, theirs))
    if expected.logits is not None:
        torch.testing.assert_close(actual.logits, expected.logits, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("family", tiny.TEXT)
def test_text_models(family: str) -> None:
    model = tiny.build(tiny.TEXT[family])
    result, expected = fused(model, IDS), trace(model, None, IDS)
    for layer in range(expected.n_layers()):
        assert isinstance(kept_mask(result, layer), CausalMask) == (family in WITHOUT_MASK)
    assert result.is_causal() == expected.is_causal()
    assert_alike(result, expected)


def test_layers_with_and_without_a_window() -> None:
    model = tiny.build(lambda: hf.Gemma3ForCausalLM(MIXED))
    result = fused(model, IDS)
    whole = ["full" in kind for kind in MIXED.layer_types]
    assert [isinstance(kept_mask(result, layer), CausalMask) for layer in range(6)] == whole
    assert any(whole)
    assert not all(whole)
    assert_alike(result, trace(model, None, IDS))


@pytest.mark.parametrize("family", tiny.SEQ2SEQ)
def test_encoder_decoders(family: str) -> None:
    model = tiny.build(tiny.SEQ2SEQ[family])
    assert_alike(fused(model, IDS, max_new_tokens=4), trace(model, None, IDS, max_new_tokens=4))


def test_texts_of_unequal_lengths_have_a_mask() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    padded = [IDS[:20] + [0] * 41, IDS]
    present = [[1] * 20 + [0] * 41, [1] * 61]
    short, long = fused(model, input_ids=padded, attention_mask=present)
    assert isinstance(kept_mask(short), torch.Tensor)
    assert_alike(short, trace(model, None, IDS[:20]))
    assert_alike(long, trace(model, None, IDS))


@pytest.mark.slow
def test_what_is_read_of_it_is_read_without_a_whole_mask() -> None:
    model = tiny.build(long_model)
    ids = long_ids(3000)
    result, expected = fused(model, ids), trace(model, None, ids)
    mask = expected.attention_settings(1)["mask"]
    with Largest() as largest:
        assert torch.equal(result.attention_settings(1, query=1234)["mask"], mask[..., [1234], :])
        row = attention_row(result, 1, 3, 1234)
        rows = result.attention_rows(1, [3], [1234])
        assert result.is_causal()
    assert largest.numbers < 200 * len(ids)
    np.testing.assert_allclose(
        row.weights, expected.attention_rows(1, [3], [1234])[0, 0], rtol=1e-3, atol=1e-7
    )
    torch.testing.assert_close(rows, expected.attention_rows(1, [3], [1234]), rtol=1e-3, atol=1e-7)


def test_a_pass_without_its_mask_is_proved_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []
    plain = proof._difference
    monkeypatch.setattr(proof, "_difference", lambda *args: (compared.append(1), plain(*args))[1])
    monkeypatch.setattr(proof, "_proved", set())
    model = tiny.build(tiny.TEXT["Llama"])
    for run in (lambda: trace(model, None, IDS), lambda: fused(model, IDS)):
        before = len(compared)
        run()
        run()
        assert len(compared) == before + 1


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama", "Qwen3"])
def test_a_model_that_is_set_to_sdpa_keeps_its_bits(family: str) -> None:
    model = tiny.build(tiny.TEXT[family], implementation="sdpa")
    with torch.no_grad():
        expected = model(input_ids=torch.tensor([IDS]))
    numbers = expected.logits if "logits" in expected else expected.last_hidden_state
    result = fused(model, IDS)
    assert torch.equal(result.logits if "logits" in expected else result.hidden, numbers[0])


def test_values_of_another_width_or_precision_are_not_fused(monkeypatch: pytest.MonkeyPatch) -> None:
    query, key, value = torch.randn(3, 1, 2, 40, 8, generator=torch.Generator().manual_seed(0))
    settings = {
        "mask": CausalMask(40, torch.float32, query.device),
        "scaling": None,
        "softcap": None,
        "position_bias": None,
    }
    weights = attention_function.attention_weights(query, key, mask=settings["mask"].rows())
    calls: list[Any] = []
    fused_attention = torch.nn.functional.scaled_dot_product_attention
    monkeypatch.setattr(
        torch.nn.functional,
        "scaled_dot_product_attention",
        lambda *args, **options: (calls.append(1), fused_attention(*args, **options))[1],
    )
    for values in (value, value[..., :5], value.double()):
        result = attention_function._unread(query, key, values, settings, is_fused=True)
        torch.testing.assert_close(result, weights.to(values.dtype) @ values, rtol=1e-4, atol=1e-5)
    assert len(calls) == 1
    monkeypatch.setattr(attention_function, "BLOCK_BYTES", 1)  # blocks of 16 queries, each with its own keys
    result = attention_function._unread(query, key, value, settings, is_fused=False)
    torch.testing.assert_close(result, weights @ value, rtol=1e-5, atol=1e-6)


def test_sums_of_its_rows() -> None:
    layer = fused(tiny.build(tiny.TEXT["Llama"]), IDS).stack_table["self"].layers[1]
    factors = torch.rand(3, len(IDS), generator=torch.Generator().manual_seed(1))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(row_sums, "_CPU_BYTES", 1)
        parts = list(row_sums.row_sums(layer, factors))
    result = torch.zeros(4, 3, len(IDS))
    for sums, first, part in parts:
        result[:, sums, first : first + part.shape[-1]] += part
    torch.testing.assert_close(result, factors @ torch.from_numpy(layer.weights()), atol=1e-5, rtol=1e-4)
    assert [part.shape[-1] for _, _, part in parts] == [16, 32, len(IDS)]


def test_blocks_that_run_again_an_intervention_and_gradients_have_the_mask() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    result, expected = fused(model, IDS), trace(model, None, IDS)
    with pytest.MonkeyPatch.context() as patch:
        for name in ("LONG_BYTES", "LONG_MASK"):
            patch.setattr(attention_function, name, 0)
        changed = result.rerun(aw.suppress(result, 2, 5))
        saliency = aw.saliency(result, target=7)
        zeroed = aw.value_zeroing(result).layer(1)
        traced = aw.circuits.lens(result)
    torch.testing.assert_close(
        changed.logits, expected.rerun(aw.suppress(expected, 2, 5)).logits, rtol=1e-4, atol=1e-5
    )
    np.testing.assert_allclose(saliency.values, aw.saliency(expected, target=7).values, rtol=1e-3, atol=1e-7)
    np.testing.assert_allclose(zeroed, aw.value_zeroing(expected).layer(1), rtol=1e-3, atol=1e-6)
    np.testing.assert_allclose(traced.entropy, aw.circuits.lens(expected).entropy, rtol=1e-4, atol=1e-6)


def test_the_memory_that_is_asked_for_counts_no_mask(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    short, long = ({"input_ids": torch.zeros((count, 61), dtype=torch.long)} for count in (1, 2))
    before = [pass_memory.recording_bytes(model, inputs) for inputs in (short, long)]
    monkeypatch.setattr(pass_memory, "LONG_MASK", 0)
    assert pass_memory.recording_bytes(model, short) == before[0] - 3 * 61**2 * 4
    assert pass_memory.recording_bytes(model, long) == before[1]
