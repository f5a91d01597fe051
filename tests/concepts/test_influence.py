"""Influence: to the exact references, to true leaving out, to closed forms, and where it must refuse."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.concepts.heads import HeadReading
from attnwidgets.concepts.influence import of_features
from attnwidgets.concepts.refit import Refit, with_ones
from tests.tracing import tiny

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass
class Labelled:
    text: str
    label: Any


@pytest.fixture(scope="module")
def reference(shared: Any) -> dict[str, Any]:
    folder = shared / "reference" / "concepts"
    return {
        "head": dict(np.load(folder / "influence_head.npz")),
        "tests": dict(np.load(folder / "influence_tests.npz")),
    }


@pytest.fixture(scope="module")
def influence() -> Any:
    model, tokenizer = aw.demo_model("classifier")
    tests = aw.demo_texts("test")
    return aw.concepts.influence(
        model, tokenizer, aw.demo_texts("train"), [tests[at] for at in range(0, 74, 8)]
    )


def test_the_head_and_its_influence_are_the_references_from_their_features(reference) -> None:
    head, tests = reference["head"], reference["tests"]
    refit = Refit(
        with_ones(head["features_train"].astype(float)), head["labels_train"].astype(float), 1, "binary", 0.01
    )
    features = with_ones(tests["features"].astype(float))
    np.testing.assert_allclose(refit.theta[0], head["theta"], rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(refit.self_influence, head["self_influence"], rtol=1e-9)
    values = refit.influence(features, tests["labels"].astype(float))
    assert np.abs(values - tests["influence"]).max() < 1e-9 * np.abs(tests["influence"]).max()


def test_from_texts_to_the_references(influence, reference) -> None:
    tests = reference["tests"]
    assert influence.shape == tests["influence"].shape
    # Other batches round differently, in single precision.
    assert np.abs(influence.values - tests["influence"]).max() < 1e-5 * np.abs(tests["influence"]).max()
    np.testing.assert_allclose(influence.self_influence, reference["head"]["self_influence"], rtol=1e-3)


def test_true_leaving_out_is_the_references_and_the_correction_comes_closer(influence, reference) -> None:
    some = list(range(0, 226, 15))
    true = influence.leave_one_out(some)
    expected = reference["tests"]["leave_one_out"][:, some]
    assert np.abs(true - expected).max() < 1e-4 * np.abs(reference["tests"]["leave_one_out"]).max()
    every = reference["tests"]["leave_one_out"]
    plain, corrected = np.abs(-influence.values / 226 - every).max(), np.abs(influence.change - every).max()
    assert corrected < 0.6 * plain
    from scipy.stats import spearmanr

    assert np.mean([spearmanr(a, b).statistic for a, b in zip(influence.change, every, strict=True)]) > 0.999


def test_wrong_labels_are_found_beside_the_plain_loss(reference) -> None:
    head = reference["head"]
    features, labels = head["features_train"].astype(float), head["labels_train"].astype(float)
    labels[head["flipped"]] = 1 - labels[head["flipped"]]
    reading = HeadReading(
        features, np.eye(2)[labels.astype(int)], np.zeros((2, 384)), np.zeros(2), ("-", "+")
    )
    names = tuple(f"text {at}" for at in range(len(labels)))
    options = {"l2": 0.01, "measure": "loss", "correct_leverage": True, "normalize": False, "model": ""}
    first = HeadReading(features[:1], reading.logits[:1], reading.weight, reading.bias, reading.classes)
    result = of_features(reading, labels, first, labels[:1], names=(names, names[:1]), **options)
    np.testing.assert_allclose(result.self_influence, head["self_influence_flipped"], rtol=1e-9)
    card = aw.concepts.mislabelled(result, head["flipped"])
    by_influence, loss, chance, best = card.mean[0, :, 0]
    assert by_influence == pytest.approx(0.901, abs=0.01)
    assert loss == pytest.approx(0.894, abs=0.01)
    assert chance < 0.15
    assert best == 1
    assert card.mean[1, 0, 0] > 0.7


def test_helpful_and_harmful_texts_are_told_apart(influence) -> None:
    assert all(each.influence < 0 < each.change for each in influence.helpful(0, 5))
    assert all(each.influence > 0 > each.change for each in influence.harmful(0, 5))
    assert influence.helpful(0, 5)[0].influence == influence.values[0].min()
    assert influence.agreement >= 0.9
    assert 0 < influence.agreement_train <= 1
    assert influence.gradient_norm > 0
    assert "fitted again" in repr(influence)
    assert (influence.leverage > 0).all()
    assert (influence.leverage < 1).all()
    words = " ".join(text.get_text() for axes in influence.figure(0).axes for text in axes.texts)
    assert influence.helpful(0, 1)[0].text[:18] in words, (
        "a sentence is cut where there is no room, not before"
    )
    row = influence.to_rows()[230]
    assert (row["test"], row["train"], row["influence"]) == (1, 4, influence.values[1, 4])


@pytest.mark.slow
def test_a_copy_of_a_test_with_the_other_label_harms_it_most() -> None:
    model, tokenizer = aw.demo_model("classifier")
    train = [Labelled(each.text, each.label) for each in aw.demo_texts("train")[:20]]
    test = aw.demo_texts("test")[0]
    train.append(Labelled(test.text, "negative"))
    result = aw.concepts.influence(model, tokenizer, train, [Labelled(test.text, "positive")])
    assert result.harmful(0, 1)[0].number == 20
    again = aw.concepts.influence(
        model, tokenizer, train, [Labelled(test.text, "positive")], of=aw.concepts.HeadRefit(measure="margin")
    )
    assert again.harmful(0, 1)[0].number == 20


def test_of_a_ridge_regression_leaving_out_is_exact() -> None:
    rng = np.random.default_rng(0)
    features, labels = with_ones(rng.normal(size=(30, 5))), rng.normal(size=30)
    refit = Refit(features, labels, 1, "regression", 0.1)
    tests = with_ones(rng.normal(size=(4, 5)))
    change = -refit.influence(tests, np.zeros(4), measure="margin", without=True) / 30
    for text in (0, 7, 29):
        rest = np.arange(30) != text
        gram = features[rest].T @ features[rest] / 30 + 0.1 * np.eye(6)
        theta = np.linalg.solve(gram, features[rest].T @ labels[rest] / 30)
        np.testing.assert_allclose(
            tests @ theta - refit.outputs_for(tests)[:, 0], change[:, text], atol=1e-10
        )
        np.testing.assert_allclose(refit.outputs_without(text, tests)[:, 0], tests @ theta, atol=1e-10)


@pytest.mark.parametrize("width", [3, 60])
@pytest.mark.parametrize("measure", ["loss", "margin"])
def test_of_three_classes_it_is_the_derivative_by_a_texts_weight(width, measure) -> None:
    rng = np.random.default_rng(0)
    features, labels = with_ones(rng.normal(size=(25, width))), rng.integers(0, 3, 25).astype(float)
    tests, test_labels = with_ones(rng.normal(size=(3, width))), np.array([0.0, 1, 2])
    refit = Refit(features, labels, 3, "classes", 0.05)
    values = refit.influence(tests, test_labels, measure=measure)
    step = 1e-5
    for text in (0, 11):
        moved = []
        for sign in (1, -1):
            weights = np.full(25, 1 / 25)
            weights[text] += sign * step
            theta = refit._minimum(weights, refit._theta)
            outputs = refit._reduced(tests) @ theta.T
            moved.append(refit.measured(outputs, test_labels, measure))
        np.testing.assert_allclose((moved[0] - moved[1]) / (2 * step), values[:, text], rtol=1e-4, atol=1e-7)


def test_of_two_classes_one_output_is_what_scikit_learn_fits() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    features, labels = with_ones(rng.normal(size=(40, 6))), rng.integers(0, 2, 40).astype(float)
    refit = Refit(features, labels, 1, "binary", 0.02)
    model = linear.LogisticRegression(C=1 / (0.02 * 40), fit_intercept=False, tol=1e-12, max_iter=10_000)
    np.testing.assert_allclose(refit.theta, model.fit(features, labels).coef_, atol=1e-6)


@pytest.mark.slow
def test_gradients_are_those_of_single_losses() -> None:
    model, tokenizer = aw.demo_model("classifier")
    train, tests = aw.demo_texts("train")[:5], aw.demo_texts("test")[:2]
    of = aw.concepts.LossGradients(["classifier"])
    result = aw.concepts.influence(model, tokenizer, train, tests, of=of)

    def slope(each: Any) -> torch.Tensor:
        outputs = model.eval()(**tokenizer(each.text, return_tensors="pt"))
        label = torch.tensor([int(each.label == "positive")])
        loss = torch.nn.functional.cross_entropy(outputs.logits, label)
        return torch.cat(
            [part.reshape(-1) for part in torch.autograd.grad(loss, model.classifier.parameters())]
        )

    expected = -torch.stack([slope(each) for each in tests]) @ torch.stack([slope(each) for each in train]).T
    np.testing.assert_allclose(result.values, expected.numpy(), atol=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())
    cosines = aw.concepts.influence(model, tokenizer, [*train, tests[0]], tests, of=of, normalize=True)
    assert cosines.values[0, 5] == pytest.approx(-1, abs=1e-5)
    with pytest.raises(ValueError, match="has none"):
        result.leave_one_out()


def sequence_classifier(make: Any = hf.BertForSequenceClassification, labels: int = 1) -> Any:
    config = hf.BertConfig(
        vocab_size=40,
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        num_labels=labels,
        initializer_range=0.5,  # so that texts have different outputs
    )
    return tiny.build(lambda: make(config))


def products(
    model: Any, train: list[Any], tests: list[Any], losses: Callable[[torch.Tensor, Any], torch.Tensor]
) -> np.ndarray:
    """The products of gradients by the head's parameters [test, train], by autograd on the model itself."""

    def slope(item: tuple[list[int], Any]) -> torch.Tensor:
        ids, label = item
        loss = losses(model(input_ids=torch.tensor([ids])).logits, label)
        parts = torch.autograd.grad(loss, list(model.classifier.parameters()))
        return torch.cat([part.reshape(-1) for part in parts])

    return (
        torch.stack([slope(item) for item in tests]) @ torch.stack([slope(item) for item in train]).T
    ).numpy()


