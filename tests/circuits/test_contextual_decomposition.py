"""Contextual decomposition: parts that sum, against a plain GPT-2, compiled circuits and patching."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.decomposed_layer import read_layer
from attnwidgets.tracing.algebra.two_parts import TwoParts, from_tokens, through_block
from tests.tracing import tiny

from .made import CLEAN, induction, pair

FAMILIES = ["BERT", "GPT-2", "Llama", "GPT-NeoX", "Gemma 2", "OPT", "ModernBERT"]
AT = aw.targets.token(5, position=6)


@pytest.mark.parametrize("family", FAMILIES)
def test_both_parts_sum_to_every_state(family):
    trace = aw.trace(tiny.build(tiny.TEXT[family]), None, input_ids=CLEAN)  # single precision
    blocks = [block_of(trace, number, "self", "test") for number in range(trace.n_layers())]
    parts = from_tokens(blocks[0].hidden, [[0], [1, 4], [6], range(7), []])
    seen = []

    def look(copies: slice, parts: TwoParts) -> TwoParts:
        seen.append((copies, parts.whole))
        return parts

    for block in blocks:
        layer = read_layer(block, "test")
        parts = through_block(layer, parts, heads=look, mlp=look)
        (_, mixed), (_, fed) = seen[-2:]
        row = block.branch()[1][:, None, None]
        for whole, recorded in ((mixed, block.mixed.transpose(0, 1) * row), (parts.whole, block.output)):
            assert float((whole - recorded).norm(dim=-1).max()) <= 1e-5 * float(recorded.norm(dim=-1).max())
        assert fed.shape == block.output[None].expand(5, -1, -1).shape
        assert torch.equal(parts.relevant[4], torch.zeros_like(block.output))  # nothing is relevant
        assert float(parts.irrelevant[3].norm()) == 0  # all is
    values = aw.circuits.contextual_decomposition(trace, AT).values
    assert np.isfinite(values).all()


class Plain:
    """CD-T of a GPT-2, token by token, in plain code."""

    def __init__(self, model: Any) -> None:
        self.model = model

    def linear(self, b: Any, g: Any, matrix: Any, bias: Any) -> tuple[Any, Any]:
        b, g = b @ matrix, g @ matrix
        share = b.abs() / (b.abs() + g.abs()).clamp(min=1e-300)
        return b + share * bias, g + bias - share * bias

    def norm(self, b: Any, g: Any, module: Any) -> tuple[Any, Any]:
        deviation = torch.sqrt((b + g).var(-1, unbiased=False, keepdim=True) + module.eps)
        b, g = ((part - part.mean(-1, keepdim=True)) / deviation * module.weight for part in (b, g))
        share = b.abs() / (b.abs() + g.abs()).clamp(min=1e-300)
        return b + share * module.bias, g + module.bias - share * module.bias

    def relevant(self, ids: list[int], token: int, weights: list[Any], at: int, index: int) -> float:
        inner = self.model.transformer
        states = inner.wte.weight[ids] + inner.wpe.weight[: len(ids)]
        b = torch.zeros_like(states)
        b[token] = states[token]
        g = states - b
        width = states.shape[-1]
        for block, attention in zip(inner.h, weights, strict=True):
            read = self.norm(b, g, block.ln_1)
            value = block.attn.c_attn
            values = self.linear(*read, value.weight[:, -width:], value.bias[-width:])
            mixed = []
            for part in values:
                heads = part.view(len(ids), len(attention), -1).transpose(0, 1)
                mixed.append((attention @ heads).transpose(0, 1).reshape(len(ids), width))
            added = self.linear(*mixed, block.attn.c_proj.weight, block.attn.c_proj.bias)
            b, g = b + added[0], g + added[1]
            wide = self.linear(*self.norm(b, g, block.ln_2), block.mlp.c_fc.weight, block.mlp.c_fc.bias)
            act = block.mlp.act
            opened = act(wide[0] + wide[1]) - act(wide[1]), act(wide[1])
            added = self.linear(*opened, block.mlp.c_proj.weight, block.mlp.c_proj.bias)
            b, g = b + added[0], g + added[1]
        b, g = self.norm(b, g, inner.ln_f)
        return float(b[at] @ self.model.lm_head.weight[index])


@torch.no_grad()
def test_tokens_against_a_plain_gpt2():
    trace, _ = pair("GPT-2")
    plain = Plain(trace.model)
    weights = [trace.attention_layer(layer).double() for layer in range(2)]
    expected = [plain.relevant(CLEAN, token, weights, 6, 5) for token in range(7)]
    result = aw.circuits.contextual_decomposition(trace, AT, chunk_size=3)
    assert result.values == pytest.approx(expected, abs=1e-9)
    foil = aw.circuits.contextual_decomposition(trace, AT, 9)
    other = [plain.relevant(CLEAN, token, weights, 6, 9) for token in range(7)]
    assert foil.values == pytest.approx(np.subtract(expected, other), abs=1e-9)
    both = aw.circuits.contextual_decomposition(trace, [5, 9])
    assert both.values == pytest.approx(np.stack([expected, other]), abs=1e-9)
    assert aw.explain(trace, "contextual_decomposition", target=AT).values == pytest.approx(
        expected, abs=1e-9
    )


def plain_llama(model: Any, ids: list[int], token: int, weights: list[Any]) -> tuple[Any, Any]:
    """Return both parts of a Llama's last states [token, dim]; each factor takes half of a product."""
    inner = model.model
    states = inner.embed_tokens.weight[ids]
    b = torch.zeros_like(states)
    b[token] = states[token]
    g = states - b

    def read(b: Any, g: Any, norm: Any) -> tuple[Any, Any]:
        deviation = ((b + g).square().mean(-1, keepdim=True) + norm.variance_epsilon).sqrt()
        return b / deviation * norm.weight, g / deviation * norm.weight

    for layer, attention in zip(inner.layers, weights, strict=True):
        module = layer.self_attn
        for part in (parts := read(b, g, layer.input_layernorm)):
            by_head = module.v_proj(part).unflatten(-1, (-1, module.head_dim))
            values = by_head.repeat_interleave(len(attention) // by_head.shape[1], dim=1)
            added = module.o_proj(torch.einsum("hqk,khd->qhd", attention, values).flatten(1))
            b, g = (b + added, g) if part is parts[0] else (b, g + added)
        mlp = layer.mlp
        (vb, vg), (ub, ug) = (
            [projection(part) for part in read(b, g, layer.post_attention_layernorm)]
            for projection in (mlp.gate_proj, mlp.up_proj)
        )
        opened, alone = mlp.act_fn(vb + vg), mlp.act_fn(vg)
        b = b + mlp.down_proj(0.5 * opened * ub + 0.5 * (opened - alone) * (ub + ug))
        g = g + mlp.down_proj(0.5 * opened * ug + 0.5 * alone * (ub + ug))
    return read(b, g, inner.norm)


@torch.no_grad()
def test_tokens_against_a_plain_llama():
    trace, _ = pair("Llama")
    weights = [trace.attention_layer(layer).double() for layer in range(2)]
    head = trace.model.lm_head.weight[5]
    parts = [plain_llama(trace.model, CLEAN, token, weights) for token in range(7)]
    assert float((parts[3][0] + parts[3][1])[6] @ head) == pytest.approx(float(trace.logits[6, 5]), abs=1e-7)
    result = aw.circuits.contextual_decomposition(trace, AT)
    assert result.values == pytest.approx([float(b[6] @ head) for b, _ in parts], abs=1e-7)


def test_tokens_of_known_models():
    model, tokenizer = aw.zoo.additive(letters="abcd", length=8)
    result = aw.circuits.contextual_decomposition(aw.trace(model, tokenizer, "abcad"), 1)
    weights = [0.0, *(model.truth.weights[letter] for letter in "abcad")]
    assert result.values == pytest.approx(weights, abs=1e-5)
    clean, _ = induction()
    result = aw.circuits.contextual_decomposition(clean, "c", "a")
    assert result.values == pytest.approx([10.0 if at == 6 else 0.0 for at in range(12)], abs=1e-4)


def test_components_of_a_known_circuit():
    clean, corrupt = induction()
    result = aw.circuits.component_relevance(clean, "c", foil="a", reference=corrupt)
    exact = aw.circuits.patch(clean, corrupt, "c", foil="a", sites=("head", "mlp"), how="noise")
    assert result.heads == pytest.approx(-exact.raw["head"], abs=1e-4)
    assert result.mlps == pytest.approx([0, 0], abs=1e-6)
    assert (result.whole, result.reference) == (pytest.approx(10, abs=1e-4), pytest.approx(-10, abs=1e-4))
    assert [str(part) for part in result.circuit()] == ["head 1.0"]
    assert aw.circuits.faithfulness(clean, corrupt, result.circuit(), "c", foil="a").share == pytest.approx(1)
    assert "head 1.0 +20.00" in repr(result)
    # A path to head 1.0 through its keys alone is not seen: its pattern is taken as given.
    texts = [aw.trace(clean.model, clean.tokenizer, text) for text in ("fadebcfadeb", "fadegcfadeb")]
    keys = aw.circuits.component_relevance(texts[0], "c", foil="a", reference=texts[1])
    assert ("head", 0, 0) not in keys.circuit()
    assert aw.circuits.patch(*texts, "c", foil="a", sites="head").heads[0, 0] == pytest.approx(1, abs=1e-4)


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "Llama", "Gemma 2"])
def test_components_agree_with_patching(family):
    clean, corrupt = pair(family)
    result = aw.circuits.component_relevance(clean, AT, reference=corrupt, batch_size=3)
    exact = aw.circuits.patch(clean, corrupt, AT, sites=("head", "mlp"), how="noise")
    assert np.corrcoef(result.heads.ravel(), -exact.raw["head"].ravel())[0, 1] > 0.98
    assert result.relevant + result.irrelevant == pytest.approx(np.full(10, result.whole), abs=1e-6)
    assert result.whole - result.reference == pytest.approx(exact.clean - exact.corrupt, abs=1e-6)
    every = aw.circuits.component_relevance(clean, AT, reference=corrupt)
    assert every.relevant == pytest.approx(result.relevant, abs=1e-9)
    assert np.array_equal(np.isnan(every.between), np.isnan(result.between))


