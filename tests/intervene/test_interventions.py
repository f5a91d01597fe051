"""Interventions: against hooks written by hand, in every family, and in generate()."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import Any

import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.anatomy.attention_modules import sites
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.tracing.families import needs

from .made import IDS, logits, t5, text, vit

FAMILIES = ("BERT", "GPT-2", "Llama", "Gemma 2", "ALBERT", "OPT", "ModernBERT")
HOWS = ({"how": "zero"}, {"how": "mean"}, {"how": "resample"}, {"how": "patch"})


def traces() -> list[Any]:
    return [*(pytest.param(lambda n=n: text(n), id=n) for n in FAMILIES), pytest.param(t5, id="T5"),
            pytest.param(vit, id="ViT")]  # fmt: skip


@pytest.mark.parametrize("name", [*tiny.TEXT, *tiny.SEQ2SEQ])
def test_the_layers_found_without_running_are_those_that_a_trace_calls(name: str) -> None:
    needs("interface", name)
    seq2seq = name in tiny.SEQ2SEQ
    model = tiny.build((tiny.SEQ2SEQ if seq2seq else tiny.TEXT)[name])
    options = {"input_ids": IDS} if not seq2seq else {"text": "cat", "target_text": "cat"}
    trace = aw.trace(model, tiny.wordpiece() if seq2seq else None, **options)
    before, called = sites(model), sites(trace)
    names = [
        {stack: {layer: item.name for layer, item in layers.items()} for stack, layers in table.items()}
        for table in (before, called)
    ]
    assert names[0] == names[1]
    assert all(
        before[stack][layer].n_heads in (None, item.n_heads)
        for stack, layers in called.items()
        for layer, item in layers.items()
    )


@pytest.mark.parametrize("make", traces())
def test_what_changes_nothing_changes_nothing(make: Any) -> None:
    trace = make()
    stack = "cross" if "cross" in trace.stacks else trace.default_stack
    plain = logits(trace)
    # Gemma's attention sums its scores in float32.
    tolerance = 1e-6 if trace.model_id.startswith("Gemma") else 1e-12
    layer = trace.n_layers(stack) - 1
    neutral = [
        aw.ablate_heads(trace, {}),
        aw.ablate_heads(trace, {layer: []}, stack=stack),
        aw.ablate_heads(trace, {0: "all", layer: "all"}, "patch", reference=trace, stack=stack),
        aw.edit_attention(trace, {layer: "all"}, trace.attention_layer(layer, stack).double(), stack=stack),
        aw.drop_tokens(trace, [], stack=stack),
        aw.suppress(trace, [], stack=stack),
    ]
    for item in neutral:
        with item:
            assert float((logits(trace) - plain).abs().max()) < tolerance, item
    with ExitStack() as stack:
        for item in neutral:
            stack.enter_context(item)
        assert aw.interventions(trace) == tuple(neutral)
        assert float((logits(trace) - plain).abs().max()) < tolerance
    assert aw.interventions() == ()
    assert torch.equal(logits(trace), plain)


# The output projection of every attention that is removed, and how many heads write into it.
PROJECTIONS = {
    "BERT": "bert.encoder.layer.1.attention.output.dense",
    "GPT-2": "transformer.h.1.attn.c_proj",
    "Llama": "model.layers.1.self_attn.o_proj",
    "OPT": "model.decoder.layers.1.self_attn.out_proj",
    "ModernBERT": "model.layers.1.attn.Wo",
}


@pytest.mark.parametrize("name", PROJECTIONS)
def test_removed_heads_are_columns_of_zeros_before_the_projection(name: str) -> None:
    trace = text(name)
    n_heads = trace.n_heads(layer=1)
    removed = [0, n_heads - 1]
    module = trace.model.get_submodule(PROJECTIONS[name])

    def zeros(_: Any, args: tuple[torch.Tensor]) -> tuple[torch.Tensor]:
        parts = args[0].unflatten(-1, (n_heads, -1)).clone()
        parts[..., removed, :] = 0
        return (parts.flatten(-2),)

    handle = module.register_forward_pre_hook(zeros)
    expected = logits(trace)
    handle.remove()
    with aw.ablate_heads(trace.model, {1: removed}):
        result = logits(trace)
    torch.testing.assert_close(result, expected, atol=1e-12, rtol=0)
    assert float((result - logits(trace)).abs().max()) > 1e-6

    outputs = []
    handle = module.register_forward_hook(lambda *a: outputs.append(a[-1]))
    with aw.ablate_heads(trace.model, {1: "all"}):
        logits(trace)
    handle.remove()
    bias = module.bias if module.bias is not None else torch.zeros(())
    assert torch.equal(outputs[0], bias.expand_as(outputs[0])), "exactly the projection's bias"


def test_means_and_other_tokens_by_hand() -> None:
    trace, other = text("GPT-2"), None
    other = aw.trace(trace.model, None, input_ids=[9, 8, 7])
    module = trace.model.get_submodule(PROJECTIONS["GPT-2"])
    seen: list[torch.Tensor] = []
    handle = module.register_forward_pre_hook(lambda _, args: seen.append(args[0][0].unflatten(-1, (4, 8))))
    for item in (trace, other):
        logits(item)
    written = torch.cat(seen)
    seen.clear()
    mean = aw.ablate_heads(trace, (1, 2), "mean", reference=[trace, other])
    drawn = aw.ablate_heads(trace, {1: [1, 2]}, "resample", reference=[other])
    seen.clear()
    with mean:
        logits(trace)
    torch.testing.assert_close(seen[0][:, 2], written[:, 2].mean(0).expand(6, 8), atol=1e-12, rtol=0)
    torch.testing.assert_close(seen[0][:, [0, 1, 3]], written[:6, [0, 1, 3]], atol=1e-12, rtol=0)
    seen.clear()
    with drawn:
        logits(trace)
        logits(trace)
    handle.remove()
    assert torch.equal(seen[0], seen[1]), "the same draw every time"
    gaps = (seen[0][:, None, [1, 2]] - written[None, 6:, [1, 2]]).abs().flatten(2).amax(-1)
    assert float(gaps.amin(1).max()) < 1e-12, "each is the value of a token of the other text, in both heads"


def rewritten(change: Any) -> Any:
    """An attention function that computes by itself and lets `change` rewrite scores and weights."""

    def function(module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: Any = None, **_: Any):
        repeats = query.shape[1] // key.shape[1]
        key, value = (item.repeat_interleave(repeats, 1) for item in (key, value))
        scale = query.shape[-1] ** -0.5 if scaling is None else scaling
        scores = query @ key.transpose(2, 3) * scale + (0 if mask is None else mask)
        weights = change(module, scores)
        return (weights @ value).transpose(1, 2).contiguous(), weights

    return function


@contextmanager
def computed_by(model: Any, change: Any) -> Any:
    from transformers.masking_utils import AttentionMaskInterface, eager_mask

    hf.AttentionInterface.register("by_hand", rewritten(change))
    AttentionMaskInterface.register("by_hand", eager_mask)
    before = model.config._attn_implementation
    model.set_attn_implementation("by_hand")
    yield
    model.set_attn_implementation(before)


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama"])
def test_edits_of_rows_by_hand(name: str) -> None:
    trace = text(name)
    at_layer_1 = {id(item.module) for item in [sites(trace)["self"][1]]}

    def change(kind: str) -> Any:
        def rewrite(module: Any, scores: torch.Tensor) -> torch.Tensor:
            weights = scores.softmax(-1)
            if id(module) not in at_layer_1:
                return weights
            may = scores > -1e30
            if kind == "uniform":
                weights[:, 3] = (may[:, 0] / may[:, 0].sum(-1, keepdim=True)).to(weights)
            else:
                row = torch.zeros(6, dtype=weights.dtype)
                row[2] = 1
                weights[:, 3, 4:] = row
            return weights

        return rewrite

    for kind, options in (("uniform", {}), ("one_hot", {"key": 2, "query": [4, 5]})):
        with computed_by(trace.model, change(kind)):
            expected = logits(trace)
        with aw.edit_attention(trace, (1, 3), kind, **options):
            result = logits(trace)
        torch.testing.assert_close(result, expected, atol=1e-12, rtol=0)


def test_permuted_rows_hold_the_same_weights_where_they_may() -> None:
    trace = text("GPT-2")
    inside = trace.rerun(aw.edit_attention(trace, (0, 2), "permuted"))
    plain, moved = trace.attention_layer(0), inside.attention_layer(0)
    torch.testing.assert_close(moved.sort(-1).values, plain.sort(-1).values, atol=1e-12, rtol=0)
    assert torch.equal(moved[[0, 1, 3]], plain[[0, 1, 3]])
    assert not torch.triu(moved, 1).any(), "nobody reads later tokens"
    assert not torch.equal(moved[2], plain[2])


@pytest.mark.parametrize("name", ["BERT", "GPT-2", "Llama"])
def test_suppressed_pairs_by_hand(name: str) -> None:
    trace = text(name)

    def rewrite(_: Any, scores: torch.Tensor) -> torch.Tensor:
        scores = scores.clone()
        scores[:, :, 3:5, 1:3] = -torch.inf
        return scores.softmax(-1)

    with computed_by(trace.model, rewrite):
        expected = logits(trace)
    with aw.suppress(trace, [1, 2], [3, 4]):
        result = logits(trace)
    torch.testing.assert_close(result, expected, atol=1e-12, rtol=0)


def test_dropped_tokens_are_masked_ones() -> None:
    trace = text("BERT")
    mask = torch.tensor([[1, 1, 0, 1, 0, 1]])
    expected = logits(trace, attention_mask=mask)
    with aw.drop_tokens(trace, [2, 4]):
        result = logits(trace)
    remaining = [0, 1, 3, 5]
    torch.testing.assert_close(result[remaining], expected[remaining], atol=1e-12, rtol=0)


def test_suppression_after_an_edit_shares_out_what_the_edit_left() -> None:
    trace = text("BERT")
    inside = trace.rerun(aw.edit_attention(trace, (0, 1), "uniform"), aw.suppress(trace, 0, heads=(0, 1)))
    row = inside.attention_layer(0)[1, 3]
    torch.testing.assert_close(row, torch.tensor([0, 0.2, 0.2, 0.2, 0.2, 0.2], dtype=row.dtype))
    halved = trace.rerun(aw.suppress(trace, 0, [3], heads=(0, 1), renormalize=False))
    plain = trace.attention_layer(0)[1, 3]
    torch.testing.assert_close(halved.attention_layer(0)[1, 3, 1:], plain[1:])
    assert halved.attention_layer(0)[1, 3, 0] == 0


def test_another_config_can_be_made_meanwhile_as_generation_does() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    with aw.ablate_heads(model, {0: [1]}):
        assert model.config.__class__().to_dict() == hf.GPT2Config().to_dict()


@pytest.mark.parametrize("name", ["GPT-2", "Llama", "Gemma 2", "Gemma 3"])
@pytest.mark.parametrize("cache", [None, "static"])
def test_generation_with_a_cache_is_generation_without(name: str, cache: Any) -> None:
    model = tiny.build(tiny.TEXT[name]).double()
    model.generation_config.eos_token_id = None
    model.generation_config.pad_token_id = 0
    reference = aw.trace(model, None, input_ids=[4, 5, 6, 7])
    if cache == "static" and name.startswith("Gemma"):
        pytest.skip("a sliding window of fixed size rolls its keys")
    prompt = {
        "input_ids": torch.tensor([[3, 17, 42, 8]]),
        "attention_mask": torch.ones(1, 4, dtype=torch.long),
    }
    changes = [
        aw.ablate_heads(model, {0: [1], 1: [0, 3]}),
        aw.ablate_heads(model, {0: "all"}, "resample", reference=reference),
        aw.edit_attention(model, (1, 1), "uniform"),
        aw.edit_attention(model, (0, 2), "permuted"),
        aw.suppress(model, [1, 2]),
        aw.drop_tokens(model, [0, 5]),
    ]
    plain = model.generate(**prompt, max_new_tokens=9, do_sample=False)
    differs = 0
    for change in changes:
        with change:
            result = model.generate(
                **prompt, max_new_tokens=9, do_sample=False, output_logits=True, return_dict_in_generate=True,
                cache_implementation=cache, disable_compile=True,
            )  # fmt: skip
            with torch.no_grad():
                whole = model(input_ids=result.sequences, use_cache=False).logits[0, 3:-1]
        # generate() hands out logits in float32.
        torch.testing.assert_close(torch.cat(result.logits), whole.float(), atol=1e-6, rtol=0)
        with torch.no_grad():
            differs += not torch.allclose(whole, model(input_ids=result.sequences).logits[0, 3:-1])
    assert differs == len(changes), "each of them does something"
    assert torch.equal(plain, model.generate(**prompt, max_new_tokens=9, do_sample=False))


def test_t5_generates_without_its_cross_attention() -> None:
    trace = t5()
    model = trace.model
    prompt = {"input_ids": trace.inputs["input_ids"], "max_new_tokens": 4, "do_sample": False}
    with aw.ablate_heads(model, {0: "all", 1: "all"}, stack="cross"):
        result = model.generate(**prompt, output_logits=True, return_dict_in_generate=True)
        other = torch.tensor([[9, 9, 9]])
        again = model.generate(
            **prompt | {"input_ids": other}, output_logits=True, return_dict_in_generate=True
        )
    assert torch.equal(torch.cat(result.logits), torch.cat(again.logits)), "blind to the encoder's input"


def test_rerun_and_diff() -> None:
    trace = text("GPT-2")
    same = trace.diff(trace.rerun())
    assert (same.total_variation, same.largest_logit_change, same.flipped) == (0, 0, False)
    assert not any(moved.any() for moved in same.attention.values())
    after = trace.rerun(aw.ablate_heads(trace, {0: "all"}))
    with aw.ablate_heads(trace, {0: "all"}):
        inside = aw.trace(trace.model, None, input_ids=IDS)
    assert torch.equal(after.logits, inside.logits)
    assert after.interventions == inside.interventions == ("heads 0 to 3 of layer 0 set to zero",)
    result = trace.diff(after)
    p, q = (item.logits[-1].softmax(-1) for item in (trace, after))
    assert result.total_variation == pytest.approx(float((p - q).abs().sum() / 2), abs=1e-12)
    moved = result.predictions[0]
    assert moved.after - moved.before == pytest.approx(float((q - p)[moved.id]), abs=1e-12)
    assert abs(moved.after - moved.before) == pytest.approx(float((q - p).abs().max()), abs=1e-12)
    assert not result.attention["self"][0].any(), "layer 0 reads the same"
    assert result.attention["self"][1].all()
    said = str(result).splitlines()[-1].split(": ")[1].split()
    assert said == [f"{moved.mean():.3f}" for moved in result.attention["self"]]
    shorter = trace.diff(aw.trace(trace.model, None, input_ids=IDS[:3]))
    assert shorter.alignment.differing == (3, 4, 5)


def test_rounding_does_not_decide_which_of_two_classes_comes_first() -> None:
    trace = aw.trace(random_classifier(2), None, [3, 7, 9, 1])
    for head in range(2):
        for layer in range(2):
            result = trace.diff(trace.rerun(aw.ablate_heads(trace, {layer: [head]})))
            assert [moved.id for moved in result.predictions] == [0, 1]


def test_a_data_set_is_changed_as_each_of_its_texts_is() -> None:
    trace = aw.trace(tiny.build(tiny.TEXT["BERT"]).double(), tiny.wordpiece(), "cat")
    texts = ["cat", "unbelievable cat", "cat cat cat"]
    with aw.ablate_heads(trace.model, {1: [0, 2]}), aw.drop_tokens(trace.model, [1]):
        together = aw.trace(trace.model, trace.tokenizer, texts)
        alone = [aw.trace(trace.model, trace.tokenizer, entry) for entry in texts]
    for item, two in zip(together, alone, strict=True):
        torch.testing.assert_close(item.logits, two.logits, atol=1e-12, rtol=0)


def test_methods_do_not_mix_a_trace_with_another_model() -> None:
    trace = text("GPT-2")
    change = aw.ablate_heads(trace, (0, 1))
    after = trace.rerun(change)
    with pytest.raises(ValueError, match="recorded with head 1 of layer 0 set to zero"):
        aw.saliency(after)
    with change, pytest.raises(ValueError, match="recorded before that"):
        aw.saliency(trace)
    with change:
        inside = aw.saliency(after).values
        expected = aw.saliency(aw.trace(trace.model, None, input_ids=IDS)).values
    assert (inside == expected).all()
    assert (inside != aw.saliency(trace).values).any()
    assert aw.attention(after).values.shape == aw.attention(trace).values.shape


def bad() -> list[Any]:
    llama = text("Llama")
    eye = torch.eye(6)
    return [
        (lambda: aw.ablate_heads(llama, (7, 0)), IndexError, "there are layers 0 to 1"),
        (lambda: aw.ablate_heads(llama.model, (0, 9)), IndexError, "^layer 0: head 9 .* are heads 0 to 3"),
        (lambda: aw.ablate_heads(llama, 3), TypeError, r"\(layer, head\)"),
        (lambda: aw.ablate_heads(llama, {0: "every"}), TypeError, r"\(layer, head\)"),
        (lambda: aw.ablate_heads(llama, (0, 0), "zeros"), ValueError, "Did you mean 'zero'"),
        (lambda: aw.ablate_heads(llama, (0, 0), "mean"), ValueError, "reference is missing"),
        (lambda: aw.ablate_heads(llama, (0, 0), reference=llama), ValueError, "'zero' needs none"),
        (lambda: aw.ablate_heads(llama, (0, 0), "mean", reference=text("OPT")), ValueError, "by this"),
        (lambda: aw.ablate_heads(llama, (0, 0), stack="cross"), ValueError, "'self'"),
        (lambda: aw.edit_attention(llama, (0, 0), "uniforn"), ValueError, "Did you mean 'uniform'"),
        (lambda: aw.edit_attention(llama, (0, 0), "one_hot"), ValueError, "key is missing"),
        (lambda: aw.edit_attention(llama, (0, 0), key=2), ValueError, "to is 'uniform'"),
        (lambda: aw.edit_attention(llama, (0, 0), -eye), ValueError, "negative"),
        (lambda: aw.edit_attention(llama, (0, 0), eye[0]), ValueError, r"\[query, key\]"),
        (lambda: aw.drop_tokens(llama, 6), ValueError, "position 6; allowed are 0 to 5"),
        (lambda: aw.drop_tokens(llama.model, -1), ValueError, "need a trace"),
        (lambda: aw.drop_tokens(llama, "cat"), TypeError, "positions"),
        (lambda: aw.drop_tokens(aw.from_attentions([torch.eye(3)[None]], ["a", "b", "c"]), 1), ValueError,
         "aw.trace"),
    ]  # fmt: skip


@pytest.mark.parametrize("case", range(18))
def test_bad_input_is_named(case: int) -> None:
    call, error, message = bad()[case]
    with pytest.raises(error, match=message):
        call()


def test_a_matrix_that_looks_ahead_is_refused_when_it_runs() -> None:
    trace = text("GPT-2")
    ahead = torch.full((6, 6), 1 / 6)
    with pytest.raises(ValueError, match="token 0 read token 1"), aw.edit_attention(trace, (0, 0), ahead):
        logits(trace)
    assert aw.interventions() == ()


# A trace calls these stacks and layers otherwise than the model alone does.
SMALL = {"vocab_size": 128, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
SMALL |= {"num_key_value_heads": 2, "head_dim": 8}
SEES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
SEES |= {"image_size": 28, "patch_size": 7}
LINEAR = {"linear_num_key_heads": 2, "linear_num_value_heads": 4}
LINEAR |= {"linear_key_head_dim": 8, "linear_value_head_dim": 8}


def llava() -> Any:
    text, vision = hf.LlamaConfig(**SMALL, num_hidden_layers=2), hf.CLIPVisionConfig(**SEES)
    return hf.LlavaForConditionalGeneration(
        hf.LlavaConfig(text_config=text, vision_config=vision, image_token_index=5)
    )


def qwen3_next() -> Any:
    kinds = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    experts = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
    return hf.Qwen3NextForCausalLM(
        hf.Qwen3NextConfig(**SMALL, **kinds, **LINEAR, **experts, shared_expert_intermediate_size=16)
    )


def minimax() -> Any:
    kinds = {"num_hidden_layers": 2, "layer_types": ["linear_attention", "full_attention"]}
    return hf.MiniMaxForCausalLM(hf.MiniMaxConfig(**SMALL, **kinds, num_local_experts=4, pad_token_id=0))


def bart_decoder() -> Any:
    sizes = {"d_model": 32, "decoder_layers": 2, "decoder_attention_heads": 4, "decoder_ffn_dim": 48}
    return hf.BartForCausalLM(
        hf.BartConfig(vocab_size=128, **sizes, is_decoder=True, is_encoder_decoder=False)
    )


@pytest.mark.parametrize("make", [llava, qwen3_next, minimax, bart_decoder])
def test_what_a_trace_calls_a_layer_is_what_is_changed(make: Any) -> None:
    torch.manual_seed(0)
    model = make().eval()
    for parameter in model.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    trace = aw.trace(model, None, input_ids=IDS)
    last = trace.layers()[-1]
    assert last == 1
    module = dict(model.named_modules())[trace.stack_table["self"].layers[-1].call.name]
    projection = module.out_proj if make is bart_decoder else module.o_proj
    handle = projection.register_forward_pre_hook(lambda _, given: (torch.zeros_like(given[0]),))
    expected = logits(trace)
    handle.remove()
    assert (expected - logits(trace)).abs().max() > 0.01
    changed = trace.rerun(aw.ablate_heads(trace, {last: "all"}))
    torch.testing.assert_close(changed.logits, expected, atol=1e-5, rtol=1e-4)


def test_a_change_of_attention_that_does_not_run_is_an_error() -> None:
    torch.manual_seed(0)
    model = llava().eval()
    with (
        aw.ablate_heads(model, (0, 1), stack="vision"),
        pytest.raises(ValueError, match=r"no effect here.*layer 0 of 'vision'"),
        torch.no_grad(),
    ):
        model(torch.tensor([IDS]))
    model(torch.tensor([IDS]))


def test_a_model_that_interventions_do_not_reach_says_so() -> None:
    model = tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"])
    with pytest.raises(ValueError, match="outside"), aw.ablate_heads(model, (0, 0)):
        model(input_ids=torch.tensor([IDS]))
    assert model(input_ids=torch.tensor([IDS])).logits.shape[1] == 6