def test_a_regression_is_influenced_through_its_labels_which_are_not_rounded() -> None:
    model = sequence_classifier()
    train_ids, test_ids = [[2, at + 4, 9, 3] for at in range(6)], [[2, 20, 7, 3], [2, 30, 8, 3]]
    train, tests = ([aw.trace(model, None, input_ids=ids) for ids in each] for each in (train_ids, test_ids))
    labels, test_labels = [0.3, -0.6, 1.7, 0.9, -1.4, 0.2], [0.45, -1.25]
    result = aw.concepts.influence(
        None, None, train, tests, labels=labels, test_labels=test_labels, of="gradients",
        parameters=["classifier"],
    )  # fmt: skip
    expected = -products(
        model, list(zip(train_ids, labels, strict=True)), list(zip(test_ids, test_labels, strict=True)),
        lambda logits, label: 0.5 * (logits[0, 0] - label) ** 2,
    )  # fmt: skip
    np.testing.assert_allclose(result.values, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())
    assert result.test_labels == ("0.45", "-1.25")
    for of in ("head", "gradients"):
        with pytest.raises(ValueError, match=r"has no gradient there; give test_labels=.*measure='margin'"):
            aw.concepts.influence(None, None, train, tests, labels=labels, of=of)
    rises = aw.concepts.influence(None, None, train, tests, labels=labels, measure="margin")
    assert rises.test_labels == tuple(f"{float(trace.logits[0]):g}" for trace in tests)


