"""A long text of a model that is set to eager attention is recorded in blocks of queries, bit for bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from attnwidgets.tracing.causal_mask import LONG_MASK
from attnwidgets.tracing.recording import attention_function
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_families import assert_same, eager
from tests.tracing.test_rows import LONG, Largest, long_ids, long_model

IDS = long_ids(61)


@pytest.fixture
def blocks(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Go through every call in blocks of 16 queries; return how many rows each product had."""
    monkeypatch.setattr(attention_function, "LONG_BYTES", 0)
    monkeypatch.setattr(attention_function, "BLOCK_BYTES", 0)
    seen: list[int] = []
    plain = attention_function.attention_weights

    def counting(query: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        seen.append(query.shape[-2])
        return plain(query, *args, **kwargs)

    monkeypatch.setattr(attention_function, "attention_weights", counting)
    return seen


@pytest.mark.parametrize("family", tiny.TEXT)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_text_models(family: str, dtype: torch.dtype, blocks: list[int]) -> None:
    model = tiny.build(tiny.TEXT[family], implementation="eager").to(dtype)
    result = trace(model, None, IDS)
    assert set(blocks) == {16, 29}
    expected = eager(model, input_ids=torch.tensor([IDS]))
    if dtype == torch.float32:
        assert result.logits is None or torch.equal(result.logits, expected.logits[0])
        assert_same(result, "self", expected.attentions)
    else:
        assert_same_but_for_rounding(result, expected)


def assert_same_but_for_rounding(actual: Any, expected: Any) -> None:
    """Assert that at most one weight in a thousand differs, by a unit in the last digit of bfloat16.

    On some processors, a product in bfloat16 adds up in an order that depends on its number of rows.
    """
    assert actual.n_layers("self") == len(expected.attentions) > 0
    for layer, weights in enumerate(expected.attentions):
        ours, theirs = actual.attention_layer(layer, "self"), weights[0].float()
        torch.testing.assert_close(ours, theirs, rtol=2**-7, atol=0)
        assert (ours != theirs).float().mean() < 1e-3
    if actual.logits is not None:
        torch.testing.assert_close(actual.logits, expected.logits[0], rtol=2**-6, atol=1e-2)


def test_double_precision(request: pytest.FixtureRequest) -> None:
    # Not beside eager attention, whose softmax rounds to float32, and not of fewer than a hundred tokens,
    # whose products in float64 are rounded by their number of rows.
    model, ids = long_model().double(), long_ids()
    model.set_attn_implementation("eager")
    expected = trace(model, None, ids)
    weights = expected.attention_layer(1)
    blocks = request.getfixturevalue("blocks")
    result = trace(model, None, ids)
    assert set(blocks) == {16, 28}
    assert torch.equal(result.logits, expected.logits)
    assert torch.equal(result.attention_layer(1), weights)


@pytest.mark.parametrize("family", tiny.SEQ2SEQ)
def test_encoder_decoders(family: str, blocks: list[int]) -> None:
    model = tiny.build(tiny.SEQ2SEQ[family], implementation="eager")
    decoder = [0, *IDS[:50]]
    inputs = {"input_ids": torch.tensor([IDS]), "decoder_input_ids": torch.tensor([decoder])}
    from attnwidgets.tracing.recording.borrow import borrowed
    from attnwidgets.tracing.recording.recorded_pass import record

    with borrowed(model):
        done = record(model, inputs)
    assert {16, 29, 19} <= set(blocks)
    assert torch.equal(done.outputs.logits, eager(model, **inputs).logits)


def test_a_picture(blocks: list[int]) -> None:
    import transformers as hf

    model = tiny.build(
        lambda: hf.ViTForImageClassification(
            hf.ViTConfig(**tiny.SMALL, image_size=64, patch_size=8, num_labels=3)
        ),
        implementation="eager",
    )
    picture = torch.randn(3, 64, 64, generator=torch.Generator().manual_seed(1))
    result = trace(model, None, image=picture)
    assert set(blocks) == {16, 17}
    assert_same(result, "self", eager(model, pixel_values=picture[None]).attentions)


def test_a_padded_batch(blocks: list[int]) -> None:
    model = tiny.build(tiny.TEXT["Llama"], implementation="eager")
    rows = torch.tensor([IDS, IDS[:40] + [0] * 21])
    mask = torch.tensor([[1] * 61, [1] * 40 + [0] * 21])
    result = trace(model, None, input_ids=rows, attention_mask=mask)
    assert 16 in blocks
    expected = eager(model, input_ids=rows, attention_mask=mask)
    assert torch.equal(result[0].logits, expected.logits[0])
    assert torch.equal(result[1].logits, expected.logits[1, :40])


def test_no_weights_are_held_while_a_long_text_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    model = long_model()
    model.set_attn_implementation("eager")
    ids = long_ids()
    trace(model, None, ids)  # proves itself against other attention first
    monkeypatch.setattr(attention_function, "LONG_BYTES", 2**17)
    monkeypatch.setattr(attention_function, "BLOCK_BYTES", 2**16)
    with Largest() as made:
        result = trace(model, None, ids)
    # The mask of eager attention, and nothing of the size of a head's weights beside it.
    assert made.numbers <= LONG * LONG
    with Largest() as made:
        result.attention_layer(0)
    assert made.numbers == 4 * LONG * LONG


def test_weights_that_are_edited_are_held_whole(blocks: list[int]) -> None:
    import attnwidgets as aw

    model = tiny.build(tiny.TEXT["Llama"], implementation="eager")
    result = trace(model, None, IDS)
    blocks.clear()
    with aw.edit_attention(result, (1, 2), "uniform"):
        changed = result.rerun()
    assert set(blocks) == {61}
    assert changed.attention_rows(1, [2], [60]).std() < 1e-6


@pytest.mark.parametrize("family", ["Llama", "BERT", "Gemma 2", "Qwen3"])
@pytest.mark.parametrize("method", ["saliency", "lrp", "cp_lrp"])
@pytest.mark.parametrize("implementation", ["eager", None])  # None: sdpa, where there is one
@pytest.mark.parametrize("long_mask", [0, LONG_MASK])
def test_weights_that_gradients_compute_again(
    family: str, method: str, implementation: str | None, long_mask: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    import attnwidgets as aw

    model = tiny.build(tiny.TEXT[family], implementation=implementation)
    result = trace(model, None, IDS)

    def explained() -> Any:
        explain: Any = aw.saliency if method == "saliency" else aw.lrp
        options = {"rule": "cp_lrp"} if method == "cp_lrp" else {}
        return explain(result, lambda outputs: outputs[0][:, -1].sum(-1), force=True, **options).values

    stored = explained()
    monkeypatch.setattr(attention_function, "AGAIN_BYTES", 0)
    monkeypatch.setattr(attention_function, "LONG_BYTES", 0)
    monkeypatch.setattr(attention_function, "LONG_MASK", long_mask)
    again = explained()
    assert abs(again - stored).max() < 1e-5 * abs(stored).max()


def test_gradients_of_a_long_text_keep_no_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    import attnwidgets as aw

    model, ids = long_model(), long_ids()
    result = trace(model, None, ids)
    aw.saliency(result, 5)
    with Largest() as made:
        aw.saliency(result, 5)
    assert made.numbers >= 4 * LONG * LONG
    monkeypatch.setattr(attention_function, "AGAIN_BYTES", 2**17)
    monkeypatch.setattr(attention_function, "LONG_BYTES", 2**17)
    with Largest() as made:
        aw.saliency(result, 5)
    assert made.numbers <= LONG * LONG  # the mask
    monkeypatch.setattr(attention_function, "LONG_MASK", 0)
    for explain in (aw.saliency, aw.lrp):
        with Largest() as made:
            explain(result, 5)
        assert made.numbers < LONG * LONG
