"""Parts of weights without a softmax: to kernels' weights, to plain code, and on compiled models."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn.functional import conv1d, silu

import attnwidgets as aw
from attnwidgets.explanations.mixing.kernel_row import kernel_row
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build
from tests.zoo.made import made, traced

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44]
QUERY, KEY = 7, 4
SPLIT = ("mamba2", "qwen3_next", "kimi_linear", "minimax")
ALIKE = ("bamba", "falcon_h1", "granitemoehybrid", "qwen3_5_text", "olmo_hybrid", "bailing_hybrid")


@cache
def tiny(name: str) -> Any:
    return aw.trace(build(Kind(name, "causal")), None, input_ids=IDS)


def without_softmax(trace: Any) -> tuple[int, int]:
    """The last layer that does not attend, and the number of its first head without a softmax."""
    layer = max(trace.stack_table["self"].mixing)
    heads = range(aw.mixing(trace, "kernel").layer(layer).shape[0])
    return layer, next(head for head in heads if kernel_row(trace, layer, head, QUERY) is not None)


@pytest.mark.parametrize("name", [*SPLIT, *(pytest.param(name, marks=pytest.mark.slow) for name in ALIKE)])
@pytest.mark.parametrize("by", ["component", "token"])
def test_pairs_sum_to_the_weight_of_the_kernel(name: str, by: str) -> None:
    trace = tiny(name)
    layer, head = without_softmax(trace)
    for key in (KEY, QUERY):
        parts = aw.circuits.kernel_parts(trace, QUERY, key, layer=layer, head=head, by=by)
        row = kernel_row(trace, layer, head, QUERY)
        # Queries and keys are float32, and pairs are many times larger than their sum.
        size = max(1e-3, float(np.abs(parts.pairs).sum()))
        assert parts.weight == pytest.approx(float(row.weights[key]), abs=1e-12)
        assert parts.pairs.sum() + sum(parts.given.values()) == pytest.approx(parts.weight, abs=1e-5 * size)
        assert parts.asks.sum() == pytest.approx(parts.offers.sum(), abs=1e-9 * size)
        assert len(parts.to_rows()) == parts.pairs.size


def states_of(trace: Any, block: Any) -> list[torch.Tensor]:
    """The inputs of two consecutive blocks [token, width], by hooks."""
    seen: list[Any] = []

    def see(_: Any, args: Any, kwargs: Any) -> None:
        seen.append((args[0] if args else kwargs["hidden_states"])[0].detach())

    hooks = [part.register_forward_pre_hook(see, with_kwargs=True) for part in block]
    with torch.no_grad():
        trace.model(torch.tensor([IDS]), use_cache=False)
    for hook in hooks:
        hook.remove()
    return seen


def test_a_key_of_mamba_2_is_that_of_plain_code() -> None:
    """B of a head: projected, convolved and activated, where the activation is a factor."""
    trace = tiny("mamba2")
    blocks = trace.model.backbone.layers
    first, states = states_of(trace, blocks[:2])[:2]
    mixer = blocks[1].mixer
    parts = aw.circuits.kernel_parts(trace, QUERY, KEY, layer=1, head=0)
    assert parts.parts[1][0] == "token"
    with torch.no_grad():
        scale = (states.square().mean(-1, keepdim=True) + blocks[1].norm.variance_epsilon).rsqrt()
        start = mixer.intermediate_size
        channels = slice(start, start + mixer.conv_dim)
        width = mixer.conv_kernel_size

        def convolved(x: torch.Tensor, bias: Any) -> torch.Tensor:
            linear = x @ mixer.in_proj.weight[channels].T
            if bias is not None and mixer.in_proj.bias is not None:
                linear = linear + mixer.in_proj.bias[channels]
            padded = conv1d(
                linear.T[None], mixer.conv1d.weight, bias, padding=width - 1, groups=mixer.conv_dim
            )
            return padded[0, :, : len(IDS)].T

        total = convolved(blocks[1].norm.weight * states * scale, mixer.conv1d.bias)
        size = mixer.n_groups * mixer.ssm_state_size
        factor = torch.sigmoid(total)  # of silu
        embedded = convolved(blocks[1].norm.weight * first * scale, None) * factor
        b, c = (slice(start + at * size, start + at * size + mixer.ssm_state_size) for at in (0, 1))
        query = silu(total)[QUERY, c]
        share = float(query @ embedded[KEY, b]) / float(query @ silu(total)[KEY, b])
    assert parts.offers[0] / parts.weight == pytest.approx(share, abs=1e-4)


def test_a_key_of_lightning_attention_is_that_of_plain_code() -> None:
    trace = tiny("minimax")
    blocks = trace.model.model.layers
    layer, _ = without_softmax(trace)
    states = states_of(trace, [blocks[layer]])[0]
    attention, norm = blocks[layer].self_attn, blocks[layer].input_layernorm
    parts = aw.circuits.kernel_parts(trace, QUERY, KEY, layer=layer, head=1, by="token")
    # No convolution: a key is made of the token itself.
    assert parts.parts[1] == (f"{IDS[KEY]} [{KEY}]", "constant")
    assert parts.offers[0] == pytest.approx(parts.weight, rel=1e-4)
    component = aw.circuits.kernel_parts(trace, QUERY, KEY, layer=layer, head=1)
    with torch.no_grad():
        projected = attention.qkv_proj(norm(states)).unflatten(-1, (attention.num_attention_heads, -1))
        query, key, _ = attention.act_fn(projected).chunk(3, -1)
        alpha = float(query[QUERY, 1] @ key[KEY, 1]) * component.held["decay"]
    assert component.weight == pytest.approx(alpha, rel=1e-4)
    assert component.held["decay"] == pytest.approx(
        float(torch.exp(-attention.slope_rate.flatten()[1] * (QUERY - KEY))), rel=1e-5
    )


@pytest.mark.parametrize("name", ["qwen3_next", "mamba2"])
def test_a_part_that_goes_while_all_else_stays_takes_its_share(name: str) -> None:
    """Brute force on the kernel: a replaced key, later keys and gates as they were."""
    trace = tiny(name)
    layer, head = without_softmax(trace)
    mix = trace.stack_table["self"].mixing[layer].mixes[0]
    parts = aw.circuits.kernel_parts(trace, QUERY, KEY, layer=layer, head=head)
    _, keys = mix.kernel.sides()
    probe = torch.randn(keys.shape[-1], generator=torch.Generator().manual_seed(0)).double()
    query = mix.kernel.sides()[0][QUERY, head].double()
    carried = mix.kernel.carried(query[None], head, QUERY, KEY)[0]
    assert float(carried @ keys[KEY, head].double()) == pytest.approx(parts.weight, abs=1e-9)
    field, at = ("key", head) if hasattr(mix.kernel, "key") else ("b", 0)
    changed = getattr(mix.kernel, field).double().clone()
    changed[0, KEY, at] = probe
    other = type(mix.kernel)(**{**vars(mix.kernel), field: changed}).rows([QUERY])[head, 0, KEY]
    assert float(carried @ probe) == pytest.approx(float(other), rel=1e-6)


def test_the_marker_is_asked_for_and_offers_itself() -> None:
    _, _, trace = traced("last_marked")
    parts = aw.circuits.kernel_parts(trace, 10, 6, layer=0, head=0)
    assert parts.top(1)[0] == ("token", "token", pytest.approx(0.5, abs=1e-6))
    tokens = aw.circuits.kernel_parts(trace, 10, 6, layer=0, head=0, by="token")
    assert tokens.top(1, "offers")[0] == ("", "# [6]", pytest.approx(0.5, abs=1e-6))
    assert repr(tokens).startswith(
        "<KernelParts by token: 'g' reads '#' with 0.5 in head 0.0 (gated delta rule)"
    )
    assert "decay 1, beta 1" in repr(tokens)


def test_counts_are_of_every_letter_alike() -> None:
    """Nothing is selected: the key is a bias, and the decay decides."""
    _, _, trace = traced("decayed_counts")
    for key in (3, 6):
        parts = aw.circuits.kernel_parts(trace, 8, key, layer=0, head=0)
        [share] = parts.top(None)
        assert share == ("constant", "constant", pytest.approx(0.9 ** (8 - key) / 32, abs=1e-6))


def test_a_trained_model_asks_for_the_letter_before_the_digit() -> None:
    model, tokenizer = aw.zoo.trained("recall")
    trace = aw.trace(model, tokenizer, "a3c5b1a3d0c")
    parts = aw.circuits.kernel_parts(trace, 11, 5, layer=0, head=2, by="token")
    assert parts.top(1)[0][:2] == ("c [11]", "c [3]")
    assert parts.top(1)[0].value > 0.9 * parts.weight


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("mamba", r"each of its \d+ channels has a kernel of its own"),
        ("recurrent_gemma", "has a kernel of its own"),
        ("xlstm", "no product of a query and a key alone"),
    ],
)
def test_kernels_without_queries_and_keys_are_refused(name: str, says: str) -> None:
    trace = tiny(name)
    layer, head = without_softmax(trace)
    with pytest.raises(UnsupportedModelError, match=says):
        aw.circuits.kernel_parts(trace, QUERY, KEY, layer=layer, head=head)


def test_other_heads_are_sent_to_the_other_function() -> None:
    model, tokenizer = made("induction", letters="abcdefgh", length=16)
    with pytest.raises(UnsupportedModelError, match=r"head 1\.0 attends; aw\.why splits"):
        aw.circuits.kernel_parts(aw.trace(model, tokenizer, "fade"), 3, 1, layer=1, head=0)
    _, _, trace = traced("last_marked")
    with pytest.raises(
        UnsupportedModelError, match=r"layer 0 mixes tokens without one; aw\.circuits\.kernel"
    ):
        aw.why(trace, 10, 6, layer=0, head=0)
    with pytest.raises(ValueError, match="token 3 does not read token 5"):
        aw.circuits.kernel_parts(trace, 3, 5, layer=0, head=0)
    with pytest.raises(ValueError, match="by"):
        aw.circuits.kernel_parts(trace, 5, 3, layer=0, head=0, by="letter")
