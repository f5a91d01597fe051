"""Blocks are numbered as in the model, and unrecorded mixers in them are named with the numbers."""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf
from transformers.modeling_outputs import MaskedLMOutput

import attnwidgets as aw
from attnwidgets.tracing.anatomy.blocks import Anatomy, Block, Mixer, left_out
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.models.build import Kind, build
from tests.tracing import tiny
from tests.tracing.families import IDS

if TYPE_CHECKING:
    from collections.abc import Callable

    from attnwidgets.tracing.trace import Trace

SIZES = {"vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
SIZES |= {"num_key_value_heads": 2, "head_dim": 8}
DELTA = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
DELTA |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}


def qwen3_next() -> Any:
    kinds = ["linear_attention", "full_attention"] * 2
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return hf.Qwen3NextForCausalLM(
        hf.Qwen3NextConfig(
            **SIZES,
            **DELTA,
            **experts,
            shared_expert_intermediate_size=16,
            num_hidden_layers=4,
            layer_types=kinds,
        )
    )


def falcon_h1() -> Any:
    mamba = {"mamba_n_heads": 4, "mamba_d_head": 16, "mamba_d_ssm": 64, "mamba_d_state": 8}
    return hf.FalconH1ForCausalLM(
        hf.FalconH1Config(**SIZES, **mamba, mamba_n_groups=1, mamba_chunk_size=8, num_hidden_layers=2)
    )


def bart_decoder() -> Any:
    sizes = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
    return hf.BartForCausalLM(
        hf.BartConfig(vocab_size=120, **sizes, is_decoder=True, is_encoder_decoder=False)
    )


def diffllama() -> Any:
    return tiny._plain("DiffLlama", "ForCausalLM", **tiny.GQA)


def olmo_hybrid() -> Any:
    return build(Kind("olmo_hybrid", "causal"))


def albert() -> Any:
    return tiny.TEXT["ALBERT"]()


def longt5() -> Any:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 2, "num_decoder_layers": 2, "num_heads": 4}
    return hf.LongT5ForConditionalGeneration(hf.LongT5Config(vocab_size=120, **sizes))


def traced(make: Callable[[], Any]) -> Trace:
    model = tiny.build(make)
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    return aw.trace(model, None, input_ids=IDS)


@pytest.mark.parametrize(
    ("make", "printed"),
    [
        (
            qwen3_next,
            "self: 4 blocks: 0, 2 gated delta rule (4 heads); 1, 3 attention (4 heads on 2 of keys)",
        ),
        (falcon_h1, "self: 2 blocks: 0 to 1 attention (4 heads on 2 of keys) and state space (4 heads)"),
        (
            olmo_hybrid,
            "self: 4 blocks: 0 to 2 gated delta rule (4 heads); 3 attention (4 heads on 2 of keys)",
        ),
        (bart_decoder, "self: 2 blocks: 0 to 1 attention (4 heads)"),
        (diffllama, "self: 2 blocks: 0 to 1 differential attention (4 heads on 2 of keys)"),
        (albert, "self: 3 blocks: 0 to 2 attention (4 heads)"),
        (
            longt5,
            (
                "decoder: 2 blocks: 0 to 1 attention (4 heads) and cross-attention (4 heads)\n"
                "cross: 2 blocks: 0 to 1 cross-attention (4 heads)\n"
                "encoder.block: 2 blocks: 0 to 1 attention"
            ),
        ),
    ],
)
def test_every_block_is_named_with_what_mixes_tokens_in_it(make: Callable[[], Any], printed: str) -> None:
    lines = repr(traced(make).anatomy).splitlines()
    assert "\n".join(line for line in lines if not line.startswith(" ")) == printed


def test_a_trace_of_given_numbers_has_a_block_a_layer() -> None:
    result = aw.from_attentions(torch.full((2, 3, 2, 2), 0.5), ["a", "b"])
    assert result.layers() == (0, 1)
    assert repr(result.anatomy) == ("self: 2 blocks: 0 to 1 attention (3 heads)\n  positions: tokens 0 to 1")
    assert result.left_out() == ""


