"""The loss without each head, and the free part of attention: by hand, and on real models."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.statistics.free_attention import effective_attention, least_overlapping_row
from tests.explanations.made import random_classifier
from tests.intervene.made import logits, t5, text, vit
from tests.tracing import tiny


@pytest.mark.parametrize("make", [*(lambda n=n: text(n) for n in ("GPT-2", "Llama", "ALBERT")), t5, vit])
def test_removal_is_what_is_lost_without_each_head(make: Any) -> None:
    trace = make()
    stack = "cross" if "cross" in trace.stacks else trace.default_stack
    target = 2 if trace.logits.dim() == 1 else aw.targets.token(7, position=1)
    result = aw.statistics.head_importance(trace, target, stack=stack, batch_size=3)

    def score() -> float:
        now = logits(trace)
        return float(now[2] if now.dim() == 1 else now[1, 7])

    whole = score()
    for layer, head in np.ndindex(*result["removal"].shape):
        with aw.ablate_heads(trace, (layer, head), stack=stack):
            assert result["removal"][layer, head] == pytest.approx(whole - score(), abs=1e-12)
    assert np.abs(result["removal"]).max() > 1e-7
    agreement = result.provenance["agreement"]
    assert -1 <= agreement <= 1
    assert f"{agreement:.2f}" in result.title


def test_the_estimate_is_exact_where_the_target_is_linear_in_what_a_head_writes() -> None:
    trace = text("GPT-2")
    model = trace.model
    last = model.transformer.h[-1]
    with torch.no_grad():
        last.mlp.c_proj.weight.zero_()
        model.transformer.ln_f = torch.nn.Identity()
    trace = aw.trace(model, None, input_ids=[3, 17, 42, 8, 99, 5])
    result = aw.statistics.head_importance(trace, aw.targets.token(7))
    np.testing.assert_allclose(result["removal"][1], result["removal_estimate"][1], atol=1e-12)
    assert not np.allclose(result["removal"][0], result["removal_estimate"][0], atol=1e-9)


def test_over_several_texts_it_is_the_mean_of_each() -> None:
    model, tokenizer = random_classifier().double(), tiny.wordpiece()
    traces = aw.trace(model, tokenizer, ["cat", "unbelievable cat"])
    both = aw.statistics.head_importance(traces, 1, magnitude=True)
    alone = [aw.statistics.head_importance(item, 1, how="exact") for item in traces]
    np.testing.assert_allclose(both["removal"], np.mean([abs(item["removal"]) for item in alone], axis=0))
    assert "removal_estimate" not in alone[0]
    with pytest.raises(ValueError, match="Did you mean 'exact'"):
        aw.statistics.head_importance(traces, how="exactly")


def test_what_moves_is_free(minilm: Any) -> None:
    model, tokenizer = minilm
    sentence = "The keys to the cabinet were lost in the garden, and nobody knew where to look for them. "
    ids = tokenizer(sentence * 8)["input_ids"][:120]
    trace = aw.trace(model, tokenizer, input_ids=ids)
    result = aw.statistics.free_attention(trace, layer=2, head=[3, 7], query=range(0, 120, 10))
    assert result.identifiable.max() <= 33
    assert 0.2 < result.movable.mean() < 0.9
    before = logits_of_states(model, ids)
    with result.intervention():
        after = logits_of_states(model, ids)
    assert float((after - before).abs().max()) < 2e-5
    inside = trace.rerun(result.intervention(0.5))
    row = inside.attention_layer(2)[3, 10].double().numpy()
    np.testing.assert_allclose(row, result.row(2, 3, 10, 0.5), atol=1e-6)
    plain = trace.attention_layer(2)[3, 10].double().numpy()
    assert np.abs(row - plain).sum() / 2 == pytest.approx(result.movable[0, 0, 1] / 2, abs=1e-6)
    short = aw.statistics.free_attention(aw.trace(model, tokenizer, input_ids=ids[:32]), layer=2, head=3)
    assert short.movable.max() < 1e-9, "as many keys as dimensions: nothing is free"


def logits_of_states(model: Any, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(input_ids=torch.tensor([ids])).last_hidden_state


def test_moved_rows_mix_to_the_same_and_read_only_what_may_be_read() -> None:
    rng = np.random.default_rng(0)
    for n in (3, 8, 20):
        values = rng.normal(size=(n, 4))
        weights = rng.dirichlet(np.ones(n))
        readable = np.arange(n) < max(2, n - 3)
        weights = np.where(readable, weights, 0)
        weights /= weights.sum()
        other = least_overlapping_row(weights, values, readable)
        np.testing.assert_allclose(other @ values, weights @ values, atol=1e-9)
        assert other.sum() == pytest.approx(1, abs=1e-9)
        assert (other >= 0).all()
        assert not other[~readable].any()
        assert (np.abs(other - weights).max() > 0.01) == (readable.sum() > 5)
    # Two equal values: all of the first can go to the second.
    np.testing.assert_allclose(
        least_overlapping_row(np.array([0.9, 0.1]), np.ones((2, 3)), np.ones(2, bool)), [0, 1], atol=1e-9
    )


@pytest.mark.parametrize("name", ["Llama", "GPT-2"])
def test_a_decoder_goes_on_predicting_the_same(name: str) -> None:
    model = tiny.build(tiny.TEXT[name]).double()
    trace = aw.trace(model, None, input_ids=list(range(3, 43)))
    result = aw.statistics.free_attention(trace, layer=0)
    plain = logits(trace)
    with result.intervention():
        torch.testing.assert_close(logits(trace), plain, atol=1e-7, rtol=0)
    assert result.movable[:, :, -1].min() > 0.1
    assert not result.movable[:, :, :8].any(), "early tokens read too few"
    assert not np.triu(np.asarray(result.to_map().layer(0)), 1).any()


def test_effective_attention_is_what_the_values_see() -> None:
    trace = aw.trace(tiny.build(tiny.TEXT["GPT-2"]).double(), None, input_ids=list(range(3, 23)))
    effective = effective_attention(trace, 1, 2)
    recorded = trace.attention_layer(1)[2].double().numpy()
    from attnwidgets.statistics.free_attention import _values

    values, _ = _values(trace, "self", 1, 2)
    np.testing.assert_allclose(effective @ values, recorded @ values, atol=1e-10)
    assert np.linalg.matrix_rank(effective) <= 8
    assert np.linalg.norm(effective) < np.linalg.norm(recorded)


@pytest.mark.parametrize(
    "call", [aw.statistics.head_importance, aw.statistics.free_attention, lambda trace: trace.rerun()]
)
def test_what_has_no_attention_to_change_says_so(call: Any) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    with pytest.raises(ValueError, match="has no attention"):
        call(aw.trace_module(module, torch.randn(1, 4)))
    with pytest.raises(ValueError, match=r"aw\.trace\(model, tokenizer, text\)"):
        call(aw.from_attentions([torch.eye(3)[None]], ["a", "b", "c"]))
