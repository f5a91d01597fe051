"""Relevance inside a model: of neurons, and of the features that an SAE takes them apart into."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from attnwidgets.explanations.attribution.lrp import lrp
from attnwidgets.explanations.attribution.neuron_relevance import neuron_relevance
from attnwidgets.relevance.rules import propagate
from attnwidgets.tracing.hooks.hook_point import HookPoint
from attnwidgets.tracing.module_trace import trace_module
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_borrow import state_of

IDS = [5, 17, 31, 9]


@pytest.fixture(scope="module")
def llama() -> Any:
    return trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)


def test_neurons_of_the_residual_stream_sum_to_the_tokens_of_that_layer(llama: Any) -> None:
    result = neuron_relevance(llama, "blocks.1.hook_resid_pre", 7, top=None)
    assert result.shape == (1, 32, 4)
    np.testing.assert_allclose(result.values[0].sum(0), lrp(llama, 7).map.layer(1)[0], atol=1e-6)
    totals = np.abs(result.values[0].sum(1))
    assert (np.diff(totals) <= 1e-7).all()
    assert result.layers == (1,)


def test_the_largest_are_kept_by_their_own_numbers(llama: Any) -> None:
    whole = neuron_relevance(llama, "model.layers.0.mlp.down_proj.input", 7, 11, top=None)
    result = neuron_relevance(llama, "blocks.0.mlp.hook_post", 7, 11, top=3)
    assert result.query_labels == whole.query_labels[:3]
    np.testing.assert_array_equal(result.values, whole.values[:, :3])
    assert result.query_labels[0].startswith("neuron ")
    assert "rather than 11" in result.title


def test_features_take_the_reconstructions_share(llama: Any) -> None:
    directions = torch.randn(20, 32, generator=torch.Generator().manual_seed(0))
    sae = SimpleNamespace(
        encode=lambda h: torch.relu(h @ directions.T), decode=lambda a, _: a @ directions / 20 + 0.1
    )
    before = state_of(llama.model)
    result = neuron_relevance(llama, "blocks.0.hook_resid_post", 7, sae=sae, top=None)
    assert state_of(llama.model) == before
    neurons = neuron_relevance(llama, "blocks.0.hook_resid_post", 7, top=None)
    order = [int(label.removeprefix("neuron ")) for label in neurons.query_labels]
    states = llama.model.model.layers[0](
        *[llama.model.model.embed_tokens(torch.tensor([IDS]))],
        position_embeddings=llama.model.model.rotary_emb(torch.zeros(1), torch.arange(4)[None]),
        attention_mask=torch.full((4, 4), -1e9).triu(1)[None, None],
    )[0].detach()
    gradient = torch.zeros(4, 32)
    gradient[:, order] = torch.from_numpy(neurons.values[0].T.copy())
    gradient /= states
    activations = sae.encode(states)
    expected = activations * (gradient @ directions.T) / 20
    by_number = {
        int(label.removeprefix("feature ")): row
        for label, row in zip(result.query_labels, result.values[0], strict=True)
    }
    for number, row in by_number.items():
        np.testing.assert_allclose(row, expected[:, number], atol=1e-4)
    said = result.provenance["conservation"]
    assert said["unexplained"] == pytest.approx(said["site"] - result.values.sum(), abs=1e-5)


def test_a_heads_relevance_is_that_of_its_part_of_the_output_projections_input(
    llama: Any,
) -> None:
    heads = lrp(llama, 7, of="heads").map.select(layer=1)
    assert heads.axis_names == ("layer", "head", "query", "key")
    assert heads.shape == (1, 4, 1, 4)
    name = "model.layers.1.self_attn.o_proj"
    point = HookPoint(name, name, "input")
    at = propagate(
        llama, lambda outputs: [outputs.logits[:, -1, 7]], "test", rule="attnlrp", hook_points=[point]
    )
    expected = (at.values[name] * at.gradients[name][0]).unflatten(-1, (4, -1)).sum(-1).T
    np.testing.assert_allclose(heads.layer(1)[:, 0], expected, atol=1e-7)
    assert expected.abs().max() > 1e-5


def test_a_hidden_layer_of_a_small_module() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.ReLU(), torch.nn.Linear(5, 1, bias=False))
    result = neuron_relevance(trace_module(module, [1.0, -2.0, 0.5]), "1", 0)
    hidden = module[1](module[0](torch.tensor([1.0, -2.0, 0.5])))
    expected = (hidden * module[2].weight[0]).detach()
    by_number = dict(zip(result.query_labels, result.values[0, :, 0], strict=True))
    assert [by_number[f"neuron {i}"] for i in range(5)] == pytest.approx(expected.tolist(), abs=1e-6)


def test_what_is_not_there_is_named(llama: Any) -> None:
    with pytest.raises(ValueError, match=r"block 7"):
        neuron_relevance(llama, "blocks.7.hook_resid_post", 7)
    with pytest.raises(ValueError, match="top must be at least 1"):
        neuron_relevance(llama, "blocks.0.hook_resid_post", 7, top=0)
    with pytest.raises(ValueError, match="one target at a time"):
        neuron_relevance(llama, "blocks.0.hook_resid_post", [7, 8])
