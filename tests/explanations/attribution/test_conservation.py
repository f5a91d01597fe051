"""Relevance sums to the explained number in every trusted architecture; the check notices otherwise."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import transformers as hf
from torch import nn

import attnwidgets as aw
from attnwidgets.explanations.attribution import conservation
from attnwidgets.explanations.attribution.conservation import check_conservation, made_up
from attnwidgets.relevance import operations, rules
from attnwidgets.tracing.model_state import architecture
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, IDS, MORE
from tests.tracing.test_borrow import state_of

NAMED = ("Qwen2", "Mistral", "OLMo 2", "Phi-3", "SmolLM3", "StableLM", "Qwen3 MoE")


@pytest.fixture(autouse=True)
def _no_verdicts(monkeypatch: Any) -> None:
    monkeypatch.setattr(conservation, "_verdicts", {})


@pytest.mark.parametrize("family", [*FAMILIES, *NAMED])
def test_relevance_is_conserved(family: str) -> None:
    verdict = check_conservation((FAMILIES | MORE)[family].traced())
    assert verdict.conserved, verdict
    assert verdict.error <= 1e-4
    assert min(len(sums) for sums in verdict.sums.values()) >= 3


def test_the_target_is_the_score_without_biases() -> None:
    model = FAMILIES["BERT"].model()
    verdict = check_conservation(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # The embeddings' part comes before the first block.
            if name.endswith("bias") and "embeddings" not in name:
                parameter.zero_()
        logits = model(made_up(model)["input_ids"][None]).logits[0, -1]
    assert verdict.target == pytest.approx(float(logits[logits.abs().argmax()]), rel=1e-4)


# Rules that are wrong or missing are noticed


@pytest.mark.parametrize("kind", ["PRODUCTS", "SIZES", "ACTIVATIONS"])
def test_a_missing_rule_shows_in_the_sums(kind: str, monkeypatch: Any) -> None:
    whole, left_out = rules.table, dict.fromkeys(getattr(operations, kind))
    monkeypatch.setattr(rules, "table", lambda bias: {**whole(bias), **left_out})
    # Its soft cap is an activation that no module holds.
    verdict = check_conservation(tiny.build(lambda: tiny._gemma("Gemma2", final_logit_softcapping=0.5)))
    assert not verdict
    assert "going back from it, the difference arises" in verdict.problem


class Widened(nn.Module):
    """Adds a constant that is no parameter and no number."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, *args: Any) -> Any:
        return self.inner(*args) + torch.full((1,), 0.1)


def test_the_layer_that_loses_relevance_is_named() -> None:
    model = FAMILIES["Llama"].model()
    model.model.layers[0].mlp = Widened(model.model.layers[0].mlp)
    verdict = check_conservation(model)
    assert not verdict
    assert "the difference arises in layer 0" in verdict.problem
    assert verdict.sums["self"][1] == pytest.approx(verdict.target, rel=1e-4)
    assert "not conserved in LlamaForCausalLM" in repr(verdict)


# Verdicts


def test_a_verdict_is_kept_by_architecture_whatever_its_size() -> None:
    small = check_conservation(FAMILIES["Llama"].model())
    larger = tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **{**tiny.GQA, "num_hidden_layers": 4}))
    assert check_conservation(larger) is small
    assert check_conservation(larger, again=True) is not small
    other = tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **tiny.GQA, hidden_act="gelu"))
    assert architecture(other) != architecture(larger)
    assert check_conservation(other) is not small


def test_bad_weights_leave_no_verdict_on_their_architecture() -> None:
    bad, good = FAMILIES["Llama"].model(), FAMILIES["Llama"].model()
    with torch.no_grad():
        bad.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    with pytest.raises(ValueError, match="lrp: the states after layer 1 hold NaN"):
        aw.lrp(trace(bad, None, [5, 6, 7]), 7)
    assert aw.lrp(trace(good, None, [5, 6, 7]), 7).values.any()
    with torch.no_grad():
        bad.model.embed_tokens.weight.zero_()
        bad.model.layers[1].mlp.up_proj.weight[0, 0] = 0.0
    with pytest.raises(ValueError, match="exactly 0"):
        check_conservation(bad, again=True)
    assert check_conservation(good)