def test_a_head_behind_a_layer_with_large_biases_is_found_though_they_take_a_share():
    model, tokenizer = aw.zoo.negation()
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("nab", "aab"))
    result = aw.circuits.component_relevance(clean, reference=corrupt)
    exact = aw.circuits.patch(clean, corrupt, sites=("head", "mlp"), how="noise")
    assert [str(part) for part in result.circuit()] == ["head 0.0", "MLP 0"]
    assert -exact.raw["head"][0] == pytest.approx([5.5, 0, 0, 0, 0, 0], abs=1e-4)
    assert result.heads[0] == pytest.approx([4.227, 0, 0, 0, 0, 0], abs=1e-3)
    assert result.mlps == pytest.approx(-exact.raw["mlp"].sum(axis=1), abs=1e-4)


@torch.no_grad()
def test_beside_a_reference_a_gated_layer_loses_what_it_loses_without_the_component():
    """The paper's rule, f(b + g) - f(g): in the last block it is the drop of the layer's output."""
    clean, corrupt = pair("Llama")
    result = aw.circuits.component_relevance(clean, AT, reference=corrupt)
    block, inner = clean.model.model.layers[1], clean.model.model
    heads = [block_of(trace, 1, "self", "test").mixed[2, 6].double() for trace in (clean, corrupt)]
    lost = block.self_attn.o_proj.weight[:, 16:24] @ (heads[0] - heads[1])
    states: list[torch.Tensor] = []
    hooks = [
        module.register_forward_pre_hook(lambda _, given: states.append(given[0][0, 6]))
        for module in (block.post_attention_layernorm, inner.norm)
    ]
    clean.model(**clean.inputs)
    for hook in hooks:
        hook.remove()

    def direct(state: torch.Tensor, whole: torch.Tensor, norm: Any) -> torch.Tensor:
        return norm.weight * state / (whole.square().mean() + norm.variance_epsilon).sqrt()

    fed = [
        block.mlp(direct(state, states[0], block.post_attention_layernorm))
        for state in (states[0], states[0] - lost)
    ]
    expected = clean.model.lm_head.weight[5] @ direct(lost + fed[0] - fed[1], states[1], inner.norm)
    assert result.heads[1, 2] == pytest.approx(float(expected), abs=1e-8)


