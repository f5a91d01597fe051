"""DecompX through blocks that no description fits: kernels, latent attention, mixtures of experts."""

from __future__ import annotations

import re
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets._gradients import no_grad
from attnwidgets.relevance.frozen_blocks import frozen_blocks
from attnwidgets.tracing.algebra.decomposition import Rules
from attnwidgets.tracing.algebra.propagation import Propagation
from attnwidgets.tracing.mixers.runs import mixed_block
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]
SPANS = tuple((token,) for token in range(len(IDS)))
SOURCES = torch.eye(len(IDS))[:, :, None]  # every token is a source [source, token, 1]
TARGETS = [3, 5]
FEED_FORWARD = re.compile(r"\.(mlp|feed_forward|experts|moe|block_sparse_moe|mlp_block|shared_mlp)\.")
# transformers looks for a compiler in another process.
KIMI = pytest.param("kimi_linear", marks=pytest.mark.slow)
KERNELS = [
    *("mamba", "falcon_mamba", "mamba2", "jamba", "bamba", "falcon_h1", "granitemoehybrid", "qwen3_next"),
    *("qwen3_5_text", "olmo_hybrid", KIMI, "bailing_hybrid", "recurrent_gemma", "lfm2_moe", "lfm3"),
]
# Kernels, blocks without any mixing, latent attention, experts chosen in several ways, gated heads.
KINDS = [*KERNELS, "minimax", "nemotron_h", "deepseek_v3", "gpt_oss", "qwen3_moe", "jetmoe", "afmoe"]


@cache
def traced(name: str) -> Trace:
    return aw.trace(build(Kind(name, "causal")), None, input_ids=IDS)


@pytest.mark.parametrize("name", KINDS)
def test_parts_of_every_block_sum_to_the_logits(name: str) -> None:
    trace = traced(name)
    assert trace.logits is not None
    scores = aw.decompx(trace, TARGETS)
    # Logits are below 2, and float32 has 7 digits.
    np.testing.assert_allclose(scores.values.sum(-1), trace.logits[-1, TARGETS], atol=3e-6)
    assert scores.map is not None
    assert scores.map.layers == tuple(block.number for block in trace.anatomy.stacks["self"])
    assert not np.triu(scores.map.layer(scores.map.layers[-1]), 1).any()
    foil = aw.decompx(trace, *TARGETS)
    np.testing.assert_allclose(foil.values, scores.values[0] - scores.values[1], atol=1e-6)


@pytest.mark.parametrize("name", [*KERNELS, "deepseek_v3", "gpt_oss"])
def test_where_tokens_are_their_own_sources_a_block_hands_on_what_its_mixers_add(name: str) -> None:
    model = build(Kind(name, "causal"))
    with no_grad():
        for path, parameter in model.named_parameters():
            # F counts biases of the values with their token.
            if FEED_FORWARD.search(path) or path.endswith("bias"):
                parameter.zero_()
    trace = aw.trace(model, None, input_ids=IDS)
    for block in frozen_blocks(trace, "self", "test", "half").blocks:
        run = mixed_block(trace, block.number, "self", "test")
        added = run.vectors(range(len(IDS))).transpose(0, 1)
        expected = (added + SOURCES * block.hidden * run.residual_scale) * run.output_scale
        _, vectors = block._mapped(SOURCES * block.hidden)
        torch.testing.assert_close(vectors, expected, atol=2e-6 * float(expected.abs().max()), rtol=0)


@pytest.mark.parametrize("gate", ["half", "fixed"])
@pytest.mark.parametrize("name", ["llama", "qwen3", "gemma2", "mistral"])
def test_without_biases_vectors_are_those_that_a_description_gives(name: str, gate: Any) -> None:
    trace = traced(name)
    layers = frozen_blocks(trace, "self", "test", gate)
    with no_grad():
        described, read_off = (
            Propagation(trace, "self", "test", SPANS, Rules(gate=gate), layers=blocks).run(range(len(IDS)))
            for blocks in (None, layers)
        )
    torch.testing.assert_close(read_off, described, atol=1e-6 * float(described.abs().max()), rtol=0)


