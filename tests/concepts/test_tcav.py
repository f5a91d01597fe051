"""TCAV: to captum's and scikit-learn's numbers, on planted concepts, and on concepts by chance."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._significance import holm
from attnwidgets.concepts.concept_sets import concept_sets
from attnwidgets.concepts.directions_of_sets import LayerStates
from attnwidgets.concepts.states_result import States
from attnwidgets.concepts.tcav import ConceptTest, concept_scores

WIDTH = 24
DEFAULTS = {"runs": 4, "permutations": 199}


def states(values: Any, gradients: Any = None) -> States:
    """Numbers [text, dim] as the states of a single layer."""
    values = np.asarray(values, dtype=np.float32)[:, None]
    slopes = None if gradients is None else np.asarray(gradients, dtype=np.float32)[:, None]
    n = len(values)
    texts = tuple(f"text {at}" for at in range(n))
    return States(
        values, (0,), texts, "mean", np.zeros(n, int), np.ones(n, int), slopes, np.zeros(n), "class", "m"
    )


def planted(seed: int = 0, texts: int = 40, noise: float = 0.5) -> dict[str, Any]:
    """Texts with two orthogonal concepts in their states, and examples whose logit rises along the first."""
    rng = np.random.default_rng(seed)
    u, other = np.eye(WIDTH)[:2]
    random = rng.normal(size=(texts, WIDTH)) * noise
    shown = {
        "along": random[: texts // 2] + 3 * u,
        "across": rng.normal(size=(texts // 2, WIDTH)) * noise + 3 * other,
        "against": rng.normal(size=(texts // 2, WIDTH)) * noise - 3 * u,
    }
    slopes = u + 0.3 * rng.normal(size=(30, WIDTH)) * (np.arange(WIDTH) != 0)
    return {"shown": shown, "random": rng.normal(size=(2 * texts, WIDTH)) * noise, "slopes": slopes}


def scored(made: dict[str, Any], **changes: Any) -> Any:
    """Scores of planted concepts."""
    values, sets, at = [], {}, 0
    for name, rows in {**made["shown"], "random": made["random"]}.items():
        sets[name] = [f"text {at + number}" for number in range(len(rows))]
        values.append(rows)
        at += len(rows)
    random = sets.pop("random")
    made_sets = concept_sets(sets, random, [], "test")
    examples = states(np.zeros_like(made["slopes"]), made["slopes"])
    return concept_scores(
        made_sets, states(np.concatenate(values)), examples, ConceptTest(**(DEFAULTS | changes))
    )


@pytest.mark.parametrize("cav", ["logistic", "mean_difference", "svm"])
def test_planted_concepts_are_found_and_an_orthogonal_one_is_not(cav) -> None:
    result = scored(planted(), cav=cav)
    assert result.scores[result.concepts.index("along"), 0] == 1.0
    assert result.scores[result.concepts.index("against"), 0] == 0.0
    low, high = result.band
    assert low[0] <= result.scores[result.concepts.index("across"), 0] <= high[0]
    assert result.significant[:, 0].tolist() == [True, False, True]
    assert (result.accuracy > 0.95).all()
    cosine = result.cosine[..., 0]
    assert cosine[0, 2] < -0.6
    assert abs(cosine[0, 1]) < 0.3
    assert cosine[0, 0] > 0.8
    assert "*" in repr(result).split("\n")[1]


def test_random_concepts_are_significant_no_more_often_than_by_chance() -> None:
    """Of 200 concepts that are random texts, at most 8 % have p < 0.05."""
    rng = np.random.default_rng(1)
    mixing = rng.normal(size=(WIDTH, WIDTH))  # correlated, as real states are
    below = []
    for _ in range(200):
        values = rng.normal(size=(60, WIDTH)) @ mixing
        layer = LayerStates(values, rng.normal(size=(20, WIDTH)) + rng.normal(size=WIDTH), "logistic", 1.0)
        draws = layer.shuffled((np.arange(20), np.arange(20, 60)), 99, rng)
        from attnwidgets._significance import two_sided

        below.append(two_sided(draws[0], draws[1:]) < 0.05)
    assert np.mean(below) <= 0.08


def test_fits_are_those_of_scikit_learn() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 12)) + np.repeat([[0.7], [-0.2]], [12, 18], axis=0)
    layer = LayerStates(values, rng.normal(size=(5, 12)), "logistic", 0.5)
    ((rows, alpha, intercept),) = layer.fit([(np.arange(12), np.arange(12, 30))])
    scaled = (values - values.mean(0)) / layer.spread
    model = linear.LogisticRegression(C=2.0, tol=1e-12, max_iter=10_000).fit(scaled, np.arange(30) < 12)
    np.testing.assert_allclose(alpha @ scaled[rows], model.coef_[0], atol=1e-6)
    assert intercept == pytest.approx(model.intercept_[0], abs=1e-6)


def test_accuracies_are_of_texts_that_were_held_out() -> None:
    linear = pytest.importorskip("sklearn.linear_model")
    rng = np.random.default_rng(0)
    values = rng.normal(size=(30, 12)) + np.repeat([[0.3], [-0.2]], [12, 18], axis=0)
    layer = LayerStates(values, rng.normal(size=(5, 12)), "logistic", 1.0)
    pair = (np.arange(12), np.arange(12, 30))
    again = np.random.default_rng(5)
    parts = [np.array_split(again.permutation(side), 3) for side in pair]
    correct = 0
    for fold in range(3):
        held_out = np.concatenate([side[fold] for side in parts])
        rest = np.setdiff1d(np.arange(30), held_out)
        model = linear.LogisticRegression(C=1.0, tol=1e-10, max_iter=5000)
        model.fit(values[rest] / layer.spread, rest < 12)
        correct += (model.predict(values[held_out] / layer.spread) == (held_out < 12)).sum()
    assert layer.accuracy([pair], 3, np.random.default_rng(5))[0] == pytest.approx(correct / 30)
    assert correct < 30


@pytest.fixture(scope="module")
def reference(shared: Any) -> dict[str, Any]:
    folder = shared / "reference" / "concepts"
    meta = json.loads((folder / "tcav.json").read_text())
    model, tokenizer = aw.demo_model("classifier")
    negative = [each for each in aw.demo_texts("test") if each.label == "negative"]
    layers = [2, 4, 6]
    return {
        "meta": meta,
        "captum": dict(np.load(folder / "tcav_cls.npz")),
        "logistic": dict(np.load(folder / "tcav_logistic_cls.npz")),
        "texts": aw.concepts.states(model, tokenizer, aw.demo_texts("train"), layers=layers, at="cls"),
        "examples": aw.concepts.states(
            model, tokenizer, negative, layers=layers, at="cls", target="negative"
        ),
    }


def test_scores_of_captums_directions_are_captums(reference) -> None:
    captum = reference["captum"]
    along = np.einsum("eld,crld->ecrl", reference["examples"].gradients, captum["cav"])
    np.testing.assert_allclose((along > 0).mean(0), captum["sign_count"], atol=1 / 37 + 1e-6)
    np.testing.assert_allclose(along.mean(0), captum["magnitude"], atol=1e-4)


def test_directions_accuracies_and_scores_are_the_references(reference) -> None:
    meta, logistic, gaps = reference["meta"], reference["logistic"], []
    for column, layer in enumerate((2, 4, 6)):
        states_of = {
            cav: LayerStates(reference["texts"].layer(layer), reference["examples"].gradient(layer), cav, 1.0)
            for cav in ("logistic", "mean_difference")
        }
        for row, name in enumerate(("food", "negation")):
            texts, randoms = np.array(meta["sets"][name]), [np.array(each) for each in meta["randoms"]]
            pairs = [(np.setdiff1d(texts, each), np.setdiff1d(each, texts)) for each in randoms]
            fits = states_of["logistic"].fit(pairs)
            along = np.stack([states_of["logistic"].sensitivities(*fit[:2]) for fit in fits], 1)
            np.testing.assert_allclose(
                (along > 0).mean(0), logistic["score"][row, :, column], atol=1 / 37 + 1e-6
            )
            np.testing.assert_allclose(along.mean(0), logistic["mean_sensitivity"][row, :, column], atol=1e-4)
            for run in range(2):
                direction = states_of["logistic"].direction(*fits[run][:2])
                assert direction @ logistic["cav_first2"][row, run, column] == pytest.approx(1, abs=1e-5)
            # Theirs are of other folds: the mean over many divisions is compared.
            draws = [states_of["logistic"].accuracy(pairs[:4], 3, np.random.default_rng(s)) for s in range(5)]
            gaps.append(np.mean(draws) - logistic["accuracy3fold_first4"][row, :, column].mean())
            plain = [
                states_of["mean_difference"].sensitivities(*fit[:2])
                for fit in states_of["mean_difference"].fit(pairs)
            ]
            scores = (np.stack(plain, 1) > 0).mean(0)
            np.testing.assert_allclose(
                scores, logistic["mean_difference_score"][row, :, column], atol=1 / 37 + 1e-6
            )
    assert np.abs(gaps).max() < 0.1
    assert abs(np.mean(gaps)) < 0.03


@pytest.fixture(scope="module")
def tcav() -> Any:
    model, tokenizer = aw.demo_model("classifier")
    texts = [each.text for each in aw.demo_texts("train")]
    concepts = {
        "negation": [text for text in texts if " no " in text or " not " in text][:16],
        "length": [text for text in texts if len(text) > 45][:16],
        "given": np.random.default_rng(0).normal(size=384),
    }
    examples = [each for each in aw.demo_texts("test") if each.label == "negative"][:12]
    options = {"random": texts[:60], "layers": [4, 6]}
    options["test"] = ConceptTest(runs=3, permutations=99)
    return aw.concepts.tcav(model, tokenizer, concepts, examples, "negative", **options)


def test_the_last_layers_constant_gradient_is_said(tcav) -> None:
    assert tcav.gradient_cosine[1] == pytest.approx(1, abs=1e-3)
    assert tcav.gradient_cosine[0] < 0.95
    assert any("layer 6" in note and "0 or 1" in note for note in tcav.notes)
    assert set(np.unique(tcav.by_run[:, 1])) <= {0.0, 1.0}


def test_a_direction_is_scored_like_a_concept(tcav) -> None:
    direction = np.random.default_rng(0).normal(size=384)
    along = tcav.examples.gradient(4) @ direction / np.linalg.norm(direction)
    row = tcav.concepts.index("given")
    np.testing.assert_allclose(tcav.sensitivity[:, row, 0], along, atol=1e-6)
    assert tcav.scores[row, 0] == pytest.approx((along > 0).mean())
    assert np.isnan(tcav.accuracy[row]).all()
    assert 0 < tcav.p[row, 0] <= 1


def test_a_feature_of_a_sparse_autoencoder_is_a_concept() -> None:
    import torch

    sae = aw.SAE(torch.randn(384, 8), torch.randn(8, 384), torch.zeros(384), torch.zeros(8))
    sets = concept_sets({"feature": (sae, 3)}, ["a", "b"], [], "test")
    np.testing.assert_array_equal(sets.vectors["feature"], sae.W_dec[3].numpy())
    with pytest.raises(IndexError, match="feature 8 is out of range"):
        concept_sets({"feature": (sae, 8)}, ["a", "b"], [], "test")


def test_relative_concepts_turn_round(tcav) -> None:
    before, turned = tcav.against("negation", "length"), tcav.against("length", "negation")
    assert before.concepts == ("negation rather than length",)
    np.testing.assert_allclose(before.cavs, -turned.cavs, atol=1e-5)
    np.testing.assert_allclose(before.scores, 1 - turned.scores, atol=1e-9)
    with pytest.raises(ValueError, match="given as a direction"):
        tcav.against("negation", "given")


def test_texts_are_sorted_by_the_cosine_with_the_direction(tcav) -> None:
    ranked = tcav.sort("negation", 4, tcav.texts)
    assert [each.cosine for each in ranked] == sorted((each.cosine for each in ranked), reverse=True)
    negated = [" no " in each.text or " not " in each.text for each in ranked]
    assert np.mean(negated[:10]) > 2 * np.mean(negated)
    centred = tcav.texts.layer(4) - tcav.texts.layer(4).mean(0)
    first = centred[ranked[0].number]
    assert ranked[0].cosine == pytest.approx(
        first @ tcav.direction("negation", 4) / np.linalg.norm(first), abs=1e-6
    )


def test_a_table_and_a_figure_show_all_of_it(tcav) -> None:
    rows = tcav.to_rows()
    assert [(row["concept"], row["layer"]) for row in rows][:3] == [
        ("negation", 4),
        ("negation", 6),
        ("length", 4),
    ]
    assert rows[0]["score"] == tcav.scores[0, 0]
    words = [text.get_text() for axes in tcav.figure().axes for text in axes.texts]
    assert {"negation", "length", "random texts"} <= set(words)
    assert tcav.select(["length"]).p_holm.tolist() == tcav.p_holm[1:2].tolist()


def test_p_values_are_corrected_for_their_number() -> None:
    corrected = holm(np.array([[0.01, np.nan], [0.04, 0.03]]))
    np.testing.assert_allclose(corrected, [[0.03, np.nan], [0.06, 0.06]])


@pytest.mark.parametrize(
    ("concepts", "random", "error", "said"),
    [
        ({}, ["a", "b"], ValueError, "concepts is empty"),
        (["not good"], ["a", "b"], TypeError, "give a mapping"),
        ({"c": ["good"]}, ["a", "b"], ValueError, "holds 1 text"),
        ({"c": ["good", "good"]}, ["a", "b"], ValueError, "holds 1 text"),
        ({"c": ["good", "bad"]}, [], ValueError, "random is empty"),
        ({"c": ["good", "bad"]}, ["good", "bad"], ValueError, "every random text is one of concept 'c'"),
        ({"c": np.zeros(4)}, ["a", "b"], ValueError, "not zero"),
        ({"c": np.array([1.0, np.nan])}, ["a", "b"], ValueError, "finite"),
    ],
)
def test_sets_that_say_nothing_are_refused(concepts, random, error, said) -> None:
    with pytest.raises(error, match=said):
        concept_sets(concepts, random, [], "concepts.tcav")


def test_what_makes_a_concept_doubtful_is_said() -> None:
    texts = [f"text {at}" for at in range(30)]
    notes = " ".join(concept_sets({"few": texts[:4]}, texts, texts[:4], "test").notes)
    assert "few has 4 texts" in notes
    assert "4 texts of few are also random" in notes
    assert "4 of 4 texts of few are examples" in notes
    others = [f"other {at}" for at in range(10)]
    once = concept_sets({"c": texts[:10], "d": texts[9:19]}, [texts[0], *others], texts[20:], "test").notes
    assert once == (
        "1 text of c is one of d, too: their directions are alike by that",
        "1 text of c is also a random one, and is left out there",
    )
    both = concept_sets({"c": texts[:10], "d": texts[10:20]}, texts, texts[20:], "test").notes
    assert both == ("10 texts of c, 10 of d are also random ones, and are left out there",)
    three = {"c": texts[:10], "d": texts[:10], "e": texts[:12]}
    assert concept_sets(three, others, texts[12:], "test").notes == (
        "10 texts of c are of d, too (and so in 2 more pairs): their directions are alike by that",
    )
    twice = concept_sets({"c": texts[:10] * 2}, others[:3], texts[:1], "test").notes
    assert twice == (
        "concepts['c'] holds 10 texts twice: counted once",
        "1 example: a score is a share of few, and hardly determined",
        "3 random texts: every run draws nearly the same, and the band is narrow",
    )


def test_it_is_said_where_no_concept_could_be_significant(tcav) -> None:
    assert tcav.p_holm.min() >= tcav.p.size / 100 > tcav.level  # of 99 permutations
    assert any("take permutations=119 or more" in note for note in tcav.notes)
    enough = replace(tcav._settings, permutations=119)
    more = concept_scores(tcav._sets, tcav.texts, tcav.examples, enough)
    assert not any("permutations" in note for note in more.notes)


@pytest.mark.parametrize(
    ("options", "said"), [({"level": 2}, "level is 2"), ({"runs": True}, "runs must be a whole number")]
)
def test_options_out_of_range_are_refused(options, said) -> None:
    with pytest.raises(ValueError, match=said):
        ConceptTest(**options)


def test_a_concept_needs_a_target() -> None:
    with pytest.raises(ValueError, match="target is None; name the class"):
        aw.concepts.tcav(None, None, {"c": ["good", "bad"]}, ["a text"], None, random=["a", "b"])


def test_former_keywords_of_the_test_warn_and_give_the_same() -> None:
    model, tokenizer = aw.demo_model("classifier")
    texts = [each.text for each in aw.demo_texts("train")[:24]]
    given = (model, tokenizer, {"some": texts[:6]}, texts[6:10], "negative")
    options: dict[str, Any] = {"random": texts[12:], "layers": [3]}
    now = aw.concepts.tcav(*given, **options, test=ConceptTest(runs=2, permutations=9, batch_size=4))
    with pytest.warns(DeprecationWarning, match=r"'runs', 'permutations'.* test=aw.concepts.ConceptTest\("):
        former = aw.concepts.tcav(*given, **options, runs=2, permutations=9, batch_size=4)
    assert (former.by_run == now.by_run).all()
    with pytest.raises(TypeError, match=r"test takes an aw\.concepts\.ConceptTest, not 3"):
        aw.concepts.tcav(*given, **options, test=3)