def test_layers_have_the_numbers_of_their_blocks() -> None:
    result = traced(qwen3_next)
    assert (result.layers(), result.n_layers()) == ((1, 3), 2)
    eager = tiny.build(qwen3_next, implementation="eager")
    eager.load_state_dict(result.model.state_dict())
    with torch.no_grad():
        weights = eager(torch.tensor([IDS]), output_attentions=True).attentions
    of_blocks = [layer for layer in weights if layer is not None]
    for number, expected in zip((1, 3), of_blocks, strict=True):
        torch.testing.assert_close(result.attention_layer(number), expected[0], atol=1e-6, rtol=1e-5)
    assert bool((result.attention_layer(-1) == result.attention_layer(3)).all())
    assert [seen.shape for _, seen in result.attention_blocks(3)] == [(4, len(IDS), len(IDS))]
    message = (
        r"layer 2 is out of range: stack 'self' has layers 1, 3; block 2 has no attention .* gated delta"
    )
    with pytest.raises(IndexError, match=message):
        result.attention_layer(2)
    with pytest.raises(IndexError, match=r"layer 4 is out of range: stack 'self' has layers 1, 3$"):
        result.attention_layer(4)


def test_every_method_that_serves_a_hybrid_numbers_its_layers_so() -> None:
    result = traced(qwen3_next)
    measures = ("attention", "signed_attention")
    assert {name: getattr(aw, name)(result).layers for name in measures} == dict.fromkeys(measures, (1, 3))
    assert aw.statistics.head_importance(result).layers == (1, 3)
    assert aw.hidden_token_attribution(result, scope="local").layers == (1, 3)
    assert aw.rollout(result, partial=True).layers == (1, 3)
    assert aw.rollout(result, partial=True, start_layer=-1).layers == (3,)
    assert aw.rollout(result, partial=True, start_layer=2).layers == (3,)
    assert aw.value_zeroing(result).layers == (0, 1, 2, 3)
    zeroed = aw.value_zeroing(result, layers=3)
    assert zeroed.layers == (3,)
    assert bool((zeroed.layer(3) == aw.value_zeroing(result).layer(3)).all())


@pytest.mark.parametrize("by_model", [False, True])
def test_a_head_is_ablated_in_the_block_that_is_named(by_model: bool) -> None:
    result = traced(qwen3_next)
    projection = result.model.model.layers[3].self_attn.o_proj
    handle = projection.register_forward_pre_hook(lambda _, given: (torch.zeros_like(given[0]),))
    with torch.no_grad():
        expected = result.model(torch.tensor([IDS])).logits[0]
    handle.remove()
    changed = result.rerun(aw.ablate_heads(result.model if by_model else result, {3: "all"}))
    torch.testing.assert_close(changed.logits, expected, atol=1e-5, rtol=1e-4)
    assert changed.layers() == (1, 3)
    with pytest.raises(UnsupportedModelError, match=r"those of layer 0 \(gated delta rule\) are signed"):
        aw.edit_attention(result, (0, 1))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (qwen3_next, "blocks 0, 2 (gated delta rule) mix tokens without attention"),
        (falcon_h1, "blocks 0 to 1 (state space next to attention) mix tokens without attention"),
    ],
)
def test_what_attention_leaves_out_is_said_and_not_multiplied(make: Callable[[], Any], said: str) -> None:
    result = traced(make)
    assert said in result.warning
    assert said in repr(result)
    assert said in aw.attention(result).warning
    followed = {
        "rollout of attention": lambda: aw.rollout(aw.attention(result)),
        "chefer": lambda: aw.chefer(result),
    }
    for call in followed.values():
        with pytest.raises(ValueError, match=r"without attention|no description fits|are recorded"):
            call()
    assert said in aw.rollout(result, partial=True).warning
    assert said in aw.attention_flow(result, partial=True).warning
    assert aw.rollout(aw.value_zeroing(result), residual=None).layers == result.mixing_layers()
    refused = {entry.name for entry in aw.methods(result) if entry.refusal(result)}
    assert "chefer" in refused
    followed_too = {"rollout", "attention_flow", "alti", "globenc", "attention_norm", "value_zeroing"}
    assert not (followed_too | {"alti_logit", "decompx"}) & refused


