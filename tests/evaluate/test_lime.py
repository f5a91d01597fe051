"""LIME: against least squares over all subsets, captum and scikit-learn, and models with a closed form."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate.surrogates.lime import fitted, proximity, variants
from tests.explanations.made import random_classifier
from tests.tracing import tiny
from tests.tracing.families import FAMILIES

MASK = 4


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of a random classifier, in float64: three words between two special tokens."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat news")


def logit(trace: Any, variant: np.ndarray) -> float:
    """Return logit 1 with the tokens of words that the variant leaves out masked."""
    ids = trace.inputs["input_ids"].clone()
    spans = [
        span
        for span, special in zip(trace.units["word"].spans, trace.units["word"].special, strict=True)
        if not special
    ]
    for span, stays in zip(spans, variant, strict=True):
        if not stays:
            ids[0, list(span)] = MASK
    with torch.no_grad():
        return float(trace.model(**(dict(trace.inputs) | {"input_ids": ids})).logits[0, 1])


def every_subset(trace: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return all subsets, the answers, and how much each counts as often as it would be drawn."""
    n = sum(not special for special in trace.units["word"].special)
    subsets = np.array([[bit >> index & 1 for index in range(n)] for bit in range(2**n)], dtype=bool)
    answers = np.array([logit(trace, row) for row in subsets])
    counts = []
    for row in subsets:
        gone = n - int(row.sum())
        drawn = (
            1.0 if gone == 0 else 499 / n * 1 / len([other for other in subsets if (n - other.sum()) == gone])
        )
        distance = 1 - row.sum() / (np.sqrt(n) * np.sqrt(max(row.sum(), 1)))
        counts.append(drawn * np.sqrt(np.exp(-((100 * distance) ** 2) / 25**2)))  # as the authors write it
    return subsets, answers, np.array(counts)


def test_all_subsets_of_a_short_text_are_least_squares(classified: Any) -> None:
    subsets, answers, counts = every_subset(classified)
    result = aw.lime(classified, 1, operator="mask", ridge=0)
    root = np.sqrt(counts)[:, None]
    design = np.column_stack([np.ones(len(subsets)), subsets])
    by_hand = np.linalg.lstsq(root * design, root[:, 0] * answers, rcond=None)[0]
    words = [label not in ("[CLS]", "[SEP]") for label in result.labels]
    np.testing.assert_allclose(result.values[words], by_hand[1:], atol=1e-6)
    assert not result.values[np.logical_not(words)].any(), "special tokens are never removed"
    assert result.provenance["intercept"] == pytest.approx(by_hand[0], abs=1e-9)
    assert result.provenance["variants"] == len(subsets)
    mean = np.average(answers, weights=counts)
    error = np.average((answers - design @ by_hand) ** 2, weights=counts)
    spread = np.average((answers - mean) ** 2, weights=counts)
    assert result.provenance["fidelity"] == pytest.approx(1 - error / spread, abs=1e-9)


def test_the_penalty_is_scikit_learns(classified: Any) -> None:
    linear = pytest.importorskip("sklearn.linear_model", reason="scikit-learn is an extra")
    subsets, answers, counts = every_subset(classified)
    for ridge in (0.3, 1.0, 10.0):
        theirs = linear.Ridge(alpha=ridge).fit(subsets, answers, sample_weight=counts)
        ours = fitted(subsets, answers, counts, ridge)
        np.testing.assert_allclose(ours.weights, theirs.coef_, atol=1e-9)
        assert ours.intercept == pytest.approx(theirs.intercept_)
        assert ours.fidelity == pytest.approx(theirs.score(subsets, answers, sample_weight=counts))


def test_captum_fits_the_same_to_the_same_variants(classified: Any) -> None:
    attr = pytest.importorskip("captum.attr", reason="captum is an extra: pip install attnwidgets[captum]")
    model = pytest.importorskip("captum._utils.models.linear_model")
    pytest.importorskip("sklearn")
    subsets, _, counts = every_subset(classified)
    rows, weights = iter(torch.from_numpy(subsets)), iter(counts)
    their = attr.LimeBase(
        lambda row: torch.tensor([logit(classified, row[0].bool().numpy())]),
        model.SkLearnRidge(alpha=1.0),
        lambda *_args, **_options: torch.tensor(next(weights)),
        lambda _original, **_options: next(rows)[None].float(),
        perturb_interpretable_space=True,
        from_interp_rep_transform=lambda row, _original, **_options: row,
        to_interp_rep_transform=None,
    )
    theirs = their.attribute(torch.ones(1, subsets.shape[1]), n_samples=len(subsets))[0]
    result = aw.lime(classified, 1, operator="mask")
    np.testing.assert_allclose(result.values[1:-1], theirs.numpy(), atol=1e-4)


