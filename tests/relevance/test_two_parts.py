"""States in two parts through blocks of any kind: against descriptions, where there are any, and sums."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets._gradients import no_grad
from attnwidgets.relevance import two_parts
from attnwidgets.relevance.frozen_blocks import frozen_blocks
from attnwidgets.tracing.algebra.propagation import DescribedLayers
from attnwidgets.tracing.algebra.two_parts import TwoParts, from_tokens, through_block
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]
SPANS = [(token,) for token in range(len(IDS))]
TARGETS = [3, 5]
KIMI = pytest.param("kimi_linear", marks=pytest.mark.slow)
KINDS = [
    *("mamba", "mamba2", "jamba", "falcon_h1", "granitemoehybrid", "qwen3_5_text", "lfm3"),
    *("recurrent_gemma", "minimax", "nemotron_h", "deepseek_v3", "gpt_oss", "qwen3_moe", KIMI),
]


@cache
def traced(name: str, dtype: torch.dtype = torch.float32) -> Trace:
    return aw.trace(build(Kind(name, "causal")).to(dtype), None, input_ids=IDS)


# Biases of projections and norms, fused projections, parallel blocks, gated and plain feed-forward layers.
@pytest.mark.parametrize("name", ["llama", "gpt2", "gpt_neox", "phi", "gemma2", "cohere", "stablelm"])
def test_parts_are_those_that_a_description_gives(name: str) -> None:
    trace = traced(name, torch.float64)
    layers = DescribedLayers(trace, "self", "test")
    parts = from_tokens(layers[0].hidden, SPANS)
    for number, block in enumerate(frozen_blocks(trace, "self", "test", "half").blocks):
        with no_grad():
            expected = through_block(layers[number], parts, divided=True)
        carried = block.in_two_parts(parts)
        # The norms of some models compute in float32, and a bias is shared by sizes that may cancel.
        size = float(expected.relevant.abs().max())
        torch.testing.assert_close(carried.relevant, expected.relevant, atol=5e-6 * size, rtol=0)
        torch.testing.assert_close(carried.whole, expected.whole, atol=1e-6 * size, rtol=0)
        parts = expected


@pytest.mark.parametrize("name", KINDS)
def test_all_that_a_block_returns_is_relevant_if_all_that_it_reads_is(name: str) -> None:
    trace = traced(name)
    for block in frozen_blocks(trace, "self", "test", "half").blocks:
        hidden = block.hidden[None]
        carried = block.in_two_parts(TwoParts(hidden, torch.zeros_like(hidden)))
        torch.testing.assert_close(carried.relevant[0], block.output, atol=1e-5, rtol=1e-5)
        nothing = block.in_two_parts(TwoParts(torch.zeros_like(hidden), hidden))
        assert float(nothing.relevant.abs().max()) < 1e-6
    assert trace.logits is not None
    scores = aw.circuits.contextual_decomposition(trace, TARGETS)
    assert np.isfinite(scores.values).all()
    np.testing.assert_allclose(scores.values.sum(-1) + scores.residual, trace.logits[-1, TARGETS], atol=1e-5)


def test_the_letter_that_a_delta_rule_stored_gets_all() -> None:
    trace = aw.trace(*aw.zoo.last_marked("abcdefgh", 10), "cf#bd#aheg")
    scores = aw.circuits.contextual_decomposition(trace, "d")
    assert scores.labels[int(scores.values.argmax())] == "d"
    others = np.delete(scores.values, int(scores.values.argmax()))
    assert np.abs(others).max() < 1e-5 * scores.values.max()


def test_an_operation_without_a_rule_is_named() -> None:
    model: Any = build(Kind("mamba2", "causal"))
    trace = aw.trace(model, None, input_ids=IDS)
    block = frozen_blocks(trace, "self", "test", "half").blocks[1]
    module: Any = block.blocks.layers[1].module
    plain = module.mixer.forward
    module.mixer.forward = lambda states, *args, **kwargs: torch.cos(plain(states, *args, **kwargs))
    with pytest.raises(UnsupportedModelError, match=r"layers\.1 \(Mamba2Block\): no rule covers cos"):
        block.in_two_parts(from_tokens(block.hidden, SPANS))


def test_a_part_that_is_lost_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    block = frozen_blocks(traced("qwen3_moe"), "self", "test", "half").blocks[1]
    monkeypatch.setattr(two_parts, "_halves", lambda a, b, multiply: multiply(a.detach(), b.detach()))
    with pytest.raises(UnsupportedModelError, match="something does not depend on what it reads"):
        block.in_two_parts(from_tokens(block.hidden, SPANS))
