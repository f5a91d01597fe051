"""LRP and gradients of any torch module on numbers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import attnwidgets as aw
from attnwidgets.explanations.attribution.lrp import lrp
from attnwidgets.tracing.module_trace import trace_module


class Clipped(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 - torch.relu(1 - x)


def test_a_relu_layer_with_and_without_its_bias_in_the_denominators():
    layer = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    with torch.no_grad():
        layer[0].weight.copy_(torch.tensor([[1.0, 2.0, -1.0], [0.0, 1.0, 1.0]]))
        layer[0].bias.copy_(torch.tensor([0.5, -1.0]))
    result = trace_module(layer, [1.0, 2.0, 3.0], labels=["a", "b", "c"], outputs=["up", "down"])
    absorbed = lrp(result, ["up", "down"])
    assert absorbed.labels == ("a", "b", "c")
    np.testing.assert_allclose(absorbed.values, [[1, 4, -3], [0, 2, 3]], atol=1e-6)
    assert absorbed.residual == pytest.approx((0.5, -1.0))
    # z = (2.5, 4); without the bias the contributions (1, 4, -3) and (0, 2, 3) are shares of 2 and 5.
    ignored = lrp(result, ["up", "down"], bias="ignore")
    np.testing.assert_allclose(ignored.values, [[1.25, 5, -3.75], [0, 1.6, 2.4]], atol=1e-6)
    assert ignored.residual == pytest.approx((0, 0), abs=1e-6)


@pytest.mark.parametrize(("x", "relevance"), [(0.5, 0.5), (-1.0, -1.0), (2.0, 0.0)])
def test_a_saturated_function_gives_its_input_nothing(x, relevance):
    result = lrp(trace_module(Clipped(), [x]))
    assert result.values.tolist() == [relevance]
    assert result.residual == pytest.approx(min(x, 1.0) - relevance)


def test_gradients_read_a_module_as_well():
    result = trace_module(nn.Linear(3, 2), [1.0, -2.0, 0.5])
    weight = result.model.weight.detach()
    np.testing.assert_allclose(aw.saliency(result, 1, reduce="sum").values, weight[1], atol=1e-6)
    expected = weight[1] * torch.tensor([1.0, -2.0, 0.5])
    np.testing.assert_allclose(aw.input_x_gradient(result, 1).values, expected, atol=1e-6)
    np.testing.assert_allclose(
        aw.integrated_gradients(result, 1, baseline="zero").values, expected, atol=1e-5
    )
    np.testing.assert_allclose(lrp(result, 1).values, expected, atol=1e-6)


@pytest.mark.parametrize(
    "given", [[1.0, -2.0, 0.5], np.array([1.0, -2.0, 0.5]), torch.tensor([1.0, -2.0, 0.5])]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_module_gets_numbers_in_its_own_precision(given, dtype):
    module = nn.Linear(3, 2).to(dtype)
    result = aw.input_x_gradient(trace_module(module, given), 1)
    assert result.dtype == result.values.dtype == str(dtype).removeprefix("torch.")
    expected = module.weight[1].double() * torch.tensor([1.0, -2.0, 0.5])
    np.testing.assert_allclose(
        result.values, expected.detach(), atol=1e-6 if dtype == torch.float32 else 1e-12
    )


def test_a_module_is_refused_what_it_cannot_read():
    with pytest.raises(TypeError, match="int64, which have no gradient"):
        trace_module(nn.Linear(3, 2), [1, 2, 3])
    with pytest.raises(TypeError, match=r"must be a torch\.nn\.Module"):
        trace_module(torch.relu, [1.0])
    with pytest.raises(ValueError, match="labels names 1 sources"):
        trace_module(nn.Linear(3, 2), [1.0, 2.0, 3.0], labels=["a"])