def test_sums_that_differ_are_taken_again_the_next_time(monkeypatch: Any) -> None:
    model = FAMILIES["Llama"].model()
    whole, left_out = rules.table, dict.fromkeys(operations.PRODUCTS)
    with monkeypatch.context() as patched:
        patched.setattr(rules, "table", lambda bias: {**whole(bias), **left_out})
        assert not check_conservation(model)
    assert check_conservation(model)


def test_a_hook_has_a_verdict_of_its_own_model() -> None:
    model = FAMILIES["Llama"].model()
    assert check_conservation(model)
    handle = model.model.layers[0].mlp.register_forward_hook(
        lambda _, __, output: output + torch.full((1,), 0.1)
    )
    assert not check_conservation(model)
    handle.remove()
    assert check_conservation(model)


def test_the_model_comes_back_with_its_biases() -> None:
    model = FAMILIES["GPT-2"].model()
    before, logits = state_of(model), model(torch.tensor([[3, 4]]), use_cache=False).logits
    check_conservation(model)
    assert state_of(model) == before
    assert torch.equal(model(torch.tensor([[3, 4]]), use_cache=False).logits, logits)


def test_a_name_is_no_model() -> None:
    with pytest.raises(TypeError, match="takes a model or a trace, not the name 'gpt2'; load it"):
        check_conservation("gpt2")


def test_what_cannot_be_tried_is_refused_by_name() -> None:
    with pytest.raises(ValueError, match=r"cannot make up an input for CLIPModel.*trace"):
        check_conservation(tiny.clip())
    with torch.inference_mode(), pytest.raises(ValueError, match="inference_mode"):
        check_conservation(FAMILIES["Llama"].model())


def test_a_long_text_is_tried_on_its_beginning(monkeypatch: Any) -> None:
    model = FAMILIES["Llama"].model()
    lengths: list[int] = []
    result = trace(model, None, list(range(3, 43)))
    model.register_forward_pre_hook(
        lambda _, __, given: lengths.append(given["input_ids"].shape[1]), with_kwargs=True
    )
    check_conservation(result)
    assert lengths
    assert max(lengths) == 12


@pytest.mark.parametrize("name", ["dyck", "histogram"])
def test_weights_that_say_nothing_without_biases_are_checked_with_random_ones(name: str) -> None:
    # Without its biases this model computes 0 for every text: rounding is all that is left of its target.
    model = getattr(aw.zoo, name)()[0]
    before = state_of(model)
    verdict = check_conservation(model)
    assert verdict.conserved, verdict
    assert abs(verdict.target) > 1e-4
    assert state_of(model) == before
    # A user's module is not in a new model of the class, which proves nothing.
    model = copy.deepcopy(model)
    block = model.transformer.h[0] if name == "dyck" else model.bert.encoder.layer[0].output
    part = "mlp" if name == "dyck" else "dense"
    setattr(block, part, Widened(getattr(block, part)))
    assert not check_conservation(model, again=True)


def gemma_3n() -> Any:
    sizes = {"vocab_size": 120, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {"num_key_value_heads": 2, "head_dim": 8, "intermediate_size": [48, 48], "laurel_rank": 4}
    sizes |= {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 120, "num_kv_shared_layers": 0}
    kinds = {"layer_types": ["full_attention"] * 2, "activation_sparsity_pattern": [0.0, 0.0]}
    return hf.Gemma3nForCausalLM(hf.Gemma3nTextConfig(**sizes, **kinds, pad_token_id=0))


def test_states_in_several_versions_are_not_taken_for_something_else() -> None:
    result = trace(tiny.build(gemma_3n), None, IDS)
    says = r"the states that Gemma3nTextDecoderLayer .* are \[4, 1, 8, 32\], and not \[batch, token, width\]"
    with pytest.raises(UnsupportedModelError, match=says):
        aw.lrp(result)
    assert aw.saliency(result).shape == (8,), "a gradient of the embeddings needs no states"


def test_states_that_a_model_computes_without_gradients_are_told() -> None:
    sizes = {"vocab_size": 120, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4}
    cycles = {"num_layers_per_stack": 1, "H_cycles": 2, "L_cycles": 3, "L_bp_cycles": [2]}
    model = tiny.build(
        lambda: hf.HrmTextForCausalLM(hf.HrmTextConfig(**sizes, **cycles, head_dim=8, pad_token_id=0))
    )
    result = trace(model, None, IDS)
    for method in (aw.lrp, aw.saliency):
        with pytest.raises(ValueError, match=r"computes the states before layer .* without gradients"):
            method(result)
