"""Removal of single features against an explanation, and how many features a model needs."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf
from scipy.stats import kendalltau, spearmanr

import attnwidgets as aw
from attnwidgets.evaluate import effective_complexity, single_removals
from attnwidgets.explanations import Attributions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

MASK = 4
FOUR = ("non_sensitivity", "monotonicity", "loss_monotonicity", "leave_one_out_tau")


@pytest.fixture(scope="module")
def classified() -> Any:
    """A trace of a random classifier in float64: [CLS] un ##believ ##able cat [SEP]."""
    return aw.trace(random_classifier().double(), tiny.wordpiece(), "unbelievable cat")


@pytest.fixture(scope="module")
def reads_two() -> Any:
    """A trace of a classifier that reads tokens 2 and 4 of six and nothing else."""
    model = copy.deepcopy(random_classifier()).double()

    def only_two(module: Any, args: Any, kwargs: Any, output: Any) -> Any:
        ids = kwargs["input_ids"]
        output.logits = torch.zeros(len(ids), 3, dtype=torch.float64)
        output.logits[:, 1] = 3.0 * (ids[:, 2] == 12) * (ids[:, 4] == 14)
        return output

    model.register_forward_hook(only_two, with_kwargs=True)
    return aw.trace(model, None, input_ids=[10, 11, 12, 13, 14, 15])


def given(trace: Any, values: Any) -> Attributions:
    return Attributions(values, axis=trace.axes()[0])


def probability(trace: Any, removed: set[int], label: int) -> float:
    ids = trace.inputs["input_ids"].clone()
    ids[0, list(removed)] = MASK
    with torch.no_grad():
        return float(trace.model(input_ids=ids).logits[0].softmax(-1)[label])


def test_every_metric_by_hand(classified: Any) -> None:
    values = np.array([0.5, -3.0, 1.0, 0.0])
    card = single_removals(
        classified, given(classified, [9, *values, 9]), 2, operator="mask", metrics=FOUR, change=1e-12
    )
    alone = np.array([probability(classified, {at}, 2) for at in range(1, 5)])
    drops = probability(classified, set(), 2) - alone
    expected = [
        1.0,
        spearmanr(np.abs(values), drops**2).statistic,
        spearmanr(values, -np.log(alone)).statistic,
        kendalltau(values, drops).statistic,
    ]
    assert card.samples[0, :, 0, 0] == pytest.approx(expected)
    np.testing.assert_allclose(card.of("oracle")[0, :, 0], [0, 1, 1, 1], atol=1e-12)
    assert np.abs(card.of("random")[0, 1:, 0]).max() < 0.3


def test_a_model_that_reads_two_tokens_is_seen_to(reads_two: Any) -> None:
    named = {
        "right": given(reads_two, [0, 0, 1, 0, 2, 0]),
        "wrong": given(reads_two, [1, 0, 1, 0, 0, 0]),
        "every": given(reads_two, [3, 4, 5, 6, 7, 8]),
    }
    card = single_removals(reads_two, named, 1, operator="pad", metrics="non_sensitivity")
    assert card.samples[0, 0, :3, 0].tolist() == [0, 2, 4]
    assert card.of("oracle")[0, 0, 0] == 0
    gold = single_removals(reads_two, named, 1, operator="pad", metrics="non_sensitivity", gold=[0, 2])
    assert gold.samples[0, 0, :3, 0].tolist() == [2, 0, 4]
    needed = effective_complexity(reads_two, named, 1, operator="pad")
    assert needed.samples[0, 0, :3, 0].tolist() == [2, 5, 4]
    assert needed.of("random")[0, 0, 0] > 2
    deleted = effective_complexity(reads_two, named, 1, operator="pad", selected="deleted")
    assert deleted.samples[0, 0, :3, 0].tolist() == [1, 2, 2]
    assert deleted.of("oracle")[0, 0, 0] == 1
    loss = effective_complexity(reads_two, named, 1, operator="pad", loss="log_loss", epsilon=0.2)
    assert loss.samples[0, 0, :3, 0].tolist() == [2, 5, 4]
    never = effective_complexity(reads_two, named, 1, operator="pad", loss="log_loss", epsilon=1e-3)
    assert np.isnan(never.samples).all()
    assert "no number of features" in never.warning


def test_undefined_is_nan_with_the_reason(classified: Any) -> None:
    flat = single_removals(classified, {"flat": given(classified, [1] * 6)}, 1, operator="mask", metrics=FOUR)
    assert np.isnan(flat.of("flat")[0, 1:, 0]).all()
    assert "constant" in flat.warning
    trace = aw.trace(classified.model, classified.tokenizer, "cat")
    single = single_removals(trace, given(trace, [0, 1, 0]), 1, operator="mask", metrics=FOUR[1:])
    assert np.isnan(single.samples).all()
    number = aw.targets.embedding_norm(0)
    norm = single_removals(
        classified, given(classified, [0, 1, 2, 3, 4, 0]), number, operator="mask", metrics=FOUR[1:]
    )
    assert np.isnan(norm.samples[0, :, 0, 0]).tolist() == [False, True, False]
    assert np.isnan(
        effective_complexity(classified, given(classified, [1] * 6), operator="mask").samples[0, 0, 0, 0]
    )


def test_bad_input_is_said(classified: Any) -> None:
    values = given(classified, [0, 1, 2, 3, 4, 0])
    with pytest.raises(ValueError, match="Did you mean 'monotonicity'"):
        single_removals(classified, values, operator="mask", metrics="monotonicty")
    with pytest.raises(ValueError, match="is not one of 'delete'"):
        single_removals(classified, values, operator="blot")
    with pytest.raises(ValueError, match="score 'logit' is not one of"):
        single_removals(classified, values, removal=aw.evaluate.Removal("mask", score="logit"))
    with pytest.raises(ValueError, match="Did you mean 'deleted'"):
        effective_complexity(classified, values, operator="mask", selected="delete")
    with pytest.raises(ValueError, match="gold has 2 for 1"):
        single_removals([classified], [values], operator="mask", gold=[[1], [2]])


def test_kendall_with_leave_one_out_equals_ferret(shared: Path, minilm: Any) -> None:
    from safetensors.torch import load_file

    folder = shared / "reference" / "lrp"
    encoder, tokenizer = minilm
    config = copy.deepcopy(encoder.config)
    config.num_labels = 3
    model = hf.BertForSequenceClassification(config).eval()
    model.bert.load_state_dict(encoder.state_dict(), strict=False)
    model.load_state_dict(load_file(folder / "models" / "minilm_head.safetensors"), strict=False)
    arrays = np.load(folder / "ferret_minilm.npz")
    trace = aw.trace(model, tokenizer, input_ids=arrays["input_ids"].tolist())
    names = ("gradxinput", "ig_pad", "attnlrp", "grad_l2")
    scores = {name: given(trace, arrays[f"scores.{name}"]) for name in names}
    card = single_removals(trace, scores, 0, operator="delete", metrics="leave_one_out_tau")
    expected = [arrays[f"taucorr_loo.loo.{name}"] for name in names]
    np.testing.assert_allclose(card.samples[0, 0, : len(names), 0], expected, atol=1e-5)