def test_between_is_the_share_of_what_a_later_component_writes():
    # With values alone between two heads of a model without MLPs, the share is that of the values.
    clean, corrupt = pair("GPT-2")
    with torch.no_grad():
        for block in clean.model.transformer.h:
            block.mlp.c_proj.weight.zero_()
    clean, corrupt = clean.rerun(), corrupt.rerun()
    result = aw.circuits.component_relevance(clean, AT, reference=corrupt)
    names = [str(part) for part in result.components]
    heads, later = [names.index(f"head 0.{head}") for head in range(4)], names.index("head 1.2")
    block = block_of(clean, 1, "self", "test")
    values = [block_of(trace, 1, "self", "test").mixed[2] for trace in (clean, corrupt)]
    distinct = values[0] - values[1]
    value, _ = block.value_projection()
    for head, position in enumerate(heads):
        first = [block_of(trace, 0, "self", "test") for trace in (clean, corrupt)]
        wrote = (first[0].mixed[head] - first[1].mixed[head]) @ first[0].branch()[0][head]
        read = block.norm1.direct(wrote) / block.norm1.deviation(block.hidden)
        # The norm's shift is zero in this model, and the biases of values are.
        moved = block.weights()[2] @ (read @ value)[:, 16:24]
        expected = float((moved * distinct).sum() / distinct.square().sum())
        assert result.between[position, later] == pytest.approx(expected, abs=1e-6)
    assert np.isnan(result.between[later, heads[0]])
    assert result.between[names.index("MLP 0"), later] == pytest.approx(0, abs=1e-9)


