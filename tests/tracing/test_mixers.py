"""How blocks without attention mix tokens: exact sums over tokens, for every kernel."""

from __future__ import annotations

import contextlib
import copy
import importlib
import json
import pickle
import threading
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
from torch.overrides import TorchFunctionMode

import attnwidgets as aw
from attnwidgets._gradients import no_grad
from attnwidgets.explanations.results.block_mixers import mixers_of
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.contributions import parts_of
from attnwidgets.tracing.mixers.calls import CONVOLUTION, VALUES, handling, read_call, watch_kernels
from attnwidgets.tracing.mixers.log import MixerLog
from attnwidgets.tracing.mixers.parts import mixed_parts
from attnwidgets.tracing.mixers.runs import _run
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from attnwidgets.tracing.mixers.mix import Mix
    from attnwidgets.tracing.trace import Trace

IDS = [21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12, 9, 77]
# transformers compiles a kernel of RWKV in another process.
RWKV = pytest.param("rwkv", marks=pytest.mark.slow)
KINDS = [
    *("mamba", "jamba", "zamba", "mamba2", "bamba", "falcon_h1", "granitemoehybrid", "nemotron_h"),
    *("qwen3_next", "qwen3_5_text", "olmo_hybrid", "kimi_linear", "bailing_hybrid", "minimax"),
    *("recurrent_gemma", "lfm2_moe", "lfm3", RWKV, "xlstm"),
]
ATTENDING = ["gpt2", "llama", "gemma2", "olmo2", "phi", "cohere", "gpt_neox"]


@cache
def tiny(name: str) -> Any:
    return build(Kind(name, "causal"))


@cache
def traced(name: str) -> Trace:
    return aw.trace(tiny(name), None, input_ids=IDS)


def mixes(model: Any, ids: Sequence[int]) -> list[Mix]:
    log = MixerLog(dict(model.named_modules()))
    with no_grad(), log.watching():
        model(torch.tensor([list(ids)]), use_cache=False)
    return [mix.cut(0, len(ids)) for runs in log.blocks.values() for run in runs for mix in run.mixes]


class InDouble(TorchFunctionMode):
    """Computes in float64 where code says float32."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.Tensor.float:
            return args[0].double()
        kwargs = {
            name: torch.float64 if value is torch.float32 else value for name, value in (kwargs or {}).items()
        }
        return func(*(torch.float64 if value is torch.float32 else value for value in args), **kwargs)


@pytest.mark.parametrize("length", [1, 2, 13])
@pytest.mark.parametrize("name", KINDS)
def test_what_tokens_add_and_the_biases_add_up_to_the_output(name: str, length: int) -> None:
    every = mixes(tiny(name), IDS[:length])
    assert every
    for mix in every:
        queries = range(length)
        matrix, bias = mix.projected
        added = mix.vectors(queries).sum(1)
        torch.testing.assert_close(added, mix.inner_total(queries) @ matrix, atol=1e-5, rtol=1e-4)
        whole = mix.inner_total(queries, constant=True) @ matrix + (0 if bias is None else bias)
        largest = float(mix.output.abs().max())
        torch.testing.assert_close(whole, mix.output[0], atol=2e-5 * largest, rtol=0)


def test_a_text_may_be_shorter_than_its_convolution_reaches() -> None:
    """Granite's model pads the convolution, in front of the text."""
    whole = traced("granitemoehybrid")
    short = aw.trace(tiny("granitemoehybrid"), None, input_ids=IDS[:2])
    kernel, norms = (aw.mixing(short, measure).layer(0) for measure in ("kernel", "norm"))
    np.testing.assert_allclose(kernel, aw.mixing(whole, "kernel").layer(0)[:, :2, :2], rtol=1e-4, atol=1e-7)
    np.testing.assert_allclose(norms, aw.mixing(whole, "norm").layer(0)[:, :2, :2], rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["mamba", "mamba2", "qwen3_5_text", "kimi_linear", "minimax", "xlstm", RWKV])
def test_a_text_longer_than_a_chunk_of_the_kernel_adds_up(name: str) -> None:
    ids = torch.randint(13, 60, (150,), generator=torch.Generator().manual_seed(4)).tolist()
    model = tiny(name)
    assert max(mix.error() for mix in mixes(model, ids)) < 5e-6


