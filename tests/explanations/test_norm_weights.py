"""The weights of norms, and dimensions that stand out among them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import GemmaConfig, GemmaForCausalLM

import attnwidgets as aw
from tests.tracing import tiny


def planted():
    """A BERT in which dimension 5 stands out in both norms of all layers, and 7 in a single norm."""
    model = tiny.build(tiny.TEXT["BERT"])
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for layer in model.bert.encoder.layer if hasattr(model, "bert") else model.encoder.layer:
            for norm, value in ((layer.attention.output.LayerNorm, 9.0), (layer.output.LayerNorm, -7.0)):
                norm.weight.copy_(1 + 0.01 * torch.randn(norm.weight.shape, generator=generator))
                norm.weight[5] = value
        layer.output.LayerNorm.weight[7] = 9.0
    return model


def test_weights_are_those_of_the_model_and_outliers_are_found():
    model = planted()
    weights = aw.statistics.norm_weights(aw.trace(model, None, [5, 6, 7, 8]))
    expected = {
        name: [p for key, p in model.named_parameters() if key.endswith(f"{name}.weight")]
        for name in ("attention.output.LayerNorm", "output.LayerNorm")
    }
    first = torch.stack(expected["attention.output.LayerNorm"]).detach()
    np.testing.assert_array_equal(weights.values[0], first.double().numpy())
    by_hand = (weights.values - weights.values.mean(2, keepdims=True)) / weights.values.std(2, keepdims=True)
    np.testing.assert_allclose(weights.deviations, by_hand)
    (top, second) = weights.top()
    assert (top.dim, top.places) == (5, 2 * len(weights.layers))
    assert (second.dim, second.places) == (7, 1)
    assert weights.top(1) == [top]
    assert "5 (in" in repr(weights)
    assert aw.statistics.norm_weights(aw.trace(model, None, [5, 6]), times=20.0).top() == []
    with pytest.raises(ValueError, match="times must be above 0"):
        aw.statistics.norm_weights(aw.trace(model, None, [5, 6]), times=0)


def test_a_norm_that_adds_one_has_the_sum_as_its_weight():
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    config = GemmaConfig(vocab_size=20, num_key_value_heads=1, head_dim=8, **sizes)
    model = GemmaForCausalLM(config).eval()
    with torch.no_grad():
        model.model.layers[1].input_layernorm.weight[3] = 2.0
    weights = aw.statistics.norm_weights(aw.trace(model, None, [5, 6, 7]))
    assert weights.values[0, 1, 3] == pytest.approx(3.0)
    assert weights.values[0, 0] == pytest.approx(np.ones(16))
    assert [each.dim for each in weights.top()] == [3]


def test_the_figure_has_a_chart_for_each_norm_and_refuses_other_dimensions():
    weights = aw.statistics.norm_weights(aw.trace(planted(), None, [5, 6, 7, 8]))
    texts = {text.get_text() for text in weights.figure().texts}
    shown = texts | {text.get_text() for axes in weights.figure().axes for text in axes.texts}
    assert {"dimension 5", "dimension 7"} <= shown
    with pytest.raises(IndexError, match="dims: 999 is out of range"):
        weights.figure([999])
