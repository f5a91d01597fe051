"""Heads of kernels without a softmax, set to zero: against hooks by hand, in generation, and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build

IDS = torch.tensor([21, 34, 55, 47, 90, 63, 21, 30, 44, 70, 12])
# By type: a layer whose kernel has heads, and the module before whose input a head can be zeroed by hand.
WHERE = {
    "mamba2": (1, "backbone.layers.1.mixer.norm"),
    "nemotron_h": (3, "model.layers.3.mixer.norm"),
    "qwen3_5_text": (1, "model.layers.1.linear_attn.out_proj"),
    "kimi_linear": (2, "model.layers.2.self_attn.o_proj"),
    "minimax": (1, "model.layers.1.self_attn.norm"),
    "xlstm": (1, "backbone.blocks.1.mlstm_layer.out_proj"),
}


def traced(name: str) -> Any:
    return aw.trace(build(Kind(name, "causal")), None, IDS)


def zeroing(head: int, count: int) -> Any:
    def hook(_: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        by_head = args[0].clone().unflatten(-1, (count, -1))
        by_head[..., head, :] = 0
        return (by_head.flatten(-2), *args[1:])

    return hook


@pytest.mark.parametrize("name", WHERE)
def test_a_head_is_zero_before_the_gate_and_the_norm(name: str) -> None:
    trace = traced(name)
    layer, path = WHERE[name]
    with aw.ablate_heads(trace, {layer: [2]}), torch.no_grad():
        ablated = trace.model(IDS[None], use_cache=False).logits
    with torch.no_grad():
        plain = trace.model(IDS[None], use_cache=False).logits
        hook = trace.model.get_submodule(path).register_forward_pre_hook(zeroing(2, 4))
        by_hand = trace.model(IDS[None], use_cache=False).logits
        hook.remove()
    torch.testing.assert_close(ablated, by_hand, rtol=1e-5, atol=1e-6)
    assert (ablated - plain).abs().max() > 1e-3
    torch.testing.assert_close(plain, torch.tensor(trace.logits)[None], rtol=1e-5, atol=1e-5)


def test_a_trace_says_so_and_its_map_of_the_head_is_empty() -> None:
    trace = traced("qwen3_5_text")
    ablated = trace.rerun(aw.ablate_heads(trace, {1: [2], 3: [0]}))
    assert ablated.interventions == ("head 2 of layer 1 and head 0 of layer 3 set to zero",)
    with aw.ablate_heads(trace, {1: [2], 3: [0]}), torch.no_grad():
        logits = trace.model(IDS[None], use_cache=False).logits[0]
        by_head = aw.mixing(ablated).layer(1)
    assert aw.mixing(trace.rerun()).layers == aw.mixing(trace).layers
    torch.testing.assert_close(torch.as_tensor(ablated.logits), logits, rtol=1e-5, atol=1e-5)
    assert not by_head[2].any()
    assert by_head[[0, 1, 3]].any(axis=(1, 2)).all()


def test_a_model_that_never_attends_runs_again_without_a_head() -> None:
    trace = traced("mamba2")
    ablated = trace.rerun(aw.ablate_heads(trace, {1: [2]}))
    assert ablated.interventions == ("head 2 of layer 1 set to zero",)
    with aw.ablate_heads(trace, {1: [2]}):
        inside = aw.trace(trace.model, None, IDS)
        assert not aw.mixing(inside).layer(1)[2].any()
    assert inside.interventions == ablated.interventions
    torch.testing.assert_close(inside.logits, ablated.logits, rtol=0, atol=0)
    assert (ablated.logits - trace.logits).abs().max() > 1e-3
    with pytest.raises(ValueError, match="head 2 of layer 1"):
        aw.lrp(ablated, 3)


@pytest.mark.parametrize("name", ["mamba2", "qwen3_5_text", "kimi_linear", "bamba"])
def test_heads_stay_zero_in_generation(name: str) -> None:
    trace = traced(name)
    model = trace.model
    layer = next(block.number for block in trace.anatomy.stacks["self"] if block.without_attention)
    options = {
        "max_new_tokens": 4,
        "do_sample": False,
        "output_logits": True,
        "return_dict_in_generate": True,
    }
    with aw.ablate_heads(trace, {layer: "all"}), torch.no_grad():
        steps = model.generate(IDS[None], use_cache=True, **options)
        whole = model(steps.sequences, use_cache=False).logits[0]
    generated = torch.stack(steps.logits)[:, 0]
    torch.testing.assert_close(generated, whole[len(IDS) - 1 : -1], rtol=1e-3, atol=1e-4)
    with torch.no_grad():
        plain = model(steps.sequences, use_cache=False).logits[0]
    assert (plain[len(IDS) - 1 : -1] - generated).abs().max() > 1e-2


@pytest.mark.parametrize(("name", "layer"), [("mamba", 0), ("recurrent_gemma", 0), ("lfm3", 1)])
def test_channels_have_no_heads(name: str, layer: int) -> None:
    trace = traced(name)
    with pytest.raises(UnsupportedModelError, match=rf"layer {layer} has no heads: .* channel by channel"):
        aw.ablate_heads(trace, {layer: [0]})


def test_what_cannot_be_is_refused() -> None:
    trace = traced("mamba2")
    with pytest.raises(IndexError, match="4"):
        aw.ablate_heads(trace, {1: [4]})
    with pytest.raises(UnsupportedModelError, match="use how='zero'"):
        aw.ablate_heads(trace, {1: [0]}, "mean", reference=trace)


def test_a_layer_that_does_not_run_is_an_error(monkeypatch: Any) -> None:
    trace = traced("mamba2")
    mixer = trace.model.backbone.layers[1].mixer
    with aw.ablate_heads(trace, {1: [0]}):
        monkeypatch.setattr(mixer, "forward", lambda states, *_, **__: states)
        with pytest.raises(ValueError, match="did not run layer 1"):
            trace.model(IDS[None], use_cache=False)


def test_a_pass_that_fails_leaves_nothing_behind(monkeypatch: Any) -> None:
    trace = traced("mamba2")
    norm = trace.model.backbone.layers[1].mixer.norm
    with torch.no_grad():
        plain = trace.model(IDS[None], use_cache=False).logits
        with aw.ablate_heads(trace, {1: [0]}):
            monkeypatch.setattr(norm, "forward", lambda *_: 1 / 0)
            with pytest.raises(ZeroDivisionError):
                trace.model(IDS[None], use_cache=False)
            monkeypatch.undo()
        torch.testing.assert_close(trace.model(IDS[None], use_cache=False).logits, plain, rtol=0, atol=0)


def test_other_interventions_go_together_with_those_of_kernels() -> None:
    trace = traced("qwen3_5_text")
    with torch.no_grad():
        with aw.ablate_heads(trace, {1: [2]}) as first, aw.ablate_heads(trace, {1: [0]}):
            assert len(aw.interventions(trace)) == 2
            both = trace.model(IDS[None], use_cache=False).logits
        with aw.ablate_heads(trace, {1: [0, 2]}):
            together = trace.model(IDS[None], use_cache=False).logits
        with first:
            again = trace.model(IDS[None], use_cache=False).logits
    torch.testing.assert_close(both, together)
    assert (again - both).abs().max() > 1e-4


def test_a_block_that_attends_as_well_counts_its_kernel_s_heads_on() -> None:
    """As its maps do: in Falcon-H1 heads 0 to 3 are of attention, 4 to 7 of its scan."""
    trace = traced("falcon_h1")
    modules = {2: ("model.layers.1.self_attn.o_proj", 2), 6: ("model.layers.1.mamba.out_proj", 2)}
    plain = aw.mixing(trace, "norm").layer(1)
    for number, (path, head) in modules.items():
        ablated = trace.rerun(aw.ablate_heads(trace, {1: [number]}))
        hook = trace.model.get_submodule(path).register_forward_pre_hook(zeroing(head, 4))
        with torch.no_grad():
            by_hand = trace.model(IDS[None], use_cache=False).logits[0]
        hook.remove()
        torch.testing.assert_close(ablated.logits, by_hand, rtol=1e-5, atol=1e-6)
        with aw.ablate_heads(trace, {1: [number]}):
            left = aw.mixing(ablated, "norm").layer(1)
        assert not left[number].any()
        assert plain[number].any()
    both = trace.rerun(aw.ablate_heads(trace, {1: [2, 6]}))
    assert (both.logits - ablated.logits).abs().max() > 1e-4
    assert trace.rerun(aw.ablate_heads(trace, {1: "all"})).interventions == (
        "heads 0 to 7 of layer 1 set to zero",
    )
    with pytest.raises(IndexError, match="0 to 7"):
        aw.ablate_heads(trace, {1: [8]})


def test_heads_of_attention_keep_their_numbers_next_to_a_kernel_without_heads() -> None:
    trace = traced("zamba")
    assert trace.rerun(aw.ablate_heads(trace, {1: "all"})).interventions == (
        "heads 0 to 3 of layer 1 set to zero",
    )
    with pytest.raises(UnsupportedModelError, match=r"channel by channel .*, so that 4 is not a head"):
        aw.ablate_heads(trace, {1: [4]})
