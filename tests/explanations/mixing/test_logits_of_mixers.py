"""Logits of models that mix tokens without attention, or by attention that no description fits."""

from __future__ import annotations

import contextlib
import importlib
import json
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets._gradients import no_grad
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from pathlib import Path

    from attnwidgets.tracing.trace import Trace

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]
TARGETS = [3, 5]
LAST_NORMS = ("norm", "norm_f", "embedding_norm")
# transformers looks for a compiler in another process.
KIMI = pytest.param("kimi_linear", marks=pytest.mark.slow)
# Kernels of every kind, blocks with several mixers, norms after mixers, scales, experts, soft caps.
KINDS = [
    *("mamba", "mamba2", "jamba", "falcon_h1", "qwen3_5_text", KIMI, "lfm2_moe", "lfm3"),
    *("recurrent_gemma", "granitemoehybrid", "olmo_hybrid", "bailing_hybrid"),
    *("deepseek_v3", "qwen3_moe", "glm4", "gemma4_text"),
]


@cache
def traced(name: str) -> Trace:
    return aw.trace(build(Kind(name, "causal")), None, input_ids=IDS)


@pytest.mark.parametrize("name", KINDS)
def test_what_is_added_sums_to_the_logits(name: str) -> None:
    trace = traced(name)
    assert trace.logits is not None
    logits = trace.logits[-1, TARGETS].numpy()
    direct = aw.direct_logit_attribution(trace, TARGETS)
    # Logits are below 2, and float32 has 7 digits.
    np.testing.assert_allclose(direct.values.sum(-1), logits, atol=2e-6)
    by_head = aw.direct_logit_attribution(trace, TARGETS, by="head")
    np.testing.assert_allclose(by_head.values.sum(-1), logits, atol=2e-6)
    assert direct.map is not None
    assert direct.map.layers == trace.mixing_layers()
    for layer in direct.map.layers:
        mixer = "mixing" if layer in trace.stack_table["self"].mixing else "attention"
        expected = direct.values[:, direct.labels.index(f"{mixer} {layer}")]
        np.testing.assert_allclose(direct.map.layer(layer).sum((0, 2)), expected, atol=1e-6)
    scores = aw.alti_logit(trace, TARGETS)
    parts = scores.provenance["parts"]
    sums = np.sum([part for part_name, part in parts.items() if part_name != "logit"], axis=0)
    np.testing.assert_allclose(sums, logits, atol=2e-6)
    tracked_too = np.asarray(parts["initial"]) + np.asarray(parts["attention"])
    np.testing.assert_allclose(scores.values.sum(-1), tracked_too, atol=2e-5)
    foil = aw.alti_logit(trace, *TARGETS)
    np.testing.assert_allclose(foil.values, scores.values[0] - scores.values[1], atol=1e-6)


@pytest.mark.parametrize("name", ["mamba", "mamba2", "qwen3_5_text", "lfm2", KIMI])
def test_what_a_token_adds_to_a_logit_is_its_reference_vector_through_the_last_norm(
    name: str, shared: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(shared / "prototypes" / "mixers"))
    script = importlib.import_module("tiny")
    folder = shared / "reference" / "mixers"
    expected = np.load(folder / f"{name}-0.npz")
    described = json.loads((folder / "manifest.json").read_text(encoding="utf-8"))["files"][f"{name}-0.npz"]

    def tweak(config: Any) -> None:
        if name == "lfm2":
            config.layer_types = ["conv", "full_attention", "conv"]

    model = script.build("causal", name, tweak=tweak, seed=0)
    with contextlib.suppress(Exception):
        model.set_experts_implementation("eager")
    trace = aw.trace(model, None, input_ids=expected["ids"].tolist())
    read: list[torch.Tensor] = []
    base = getattr(model, model.base_model_prefix)
    norm: Any = next(getattr(base, path) for path in LAST_NORMS if hasattr(base, path))
    with norm.register_forward_hook(lambda _, args, output: read.extend((args[0], output))), no_grad():
        model(torch.from_numpy(expected["ids"])[None], use_cache=False)
    state, normed = (states[0, -1].double() for states in read)
    unembedding = model.get_output_embeddings().weight.detach().double()[TARGETS]
    by_layer = aw.alti_logit(trace, TARGETS, tracked=False).map
    assert by_layer is not None
    for number, module in enumerate(described["mixers"]):
        layer = int(next(part for part in module["module"].split(".") if part.isdigit()))
        vectors = torch.from_numpy(expected[f"{number}.F"])[-1]
        # An RMS norm with a fixed deviation multiplies every component by a factor.
        wanted = (vectors * normed / state) @ unembedding.T
        np.testing.assert_allclose(by_layer.layer(layer), wanted.T, atol=1e-6)


