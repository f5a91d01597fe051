"""Real objects of nnsight, nnterp and TransformerLens where installed; `test_wrappers` has stand-ins."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny

os.environ.setdefault("WANDB_MODE", "disabled")  # TransformerLens imports it
TEXT = "the cat"
FAMILIES = {
    "GPT-2": hf.AutoModelForCausalLM,
    "Llama": hf.AutoModelForCausalLM,
    "Gemma 2": hf.AutoModelForCausalLM,
    "BERT": hf.AutoModelForMaskedLM,
    "T5": hf.AutoModelForSeq2SeqLM,
}


@pytest.fixture(params=FAMILIES)
def saved(request: Any, tmp_path: Any) -> tuple[str, str]:
    """The name of a family, and the folder of a tiny model of it with a tokenizer."""
    family = request.param
    tokenizer = tiny.wordpiece() if family == "BERT" else tiny.byte_level()
    tokenizer.pad_token = tokenizer.pad_token or tokenizer.eos_token
    model = tiny.build({**tiny.TEXT, **tiny.SEQ2SEQ}[family])
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    for part in (model, tokenizer):
        part.save_pretrained(tmp_path)
    return family, str(tmp_path)


def loaded(saved: tuple[str, str], **options: Any) -> tuple[Any, Any]:
    family, folder = saved
    model = FAMILIES[family].from_pretrained(folder, **options).eval()
    return model, hf.AutoTokenizer.from_pretrained(folder)


def assert_same(actual: Any, expected: Any) -> None:
    assert actual.tokens == expected.tokens
    for stack in expected.stacks:
        for layer in range(expected.n_layers(stack)):
            weights = actual.attention_layer(layer, stack), expected.attention_layer(layer, stack)
            torch.testing.assert_close(*weights, atol=1e-6, rtol=0)
    if actual.model is not None:
        torch.testing.assert_close(actual.logits, expected.logits, atol=1e-6, rtol=0)


@pytest.mark.filterwarnings("ignore")
def test_a_transformer_bridge_is_the_model_it_was_built_around(saved: Any) -> None:
    bridges = pytest.importorskip("transformer_lens.model_bridge", reason="transformer-lens is not installed")
    family, folder = saved
    bridge = bridges.TransformerBridge.boot_transformers(folder, device="cpu")
    model, tokenizer = loaded(saved)
    expected = aw.trace(model, bridge.tokenizer, TEXT)
    result = aw.trace(bridge, TEXT)
    assert_same(result, expected)
    # A bridge in the process changes nothing for other models.
    assert_same(aw.trace(model, tokenizer, TEXT), aw.trace(*loaded(saved), TEXT))
    if family == "T5":
        ids = bridge.tokenizer(TEXT, return_tensors="pt").input_ids
        _, cache = bridge.run_with_cache(ids, decoder_input=torch.tensor([[0]]))
        from_cache = aw.from_attentions(cache)
        assert set(from_cache.stacks) == {"encoder", "decoder", "cross"}
        torch.testing.assert_close(
            from_cache.attention_layer(1, "cross"), result.attention_layer(1, "cross"), atol=1e-6, rtol=0
        )
        return
    logits, cache = bridge.run_with_cache(TEXT)
    tokens = bridge.to_str_tokens(TEXT)
    assert_same(aw.from_attentions(cache, tokens), result)
    assert_same(aw.from_attentions(dict(cache.items()), tokens), result)
    assert aw.explore(cache, tokens=tokens).trace.tokens == result.tokens
    torch.testing.assert_close(logits[0].detach(), result.logits, atol=1e-5, rtol=0)
    np.testing.assert_allclose(
        aw.value_zeroing(result).values, aw.value_zeroing(expected).values, atol=1e-6, rtol=0
    )
    with aw.ablate_heads(bridge, {0: [1]}):
        assert not torch.equal(aw.trace(bridge, TEXT).logits, result.logits)
    bridge.add_hook("blocks.0.hook_out", lambda states, hook: states * 0)
    with pytest.raises(TypeError, match="with a hook at"):
        aw.trace(bridge, TEXT)
    bridge.reset_hooks()
    assert_same(aw.trace(bridge, TEXT), result)
    if family != "BERT":
        bridge.enable_compatibility_mode()
        with pytest.raises(TypeError, match="compatibility mode"):
            aw.trace(bridge, TEXT)
        # Its patterns are still the model's; its logits only up to a constant.
        assert_same(aw.from_attentions(bridge.run_with_cache(TEXT)[1], tokens), result)


@pytest.mark.filterwarnings("ignore")
def test_a_hooked_transformer_is_shown_through_its_cache() -> None:
    lens = pytest.importorskip("transformer_lens", reason="transformer-lens is not installed")
    try:
        make = lens.HookedTransformer
    except ImportError:
        pytest.skip("TransformerLens has bridges only since version 4")
    sizes = {"n_layers": 2, "d_model": 16, "n_ctx": 16, "d_head": 8, "n_heads": 2, "d_vocab": 300}
    model = make(lens.HookedTransformerConfig(**sizes, act_fn="relu"))
    with pytest.raises(TypeError, match=r"computes by itself.*run_with_cache"):
        aw.trace(model, "the cat")
    _, cache = model.run_with_cache(torch.tensor([[1, 2, 3]]))
    result = aw.from_attentions(cache, ["a", "b", "c"])
    assert (result.n_layers(), result.n_heads(), result.is_causal()) == (2, 2, True)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("saved", ["GPT-2", "Llama"], indirect=True)
def test_an_nnsight_model_and_its_cache(saved: Any) -> None:
    nnsight = pytest.importorskip("nnsight", reason="nnsight is not installed")
    model, tokenizer = loaded(saved, attn_implementation="eager")
    expected = aw.trace(model, tokenizer, TEXT)
    wrapped = nnsight.LanguageModel(model, tokenizer=tokenizer)
    assert_same(aw.trace(wrapped, TEXT), expected)
    assert_same(aw.trace(model, tokenizer, TEXT), expected)
    np.testing.assert_array_equal(aw.saliency(aw.trace(wrapped, TEXT)).values, aw.saliency(expected).values)
    with wrapped.trace(TEXT) as tracer:
        cache = tracer.cache()
    assert_same(aw.from_attentions(cache, list(expected.tokens)), expected)
    with wrapped.trace(TEXT):
        logits = wrapped.lm_head.output.save()
    torch.testing.assert_close(logits[0].detach(), expected.logits, atol=1e-5, rtol=0)
    model.set_attn_implementation("sdpa")
    with wrapped.trace(TEXT) as tracer:
        without = tracer.cache()
    with pytest.raises(ValueError, match=r"none of which returned attention weights.*eager"):
        aw.from_attentions(without, list(expected.tokens))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("saved", ["Llama"], indirect=True)
def test_an_nnterp_model_and_its_attention(saved: Any) -> None:
    nnterp = pytest.importorskip("nnterp", reason="nnterp is not installed", exc_type=ImportError)
    model, tokenizer = loaded(saved, attn_implementation="eager")
    expected = aw.trace(model, tokenizer, TEXT)
    wrapped = nnterp.StandardizedTransformer(model, tokenizer=tokenizer, enable_attention_probs=True)
    assert_same(aw.trace(wrapped, TEXT), expected)
    with wrapped.trace(TEXT):
        first = wrapped.attention_probabilities[0].save()
        second = wrapped.attention_probabilities[1].save()
    assert_same(aw.from_attentions([first, second], list(expected.tokens)), expected)
    with pytest.raises(ValueError, match="dispatch=True"):
        aw.trace(nnterp.StandardizedTransformer(saved[1]), TEXT)
