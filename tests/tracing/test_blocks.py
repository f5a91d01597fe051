"""Block descriptions recompute the model's states, and refuse unknown blocks."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from attnwidgets.tracing.algebra import contributions
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.contributions import parts_of
from attnwidgets.tracing.block_replay import capture
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording import recorded_pass
from attnwidgets.tracing.recording.borrow import borrowed, origin
from attnwidgets.tracing.recording.recorder import recording
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, IDS, JOINED, MORE

CAUSAL = ("GPT-2", "GPT-NeoX", "OPT", "Llama", "Qwen3", "Gemma 2", "Gemma 3", "Cohere", "Granite", "Mixtral")


def make(family: str, dtype: torch.dtype = torch.float64) -> tuple[Any, Any]:
    """Return a shaken tiny model and its trace."""
    result = FAMILIES[family].traced(dtype)
    return result.model, result


def largest(difference: torch.Tensor, scale: torch.Tensor) -> float:
    return float(difference.abs().max() / scale.abs().max())


def in_double(block: Any) -> bool:
    """Return whether a block computes in double precision throughout: RMSNorms and routers are in single."""
    kinds = [type(module).__name__ for module in block.module.modules()]
    return not any("RMSNorm" in kind or "T5LayerNorm" in kind or "Expert" in kind for kind in kinds) and all(
        type(module) is nn.LayerNorm for module in block.module.modules() if "Norm" in type(module).__name__
    )


@pytest.mark.parametrize("family", {**FAMILIES, **MORE})
@torch.no_grad()
def test_the_parts_of_a_block_add_up_to_its_states_and_its_output(family: str) -> None:
    result = {**FAMILIES, **MORE}[family].traced(torch.float64)
    for layer, stack in ((layer, name) for name in result.stacks for layer in range(result.n_layers(name))):
        block = block_of(result, layer, stack, "test")
        assert largest(block.recomputed() - block.output, block.output) < (
            1e-12 if in_double(block) else 1e-5
        )
        bias = block.branch()[2]
        assert (
            largest(parts_of(block, "attn").total() + bias + block.hidden - block.middle, block.middle)
            < 1e-12
        )
        whole = parts_of(block, "res")
        assert largest(whole.total() + bias - block.middle, block.middle) < 1e-12
        if block.layout.order == "post":
            normed = parts_of(block, "res_ln")
            shift = block.norm1.direct(bias) / block.norm1.deviation(block.middle) + block.norm1.shift
            assert largest(normed.total() + shift - normed.reference, normed.reference) < 1e-12
        if family in FAMILIES:
            assert whole.causal == (family in CAUSAL or stack == "decoder")
        if stack != "cross":
            block.value_projection()


@pytest.mark.parametrize("family", ["T5", "Marian", "BERT2BERT", "Whisper"])
@torch.no_grad()
def test_a_block_with_two_attentions_is_seen_from_each(family: str) -> None:
    _, result = make(family)
    whole = block_of(result, 1, "decoder", "test")
    beyond = block_of(result, 1, "cross", "test")
    assert origin(whole.module) is origin(beyond.module)
    assert whole.n_heads == beyond.n_heads == 4
    assert torch.equal(beyond.weights(), result.attention_layer(1, "cross"))
    assert torch.equal(whole.output, beyond.output)
    state = whole.norm1(whole.middle) if whole.layout.order == "post" else whole.middle
    assert largest(beyond.hidden - state, state) < 1e-12
    with pytest.raises(UnsupportedModelError, match="value projection"):
        beyond.value_projection()
    if whole.layout.order == "post":
        with pytest.raises(UnsupportedModelError, match="a cross-attention with its own norm"):
            parts_of(whole, "enc")


@torch.no_grad()
def test_a_prefix_of_keys_is_nobodys_own() -> None:
    peft = pytest.importorskip("peft", reason="PEFT is not installed")
    config = peft.PrefixTuningConfig(task_type="CAUSAL_LM", num_virtual_tokens=3)
    model = peft.get_peft_model(tiny.build(tiny.TEXT["GPT-2"]), config).eval()
    block = block_of(trace(model, None, IDS), 0, "self", "test")
    assert block.own_key == 3
    parts = parts_of(block, "res")
    norms = parts.norms()
    before = parts_of(block, "attn").norms().diagonal(3)
    assert (norms.diagonal(3) - before).abs().min() > 1e-3
    assert torch.allclose(norms[:, :3], parts_of(block, "attn").norms()[:, :3])
    assert torch.allclose(parts.from_self().norm(dim=-1).double(), norms.diagonal(3), rtol=1e-5)
    vectors = torch.einsum("hij,hjv,hvd->ijd", parts.weights, parts.values, parts.matrix)
    vectors[range(len(IDS)), range(3, 3 + len(IDS))] += block.hidden
    near = block.middle.abs().sum(-1)[:, None] - (vectors - block.middle[:, None]).abs().sum(-1)
    for size in (None, 1, 2, 4):
        assert torch.allclose(parts.nearness(block.middle, 1, chunk_size=size), near, atol=1e-5)


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama", "GPT-NeoX", "DINOv2 with registers"])
@torch.no_grad()
def test_norms_equal_brute_force_by_letting_one_value_through(family: str) -> None:
    model, result = make(family)
    block = block_of(result, 1, "self", "test")
    n, out = len(block.hidden), origin(block.part(block.layout.after or block.layout.out))
    mixed: dict[int, torch.Tensor] = {}

    def added(key: int) -> torch.Tensor:
        def only(index: int, _: nn.Module, weights: Any, value: Any) -> tuple[Any, Any]:
            if index == 1:
                value = value * (torch.arange(n) == key)[:, None]
            return weights, value

        # The twin has the hooks that the model has then.
        handle = out.register_forward_hook(lambda _, __, output: mixed.update({key: output[0]}))
        with borrowed(model) as twin, recording(twin, (only,)):
            twin(**result.inputs)
            handle.remove()
        return mixed[key]

    nothing = added(-1)
    expected = torch.stack([(added(j) - nothing).norm(dim=-1) for j in range(n)], dim=1)
    parts = parts_of(block, "attn")
    assert torch.allclose(parts.norms(), expected, rtol=1e-9, atol=1e-12)
    vectors = torch.stack([mixed[j] - nothing for j in range(n)], dim=1)
    state = block.output
    for power in (1, 2):
        apart = torch.linalg.vector_norm(vectors - state[:, None], ord=power, dim=-1)
        near = torch.linalg.vector_norm(state, ord=power, dim=-1)[:, None] - apart
        assert torch.allclose(parts.nearness(state, power), near, rtol=1e-9, atol=1e-10)
        assert torch.allclose(parts.nearness(state, power, chunk_size=2), near, rtol=1e-9, atol=1e-10)


@torch.no_grad()
def test_the_size_of_chunks_changes_nothing(monkeypatch) -> None:
    _, result = make("Llama")
    parts = parts_of(block_of(result, 0, "self", "test"), "res")
    whole = parts.norms()
    monkeypatch.setattr(contributions, "_CHUNK_BYTES", 1)
    assert torch.allclose(parts.norms(), whole, rtol=1e-12, atol=0)


@pytest.mark.parametrize("family", ["BERT", "Llama", "Gemma 2", "GPT-NeoX"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@torch.no_grad()
def test_half_precision_agrees_with_the_same_weights_in_full(family: str, dtype: torch.dtype) -> None:
    model, result = make(family, dtype)
    wide = copy.deepcopy(model).float()
    reference = trace(wide, None, IDS)
    # Lower layers round digits away: a few thousandths of float16, hundredths of bfloat16.
    tolerance = 0.1 if dtype == torch.bfloat16 else 0.01
    for layer in range(2):
        parts = parts_of(block_of(result, layer, "self", "test"), "res")
        expected = parts_of(block_of(reference, layer, "self", "test"), "res").norms()
        assert parts.matrix.dtype == torch.float32
        assert largest(parts.norms() - expected, expected) < tolerance


def test_a_shared_block_is_kept_once_for_every_call() -> None:
    _, result = make("ALBERT")
    first, last = (block_of(result, layer, "self", "test") for layer in (0, 2))
    assert first.module is last.module
    assert not torch.equal(first.hidden, last.hidden)


def test_a_model_in_training_mode_is_explained_without_dropout_and_handed_back() -> None:
    model, result = make("GPT-NeoX")
    expected = block_of(result, 1, "self", "test").last
    model.train()
    again = block_of(trace(model, None, IDS), 1, "self", "test")
    assert torch.equal(again.last, expected)
    assert all(module.training for module in model.modules())
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())


def test_a_wrapped_projection_is_asked_what_it_does() -> None:
    class Adapted(nn.Module):
        def __init__(self, base: nn.Linear) -> None:
            super().__init__()
            self.base, self.weight = base, base.weight
            self.low = nn.Parameter(torch.full((32, 32), 0.05, dtype=torch.float64))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.base(x) + x @ self.low

    model, _ = make("BERT")
    layer = model.bert.encoder.layer[1].attention.output
    layer.dense = Adapted(layer.dense)
    block = block_of(trace(model, None, IDS), 1, "self", "test")
    assert largest(block.recomputed() - block.output, block.output) < 1e-12


def test_a_block_that_computes_something_else_is_refused_by_name() -> None:
    model, _ = make("BERT")
    block = model.bert.encoder.layer[1]
    block.output.register_forward_hook(lambda _, __, output: output * 1.1)
    result = trace(model, None, IDS)
    block_of(result, 0, "self", "alti")
    with pytest.raises(
        UnsupportedModelError, match=r"alti is not available: layer 1, BertLayer, .*value_zeroing"
    ):
        block_of(result, 1, "self", "alti")


def test_what_was_changed_after_it_was_proved_is_found_out() -> None:
    model, result = make("BERT")
    block_of(result, 1, "self", "alti")
    dense = model.bert.encoder.layer[1].attention.output.dense
    handle = dense.register_forward_hook(lambda _, __, output: output * 2)
    with pytest.raises(UnsupportedModelError, match="layer 1, BertLayer"):
        block_of(trace(model, None, IDS), 1, "self", "alti")
    handle.remove()
    block_of(trace(model, None, IDS), 1, "self", "alti")
    late = trace(model, None, IDS)
    model.bert.embeddings.word_embeddings.weight.data *= -1
    with pytest.raises(ValueError, match="changed after this trace was made"):
        block_of(late, 0, "self", "alti")


@pytest.mark.skipif(not JOINED, reason="DiffLlama has not joined transformers' attention interface yet")
def test_a_block_that_attends_twice_to_itself_is_refused() -> None:
    attending_twice = tiny._plain("DiffLlama", "ForCausalLM", **tiny.GQA).eval()
    with pytest.raises(
        UnsupportedModelError, match=r"which calls the attention modules .*self_attn, .*self_attn"
    ):
        block_of(trace(attending_twice, None, IDS), 0, "self", "alti")


def test_blocks_that_are_not_known_are_refused_by_name() -> None:
    unknown = tiny._plain("JetMoe", "ForCausalLM", num_key_value_heads=2, kv_channels=8).eval()
    with pytest.raises(UnsupportedModelError, match=r"no description fits the block JetMoeDecoderLayer"):
        block_of(trace(unknown, None, IDS), 0, "self", "alti")
    with pytest.raises(UnsupportedModelError, match="outside transformers' attention interface"):
        block_of(trace(tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"]), None, IDS), 0, "self", "alti")
    with pytest.raises(UnsupportedModelError, match="made without"):
        block_of(from_attentions(torch.full((1, 1, 2, 2), 0.5), ["a", "b"]), 0, "self", "alti")


@pytest.mark.parametrize(
    ("family", "stack", "path", "where"),
    [
        ("GPT-2", "self", "transformer.h.1.mlp.c_fc", r"layer 1 \(transformer.h.1\) of stack 'self'"),
        ("T5", "cross", "encoder.block.1.layer.1.DenseReluDense.wo", r"encoder.block.1\) of stack 'encoder'"),
        ("T5", "decoder", "decoder.block.0.layer.1.EncDecAttention.o", r"layer 0 \(decoder.block.0\)"),
        ("BERT", "self", "bert.embeddings.LayerNorm", r"input of layer 0 .* already holds NaN"),
    ],
)
def test_the_layer_where_numbers_break_is_named(family: str, stack: str, path: str, where: str) -> None:
    model, result = make(family, torch.float32)
    with torch.no_grad():
        model.get_submodule(path).weight.fill_(float("nan"))
    with pytest.raises(ValueError, match=where):
        block_of(result, 0, stack, "alti")


@pytest.mark.slow
@pytest.mark.parametrize(("room", "passes"), [(recorded_pass.ROOM, 0), (1000, 1)])
def test_the_model_runs_at_most_once_more_and_what_is_kept_goes_with_the_trace(
    room: int, passes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorded_pass, "ROOM", room)
    model = FAMILIES["BERT"].model(torch.float64)
    runs = []
    model.register_forward_hook(lambda *_: runs.append(1))
    result = FAMILIES["BERT"].trace_of(model)
    runs.clear()
    for layer in (0, 1, 0):
        block_of(result, layer, "self", "test")
    assert len(runs) == passes
    block = weakref.ref(block_of(result, 0, "self", "test"))
    del result
    gc.collect()
    assert block() is None


def test_the_inputs_of_blocks_are_kept_for_the_last_short_texts_as_the_model_read_them() -> None:
    model = FAMILIES["GPT-2"].model(torch.float64)
    runs: list[int] = []
    model.register_forward_hook(lambda *_: runs.append(1))
    traces = [FAMILIES["GPT-2"].trace_of(model) for _ in range(5)]
    runs.clear()
    first, *_, last = [capture(result, "self", "test") for result in traces]
    assert len(runs) == 1  # for the first, whose inputs made room for those of the fifth
    for layer in (0, 1):
        again, recorded = first.layers[layer], last.layers[layer]
        torch.testing.assert_close(recorded.hidden, again.hidden, rtol=0, atol=0)
        torch.testing.assert_close(recorded.output, again.output, rtol=0, atol=0)


def test_a_changed_model_reads_a_short_text_again() -> None:
    model, result = make("BERT")
    model.bert.embeddings.word_embeddings.register_forward_hook(lambda _, __, output: output * 2)
    with pytest.raises(ValueError, match="changed after this trace was made"):
        block_of(result, 0, "self", "alti")
