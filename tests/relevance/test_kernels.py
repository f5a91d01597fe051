"""Relevance through kernels without a softmax: its sum, and the sums of vectors that it equals."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.relevance import kernels
from attnwidgets.relevance.rules import Rules
from attnwidgets.tracing.mixers.log import MixerLog
from attnwidgets.tracing.recording.borrow import borrowed
from tests.models.build import Kind, build

# Its modeling file asks a program for its version.
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
WITHOUT_ATTENTION = ["mamba", "falcon_mamba", "mamba2", RWKV, "xlstm"]
GATED_CONVOLUTIONS = ["lfm2_moe", "lfm3"]
OTHERS = [
    *("jamba", "zamba", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h", "zamba2", "qwen3_next"),
    *("qwen3_5_text", "olmo_hybrid", "kimi_linear", "bailing_hybrid", "minimax", "recurrent_gemma"),
]
TYPES = [*WITHOUT_ATTENTION, *OTHERS, *GATED_CONVOLUTIONS]
IDS = torch.tensor([21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12])
ROUNDING = 3e-6  # of float32 over a few layers, relative to the sum of absolute values, which may cancel


@cache
def model_of(name: str) -> Any:
    return build(Kind(name, "causal"))


def largest(trace: Any) -> tuple[int, float]:
    """Return the class of the last row's largest logit, and the logit: rounding is small beside it."""
    row = trace.logits[-1]
    return int(row.argmax()), float(row.max())


def without_biases(name: str) -> Any:
    model = build(Kind(name, "causal"))
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if path.endswith("bias"):
                parameter.zero_()
    return model


@pytest.mark.parametrize("name", TYPES)
def test_cp_lrp_gives_all_of_the_target_to_the_tokens(name: str) -> None:
    trace = aw.trace(without_biases(name), None, IDS)
    target, logit = largest(trace)
    result = aw.lrp(trace, target, rule="cp_lrp")
    assert abs(result.values.sum() - logit) <= ROUNDING * np.abs(result.values).sum()


@pytest.mark.parametrize("name", WITHOUT_ATTENTION)
def test_attnlrp_sums_to_the_target_where_there_is_no_softmax(name: str) -> None:
    trace = aw.trace(without_biases(name), None, IDS)
    target, logit = largest(trace)
    result = aw.lrp(trace, target)
    assert abs(result.values.sum() - logit) <= ROUNDING * np.abs(result.values).sum()


@pytest.mark.parametrize("name", TYPES)
def test_conservation_is_checked_at_every_block(name: str) -> None:
    model = model_of(name)
    verdict = aw.check_conservation(model)
    assert verdict, verdict.problem
    (sums,) = verdict.sums.values()
    assert len(sums) == model.config.num_hidden_layers + 1