def test_what_no_map_shows_is_left_out_by_name() -> None:
    blocks = (
        Block(0, "", (Mixer("pooling"),), is_recorded=False),
        Block(1, "", (Mixer("attention", stack="self", heads=2),)),
        Block(2, "", (Mixer("state space", is_measured=True),), is_recorded=False),
    )
    unknown = "how block 0 (pooling) mixes tokens is not recorded"
    assert left_out(blocks, "self", attention=False) == unknown
    assert left_out(blocks, "self").startswith(f"{unknown}, and block 2 (state space) mixes tokens without")
    assert left_out(blocks[1:2], "self") == ""


def test_methods_that_read_the_states_of_every_block_refuse_a_hybrid_by_name() -> None:
    result = traced(qwen3_next)
    other = aw.trace(result.model, None, input_ids=[*IDS[:-1], 7])
    with pytest.raises(UnsupportedModelError, match=r"only those that attend are recorded \(1, 3\)"):
        aw.circuits.patch(result, other)
    with pytest.raises(UnsupportedModelError, match=r"block 0 \(gated delta rule\) does not attend"):
        aw.hidden_token_attribution(result)


def test_derivatives_of_whole_blocks_are_followed_where_every_block_attends() -> None:
    assert aw.hidden_token_attribution(traced(falcon_h1)).layers == (0, 1)


def test_an_encoder_that_is_not_recorded_is_named() -> None:
    assert (
        "how blocks 0 to 1 (attention) of 'encoder.block' mix tokens is not recorded"
        in traced(longt5).warning
    )


def test_a_map_of_which_two_parts_are_mixed_is_one_layer() -> None:
    result = traced(diffllama)
    assert result.layers() == (0, 1)
    assert "subtracts those of one half of the heads" in result.warning
    module = result.model.model.layers[1].self_attn
    handle = module.o_proj.register_forward_pre_hook(lambda _, given: (torch.zeros_like(given[0]),))
    with torch.no_grad():
        expected = result.model(torch.tensor([IDS])).logits[0]
    handle.remove()
    changed = result.rerun(aw.ablate_heads(result, {1: "all"}))
    torch.testing.assert_close(changed.logits, expected, atol=1e-5, rtol=1e-4)


def test_gradients_by_a_map_of_which_two_parts_are_mixed_are_those_of_both() -> None:
    result = traced(diffllama)
    signed = aw.signed_attention(result, of="score").layer(1)
    weights = result.attention_layer(1).double().numpy()
    target = result.predictions(1)[0].id
    uniform = np.tril(np.ones(weights.shape[1:])) / np.arange(1, weights.shape[1] + 1)[:, None]
    step = 1e-3
    for head in range(2):
        # From the weights towards equal weights, a little forth and back.
        towards = uniform - weights[head]
        gradient = np.divide(signed[head], weights[head], out=np.zeros_like(uniform), where=weights[head] > 0)
        ends = [
            result.rerun(aw.edit_attention(result, (1, head), weights[head] + sign * step * towards)).logits
            for sign in (1, -1)
        ]
        slope = float(ends[0][-1, target] - ends[1][-1, target]) / (2 * step)
        assert slope == pytest.approx(float((gradient * towards).sum()), abs=2e-3, rel=0.02)


def test_an_anatomy_travels_with_its_trace() -> None:
    result = traced(qwen3_next)
    again = pickle.loads(pickle.dumps(result))
    assert repr(again.anatomy) == repr(result.anatomy)
    assert again.layers() == (1, 3)


