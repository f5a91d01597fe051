"""Occlusion and sampled Shapley values: by hand, and by their axioms."""

from __future__ import annotations

import importlib.util
from itertools import permutations
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

pytest.importorskip("captum", reason="captum is an extra: pip install attnwidgets[captum]")


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of a random classifier, in float64."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")


def score(trace: Any, remaining: set[int], baseline: int) -> float:
    """Return logit 1 with all but the remaining tokens replaced."""
    ids = trace.inputs["input_ids"].clone()
    ids[0, [token for token in range(ids.shape[1]) if token not in remaining]] = baseline
    with torch.no_grad():
        return float(trace.model(**(dict(trace.inputs) | {"input_ids": ids})).logits[0, 1])


def test_occlusion_equals_captum_on_the_reference_model(shared: Path) -> None:
    folder = shared / "reference" / "lrp"
    model = hf.AutoModelForCausalLM.from_pretrained(folder / "models" / "tiny_llama").eval()
    arrays = np.load(folder / "captum_llama.npz")
    trace = aw.trace(model, None, input_ids=arrays["input_ids"].tolist())
    result = aw.occlusion(trace, 19, baseline=0)
    np.testing.assert_allclose(result.values, arrays["ablation.pad"], atol=1e-5)


def test_occlusion_is_the_drop(classified: Any) -> None:
    result = aw.occlusion(classified, 1, baseline="mask", batch_size=4)
    everything = set(range(len(classified.tokens)))
    by_hand = [score(classified, everything, 4) - score(classified, everything - {t}, 4) for t in everything]
    np.testing.assert_allclose(result.values, by_hand, atol=1e-6)


def test_words_are_taken_away_as_a_whole(classified: Any) -> None:
    result = aw.occlusion(classified, 1, baseline="mask", unit="word")
    assert result.labels == ("[CLS]", "unbelievable", "cat", "[SEP]")
    everything = set(range(len(classified.tokens)))
    by_hand = score(classified, everything, 4) - score(classified, everything - {1, 2, 3}, 4)
    assert result.values[1] == pytest.approx(by_hand, abs=1e-6)
    pieces = aw.occlusion(classified, 1, baseline="mask").to("word").values[1]
    assert abs(pieces - by_hand) > 1e-3 * abs(by_hand)


@pytest.mark.slow
def test_shapley_values_sum_to_the_change_and_near_the_exact_ones(classified: Any) -> None:
    words = classified.units["word"].spans
    exact = np.zeros(len(words))
    orders = list(permutations(range(len(words))))
    for order in orders:
        remaining: set[int] = set()
        for word in order:
            before = score(classified, remaining, 4)
            remaining = remaining | set(words[word])
            exact[word] += (score(classified, remaining, 4) - before) / len(orders)
    before = torch.get_rng_state()
    result = aw.shapley_sampling(classified, 1, baseline="mask", unit="word", samples=200, batch_size=8)
    assert torch.equal(torch.get_rng_state(), before)
    change = score(classified, set(range(len(classified.tokens))), 4) - score(classified, set(), 4)
    assert float(result.values.sum()) == pytest.approx(change, abs=1e-5)  # captum sums in float32
    np.testing.assert_allclose(result.values, exact, atol=0.1 * np.abs(exact).max())
    again = aw.shapley_sampling(classified, 1, baseline="mask", unit="word", samples=200, batch_size=8)
    np.testing.assert_array_equal(again.values, result.values)


@pytest.mark.parametrize("method", [aw.occlusion, aw.shapley_sampling])
def test_several_targets_and_foils(classified: Any, method: Any) -> None:
    both = method(classified, [0, 2], unit="word")
    assert both.shape == (2, 4)
    contrast = method(classified, 0, foil=2, unit="word")
    np.testing.assert_allclose(contrast.values, both.values[0] - both.values[1], atol=1e-6)