def test_what_is_not_there_is_said():
    clean, corrupt = induction()
    with pytest.raises(ValueError, match="one target at a time"):
        aw.circuits.component_relevance(clean, ["a", "b"])
    with pytest.raises(ValueError, match="batch_size must be"):
        aw.circuits.component_relevance(clean, batch_size=0)
    with pytest.raises(ValueError, match="threshold must be"):
        aw.circuits.component_relevance(clean, "c", reference=corrupt).circuit(0)
    with pytest.raises(ValueError, match="same input"):
        aw.circuits.component_relevance(clean, "c", reference=clean)
    with pytest.raises(ValueError, match="chunk_size must be"):
        aw.circuits.contextual_decomposition(clean, chunk_size=0)
    translator = aw.trace(tiny.build(tiny.SEQ2SEQ["T5"]), tiny.wordpiece(), "the cat", target_text="a b")
    with pytest.raises(ValueError, match="also reads another sequence"):
        aw.circuits.contextual_decomposition(translator, 5)
    with pytest.raises(ValueError, match="no head"):
        aw.circuits.component_relevance(aw.trace(tiny.build(tiny.TEXT["ELECTRA"]), None, input_ids=CLEAN))
    unknown = aw.trace(tiny.build(tiny.UNFOLLOWED["GPT-Neo with sums"]), None, input_ids=CLEAN)
    with pytest.raises(ValueError, match="contextual_decomposition"):
        aw.circuits.contextual_decomposition(unknown, AT)


@pytest.mark.extended
def test_smollm2_agrees_with_patching(smollm2):
    model = smollm2
    texts = [aw.trace(*model, f"The capital of {country} is") for country in ("France", "Italy")]
    result = aw.circuits.component_relevance(texts[0], " Paris", foil=" Rome", reference=texts[1])
    exact = aw.circuits.patch(*texts, " Paris", foil=" Rome", sites="head", how="noise")
    assert np.nanargmax(result.heads) == 23 * 9 + 4
    assert np.corrcoef(result.heads.ravel(), -exact.raw["head"].ravel())[0, 1] > 0.99
    circuit = result.circuit(0.05)
    faithful = aw.circuits.faithfulness(*texts, circuit, " Paris", foil=" Rome")
    assert faithful.size < faithful.all / 4
    assert faithful.share > 0.7
    tokens = aw.circuits.contextual_decomposition(texts[0], " Paris", foil=" Rome")
    assert tokens.values.argsort()[::-1][:2].tolist() == [0, 3]  # the sink, and France
    assert abs(tokens.residual) < 0.1 * result.whole
    alone = aw.circuits.component_relevance(texts[0], " Paris", foil=" Rome")
    assert alone.relevant + alone.irrelevant == pytest.approx(np.full(300, alone.whole), abs=1e-3)
    other = aw.trace(*model, "Once upon a time there")
    with pytest.raises(ValueError, match="no longer add up to the logit"):
        aw.circuits.component_relevance(texts[0], reference=other)