def test_a_block_without_anything_that_mixes_is_said_to_mix_nothing() -> None:
    anatomy = Anatomy(
        {"self": (Block(0, "", (Mixer("unknown"),), is_recorded=False), Block(1, "", (), is_recorded=False))}
    )
    assert repr(anatomy) == "self: 2 blocks: 0 unknown; 1 no mixing"
    assert anatomy.unrecorded == {"self": anatomy.stacks["self"][:1]}


class InWindows(hf.LongformerForMaskedLM):
    """Returns weights in windows, without saying so."""

    def forward(self, input_ids: Any, attention_mask: Any = None, **options: Any) -> Any:
        output = super().forward(input_ids, attention_mask, **options)
        return MaskedLMOutput(logits=output.logits, attentions=output.attentions)


def test_columns_that_are_no_tokens_of_the_text_are_not_named_after_them() -> None:
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    result = traced(
        lambda: InWindows(
            hf.LongformerConfig(vocab_size=120, **sizes, attention_window=[8, 8], max_position_embeddings=66)
        )
    )
    queries, keys = result.axes()
    assert (len(queries), keys.tokens) == (len(IDS), tuple(map(str, range(9))))
    assert "the 9 places of stack 'self' are numbered: which of them are tokens of the text" in result.warning
    with pytest.raises(ValueError, match="goes from one sequence to another"):
        aw.rollout(result)


def test_a_decoder_that_reads_its_own_tokens_and_the_encoders_names_both() -> None:
    shared = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
    shared |= {"vocab_size": 120, "hidden_size": 32, "intermediate_size": 48}
    shared |= {"layer_types": ["full_attention"] * 2}
    vision = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1, "num_attention_heads": 4}
    vision |= {"image_size": 28, "patch_size": 14}
    config = hf.T5Gemma2Config(
        encoder={"text_config": shared, "vision_config": vision}, decoder=shared, vocab_size=120
    )
    model = tiny.build(lambda: hf.T5Gemma2ForConditionalGeneration(config))
    result = aw.trace(model, None, input_ids=IDS, target_text=None)
    keys = result.axes("decoder")[1].tokens
    assert keys[-len(IDS) :] == result.axes("encoder")[0].tokens
    assert len(keys) == len(IDS) + 1


def mamba() -> Any:
    sizes = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    return hf.MambaForCausalLM(hf.MambaConfig(**sizes))


def mamba2() -> Any:
    sizes = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 8}
    sizes |= {"num_heads": 4, "head_dim": 16, "n_groups": 1}
    return hf.Mamba2ForCausalLM(hf.Mamba2Config(**sizes))


@pytest.mark.parametrize("make", [mamba, mamba2])
def test_a_text_is_traced_by_a_model_that_never_attends(make: Callable[[], Any]) -> None:
    kind = "state space"
    model = tiny.build(make)
    traces = aw.trace(model, None, input_ids=[IDS, IDS[::-1]])
    for trace, ids in zip(traces, (IDS, IDS[::-1]), strict=True):
        with torch.no_grad():
            expected = model(torch.tensor([ids])).logits[0]
        torch.testing.assert_close(trace.logits, expected, atol=1e-5, rtol=1e-4)
        assert trace.predictions(1)[0].id == int(expected[-1].argmax())
        assert repr(trace.anatomy).startswith(f"self: 2 blocks: 0 to 1 {kind}")
        assert trace.no_attention == f"{type(model).__name__} mixes tokens by {kind}"
    leaf = model.get_input_embeddings()(torch.tensor([IDS])).detach().requires_grad_()
    target = traces[0].predictions(1)[0].id
    model(inputs_embeds=leaf).logits[0, -1, target].backward()
    assert leaf.grad is not None
    expected_product = (leaf * leaf.grad).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(aw.input_x_gradient(traces[0]).values, expected_product, atol=1e-5)
    assert aw.occlusion(traces[0], baseline="zero").shape == (len(IDS),)
    with pytest.raises(UnsupportedModelError, match=f"there is none: .* mixes tokens by {kind}"):
        aw.attention(traces[0])
    assert not aw.methods(traces[0])["saliency"].refusal(traces[0])