@pytest.mark.parametrize("name", ["mamba", "mamba2", "qwen3_5_text", "kimi_linear", RWKV])
def test_alpha_is_what_the_kernel_returns_for_unit_values(name: str) -> None:
    columns: list[Any] = []
    kernels: list[Any] = []

    def unit_values(kernel: str, go_on: Any, arguments: dict[str, Any]) -> Any:
        output = go_on(**arguments)
        if kernel != CONVOLUTION and not kernels:
            kernels.append(read_call(kernel, arguments, output).kernel)
            # Without its gate, which multiplies the sum by alpha.
            plain = arguments | ({"z": None} if "z" in arguments else {})
            values = arguments[VALUES[kernel]]
            axis = values.dim() - 1 if kernel == "mamba_selective_scan" else 1
            for position in range(len(IDS)):
                unit = torch.zeros_like(values)
                unit.select(axis, position).fill_(1.0)
                changed = plain | {VALUES[kernel]: unit}
                columns.append(read_call(kernel, changed, go_on(**changed)).output[0])
        return output

    model = tiny(name)
    watch_kernels(model.modules())
    with no_grad(), handling(unit_values):
        model(torch.tensor([IDS]), use_cache=False)
    alpha = kernels[0].rows(range(len(IDS)))
    by_group = torch.stack(columns, -1).unflatten(1, (len(alpha), -1))  # [query, group, channel, position]
    torch.testing.assert_close(
        by_group, alpha.float().permute(1, 0, 2)[:, :, None].expand_as(by_group), atol=2e-6, rtol=1e-4
    )


REFERENCES = [
    *("mamba", "mamba2", "qwen3_5_text", "kimi_linear", "lfm2", "minimax", RWKV, "recurrent_gemma", "xlstm")
]


