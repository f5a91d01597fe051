"""Probes: on planted labels, on random labels, beside memorised labels, on bad input."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._logistic import fit_softmax, log_softmax
from attnwidgets.evaluate.probe import blocks, probe_task, random_folds, type_folds
from attnwidgets.evaluate.probe_numbers import ridge
from attnwidgets.views.evaluate.scorecard_view import described

OPTIONS = {"resamples": 50}


def scores(card: Any, method: str = "probe") -> dict[str, float]:
    """Means of a card of a single layer by metric."""
    return dict(zip(card.metrics, card.mean[:, card.methods.index(method), 0].tolist(), strict=True))


def bit(n: int = 600, strength: float = 4.0, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, 2, n)
    values = rng.normal(size=(n, 1, 20))
    values[:, 0, 3] += strength * (2 * labels - 1)
    return values, labels


def test_a_planted_bit_is_read_from_few_examples() -> None:
    card = aw.evaluate.probe(*bit(), **OPTIONS)
    result = scores(card)
    assert result["accuracy"] > 0.995
    assert result["compression"] > 5
    assert abs(result["control"] - 0.5) < 0.07
    assert result["selectivity"] == pytest.approx(result["accuracy"] - result["control"])
    low, high = card.interval
    assert low[3, 0, 0] < result["compression"] < high[3, 0, 0]
    assert abs(scores(card, "majority")["compression"] - 1) < 0.03


def test_compression_is_the_uniform_code_over_the_online_code_of_scikit_learns_probes() -> None:
    """Voita and Titov 2020, section 3.1.2: the labels of the first block in a uniform code."""
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(3)
    labels = rng.integers(0, 3, 120)
    values = rng.normal(size=(120, 6)) + 1.5 * np.eye(3, 6)[labels]
    card = aw.evaluate.probe(values, labels, control="none", seed=7, **OPTIONS)
    # Without control labels, the order of the code is drawn after the folds.
    order_rng = np.random.default_rng(7)
    random_folds(labels, 5, order_rng)
    order = order_rng.permutation(120)
    scaled = np.concatenate([(values - values.mean(0)) / values.std(0).mean(), np.ones((120, 1))], axis=1)
    online = blocks(120)[0] * np.log2(3)
    for start, stop in pairwise(blocks(120)):
        earlier, rows = order[:start], order[start:stop]
        if len(set(labels[earlier])) == 3:
            model = linear.LogisticRegression(C=1.0, fit_intercept=False, tol=1e-10, max_iter=5000)
            p = model.fit(scaled[earlier], labels[earlier]).predict_proba(scaled[rows])
            online -= np.log2(p[np.arange(len(rows)), labels[rows]]).sum()
        else:
            theta = fit_softmax(scaled[earlier, :-1], labels[earlier], 3, penalty=1.0)
            online -= log_softmax(scaled[rows] @ theta.T)[np.arange(len(rows)), labels[rows]].sum() / np.log(
                2
            )
    assert scores(card)["compression"] == pytest.approx(120 * np.log2(3) / online, rel=1e-4)


def test_labels_that_states_do_not_hold_take_no_fewer_bits_than_they_are() -> None:
    values, _ = bit(strength=0)
    labels = np.random.default_rng(5).integers(0, 2, len(values))
    result = scores(aw.evaluate.probe(values, labels, **OPTIONS))
    assert result["compression"] <= 1
    assert abs(result["accuracy"] - 0.5) < 0.07
    assert abs(result["selectivity"]) < 0.1


def test_what_is_learnt_by_heart_is_gone_with_unseen_types() -> None:
    """Labels drawn for every type, and states that spell the type: unseen types are right by chance."""
    rng = np.random.default_rng(0)
    types = rng.integers(0, 30, 480)
    labels = rng.integers(0, 2, 30)[types]
    values = rng.normal(size=(30, 64))[types] + 0.1 * rng.normal(size=(480, 64))
    card = aw.evaluate.probe(values, labels, groups=types, **OPTIONS)
    result = scores(card)
    assert card.metrics == ("accuracy", "accuracy_seen", "control", "selectivity", "compression")
    assert result["accuracy_seen"] > 0.98
    assert result["control"] > 0.98
    assert abs(result["selectivity"]) < 0.03
    assert result["accuracy"] < 0.75


@pytest.mark.parametrize("classes", [2, 3])
def test_a_probe_is_scikit_learns(classes) -> None:
    linear = pytest.importorskip("sklearn.linear_model")

    rng = np.random.default_rng(0)
    values, labels = rng.normal(size=(90, 7)), rng.integers(0, classes, 90)
    wide = np.concatenate([values, np.ones((90, 1))], axis=1)
    # Theirs has a single vector for two classes, whose penalty is twice that of either half.
    C = 1.0 if classes == 2 else 0.5
    model = linear.LogisticRegression(C=C, fit_intercept=False, tol=1e-10, max_iter=5000)
    ours = fit_softmax(values, labels, classes, penalty=2.0)
    ours = ours[1:] - ours[:1] if classes == 2 else ours
    np.testing.assert_allclose(ours, model.fit(wide, labels).coef_, atol=1e-3)


@pytest.mark.slow
def test_positions_that_give_the_label_away_are_a_baseline() -> None:
    model, tokenizer = aw.demo_model("encoder")
    rng = np.random.default_rng(0)
    long = rng.integers(0, 2, 40)
    texts = ["The cat sat on the old mat." if each else "The cat sat." for each in long]
    states = aw.concepts.states(model, tokenizer, texts, layers=[0, 3], at="last")
    with aw.randomized(model):
        chance = aw.concepts.states(model, tokenizer, texts, layers=[0, 3], at="last")
    labels = ["long" if each else "short" for each in long]
    card = aw.evaluate.probe(states, labels, random_states=chance, mdl=False, **OPTIONS)
    assert card.methods == ("probe", "majority", "position", "random weights")
    assert card.baselines == card.methods[1:]
    assert card.x == (0, 3)
    assert scores(card, "position")["accuracy"] == 1
    assert scores(card, "majority")["accuracy"] < 0.7
    assert "compression" not in card.metrics
    assert "long" in card.provenance["options"]["classes"]
    assert card.examples == "40 examples as a whole"


def test_folds_hold_every_class_and_no_type_twice() -> None:
    rng = np.random.default_rng(0)
    labels, types = rng.integers(0, 3, 100), rng.integers(0, 17, 100)
    fold = random_folds(labels, 5, rng)
    for label in range(3):
        counts = np.bincount(fold[labels == label], minlength=5)
        assert counts.max() - counts.min() <= 1
    fold = type_folds(types, 5, rng)
    assert all(len(set(fold[types == each])) == 1 for each in range(17))
    assert np.bincount(fold).min() > 10


def test_the_blocks_of_the_code_cover_all_examples_once() -> None:
    for n in (2, 30, 5000):
        ends = blocks(n)
        assert ends[-1] == n
        assert all(first < second for first, second in pairwise(ends))
    assert blocks(5000)[:3] == [5, 10, 20]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"labels": [0, None] * 300}, "300 of 600 without a label"),
        ({"labels": [0, 1]}, "2 entries, and there are states of 600"),
        ({"labels": [1] * 600}, "labels are all 1"),
        ({"labels": np.linspace(0, 1, 600)}, "600 different ones for 600 texts"),
        ({"groups": ["a"] * 600}, "one type only"),
        ({"groups": ["a"]}, "groups has 1 entries"),
        ({"control": "type"}, "needs groups="),
        ({"control": "shufle"}, "Did you mean 'shuffle'"),
        ({"folds": 1}, "folds must be"),
        ({"penalty": 0}, "no best probe"),
        ({"random_states": np.zeros((600, 2, 4))}, "random_states has shape"),
        ({"states": np.full((600, 1, 2), np.nan)}, "NaN or infinite"),
        ({"states": np.zeros(600)}, r"must be \[text, layer, dim\]"),
    ],
)
def test_bad_input_is_refused_with_what_to_do(changes, said) -> None:
    values, labels = bit()
    options = {"states": values, "labels": labels} | changes
    with pytest.raises(ValueError, match=said):
        aw.evaluate.probe(options.pop("states"), options.pop("labels"), **options)


def test_names_and_numbers_are_classes() -> None:
    assert probe_task(["b", "a", "b"], None, 3).classes == ("a", "b")
    assert probe_task(np.array([True, False]), None, 2).labels.tolist() == [1, 0]


def test_a_table_and_a_view_count_the_texts() -> None:
    values, labels = bit(60)
    card = aw.evaluate.probe(values, labels, **OPTIONS)
    assert {row["count"] for row in card.to_rows()} == {60}
    assert described("", card)["examples"] == 60


def test_few_texts_of_a_class_are_said() -> None:
    values, labels = bit(60)
    labels[:] = 0
    labels[:4] = 1
    assert "smallest class has 4 texts" in aw.evaluate.probe(values, labels, **OPTIONS).warning


def numbers(n: int = 200, noise: float = 0.3, seed: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=(n, 2, 12))
    planted = values[:, 1] @ rng.normal(size=(12, 3)) + noise * rng.normal(size=(n, 3))
    return values, planted


def test_numbers_are_predicted_as_scikit_learns_ridge_predicts_them() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    values, planted = numbers()
    card = aw.evaluate.probe(values, planted, folds=4, penalty=2.0, **OPTIONS)
    assert card.metrics == ("r2", "control", "selectivity")
    assert card.baselines == ("mean",)
    r2 = card.mean[0, :, :]
    assert r2[0, 1] > 0.9
    assert r2[0, 0] < 0.05
    assert abs(r2[1, 1]) < 0.05
    assert card.mean[1, 0, 1] < 0.05
    fold = random_folds(np.zeros(len(values), np.int64), 4, np.random.default_rng(0))
    x = (values[:, 1] - values[:, 1].mean(0)) / values[:, 1].std(0).mean()
    y, predicted = planted / planted.std(0), np.zeros_like(planted)
    for part in range(4):
        model = linear.Ridge(alpha=2.0).fit(x[fold != part], y[fold != part])
        predicted[fold == part] = model.predict(x[fold == part])
    by_hand = 1 - ((y - predicted) ** 2).sum() / ((y - y.mean(0)) ** 2).sum()
    assert r2[0, 1] == pytest.approx(by_hand, abs=1e-8)


def test_more_dimensions_than_texts_solve_the_same_equations() -> None:
    rng = np.random.default_rng(1)
    values, planted, tested = rng.normal(size=(9, 14)), rng.normal(size=(9, 2)), rng.normal(size=(3, 14))
    centred = values - values.mean(0)
    theta = np.linalg.solve(centred.T @ centred + 0.5 * np.eye(14), centred.T @ (planted - planted.mean(0)))
    expected = (tested - values.mean(0)) @ theta + planted.mean(0)
    np.testing.assert_allclose(ridge(values, planted, tested, 0.5), expected, atol=1e-10)


def test_numbers_of_unseen_types_are_scored_apart_and_bad_ones_refused() -> None:
    values, planted = numbers(80)
    card = aw.evaluate.probe(values, planted, groups=np.arange(80) // 8, **OPTIONS)
    assert card.metrics == ("r2", "r2_seen", "control", "selectivity")
    with pytest.raises(ValueError, match="labels are the same for all texts"):
        aw.evaluate.probe(values, np.ones((80, 2)), **OPTIONS)
    with pytest.raises(ValueError, match="labels hold NaN"):
        aw.evaluate.probe(values, np.full((80, 1), np.nan), **OPTIONS)
    with pytest.raises(ValueError, match=r"or pass an array \[text, 1\]"):
        aw.evaluate.probe(values, planted[:, 0], **OPTIONS)
    with pytest.raises(ValueError, match="labels has 79 entries"):
        aw.evaluate.probe(values, planted[1:], **OPTIONS)


def test_patches_that_are_scratch_space_hold_little_of_their_pixels() -> None:
    """Darcet et al. 2024, section 2.1: with planted outliers, pixels are read from normal patches alone."""
    rng = np.random.default_rng(2)
    pixels = rng.normal(size=(240, 4))
    states = np.concatenate([pixels @ rng.normal(size=(4, 12)), np.zeros((240, 4))], axis=1)
    is_outlier = rng.random(240) < 0.4
    states[is_outlier] = 20 * rng.normal(size=(int(is_outlier.sum()), 16))
    read = {
        name: scores(aw.evaluate.probe(states[rows], pixels[rows], control="none", **OPTIONS))["r2"]
        for name, rows in (("normal", ~is_outlier), ("outlier", is_outlier))
    }
    assert read["normal"] > 0.95
    assert read["outlier"] < 0.1