def small(config: Any) -> Any:
    sizes = {"vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    return config(**sizes, num_attention_heads=4, max_position_embeddings=66, pad_token_id=0)


def test_a_text_is_explained_where_no_attention_can_be_seen() -> None:
    """YOSO's attention has no softmax, and its weights are no distribution; its gradients are custom."""
    model = tiny.build(lambda: hf.YosoForSequenceClassification(small(hf.YosoConfig)))
    trace = aw.trace(model, None, input_ids=IDS)
    assert repr(trace.anatomy).startswith("self: 2 blocks: 0 to 1 attention\n")
    assert "how blocks 0 to 1 (attention) mix tokens is not recorded" in trace.warning
    assert "the attention that it returns is not weights" in trace.no_attention
    for refused in (aw.attention, aw.rollout, aw.value_zeroing, lambda shown: aw.ablate_heads(shown, (0, 1))):
        with pytest.raises((UnsupportedModelError, ValueError), match="it returns is not weights"):
            refused(trace)
    leaf = model.get_input_embeddings()(torch.tensor([IDS])).detach().requires_grad_()
    logits = model(inputs_embeds=leaf).logits[0]
    torch.testing.assert_close(trace.logits, logits.detach())
    logits[int(logits.argmax())].backward()
    assert leaf.grad is not None
    expected = (leaf * leaf.grad).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(np.ravel(aw.input_x_gradient(trace).values), expected, atol=1e-6)
    assert aw.occlusion(trace, baseline="zero").shape == (len(IDS),)
    torch.testing.assert_close(trace.rerun().logits, trace.logits)


def test_windows_are_explained_where_the_text_fills_them() -> None:
    """Longformer pads texts to a multiple of its window: other texts than such are refused in words."""
    config = small(hf.LongformerConfig)
    config.attention_window = [4, 4]
    model = tiny.build(lambda: hf.LongformerForSequenceClassification(config))
    ids = [*IDS, *IDS][:8]
    trace = aw.trace(model, None, input_ids=ids)
    embed = model.get_input_embeddings()
    leaf = embed(torch.tensor([ids])).detach().requires_grad_()
    handle = embed.register_forward_hook(lambda *_: leaf)
    logits = model(torch.tensor([ids])).logits[0]
    handle.remove()
    logits[int(logits.argmax())].backward()
    assert leaf.grad is not None
    expected = (leaf * leaf.grad).sum(-1)[0].detach().numpy()
    np.testing.assert_allclose(np.ravel(aw.input_x_gradient(trace).values), expected, atol=1e-6)
    shorter = aw.trace(model, None, input_ids=ids[:7])
    for method in (aw.input_x_gradient, aw.lrp):
        with pytest.raises(UnsupportedModelError, match=r"8 vectors for 7 tokens.*\(a text of 8 tokens is"):
            method(shorter)


def test_attention_whose_kernels_are_missing_is_refused() -> None:
    """Without its CUDA kernels MRA returns zeros: a model in which no token reads another."""
    if torch.cuda.is_available():
        pytest.skip("the kernels of MRA may be here")
    with pytest.raises(UnsupportedModelError, match="return zeros, so that no token reads another"):
        aw.trace(
            tiny.build(lambda: hf.MraForSequenceClassification(small(hf.MraConfig))), None, input_ids=IDS
        )


def test_a_feed_forward_part_mixes_nothing_whatever_its_model_is_called() -> None:
    sizes = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_blocks": 2, "num_heads": 4}
    trace = aw.trace(tiny.build(lambda: hf.xLSTMForCausalLM(hf.xLSTMConfig(**sizes))), None, input_ids=IDS)
    assert repr(trace.anatomy).startswith("self: 2 blocks: 0 to 1 recurrence (4 heads)\n")
    assert not trace.warning
    np.testing.assert_allclose(aw.rollout(trace).layer(-1).sum(axis=-1), 1, atol=1e-5)


def test_a_model_that_attends_in_its_own_way_is_still_refused() -> None:
    with pytest.raises(UnsupportedModelError, match="cannot be traced"):
        aw.trace(tiny.build(lambda: hf.FunnelForMaskedLM(funnel())), None, input_ids=IDS)


def funnel() -> Any:
    return hf.FunnelConfig(
        vocab_size=120, block_sizes=[1, 1], d_model=32, n_head=4, d_head=8, d_inner=48, num_decoder_layers=1
    )


def gemma4() -> Any:
    shapes = {"hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2}
    config = hf.Gemma4TextConfig(
        **shapes,
        vocab_size=120,
        vocab_size_per_layer_input=120,
        hidden_size_per_layer_input=8,
        head_dim=8,
        global_head_dim=8,
        num_hidden_layers=4,
        layer_types=["sliding_attention", "full_attention"] * 2,
        num_kv_shared_layers=2,
        sliding_window=4,
        pad_token_id=0,
    )
    return hf.Gemma4ForCausalLM(config)


def test_blocks_that_read_the_keys_of_others_are_called_again_with_them() -> None:
    model = tiny.build(gemma4)
    trace = aw.trace(model, None, input_ids=IDS)
    block, outputs = model.model.layers[2], []

    def without(key: int | None) -> torch.Tensor:
        def edit(_: Any, args: Any, kwargs: Any) -> Any:
            shared = dict(kwargs["shared_kv_states"])
            keys, values = shared["sliding_attention"]
            values = values.clone()
            if key is not None:
                values[:, :, key] = 0
            return args, {**kwargs, "shared_kv_states": shared | {"sliding_attention": (keys, values)}}

        handles = [
            block.register_forward_pre_hook(edit, with_kwargs=True),
            block.register_forward_hook(lambda *given: outputs.append(given[-1])),
        ]
        with torch.no_grad():
            model(torch.tensor([IDS]))
        for handle in handles:
            handle.remove()
        return outputs.pop()[0]

    clean = without(None)
    changed = torch.stack([without(key) for key in range(len(IDS))], -1)
    distances = 1 - torch.cosine_similarity(clean[..., None], changed, dim=1)
    expected = (distances / distances.sum(-1, keepdim=True)).numpy()
    np.testing.assert_allclose(np.asarray(aw.value_zeroing(trace).layer(2)), expected, atol=1e-4)

    importance = aw.statistics.head_importance(trace, trace.predictions(1)[0].id)
    for layer in range(4):
        with aw.ablate_heads(model, [(layer, 1)]):
            ablated = aw.trace(model, None, input_ids=IDS)
        change = trace.logits[-1, trace.predictions(1)[0].id] - ablated.logits[-1, trace.predictions(1)[0].id]
        assert importance["removal"][layer, 1] == pytest.approx(float(change), abs=1e-4)


def test_configs_with_numbered_keys_and_with_sizes_by_layer_are_read() -> None:
    # Aria maps its numbers of patches; heads of Dots3 vary by layer, so its config has no single number.
    config = hf.LlamaConfig(**SIZES, num_hidden_layers=2)
    config.per_layer_config = {1: {"num_attention_heads": 2}}
    config.patches = {64: 128}
    model = tiny.build(lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**SIZES, num_hidden_layers=2)))
    plain = aw.trace(model, None, input_ids=IDS)
    model.config = config
    with pytest.raises(Exception, match="num_attention_heads"):
        _ = config.num_attention_heads
    with aw.ablate_heads(model, [(0, 1)]):
        ablated = aw.trace(model, None, input_ids=IDS)
    assert not torch.allclose(ablated.logits, plain.logits)