@pytest.mark.parametrize("name", REFERENCES)
def test_vectors_and_alpha_are_those_of_the_reference(
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

    model = script.build("causal", name, tweak=tweak, seed=0).double()
    with contextlib.suppress(Exception):
        model.set_experts_implementation("eager")
    for module in model.modules():
        if hasattr(module, "decay_factors"):  # made in float32
            module.query_decay, module.key_decay, module.diagonal_decay = module.decay_factors(
                module.slope_rate
            )
    with InDouble():
        by_path = {mix.path: mix for mix in mixes(model, expected["ids"].tolist())}
    for number, module in enumerate(described["mixers"]):
        mix = by_path[module["module"]]
        queries = range(len(expected["ids"]))
        alpha = mix.kernel.rows(queries).numpy()
        reference = expected[f"{number}.alpha"]
        assert np.abs(alpha - reference).max() <= 1e-11 * np.abs(reference).max()
        assert mix.error() < 1e-13
        # In RecurrentGemma the bias of the values, which the reference leaves out, belongs to their token.
        if name != "recurrent_gemma":
            vectors, reference = mix.vectors(queries).numpy(), expected[f"{number}.F"]
            assert np.abs(vectors - reference).max() <= 1e-11 * np.abs(reference).max()


@pytest.mark.parametrize("name", ATTENDING)
def test_attention_that_is_described_has_the_same_vectors_when_it_is_read_off(name: str) -> None:
    trace = traced(name)
    runs = _run(trace, "self", "a test")
    for layer in trace.layers():
        described = parts_of(block_of(trace, layer, "self", "a test"), "res")
        measured = mixed_parts(runs[layer], "res")
        torch.testing.assert_close(measured.norms(), described.norms(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(measured.from_self(), described.from_self(), atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(measured.total(), described.total(), atol=1e-5, rtol=1e-4)
        assert measured.reference is not None
        assert described.reference is not None
        torch.testing.assert_close(measured.reference, described.reference, atol=1e-5, rtol=1e-4)
        torch.testing.assert_close(
            measured.head_norms().float(), described.head_norms(), atol=1e-5, rtol=1e-3
        )
        spans = [(0, 1, 2), (3,), tuple(range(4, len(IDS)))]
        torch.testing.assert_close(measured.norms(spans), described.norms(spans), atol=1e-5, rtol=1e-4)
        to = described.reference
        nearness = described.nearness(to, 1)
        torch.testing.assert_close(measured.nearness(to, 1), nearness, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("name", ["deepseek_v3", "qwen3_moe", "mixtral", "glm4"])
def test_attention_that_no_description_fits_is_measured(name: str) -> None:
    trace = traced(name)
    values = aw.attention_norm(trace, "res")
    assert values.layers == trace.layers()
    # The tokens' terms and the biases are the update that the block's attention makes.
    run = _run(trace, "self", "a test")[0]
    added = run.total(range(len(IDS)), constant=True)
    if run.norms[0] is None:
        torch.testing.assert_close(added, run.mixes[0].output[0], atol=1e-5, rtol=1e-3)
    assert aw.alti(trace, rolled_out=True).layer(-1).sum(-1) == pytest.approx(1.0)


def test_rollout_follows_every_block_of_a_hybrid() -> None:
    trace = traced("qwen3_5_text")
    steps = []
    for block in trace.anatomy.stacks["self"]:
        if block.is_recorded:
            weights = trace.attention_layer(block.number).double().mean(0).numpy()
            steps.append((weights + np.eye(len(IDS))) / 2)
            continue
        run = trace.stack_table["self"].mixing[block.number]
        vectors = run.vectors(range(len(IDS))).double()
        vectors[range(len(IDS)), range(len(IDS))] += run.hidden[0].double()
        norms = vectors.norm(dim=-1).numpy()
        steps.append(norms / norms.sum(-1, keepdims=True))
    expected = steps[3] @ steps[2] @ steps[1] @ steps[0]
    followed = aw.rollout(trace)
    assert followed.layers == (0, 1, 2, 3)
    np.testing.assert_allclose(followed.layer(-1), expected, atol=1e-6)
    assert "blocks 0 to 2 by the norms of what tokens add" in followed.note
    assert "without attention" not in followed.warning
    assert aw.rollout(trace, partial=True).layers == (3,)
    assert aw.attention_flow(trace).layers == (0, 1, 2, 3)
    for options in ({"residual_weight": 0.3}, {"head_reduce": "max"}, {"discard": "first"}):
        with pytest.raises(ValueError, match="change attention only"):
            aw.rollout(trace, **options)


def test_shares_are_attention_weights_or_norms_and_signed_shares_sum_to_one() -> None:
    trace = traced("qwen3_5_text")
    shares = aw.mixing(trace)
    assert shares.shape == (4, 4, len(IDS), len(IDS))
    torch.testing.assert_close(torch.from_numpy(shares.layer(3).copy()), trace.attention_layer(3))
    assert shares.layer(0).sum(-1) == pytest.approx(1.0)
    norms = aw.mixing(trace, "norm").layer(0)
    np.testing.assert_allclose(shares.layer(0), norms / norms.sum(-1, keepdims=True), atol=1e-6)
    np.testing.assert_allclose(norms, aw.attention_norm(trace, per_head=True).layer(0), atol=1e-6)
    np.testing.assert_array_equal(shares.rows(0, [2], [5, 3])[0], shares.layer(0)[2][[5, 3]])
    signed = aw.mixing(trace, "signed")
    assert signed.signed
    # This model has no biases.
    assert signed.layer(0).sum((0, 2)) == pytest.approx(1.0, abs=1e-5)
    assert signed.layer(3).sum((0, 2)) == pytest.approx(1.0, abs=1e-5)
    with pytest.raises(ValueError, match="signed"):
        aw.rollout(signed.select(head=0))


def test_the_letter_before_the_marker_is_what_is_added_and_the_marker_what_the_kernel_reads() -> None:
    bundle = aw.zoo.last_marked("abcdefgh", 10)
    text = "cf#bd#aheg"
    trace = aw.trace(*bundle, text)
    truth = bundle[0].truth.mixing(text)
    np.testing.assert_allclose(aw.mixing(trace).layer(0)[0], truth.shares, atol=1e-6)
    np.testing.assert_allclose(aw.mixing(trace, "kernel").layer(0), truth.alpha, atol=1e-6)


def test_what_decays_is_added_in_proportion() -> None:
    bundle = aw.zoo.decayed_counts("abc", 8)
    truth = bundle[0].truth.mixing("abcab")
    trace = aw.trace(*bundle, "abcab")
    np.testing.assert_allclose(aw.mixing(trace).layer(0)[0], truth.shares, atol=1e-6)
    assert trace.is_causal()


def test_texts_of_a_batch_mix_as_each_alone() -> None:
    model = tiny("qwen3_5_text")
    short, long = IDS[:5], IDS
    padded = torch.tensor([short + [0] * (len(long) - len(short)), long])
    mask = torch.tensor([[1] * len(short) + [0] * (len(long) - len(short)), [1] * len(long)])
    batch = aw.trace(model, None, input_ids=padded, attention_mask=mask)
    for trace, ids in zip(batch, (short, long), strict=True):
        alone = aw.trace(model, None, input_ids=ids)
        assert aw.mixing(trace).layers == (0, 1, 2, 3)
        np.testing.assert_allclose(aw.mixing(trace).layer(1), aw.mixing(alone).layer(1), atol=1e-5)


def test_a_trace_with_kernels_can_be_pickled_and_copied() -> None:
    trace = traced("mamba")
    again = pickle.loads(pickle.dumps(trace))
    np.testing.assert_array_equal(aw.mixing(again).layer(1), aw.mixing(trace).layer(1))


def test_a_model_that_changed_after_it_was_traced_is_not_measured() -> None:
    model = build(Kind("mamba", "causal"))
    trace = aw.trace(model, None, input_ids=IDS)
    with no_grad():
        model.backbone.layers[0].mixer.out_proj.weight.mul_(2.0)
    with pytest.raises(ValueError, match="which changed after this trace was made"):
        aw.attention_norm(trace).layer(0)


def test_a_state_of_earlier_tokens_cannot_be_divided() -> None:
    state = {"initial_states": torch.zeros(1, 2, 3, 4)}
    with pytest.raises(UnsupportedModelError, match="trace the whole text, without a cache"):
        read_call("mamba2_chunk_scan", state, torch.zeros(1))


def test_a_block_whose_mixers_follow_each_other_is_refused() -> None:
    trace = aw.trace(tiny("zamba2"), None, input_ids=IDS)
    assert aw.attention_norm(trace).layer(0).shape == (len(IDS), len(IDS))
    with pytest.raises(
        UnsupportedModelError, match="no state of it is the sum of what it reads and its mixers"
    ):
        aw.attention_norm(trace).layer(1)


def test_models_of_one_file_run_beside_each_other() -> None:
    watched, other = tiny("qwen3_5_text"), build(Kind("qwen3_5_text", "causal"))
    log = MixerLog(dict(watched.named_modules()))
    with no_grad(), log.watching():
        thread = threading.Thread(target=lambda: other(torch.tensor([IDS]), use_cache=False))
        thread.start()
        watched(torch.tensor([IDS]), use_cache=False)
        thread.join()
    assert {path: len(runs) for path, runs in log.blocks.items()} == {
        f"model.layers.{number}": 1 for number in range(3)
    }


@pytest.mark.slow
def test_a_token_shift_that_is_not_recorded_is_named_and_measures_of_several_layers_are_refused() -> None:
    """RWKV's feed-forward layers read each token mixed with the token before."""
    trace = traced("rwkv")
    assert trace.anatomy.stacks["self"][1].kinds == "recurrence and token shift"
    said = "how blocks 0 to 2 (token shift) mix tokens is not recorded"
    assert trace.warning == said
    maps = aw.mixing(trace)
    assert said in maps.warning
    assert [group.kind for group in mixers_of(maps)[0].groups] == ["recurrence"]
    assert said in aw.attention_norm(trace).warning
    for name in ("rollout", "attention_flow", "globenc", "decompx", "alti_logit", "direct_logit_attribution"):
        with pytest.raises(
            UnsupportedModelError, match=r"\(token shift\) mix tokens is not recorded(?!: partial)"
        ):
            getattr(aw, name)(trace)
    # The shift is there: the token before changes the output of a feed-forward layer.
    layer = trace.model.rwkv.blocks[1].feed_forward
    states = torch.randn(1, 4, trace.model.config.hidden_size, generator=torch.Generator().manual_seed(0))
    with no_grad():
        before = layer(states)[0]
        states[:, 1] = 0
        change = (layer(states)[0] - before).abs().amax(-1)[0] > 1e-6
    assert change.tolist() == [False, True, True, False]


# Differential attention


def differential() -> tuple[Trace, Any, dict[str, torch.Tensor]]:
    """A trace of DiffLlama, its last attention, and the inputs and outputs of that module and its parts."""
    model = copy.deepcopy(tiny("diffllama"))
    for block in model.model.layers:
        block.self_attn.q_proj.weight.data *= 10  # softmaxes so sharp that differences are negative
    trace = aw.trace(model, None, input_ids=IDS)
    module = trace.model.model.layers[1].self_attn
    seen: dict[str, torch.Tensor] = {}
    hooks = [
        module.v_proj.register_forward_hook(lambda _, __, output: seen.update(values=output[0])),
        module.groupnorm.register_forward_pre_hook(lambda _, given: seen.update(mixed=given[0][0])),
        module.groupnorm.register_forward_hook(lambda _, __, output: seen.update(normed=output[0])),
        module.register_forward_hook(lambda _, __, output: seen.update(output=output[0][0])),
    ]
    with no_grad():
        trace.model(trace.inputs["input_ids"], use_cache=False)
    for hook in hooks:
        hook.remove()
    return trace, module, seen


def subtracted(trace: Trace, module: Any) -> torch.Tensor:
    """Return softmax_1 - lambda softmax_2 [head, query, key], by the paper's equations 1 and 2."""
    first, second = (
        (getattr(module, f"lambda_q{i}") * getattr(module, f"lambda_k{i}")).sum().exp() for i in (1, 2)
    )
    factor = (first - second + module.lambda_init).detach()
    first_half, second_half = trace.attention_layer(1).chunk(2)
    return first_half - factor * second_half


def doubled(module: Any, seen: dict[str, torch.Tensor]) -> torch.Tensor:
    """Return the values that a pair of heads reads [head, key, 2 dim]: of a key head from each half."""
    values = seen["values"].unflatten(-1, (-1, module.head_dim)).transpose(0, 1)
    return torch.cat(values.chunk(2), -1).repeat_interleave(module.num_key_value_groups, 0)


def test_heads_of_differential_attention_are_the_differences_that_the_model_uses() -> None:
    trace, module, seen = differential()
    maps = aw.mixing(trace, "kernel")
    weights = torch.from_numpy(maps.layer(1).copy())
    assert weights.shape == (2, len(IDS), len(IDS))
    assert bool((weights < 0).any())
    torch.testing.assert_close(weights, subtracted(trace, module), atol=1e-6, rtol=0, check_dtype=False)
    mixed = weights.float() @ doubled(module, seen)
    torch.testing.assert_close(mixed.transpose(0, 1), seen["mixed"], atol=1e-6, rtol=0)
    for refused in (aw.statistics.entropy, aw.statistics.head_statistics, aw.statistics.first_token):
        with pytest.raises(ValueError, match="needs shares, but kernel has negative values"):
            refused(maps)
    with pytest.raises(ValueError, match="signed map"):
        aw.rollout(maps)
    # Attention is that of the softmaxes, and says so; measures of the differences do not.
    assert "subtracts those of one half" in aw.attention(trace).warning
    assert "subtracts" not in maps.warning
    ((*group, why),) = maps.provenance["mixers"]["1"]
    assert group == ["differential attention", 2, 0]
    assert "difference of two heads" in why


@pytest.mark.parametrize("length", [1, 2, 13])
def test_what_differential_attention_adds_is_its_output(length: int) -> None:
    trace = aw.trace(tiny("diffllama"), None, input_ids=IDS[:length])
    blocks = trace.stack_table["self"].mixing
    assert sorted(blocks) == [*range(len(tiny("diffllama").model.layers))]
    assert max(mix.error() for block in blocks.values() for mix in block.mixes) < 1e-6


def test_norms_and_value_zeroing_of_differential_attention_are_by_the_differences() -> None:
    trace, module, seen = differential()
    # The norm after the difference, with a fixed deviation, and its factor of 1 - lambda_init.
    row = seen["normed"] / seen["mixed"] * (1 - module.lambda_init)  # [query, head, channel]
    inner = (
        subtracted(trace, module)[..., None] * doubled(module, seen)[:, None]
    )  # [head, query, key, channel]
    inner = inner * row.transpose(0, 1)[:, :, None]
    vectors = inner.permute(1, 2, 0, 3).flatten(2) @ module.o_proj.weight.detach().T
    torch.testing.assert_close(vectors.sum(1), seen["output"], atol=1e-5, rtol=1e-4)
    norms = aw.attention_norm(trace, "attn").layer(1)
    np.testing.assert_allclose(norms, vectors.norm(dim=-1), atol=1e-6, rtol=1e-4)
    # ALTI: how near x_i + F_ij comes to their sum, by the L1 distance (Ferrando et al. 2022, equation 9).
    hidden = trace.stack_table["self"].mixing[1].hidden[0]
    total = hidden + vectors.sum(1)
    vectors[range(len(IDS)), range(len(IDS))] += hidden
    near = (total.abs().sum(-1, keepdim=True) - (total[:, None] - vectors).abs().sum(-1)).clamp(0)
    near /= near.sum(-1, keepdim=True)
    np.testing.assert_allclose(aw.alti(trace).layer(1), near, atol=1e-5)
    block = trace.model.model.layers[1]
    states: list[torch.Tensor] = []

    def zero(_: Any, __: Any, values: torch.Tensor) -> torch.Tensor:
        values = values.clone()
        values[:, 3] = 0
        return values

    for hooks in ((), (zero,)):
        handles = [module.v_proj.register_forward_hook(hook) for hook in hooks]
        handles.append(block.register_forward_hook(lambda _, __, output: states.append(output)))
        with no_grad():
            trace.model(trace.inputs["input_ids"], use_cache=False)
        for handle in handles:
            handle.remove()
    change = 1 - torch.nn.functional.cosine_similarity(*states, dim=-1)[0]
    np.testing.assert_allclose(aw.value_zeroing(trace, normalize=False).layer(1)[:, 3], change, atol=1e-6)
