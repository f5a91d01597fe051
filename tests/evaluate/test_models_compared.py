"""Other seeds, other code, other attention, retraining, choices: by closed forms and brute force."""

from __future__ import annotations

import copy
from contextlib import ExitStack
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from scipy.spatial.distance import jensenshannon
from scipy.stats import kendalltau

import attnwidgets as aw
from attnwidgets.evaluate import (
    adversarial_attention,
    attention_permutation,
    consistency,
    implementation_invariance,
    importance_correlation,
    performance_loss,
    remove_and_retrain,
    robustness,
    uniform_attention,
)
from attnwidgets.evaluate.metrics.attention_swaps import total_variation
from attnwidgets.explanations import Attributions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

TEXTS = ["unbelievable cat", "the cat", "cat cat unbelievable"]


@pytest.fixture(scope="module")
def traces() -> Any:
    return aw.trace(random_classifier().double(), tiny.wordpiece(), TEXTS)


def lengths(trace: Any) -> Attributions:
    values = [len(token) / 7 - at * 1e-3 for at, token in enumerate(trace.tokens)]
    return Attributions(values, axis=trace.axes()[0], stack="self")


def test_the_loss_of_a_data_set_by_hand(traces: Any) -> None:
    labels = [2, 0, 1]
    card = performance_loss(
        traces, {"length": lengths}, labels, removal=aw.evaluate.Removal("mask", thresholds=(0.0, 0.5))
    )
    whole, part, right, still = [], [], [], []
    for trace, label in zip(traces, labels, strict=True):
        ids = trace.inputs["input_ids"][0].tolist()
        inner = range(1, len(ids) - 1)
        order = sorted(inner, key=lambda at: (-len(trace.tokens[at]), at))
        gone = order[: -(-len(order) // 2)]
        for removed, losses, hits in (((), whole, right), (gone, part, still)):
            masked = [4 if at in removed else item for at, item in enumerate(ids)]
            with torch.no_grad():
                logits = trace.model(input_ids=torch.tensor([masked])).logits[0]
            losses.append(-float(logits.log_softmax(-1)[label]))
            hits.append(float(logits.argmax() == label))
    before, after = np.log(np.mean(whole)), np.log(np.mean(part))
    loss, accuracy = card.of("length")[0]
    assert loss[1] == pytest.approx((after - before) / before, abs=1e-9)
    expected = (np.mean(right) - np.mean(still)) / np.mean(right) if np.mean(right) else np.nan
    assert accuracy[1] == pytest.approx(expected, nan_ok=True)
    assert loss[0] == pytest.approx(0, abs=1e-12), "nothing removed, nothing lost"
    low, high = (end[0, 0, 1] for end in card.interval)
    assert low <= loss[1] <= high, "texts drawn again"
    assert "over 3 examples as a whole" in repr(card)
    assert "3 examples as a whole" in card._repr_html_()
    assert low < high
    with pytest.raises(ValueError, match="one for each"):
        performance_loss(traces, lengths, [1], operator="mask")


def test_a_twin_by_other_weights_is_told_from_another_model(traces: Any) -> None:
    twin = copy.deepcopy(traces[0].model)
    for layer in twin.bert.encoder.layer:
        with torch.no_grad():
            for linear in (layer.attention.self.value.weight, layer.attention.self.value.bias):
                linear.mul_(4)
            layer.attention.output.dense.weight.div_(4)
    others = aw.trace(twin, tiny.wordpiece(), TEXTS)

    def values(trace: Any) -> Attributions:
        size = float(trace.model.bert.encoder.layer[0].attention.self.value.weight.detach().abs().sum())
        return Attributions([size] * len(trace.tokens), axis=trace.axes()[0], stack="self")

    result = implementation_invariance(traces, others, {"saliency": "saliency", "weights": values})
    assert result.of("saliency").max() < 1e-9
    np.testing.assert_allclose(result.of("weights"), 3)
    assert result.of("random").min() > 0.3
    assert not result.of("oracle").any()
    with torch.no_grad():
        twin.classifier.bias += 1
    with pytest.raises(ValueError, match="not twins"):
        implementation_invariance(traces, aw.trace(twin, tiny.wordpiece(), TEXTS), "saliency")


def test_explanations_of_equal_models_are_consistent(traces: Any) -> None:
    same = aw.trace(copy.deepcopy(traces[0].model), tiny.wordpiece(), TEXTS)
    result = consistency([traces, same], "saliency")
    np.testing.assert_allclose(result.of("saliency"), 1)
    assert abs(result.of("random")).max() < 1
    assert (result.of("oracle") == 1).all()
    with pytest.raises(ValueError, match="two models"):
        consistency([traces], "saliency")


def test_distances_of_distributions() -> None:
    p, q = [1.0, 0.0, 0.0], [0.0, 0.5, 0.5]
    assert total_variation(p, q) == 1
    assert total_variation(p, p) == 0


def test_permuted_and_uniform_attention_by_hand(traces: Any) -> None:
    result = attention_permutation(traces, 1, permutations=5)
    for number, trace in enumerate(traces):
        plain = trace.logits.softmax(-1)
        changes = [aw.edit_attention(trace, {1: "all"}, "permuted", seed=draw) for draw in range(5)]
        moved = [trace.diff(trace.rerun(change)).total_variation for change in changes]
        assert result.of("permuted")[number, 0, 0] == pytest.approx(np.median(moved), abs=1e-9)
        with aw.edit_attention(trace, {1: "all"}, "uniform"):
            uniform = trace.rerun().logits.softmax(-1)
        expected = float((uniform - plain).abs().sum() / 2)
        assert result.of("uniform")[number, 0, 0] == pytest.approx(expected, abs=1e-9)


def test_a_single_number_is_no_answer_among_several() -> None:
    trace = aw.trace(random_classifier(labels=1), tiny.wordpiece(), "unbelievable cat")
    result = attention_permutation(trace, permutations=2)
    assert np.isnan(result.samples).all()
    assert "single number" in result.warning
    with pytest.raises(ValueError, match="single number"):
        adversarial_attention(trace)


def test_adversarial_attention_keeps_its_word(traces: Any) -> None:
    trace = traces[0]
    result = adversarial_attention(trace, 0, epsilon=0.05, steps=60)
    assert 0.02 < result.divergence <= np.log(2)
    rows = result.attention[0]
    np.testing.assert_allclose(rows.sum(-1), 1, atol=1e-6)
    after = trace.rerun(aw.edit_attention(trace, {0: "all"}, rows))
    assert trace.diff(after).total_variation == pytest.approx(result.total_variation, abs=1e-6)
    assert result.total_variation <= 0.05
    original = trace.attention_layer(0).numpy()
    divergences = jensenshannon(rows, original, axis=-1) ** 2
    assert divergences.mean() == pytest.approx(result.divergence, abs=1e-6)
    assert aw.interventions() == ()


def test_retraining_is_given_texts_without_their_top_features(traces: Any) -> None:
    seen: list[Any] = []

    def train(training: Any, test: Any) -> float:
        seen.append((training, test))
        return sum(item["input_ids"].count(4) for item in training) / 10

    card = remove_and_retrain(
        train,
        (traces, [0, 1, 0]),
        (traces[:1], [0]),
        {"length": lengths},
        removal=aw.evaluate.Removal("mask", thresholds=(0, 0.5)),
    )
    assert len(seen) == 4, "a threshold of 0 is trained once"
    changed = seen[1][0][0]
    before = traces[0].inputs["input_ids"][0].tolist()
    tokens = traces[0].tokens
    longest = sorted(range(1, len(before) - 1), key=lambda at: (-len(tokens[at]), at))[:2]
    expected = [4 if at in longest else item for at, item in enumerate(before)]
    assert changed == {"input_ids": expected, "label": 0}
    assert card.of("length")[0, 0, 1] == sum(item["input_ids"].count(4) for item in seen[1][0]) / 10
    label = int(traces[0].logits.argmax())
    singles = [[4 if at == i else item for i, item in enumerate(before)] for at in range(1, len(before) - 1)]
    with torch.no_grad():
        left = traces[0].model(input_ids=torch.tensor(singles)).logits.softmax(-1)[:, label]
    best = left.argsort()[:2] + 1
    oracle = [4 if at in best else item for at, item in enumerate(before)]
    assert seen[3][1][0] == {"input_ids": oracle, "label": 0}
    several = remove_and_retrain(
        lambda *_: [0.5, 0.7],
        (traces, [0, 1, 0]),
        (traces, [0, 1, 0]),
        lengths,
        removal=aw.evaluate.Removal("mask", oracle=None),
    )
    assert several.n_examples == 2
    assert several.baselines == ("random",)
    with pytest.raises(ValueError, match="changes no ids"):
        remove_and_retrain(train, (traces, [0, 1, 0]), (traces, [0, 1, 0]), lengths, operator="zero")


def test_a_model_that_learns_with_uniform_attention_leaves_queries_and_keys_alone() -> None:
    class Learned(NamedTuple):
        queries: float
        values: float
        rows: torch.Tensor

    seen: list[Learned] = []
    ids = torch.tensor([[2, 7, 8, 9, 3], [2, 9, 7, 3, 0]])
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 1, 1, 0]])

    def train(model: Any, seed: int) -> float:
        attention = model.bert.encoder.layer[0].attention.self
        before = attention.query.weight.detach().clone(), attention.value.weight.detach().clone()
        model.train()
        optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
        model(input_ids=ids, attention_mask=mask, labels=torch.tensor([0, 1])).loss.backward()
        optimizer.step()
        model.eval()
        rows = aw.trace(model, tiny.wordpiece(), "cat").attention_layer(0)
        moved = [
            float((new - old).detach().abs().max())
            for new, old in zip((attention.query.weight, attention.value.weight), before, strict=True)
        ]
        seen.append(Learned(*moved, rows))
        return seed + len(seen) / 10

    made: list[Any] = []

    def make(seed: int) -> Any:
        del seed
        made.append(copy.deepcopy(random_classifier()))
        return made[-1]

    card = uniform_attention(make, train, seeds=(0, 1))
    assert card.methods == ("trained", "uniform")
    assert card.samples[:, 0, :, 0].tolist() == [[0.1, 0.2], [1.3, 1.4]]
    plain, uniform = seen[:2]
    assert plain.queries > 1e-6
    assert plain.values > 1e-6
    assert uniform.queries == 0, "no gradient reaches them"
    assert uniform.values > 1e-6
    assert (uniform.rows - 1 / uniform.rows.shape[-1]).abs().max() < 1e-6
    assert (plain.rows - uniform.rows).abs().max() > 1e-3
    assert aw.interventions() == ()
    assert all(item.config._attn_implementation != "attnwidgets" for item in made)
    with pytest.raises(ValueError, match="seeds is empty"):
        uniform_attention(make, train, seeds=())