def test_what_a_token_adds_is_what_its_latent_values_lose_when_they_are_zeroed() -> None:
    """The attention weights of latent attention do not read the values, so that zeroing is exact."""
    trace = traced("deepseek_v3")
    model = trace.model
    attention: Any = model.model.layers[1].self_attn
    read: list[torch.Tensor] = []
    zeroed: list[int] = []

    def without_value(_: Any, __: Any, output: torch.Tensor) -> torch.Tensor:
        heads = output.unflatten(-1, (attention.num_heads, -1)).clone()
        heads[..., zeroed, :, attention.qk_nope_head_dim :] = 0
        return heads.flatten(-2)

    with (
        attention.kv_b_proj.register_forward_hook(without_value),
        attention.o_proj.register_forward_hook(lambda *call: read.append(call[-1][0, -1].double())),
        model.model.norm.register_forward_hook(lambda _, args, output: read.extend((args[0], output))),
        no_grad(),
    ):
        model(torch.tensor([IDS]), use_cache=False)
        plain, state, normed = read
        lost = []
        for token in range(len(IDS)):
            zeroed[:] = [token]
            read.clear()
            model(torch.tensor([IDS]), use_cache=False)
            lost.append(plain - read[0])
    factor = normed[0, -1].double() / state[0, -1].double()
    wanted = (torch.stack(lost) * factor) @ model.lm_head.weight.double()[TARGETS].T
    by_layer = aw.alti_logit(trace, TARGETS, tracked=False).map
    assert by_layer is not None
    np.testing.assert_allclose(by_layer.layer(1), wanted.detach().T, atol=1e-6)


@pytest.mark.parametrize("name", ["qwen3_5_text", "mamba2", "jamba", "deepseek_v3"])
def test_blocks_are_sums_in_half_precision_too(name: str) -> None:
    trace = aw.trace(build(Kind(name, "causal")).bfloat16(), None, input_ids=IDS)
    half, exact = (aw.direct_logit_attribution(each, TARGETS) for each in (trace, traced(name)))
    # bfloat16 has less than three digits, and logits are below 1.
    assert half.labels == exact.labels
    np.testing.assert_allclose(half.values, exact.values, atol=3e-2)
    assert np.abs(half.residual).max() < 2e-2
    np.testing.assert_allclose(aw.alti(trace).layer(1).sum(-1), 1.0, atol=1e-6)


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2e-2)])
def test_a_block_may_scale_what_it_returns(dtype: torch.dtype, tolerance: float) -> None:
    model: Any = build(Kind("gemma4_text", "causal")).to(dtype)
    read: list[torch.Tensor] = []
    for layer in model.model.layers:
        layer.layer_scalar.fill_(0.75)
    trace = aw.trace(model, None, input_ids=IDS)
    with (
        model.model.layers[0].register_forward_pre_hook(lambda _, args: read.append(args[0])),
        model.model.norm.register_forward_hook(lambda _, args, output: read.extend((args[0], output))),
        no_grad(),
    ):
        model(torch.tensor([IDS]), use_cache=False)
    first, state, normed = (states[0, -1].double() for states in read)
    passed = first * 0.75 ** len(model.model.layers) * normed / state
    wanted = float(passed @ model.lm_head.weight.detach().double()[3])
    direct = aw.direct_logit_attribution(trace, 3)
    assert direct.values[direct.labels.index("initial")] == pytest.approx(wanted, abs=tolerance)


def test_a_letter_adds_to_its_logit_what_is_left_of_it() -> None:
    trace = aw.trace(*aw.zoo.decayed_counts("abc", 8), "abcab")
    by_layer = aw.alti_logit(trace, ["a", "b", "c"], tracked=False).map
    assert by_layer is not None
    counts = [
        [0.9**age * (token == letter) for age, token in zip(range(5, -1, -1), trace.tokens, strict=True)]
        for letter in "abc"
    ]
    np.testing.assert_allclose(by_layer.layer(0), counts, atol=1e-6)
    assert trace.logits is not None
    np.testing.assert_allclose(trace.logits[-1, :3], np.sum(counts, -1), atol=1e-5)


def test_readings_of_lower_blocks_are_tracked_through_every_block() -> None:
    trace = traced("qwen3_5_text")
    untracked = aw.alti_logit(trace, 3, tracked=False, initial="apart").map
    tracked = aw.alti_logit(trace, 3, initial="apart").map
    assert untracked is not None
    assert tracked is not None
    mixing = aw.alti(trace)
    row = untracked.layer(3)
    for layer in (2, 1, 0):
        row = row @ mixing.layer(layer)
    np.testing.assert_allclose(tracked.layer(3), row, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nemotron_h", r"only those that mix tokens are recorded \(0, 2, 3, 5\)"),
        ("minimax", r"model.layers.0 returns is not known as a sum of what it reads"),
        ("zamba", r"model.layers.1 returns is not known as a sum of what it reads"),
    ],
)
def test_what_cannot_be_summed_is_named(name: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=reason):
        aw.direct_logit_attribution(traced(name), TARGETS)


def test_the_bias_of_values_cannot_be_told_apart_without_a_description() -> None:
    with pytest.raises(UnsupportedModelError, match='biases="shared"'):
        aw.alti_logit(traced("mamba2"), TARGETS, biases="apart")


def test_methods_say_which_models_they_take() -> None:
    def refusal(name: str, method: str) -> str:
        return aw.methods()[method].refusal(traced(name))

    assert refusal("mamba2", "alti_logit") == refusal("falcon_h1", "alti_logit") == ""
    assert "blocks 1, 4 mix none" in refusal("nemotron_h", "alti_logit")
    assert refusal("mamba2", "decompx") == refusal("nemotron_h", "decompx") == ""
    assert refusal("mamba2", "contextual_decomposition") == ""
    assert refusal("mamba2", "contribution_graph")