@pytest.mark.parametrize("method", [aw.occlusion, aw.shapley_sampling])
def test_no_gradient_is_needed(classified: Any, method: Any) -> None:
    expected = method(classified, 1)
    with torch.inference_mode():
        inside = method(classified, 1)
        made_inside = method(aw.trace(classified.model, tiny.wordpiece(), "unbelievable cat"), 1)
    np.testing.assert_array_equal(inside.values, expected.values)
    np.testing.assert_array_equal(made_inside.values, expected.values)
    model = torch.ao.quantization.quantize_dynamic(random_classifier(), {torch.nn.Linear}, dtype=torch.qint8)
    quantised = aw.trace(model, tiny.wordpiece(), "unbelievable cat")
    with pytest.raises(ValueError, match="quantised"):
        aw.saliency(quantised, 1)
    with pytest.raises(ValueError, match=r"quantised weights .*attention\.self\.query \(Linear\)"):
        aw.decompx(quantised, 1)
    assert method(quantised, 1).values.any()


@pytest.mark.parametrize("method", [aw.occlusion, aw.shapley_sampling])
def test_bad_input_is_said(classified: Any, method: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="Did you mean 'word'"):
        method(classified, unit="wrod")
    with pytest.raises(ValueError, match="batch_size must be at least 1"):
        method(classified, batch_size=0)
    with pytest.raises(ValueError, match=f"{method.__name__}: the target is nan"):
        method(classified, lambda outputs: outputs.logits[:, 0] * torch.nan)
    result = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *a: None if name == "captum" else result(name, *a)
    )
    with pytest.raises(RuntimeError, match=r"pip install attnwidgets\[captum\]"):
        method(classified)
    refusal = aw.methods(classified).refusals[method.__name__]
    assert refusal == "needs the package captum, which is not installed: pip install attnwidgets[captum]"


def exact_shapley(trace: Any, spans: Any) -> np.ndarray:
    """Return Shapley values of the spans for logit 1, from all orders."""
    values = np.zeros(len(spans))
    scores: dict[frozenset[int], float] = {}

    def of(remaining: frozenset[int]) -> float:
        if remaining not in scores:
            scores[remaining] = score(trace, set(remaining), 4)
        return scores[remaining]

    orders = list(permutations(range(len(spans))))
    for order in orders:
        remaining: frozenset[int] = frozenset()
        for element in order:
            values[element] += (of(remaining | set(spans[element])) - of(remaining)) / len(orders)
            remaining = remaining | set(spans[element])
    return values


def test_kernel_shap_over_all_subsets_is_exact(classified: Any) -> None:
    for unit in ("word", "token"):
        exact = exact_shapley(classified, classified.units[unit].spans)
        result = aw.shapley_sampling(classified, 1, baseline="mask", unit=unit, estimator="kernel")
        assert result.dtype == "float64"
        np.testing.assert_allclose(result.values, exact, rtol=0, atol=1e-8)
    assert result.title.startswith("Shapley values (kernel) with mask")


def test_sampled_kernel_shap_sums_to_the_change_and_nears_the_exact_values(classified: Any) -> None:
    exact = exact_shapley(classified, classified.units["token"].spans)
    options = {"baseline": "mask", "estimator": "kernel"}
    errors = []
    for samples in (4, 8):
        tries = [
            aw.shapley_sampling(classified, 1, samples=samples, seed=seed, **options).values
            for seed in range(4)
        ]
        errors.append(np.mean([np.abs(values - exact).max() for values in tries]) / np.abs(exact).max())
        for values in tries:
            assert float(values.sum()) == pytest.approx(exact.sum(), abs=1e-9)
    assert errors[1] < min(errors[0], 0.35), errors
    with pytest.raises(ValueError, match=r"samples: \d+ subsets do not tell \d+ elements apart"):
        aw.shapley_sampling(classified, 1, samples=1, **options)
    with pytest.raises(ValueError, match="estimator"):
        aw.shapley_sampling(classified, 1, estimator="kernl")