class Doubled(hf.BertForSequenceClassification):
    """A classifier none of whose linear maps gives the logits."""

    def forward(self, *args: Any, **options: Any) -> Any:
        outputs = super().forward(*args, **options)
        outputs.logits = 2 * outputs.logits
        return outputs


def test_gradients_take_the_predicted_classes_of_any_classifier() -> None:
    model = sequence_classifier(Doubled, labels=3)
    train_ids, test_ids = [[2, at + 4, 9, 3] for at in range(4)], [[at, 7, at + 1] for at in range(2, 38, 6)]
    train, tests = ([aw.trace(model, None, input_ids=ids) for ids in each] for each in (train_ids, test_ids))
    labels = [0, 2, 1, 0]
    result = aw.concepts.influence(
        None, None, train, tests, labels=labels, of="gradients", parameters=["classifier"]
    )
    predicted = [int(trace.logits.argmax()) for trace in tests]
    assert len(set(predicted)) > 1
    assert result.test_labels == tuple(f"LABEL_{label}" for label in predicted)
    expected = -products(
        model, list(zip(train_ids, labels, strict=True)), list(zip(test_ids, predicted, strict=True)),
        lambda logits, label: torch.nn.functional.cross_entropy(logits, torch.tensor([label])),
    )  # fmt: skip
    np.testing.assert_allclose(result.values, expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


def test_a_language_model_needs_no_labels() -> None:
    model = tiny.build(tiny.TEXT["GPT-2"])
    traces = [aw.trace(model, None, input_ids=ids) for ids in ([3, 4, 5, 6], [9, 8, 7], [3, 4, 5, 6])]
    result = aw.concepts.influence(None, None, traces, traces[:1], of="gradients", normalize=True)
    assert result.values[0, 0] == pytest.approx(-1, abs=1e-5)
    assert result.helpful(0, 1)[0].number in (0, 2)
    assert repr(result).splitlines()[1] == f"  {result.tests[0]!r}"  # a text without a label
    with pytest.raises(ValueError, match="of='gradients'"):
        aw.concepts.influence(None, None, traces, traces[:1])


@pytest.mark.slow
def test_bad_input_is_refused_with_what_to_do() -> None:
    model, tokenizer = aw.demo_model("classifier")
    train, tests = list(aw.demo_texts("train")[:6]), list(aw.demo_texts("test")[:1])
    alike = [each for each in aw.demo_texts("train") if each.label == "positive"][:5]
    cases: list[tuple[dict[str, Any], str]] = [
        ({"train": alike}, "have the label 'positive'"),
        ({"labels": [0, 1]}, "2 labels, and there are 6 texts"),
        (
            {"labels": ["positive", None, "negative", None, "positive", "negative"]},
            r"labels\[1\] has no label \(2 of 6",
        ),
        ({"labels": [1, 0, float("nan"), 1, 0, 1]}, r"labels\[2\] has no label"),
        ({"labels": ["positiv"] * 6}, "Did you mean 'positive'"),
        ({"labels": [2] * 6}, "the classes are"),
        ({"labels": [0, 1, 0.7, 1, 0, 1]}, r"labels\[2\] is 0.7; the classes are"),
        ({"train": []}, "train is empty"),
        ({"train": train[:1]}, "the one training text has the label"),
        ({"train": [text.text for text in train]}, r"text 0 has no label \(6 of 6 have none\); give labels="),
        ({"of": "haed"}, "Did you mean 'head'"),
        ({"of": aw.concepts.LossGradients(["clasifier"])}, "Did you mean 'classifier'"),
    ]
    for changes, said in cases:
        options = {"train": train, "tests": tests} | changes
        with pytest.raises(ValueError, match=said):
            aw.concepts.influence(model, tokenizer, options.pop("train"), options.pop("tests"), **options)
    with pytest.raises(TypeError, match="of takes 'head', 'gradients', or either with options, not 3"):
        aw.concepts.influence(model, tokenizer, train, tests, of=3)
    with pytest.raises(ValueError, match="flipped is empty"):
        aw.concepts.mislabelled(aw.concepts.influence(model, tokenizer, train, tests), [])


def test_options_of_a_refit_and_former_keywords() -> None:
    with pytest.raises(ValueError, match=r"l2 is 0.0; without a penalty"):
        aw.concepts.HeadRefit(l2=0.0)
    model, tokenizer = aw.demo_model("classifier")
    train, tests = list(aw.demo_texts("train")[:12]), list(aw.demo_texts("test")[:1])

    def run(**options: Any) -> Any:
        return aw.concepts.influence(model, tokenizer, train, tests, **options)

    refit = run(of=aw.concepts.HeadRefit(l2=0.1, measure="margin"))
    with pytest.warns(DeprecationWarning, match=r"'l2', 'measure' belong in of=aw.concepts.HeadRefit\("):
        former = run(l2=0.1, measure="margin")
    np.testing.assert_array_equal(former.values, refit.values)
    assert (former.l2, former.measure) == (0.1, "margin")
    gradients = run(of=aw.concepts.LossGradients(["classifier"]))
    with pytest.warns(DeprecationWarning, match=r"'parameters' belong in of=.*LossGradients\(") as warned:
        former = run(of="gradients", parameters=["classifier"])
    np.testing.assert_array_equal(former.values, gradients.values)
    assert warned[0].filename == __file__
    with (
        pytest.warns(DeprecationWarning, match="'measure' belong"),
        pytest.raises(ValueError, match="measure='margin' is for of='head'"),
    ):
        run(of="gradients", measure="margin")


@pytest.mark.slow
def test_texts_on_both_sides_copies_and_few_texts_are_said() -> None:
    model, tokenizer = aw.demo_model("classifier")
    train, tests = list(aw.demo_texts("train")[:5]), list(aw.demo_texts("test")[:1])
    notes = aw.concepts.influence(model, tokenizer, [*train, train[0]], [*tests, *train[:2]]).notes
    assert notes == (
        "2 tests are training texts, whose own influence is among the others",
        "1 training text is a copy of another: without one of them, the other still teaches the same",
        "6 training texts: a head of so few is mostly its penalty",
    )
    labels = [*(text.label for text in train), "positive" if train[0].label == "negative" else "negative"]
    for of in ("head", "gradients"):
        result = aw.concepts.influence(model, tokenizer, [*train, train[0]], tests, labels=labels, of=of)
        assert "1 of them has another label: one of the two is wrong" in result.notes
    with pytest.raises(IndexError, match="there are training texts 0 to 5"):
        aw.concepts.influence(model, tokenizer, [*train, train[0]], tests).leave_one_out([6])


@pytest.mark.slow
def test_texts_without_labels_are_explained_as_the_model_reads_them() -> None:
    model, tokenizer = aw.demo_model("classifier")
    train, test = aw.demo_texts("train")[:12], aw.demo_texts("test")[0]
    result = aw.concepts.influence(model, tokenizer, train, [test.text])
    said = aw.trace(model, tokenizer, test.text).predictions(1)[0].label
    assert result.test_labels == (said,)
    assert result.notes[0] == "the tests have no labels: what the model predicts stands for them"
    assert not aw.concepts.influence(model, tokenizer, train, [test]).notes