def test_attention_beside_gradients_and_removals_by_hand(traces: Any) -> None:
    trace = traces[0]
    ids = trace.inputs["input_ids"][0].tolist()
    inner = range(1, len(ids) - 1)
    rows = np.stack([trace.attention_layer(layer).numpy() for layer in range(trace.n_layers())])
    label = int(trace.logits.argmax())
    with ExitStack() as edits:
        for layer, row in enumerate(rows):
            edits.enter_context(aw.edit_attention(trace, {layer: "all"}, row))
        slopes = abs(aw.input_x_gradient(trace.rerun(), label).values[1:-1])
    masked = torch.tensor([[4 if at == i else item for i, item in enumerate(ids)] for at in inner])
    with torch.no_grad():
        without = trace.model(input_ids=masked).logits.softmax(-1)
    moved = (without - trace.logits.softmax(-1)).abs().sum(-1) / 2
    values = lengths(trace).values[1:-1]
    card = importance_correlation(traces, {"length": lengths}, operator="mask")
    expected = [kendalltau(values, slopes).statistic, kendalltau(values, moved.numpy()).statistic]
    np.testing.assert_allclose(card.of("length")[0, :, 0], expected, atol=1e-12)
    assert np.isnan(card.of("length")[1]).all() == (len(traces[1].tokens) < 4)
    np.testing.assert_allclose(card.of("oracle")[0], 1)
    assert abs(card.of("random")[0]).max() < 0.3
    whole = aw.input_x_gradient(trace, label).values[1:-1]
    assert np.abs(abs(whole) - slopes).max() > 1e-9, "holding attention makes a difference"
    with pytest.raises(ValueError, match="possible are"):
        importance_correlation(aw.trace(trace.model, None, input_ids=[5, 6, 7]), lengths, operator="mask")


def test_ranks_that_do_not_survive_a_choice() -> None:
    axis = ["a", "b", "c", "d"]
    result = robustness(
        {
            "one": Attributions([4.0, 3.0, 1.0, 0.0], axis=axis),
            "two": Attributions([4.0, 1.0, 3.0, 0.0], axis=axis),
            "three": Attributions([9.0, 2.0, 2.0, 0.0], axis=axis),
        }
    )
    assert result.low.tolist() == [1, 2, 2, 4]
    assert result.high.tolist() == [1, 3, 3, 4]
    assert result.undecided(2).tolist() == [False, True, True, False]
    assert not result.undecided(1).any()
    assert result.survives(0, 1)
    assert not result.survives(1, 2)
    assert "'b': rank 2 to 3" in str(result)
    with pytest.raises(ValueError, match="two or more"):
        robustness({"one": Attributions([1.0], axis=["a"])})
    with pytest.raises(ValueError, match="other elements"):
        robustness({"x": Attributions([1.0], axis=["a"]), "y": Attributions([1.0], axis=["b"])})