@pytest.mark.parametrize("name", [name for name in TYPES if name not in GATED_CONVOLUTIONS])
def test_relevance_of_one_mixer_is_its_contributions_along_the_gradient(name: str) -> None:
    """Of a gated convolution it is not: there, both factors depend on the token, and neither is a gate."""
    torch.manual_seed(0)
    with borrowed(without_biases(name)) as model, torch.enable_grad():
        log, inputs = MixerLog(dict(model.named_modules())), {}
        hooks = [
            module.register_forward_pre_hook(_keeping(inputs, path), with_kwargs=True)
            for path, module in model.named_modules()
        ]
        with log.watching(), torch.no_grad():
            model(IDS[None], use_cache=False)
        for hook in hooks:
            hook.remove()
        mixes = [mix for runs in log.blocks.values() for run in runs for mix in run.mixes]
        assert mixes
        for mix in mixes:
            for row in (0, len(IDS) // 2, len(IDS) - 1):
                direction = torch.randn(mix.output.shape[-1])
                relevance = _relevance_of(model, mix.path, inputs[mix.path], row, direction)
                expected = (mix.vectors([row])[0] @ direction).numpy()
                # Relative to the largest: divisions that make Mix's factors round in float32.
                scale = np.abs(expected).max()
                np.testing.assert_allclose(relevance[: row + 1] / scale, expected / scale, atol=3e-5)
                assert np.abs(relevance[row + 1 :]).max(initial=0) == 0


def _keeping(inputs: dict[str, Any], path: str) -> Any:
    return lambda module, args, kwargs: inputs.update({path: (args, kwargs)})


def _relevance_of(model: Any, path: str, given: Any, row: int, direction: torch.Tensor) -> Any:
    args, kwargs = given
    states = args[0] if args else kwargs["hidden_states"]
    leaf = states.detach().clone().requires_grad_()
    args, kwargs = ((leaf, *args[1:]), kwargs) if args else (args, kwargs | {"hidden_states": leaf})
    rules = Rules("cp_lrp")
    with kernels.whole_kernels(model, rules.settings), rules:
        output = model.get_submodule(path)(*args, **kwargs)
    output = output[0] if isinstance(output, tuple) else output
    (gradient,) = torch.autograd.grad((output[0, row] * direction).sum(), leaf)
    return (gradient * leaf)[0].sum(-1).detach().numpy()


@pytest.mark.parametrize("name", ["mamba", "mamba2", RWKV, "qwen3_5_text", "olmo_hybrid", "lfm3"])
def test_deeplift_goes_through_a_kernel_step_by_step(name: str) -> None:
    """Decays and keys differ between the two passes, so that a kernel is no constant map there."""
    result = aw.deeplift(aw.trace(model_of(name), None, IDS), 3)
    change = result.provenance["change"]
    assert abs(result.values.sum() - change) <= ROUNDING * np.abs(result.values).sum()


def test_of_the_letter_and_the_marker_the_letter_is_relevant() -> None:
    trace = aw.trace(*aw.zoo.last_marked(), "cf#bd#aheg")
    letter = trace.tokens.index("d")
    logit = float(trace.logits[-1].max())
    relevance = aw.lrp(trace, rule="cp_lrp").values
    expected = np.zeros(len(trace.tokens))
    expected[letter] = logit
    np.testing.assert_allclose(relevance, expected, atol=1e-5 * logit)
    # AttnLRP halves at the gate, which the last token opens.
    expected[[letter, -1]] = logit / 2
    np.testing.assert_allclose(aw.lrp(trace).values, expected, atol=1e-5 * logit)


@pytest.mark.parametrize("name", ["mamba", "qwen3_5_text", "recurrent_gemma", "minimax", "xlstm"])
def test_the_model_is_as_it_was(name: str) -> None:
    model = model_of(name)
    with torch.no_grad():
        before = model(IDS[None], use_cache=False).logits
        aw.lrp(aw.trace(model, None, IDS), 3)
        torch.testing.assert_close(model(IDS[None], use_cache=False).logits, before, rtol=0, atol=0)
    assert not any("forward" in vars(module) for module in model.modules())


@pytest.mark.parametrize("bias", ["absorb", "ignore"])
def test_biases_of_convolutions_keep_their_share_or_get_none(bias: Any) -> None:
    model = build(Kind("mamba", "causal"))
    with torch.no_grad():
        for path, parameter in model.named_parameters():
            if path.endswith("bias"):
                parameter.fill_(0.5 if path.endswith("conv1d.bias") else 0.0)
    result = aw.lrp(aw.trace(model, None, IDS), 3, rule="cp_lrp", bias=bias)
    share = abs(float(result.residual) / float(result.values.sum() + result.residual))
    assert share > 0.01 if bias == "absorb" else share < 1e-3


def test_neurons_of_a_block_without_attention_have_its_relevance() -> None:
    trace = aw.trace(without_biases("mamba2"), None, IDS)
    target, logit = largest(trace)
    neurons = aw.neuron_relevance(trace, "backbone.layers.1", target, rule="cp_lrp", top=None)
    values = neurons.layer(neurons.layers[0])
    assert abs(values.sum() - logit) <= ROUNDING * np.abs(values).sum()
