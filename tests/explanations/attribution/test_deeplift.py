"""DeepLIFT: complete on more than ten families, equal to captum where both apply, and to closed forms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

import attnwidgets as aw
from attnwidgets.explanations.attribution.deeplift import deeplift
from attnwidgets.tracing.module_trace import trace_module
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.tracing.families import FAMILIES
from tests.tracing.test_borrow import state_of

WRITES = {"BERT", "RoBERTa", "DistilBERT", "ALBERT", "ModernBERT"}  # they predict a token at every position
TEN = ("BERT", "RoBERTa", "ALBERT", "ModernBERT", "GPT-2", "GPT-NeoX", "OPT", "Llama", "Qwen3", "Gemma 2")
COMPLETE = (*TEN, "DistilBERT", "Gemma 3", "Cohere", "Granite", "T5", "Whisper", "ViT")
IDS = [5, 17, 31, 9]


def target_of(family: str) -> object:
    if family in WRITES:
        return aw.targets.token(7, position=3)
    return 1 if family == "ViT" else 7


@pytest.mark.parametrize("family", COMPLETE)
def test_contributions_sum_to_the_change(family: str) -> None:
    outcome = FAMILIES[family].traced()
    for baseline in ("zero", "mean"):
        result = deeplift(outcome, target_of(family), baseline=baseline)
        change = result.provenance["change"]
        assert abs(change) > 1e-3, "there is something to explain"
        assert result.residual == pytest.approx(0, abs=1e-4 * abs(change))
        assert result.values.sum() == pytest.approx(change, rel=2e-4)
        assert not result.warning


@pytest.mark.parametrize("family", ["BERT", "GPT-2", "GPT-NeoX", "OPT", "ViT"])
def test_in_double_precision_nothing_is_missed(family: str) -> None:
    result = deeplift(FAMILIES[family].traced(torch.float64), target_of(family), baseline="zero")
    assert result.residual == pytest.approx(0, abs=1e-11 * abs(result.provenance["change"]))


@pytest.mark.slow
def test_the_demo_classifier_needs_no_steps() -> None:
    outcome = trace(*aw.demo_model("classifier"), "The film was a pleasure.")
    result, line = deeplift(outcome), aw.integrated_gradients(outcome, steps=5)
    change = result.provenance["change"]
    assert line.provenance["change"] == pytest.approx(change, abs=1e-5)
    assert abs(result.residual) < 1e-5 * abs(change) < abs(line.residual)
    by_token = dict(zip(result.labels, result.values.tolist(), strict=True))
    assert max(by_token, key=by_token.get) == "pleasure"


def network() -> nn.Module:
    torch.manual_seed(0)
    inner = (nn.ReLU(), nn.Linear(8, 6), nn.Sigmoid(), nn.Linear(6, 4), nn.Tanh())
    return nn.Sequential(nn.Linear(5, 8), *inner, nn.Linear(4, 2))


def test_captum_gives_the_same_where_it_knows_the_operations() -> None:
    captum = pytest.importorskip("captum.attr", reason="captum is an extra: pip install attnwidgets[captum]")
    module = network().double()
    x, x0 = torch.randn(2, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    theirs = captum.DeepLift(module).attribute(x[None], x0[None], target=1)[0].detach()
    ours = deeplift(trace_module(module, x), 1, baseline=x0[:, None])
    np.testing.assert_allclose(ours.values, theirs, atol=1e-7)


def test_a_linear_model_gives_weights_times_differences() -> None:
    layer = nn.Linear(3, 2)
    x, x0 = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.5, 0.0, -1.0])
    result = deeplift(trace_module(layer, x), 1, baseline=x0[:, None])
    np.testing.assert_allclose(result.values, (layer.weight[1] * (x - x0)).detach(), rtol=1e-6)


class _Saturated(nn.Module):
    """1 - relu(1 - x1 - x2): gradients at (1, 1) are zero (Shrikumar et al. 2017, figure 1)."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 1 - torch.relu(1 - x.sum(-1, keepdim=True))


def test_saturation_of_the_paper() -> None:
    result = deeplift(trace_module(_Saturated(), [1.0, 1.0]), baseline=torch.zeros(1))
    np.testing.assert_allclose(result.values, [0.5, 0.5])


def test_targets_foils_units_and_probabilities() -> None:
    result = trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")
    several = deeplift(result, [0, 1, 2], baseline="mask")
    assert several.shape == (3, len(result.tokens))
    contrast = deeplift(result, 0, 2, baseline="mask")
    np.testing.assert_allclose(contrast.values, several.values[0] - several.values[2], atol=1e-6)
    words = deeplift(result, 0, baseline="mask", unit="word")
    assert words.labels == ("[CLS]", "unbelievable", "cat", "[SEP]")
    assert words.values.sum() == pytest.approx(several.values[0].sum(), abs=1e-6)
    chance = deeplift(
        result, aw.targets.function(lambda outputs: outputs.logits.softmax(-1)[:, 1]), baseline="mask"
    )
    assert chance.residual == pytest.approx(0, abs=1e-9)
    assert chance.provenance["change"] != pytest.approx(several.provenance["change"][1])


def test_experts_are_refused() -> None:
    with pytest.raises(UnsupportedModelError, match=r"choice of experts|topk"):
        deeplift(FAMILIES["Mixtral"].traced(), 7)


def test_the_model_is_as_it_was_also_after_an_exception() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    result = trace(model, None, IDS)
    before = state_of(model)
    deeplift(result, 7)
    with pytest.raises(ValueError, match="accepted shapes"):
        deeplift(result, 7, baseline=np.zeros(3))
    with pytest.raises(ValueError, match="is not one of"):
        deeplift(result, 7, baseline="nothing")
    assert state_of(model) == before
