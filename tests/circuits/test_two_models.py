"""Two models on one text: the changes of tuning, confined to given weights."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

import attnwidgets as aw


@pytest.fixture(scope="module")
def models():
    """A model that continues repetitions, and a copy whose last attention was tuned to say z there."""
    before, tokenizer = aw.zoo.trained("induction")
    after = copy.deepcopy(before)
    rows = tokenizer(["abcdefgabcdefg", "qwertyuqwertyu"], return_tensors="pt")["input_ids"]
    labels = torch.full_like(rows, -100)
    labels[:, -6:] = tokenizer("z")["input_ids"][-1]
    optimiser = torch.optim.Adam(after.model.layers[1].self_attn.parameters(), lr=3e-3)
    for _ in range(15):
        optimiser.zero_grad()
        after(input_ids=rows, labels=labels).loss.backward()
        optimiser.step()
    return before, after, tokenizer


def test_a_difference_names_what_moved(models):
    before, after, tokenizer = models
    first, second = (aw.trace(model, tokenizer, "hgkcbaphgk") for model in (before, after))
    result = first.diff(second)
    assert result.attention["self"][0] == pytest.approx([0, 0], abs=1e-12)  # it could not change
    assert result.attention["self"][1].min() > 0.01
    probabilities = [torch.softmax(trace.logits[-1].double(), -1) for trace in (first, second)]
    gap = (probabilities[0] - probabilities[1]).abs().sum() / 2
    assert result.total_variation == pytest.approx(float(gap), abs=1e-6)
    equal = first.diff(aw.trace(copy.deepcopy(before), tokenizer, "hgkcbaphgk"))
    assert equal.total_variation == 0
    assert equal.largest_logit_change == 0


def test_views_show_both(models):
    before, after, tokenizer = models
    first, second = (aw.trace(model, tokenizer, "hgkcbaphgk") for model in (before, after))
    view = aw.TwoTexts([first, second], names=("before", "after"))
    moved = view.difference("attention").values
    assert np.abs(moved[0]).max() == pytest.approx(0, abs=1e-7)
    assert np.abs(moved[1]).max() > 0.05
    compared = aw.compare({"before": first, "after": second}, methods=["rollout"])
    assert compared.names == ("rollout (before)", "rollout (after)")
    expected = [aw.rollout(trace).values[-1][-1] for trace in (first, second)]
    for number, row in enumerate(expected):
        assert compared.value(number, 4, layer=1, query=10) == pytest.approx(float(row[4]), abs=1e-6)


def test_activations_of_one_model_are_not_patched_into_another(models):
    before, after, tokenizer = models
    first, second = (aw.trace(model, tokenizer, "hgkcbaphgk") for model in (before, after))
    with pytest.raises(ValueError, match="traces of two models"):
        aw.circuits.patch(first, second, "c", foil="d")
    with pytest.raises(ValueError, match="traces of two models"):
        aw.circuits.component_relevance(first, "c", reference=second)