def test_all_variants_are_the_limit_of_drawn_ones() -> None:
    n, order = 4, 2 ** np.arange(4)
    answers = np.random.default_rng(0).normal(size=2**n)
    exact, counts = variants(n, 2**n, 0)
    drawn = np.concatenate([variants(n, 2**n - 1, seed)[0] for seed in range(2000)])
    assert len(drawn) == 2000 * (2**n - 1)
    result = np.bincount(drawn @ order, minlength=2**n) / len(drawn)
    np.testing.assert_allclose(result[exact @ order], counts / counts.sum(), atol=0.01)
    limit = fitted(exact, answers[exact @ order], counts * proximity(exact, 0.5), 0)
    sampled = fitted(drawn, answers[drawn @ order], proximity(drawn, 0.5), 0)
    np.testing.assert_allclose(sampled.weights, limit.weights, atol=0.05)


def test_a_model_that_adds_up_is_explained_whole() -> None:
    model, tokenizer = aw.zoo.additive()
    trace = aw.trace(model, tokenizer, "abcdbca")
    result = aw.lime(trace, "positive", operator="mean", ridge=0, samples=100, unit="token")
    expected = [0.0, *(model.truth.weights[letter] for letter in "abcdbca")]
    np.testing.assert_allclose(result.values, expected, atol=1e-4)
    assert result.provenance["fidelity"] == pytest.approx(1, abs=1e-6)
    assert not result.warning


def test_what_interacts_is_said() -> None:
    subsets = variants(2, 4, 0)[0]
    exclusive = (subsets[:, 0] ^ subsets[:, 1]).astype(float)
    fit = fitted(subsets, exclusive, np.ones(4), 0)
    np.testing.assert_allclose(fit.weights, 0, atol=1e-12)
    assert fit.fidelity == pytest.approx(0)


def test_targets_and_foils_are_linear_and_the_seed_decides(classified: Any) -> None:
    options = {"operator": "mask", "samples": 7, "seed": 3}
    several = aw.lime(classified, [0, 1, 2], **options)
    assert several.shape == (3, 5)
    assert len(several.provenance["fidelity"]) == 3
    contrast = aw.lime(classified, 0, 2, **options)
    np.testing.assert_allclose(contrast.values, several.values[0] - several.values[2], atol=1e-6)
    again = aw.lime(classified, [0, 1, 2], **options)
    np.testing.assert_array_equal(again.values, several.values)
    other = aw.lime(classified, [0, 1, 2], **(options | {"seed": 4}))
    assert not np.array_equal(other.values, several.values)


def test_operators_are_chosen_and_refused_as_metrics_do(classified: Any) -> None:
    assert aw.lime(classified, 1).provenance["options"]["operator"] == "delete"
    moving = aw.trace(*aw.demo_model("encoder"), "A fine film.")
    norm = aw.lime(moving, aw.targets.embedding_norm(1), samples=8)
    assert norm.provenance["options"]["operator"] == "mask"
    masked = FAMILIES["BERT"].traced()
    result = aw.lime(masked, aw.targets.token(7, position=3), samples=8)
    assert result.values[3] == 0, "the token at which the target is read stays"
    with pytest.raises(ValueError, match="operator"):
        aw.lime(classified, 1, operator="blur")
    for options, words in (
        ({"samples": 1}, "samples must be at least 2"),
        ({"kernel_width": 0}, "kernel_width must be above 0"),
        ({"ridge": -1}, "ridge must be a number from 0 on"),
        ({"ridge": float("nan")}, "ridge must be a number from 0 on"),
        ({"batch_size": 0}, "batch_size must be at least 1"),
        ({"unit": "paragraphs"}, "unit"),
    ):
        with pytest.raises(ValueError, match=words):
            aw.lime(classified, 1, **options)