@pytest.mark.parametrize("gate", ["half", "fixed"])
def test_the_chosen_experts_are_applied_with_their_weights_held(gate: Any) -> None:
    model: Any = build(Kind("mixtral", "causal")).double()
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.data.zero_()  # so that feed-forward layers read the block's input
    trace = aw.trace(model, None, input_ids=IDS)
    block = frozen_blocks(trace, "self", "test", gate).blocks[1]
    layer: Any = block.blocks.layers[1].module
    vectors = torch.randn(3, *block.hidden.shape, dtype=torch.float64, generator=torch.Generator())
    _, passed = block._mapped(vectors)
    with no_grad():
        norm, experts = layer.post_attention_layernorm, layer.mlp.experts
        deviation = (block.hidden.square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
        state, parts = (states / deviation * norm.weight for states in (block.hidden, vectors))
        chances = (state @ layer.mlp.gate.weight.T).softmax(-1)
        highest, chosen = chances.topk(model.config.num_experts_per_tok, -1)
        shares = highest / highest.sum(-1, keepdim=True)
        expected = vectors.clone()
        for token in range(len(IDS)):
            for share, expert in zip(shares[token], chosen[token], strict=True):
                opening, up = experts.gate_up_proj[expert].chunk(2)
                down = experts.down_proj[expert]
                opened = torch.nn.functional.silu(opening @ state[token])
                by_up = opened * (parts[:, token] @ up.T)
                by_gate = (parts[:, token] @ opening.T) * torch.sigmoid(opening @ state[token])
                hidden = by_up if gate == "fixed" else (by_up + by_gate * (up @ state[token])) / 2
                expected[:, token] += share * (hidden @ down.T)
    # The model's norms compute in float32.
    torch.testing.assert_close(passed, expected, atol=1e-6, rtol=1e-6)


def test_the_letter_that_a_delta_rule_stored_gets_all() -> None:
    trace = aw.trace(*aw.zoo.last_marked("abcdefgh", 10), "cf#bd#aheg")
    scores = aw.decompx(trace, "d")
    shares = scores.values / scores.values.sum()
    assert scores.labels[int(shares.argmax())] == "d"
    assert shares.max() == pytest.approx(1, abs=1e-5)


def test_sources_may_be_taken_in_groups_and_words_where_no_bias_is_distributed() -> None:
    trace = traced("qwen3_5_text")
    whole = aw.decompx(trace, 3)
    np.testing.assert_allclose(aw.decompx(trace, 3, chunk_size=4).values, whole.values, atol=1e-6)
    pairs = [(start, start + 1) for start in range(0, 12, 2)]
    layers = frozen_blocks(trace, "self", "test", "half")
    with no_grad():
        of_tokens, of_pairs = (
            Propagation(trace, "self", "test", tuple(spans), Rules(), layers=layers).run([12])
            for spans in (SPANS, pairs)
        )
    torch.testing.assert_close(of_pairs, of_tokens[:, :12].unflatten(1, (-1, 2)).sum(2), atol=1e-5, rtol=0)


@pytest.mark.parametrize("bias", ["abssim", "norm", "equal", "cls", None])
def test_biases_are_distributed_where_a_block_returns(bias: Any) -> None:
    trace = traced("mamba2")
    scores = aw.decompx(trace, 3, bias=bias)
    # Without biases, as much is left over as the biases add.
    assert (abs(scores.residual) < 1e-5) == (bias is not None)
    assert ("distributed together" in scores.warning) == (bias is not None)
    assert "distributed together" not in aw.decompx(traced("qwen3_5_text"), 3).warning


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba2", "deepseek_v3", "granitemoehybrid"])
def test_a_model_in_half_precision_has_the_parts_of_one_that_is_not(name: str) -> None:
    trace = aw.trace(build(Kind(name, "causal")).bfloat16(), None, input_ids=IDS)
    half, exact = (aw.decompx(each, TARGETS) for each in (trace, traced(name)))
    # bfloat16 has less than three digits, and logits are below 1.
    np.testing.assert_allclose(half.values, exact.values, atol=5e-2)


def test_a_path_that_no_factor_stands_for_is_refused() -> None:
    model: Any = build(Kind("mamba2", "causal"))
    block = model.backbone.layers[1]
    plain = block.forward
    block.forward = lambda states, *args, **kwargs: (
        plain(states, *args, **kwargs) + 0.01 * states.detach().roll(1, 1)
    )
    trace = aw.trace(model, None, input_ids=IDS)
    with pytest.raises(UnsupportedModelError, match=r"layers\.1 \(Mamba2Block\) returns without its biases"):
        aw.decompx(trace, 3)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("zamba", r"layers\.1 \(ZambaHybridLayer\) .* It reads other states as well"),
        ("gemma4_text", r"layers\.2 \(Gemma4TextDecoderLayer\) .* It reads other states as well"),
        ("longcat_flash", "layer 1 does not read the output of layer 0"),
    ],
)
def test_blocks_that_read_more_than_their_input_are_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        aw.decompx(traced(name), TARGETS)
