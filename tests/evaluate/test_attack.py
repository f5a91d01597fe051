"""Attacks on explanations: invariants, brute force, derivatives, and methods that cannot move."""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate import AttackSearch, attack, attacks, near_words
from attnwidgets.evaluate.attacks.forms import FORMS, STAND_INS, Pass, targets_of
from attnwidgets.evaluate.attacks.search import largest_distance
from attnwidgets.tracing.gradients.differentiable import differentiable
from tests.explanations.made import random_classifier
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

SIX = ("rollout", "saliency", "input_x_gradient", "integrated_gradients", "lrp", "occlusion")


@pytest.fixture(scope="module")
def text() -> Any:
    """A trace of a random classifier in float64, of six tokens that are not special."""
    words = [word for word in tiny.WORDPIECE if word.isalpha()][:6]
    return aw.trace(random_classifier().double(), tiny.wordpiece(), " ".join(words))


def rank_distance(first: Any, second: Any) -> float:
    from scipy.stats import spearmanr

    # Differences by rounding are ties.
    ranked = (np.round(np.asarray(values) / np.abs(values).max(), 5) for values in (first, second))
    return 1 - float(spearmanr(*ranked).statistic)


@pytest.mark.parametrize("method", ["input_x_gradient", "rollout", "value_zeroing"])
def test_the_prediction_stays_the_change_is_within_the_ball_and_the_method_confirms(
    text: Any, method: str
) -> None:
    attacked = attack(text, method, search=AttackSearch(budget=0.2, tolerance=0.1, steps=4, draws=3))
    p, q = attacked.probability
    table = text.model.bert.embeddings.word_embeddings.weight.detach()
    lengths = table[text.input_ids].norm(dim=-1).numpy()
    moved = np.linalg.norm(attacked.change, axis=-1)
    assert (moved <= 0.2 * lengths * (1 + 1e-6)).all()
    assert (moved[[0, -1]] == 0).all()
    assert len(attacked.to_rows()) == 7
    # Independently: the change written into the table of words, and the text traced from there.
    model = copy.deepcopy(text.model)
    model.bert.embeddings.word_embeddings.weight.data[text.input_ids] += torch.from_numpy(attacked.change)
    again = aw.trace(model, text.tokenizer, input_ids=text.input_ids.tolist())
    row = again.logits.softmax(-1)
    assert int(row.argmax()) == int(text.logits.argmax())
    assert q == pytest.approx(float(row.max()), abs=1e-5)
    assert abs(p - q) <= 0.1
    explained = aw.explain(again, method)
    if method != "input_x_gradient":
        explained = explained.select(layer=explained.layers[-1]).to_attributions("row", query="first")
    np.testing.assert_allclose(attacked.after.values, explained.values, rtol=1e-4, atol=1e-6)
    inner = slice(1, -1)
    assert attacked.distance == pytest.approx(
        rank_distance(attacked.before.values[inner], explained.values[inner]), abs=1e-6
    )
    assert attacked.distance >= attacked.chance


def test_every_change_costs_a_single_pass(text: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    passes = []
    forward = type(text.model).forward

    def counted(*args: Any, **kwargs: Any) -> Any:
        passes.append(1)
        return forward(*args, **kwargs)

    monkeypatch.setattr(type(text.model), "forward", counted)
    counts = []
    for draws in (1, 1, 4):  # the first pass of a new kind is compared with a plain pass
        passes.clear()
        attack(text, "rollout", search=AttackSearch(steps=1, draws=draws))
        counts.append(len(passes))
    assert counts[2] - counts[1] == 3


def test_the_same_seed_gives_the_same_attack_and_a_larger_budget_gets_farther(text: Any) -> None:
    first, second = (
        attack(text, "saliency", search=AttackSearch(steps=2, draws=2, seed=4)) for _ in range(2)
    )
    assert first.tried == second.tried
    assert attack(text, "saliency", search=AttackSearch(steps=2, draws=2, seed=5)).tried != first.tried
    far = attack(text, "saliency", search=AttackSearch(budget=0.6, tolerance=1, steps=4, draws=4))
    none = attack(text, "saliency", search=AttackSearch(budget=0, steps=1, draws=1))
    assert none.distance == 0 < far.distance
    assert none.probability[0] == none.probability[1]


@pytest.mark.parametrize(
    ("name", "options"), [*((name, {}) for name in FORMS), ("saliency", {"noise": 0.1, "draws": 3})]
)
def test_forms_are_the_methods_and_their_derivatives_are_finite_differences(
    text: Any, name: str, options: Any
) -> None:
    with differentiable(text, "test") as run:
        at = Pass(run, text, "self", targets_of(text, {}), options, 0)
        embeddings = run().inputs["self"].detach()[0]
        weights = torch.linspace(-1, 1, len(embeddings), dtype=torch.float64)
        leaf = embeddings.clone().requires_grad_()
        here = FORMS[name](at, leaf)
        (slope,) = torch.autograd.grad((here.values * weights).sum(), leaf)
        direction = torch.randn(embeddings.shape, generator=torch.Generator().manual_seed(0)).double()
        ahead, behind = (
            (FORMS[name](at, embeddings + sign * 1e-5 * direction).values.detach() * weights).sum()
            for sign in (1, -1)
        )
    # The rules of LRP hold factors constant that depend on the input, and the noise the input's range.
    if name != "lrp" and not options:
        assert float((slope * direction).sum()) == pytest.approx(
            float(ahead - behind) / 2e-5, rel=1e-4, abs=1e-6
        )
    if name != "integrated_gradients":  # of four points
        explained = aw.explain(text, name, **options)
        if explained.kind == "MixingMap":
            explained = explained.select(layer=explained.layers[-1])
            explained = explained if explained.heads is None else explained.reduce("head", "mean")
            explained = explained.to_attributions("row", query="first")
        np.testing.assert_allclose(here.values.detach(), explained.values, rtol=1e-4, atol=1e-6)


def test_one_word_is_the_best_of_all_and_chance_the_median(text: Any) -> None:
    offered = ["the", "cat", "york"]
    attacked = attack(text, "saliency", words=offered, search=AttackSearch(most=10_000, tolerance=0.2))
    old = text.text.split(" ")
    distances = []
    for number in range(len(old)):
        for word in offered:
            if word == old[number]:
                continue
            changed = aw.trace(
                text.model, text.tokenizer, " ".join([*old[:number], word, *old[number + 1 :]])
            )
            row, before = changed.logits.softmax(-1), text.logits.softmax(-1)
            best = int(before.argmax())
            if int(row.argmax()) != best or abs(float(row[best] - before[best])) > 0.2:
                continue
            rest = [1 + other for other in range(len(old)) if other != number]
            values = (aw.saliency(item).values[rest] for item in (text, changed))
            distances.append(rank_distance(*values))
    assert attacked.distance == pytest.approx(max(distances), abs=1e-6)
    assert attacked.chance == pytest.approx(sorted(distances)[(len(distances) - 1) // 2], abs=1e-6)
    assert attacked.by == "words"
    assert sum(a != b for a, b in zip(attacked.text.split(" "), old, strict=True)) == 1
    assert f"{attacked.distance:.2f}" in attacked.describe()


def test_the_next_token_is_a_prediction_to_keep_and_stays_where_it_is_read() -> None:
    import transformers as hf

    tokenizer = tiny.byte_level()
    sizes = {"vocab_size": len(tokenizer), "n_embd": 12, "n_layer": 2, "n_head": 3, "n_positions": 64}
    model = tiny.build(lambda: hf.GPT2LMHeadModel(hf.GPT2Config(**sizes)))
    trace = aw.trace(model, tokenizer, "the cat the a the cat the the")
    attacked = attack(trace, "input_x_gradient", words=["the", "cat", "a"], search=AttackSearch(tolerance=1))
    assert len(attacked.traces[1].tokens) == len(trace.tokens)
    assert int(attacked.traces[1].logits[-1].argmax()) == int(trace.logits[-1].argmax())
    inside = attack(trace, "rollout", search=AttackSearch(steps=2, draws=1))
    assert inside.probability[0] == pytest.approx(float(trace.logits[-1].softmax(-1).max()), abs=1e-6)


REFUSED = {"caption_words", "grad_cam", "lime", "mixing", "mixing_ratio"}
"""They read pictures, texts without some of the tokens, or other blocks; or explain several targets."""


@pytest.mark.parametrize("name", aw.methods().names)
def test_every_method_is_attacked_or_refused_by_name(text: Any, name: str) -> None:
    search = AttackSearch(steps=1, draws=1, tolerance=1)
    if name in REFUSED:
        with pytest.raises(ValueError, match=name):
            attack(text, name, search=search)
        return
    attacked = attack(text, name, search=search)
    assert attacked.method == name
    assert attacked.direction in ({name} if name in FORMS else STAND_INS.values())
    assert attacked.before.values.shape == attacked.after.values.shape
    assert np.isfinite(attacked.after.values).all()


@pytest.mark.parametrize(
    "options",
    [
        {"rule": "expected", "steps": 3},
        {"rule": "expected", "steps": 3, "baseline": "mean"},
        {"steps": 3, "baseline": "mean"},
    ],
)
def test_baselines_stay_as_they_are_while_the_text_is_changed(text: Any, options: Any) -> None:
    spec = ("integrated_gradients", options)
    attacked = attack(text, spec, search=AttackSearch(steps=1, draws=1, tolerance=1))
    assert attacked.direction == "integrated_gradients"
    # Independently: the change added to the text's embeddings, and baselines read from the table as it was.
    table = text.model.bert.embeddings.word_embeddings
    ids, plain = torch.as_tensor(text.input_ids), table.forward

    def changed(given: torch.Tensor) -> torch.Tensor:
        embeddings = plain(given)
        is_text = given.shape[-1] == len(ids) and torch.equal(given, ids.expand_as(given))
        return embeddings + torch.from_numpy(attacked.change) if is_text else embeddings

    table.forward = changed
    try:
        again = aw.trace(text.model, text.tokenizer, input_ids=text.input_ids.tolist())
        expected = aw.integrated_gradients(again, **options).values
    finally:
        del table.forward
    np.testing.assert_allclose(attacked.after.values, expected, rtol=1e-6, atol=1e-9)


def test_near_words_are_the_nearest_by_cosine() -> None:
    model, tokenizer = random_classifier(), tiny.wordpiece()
    near = near_words(model, tokenizer, count=3)
    table = model.bert.embeddings.word_embeddings.weight.detach()
    word = near.words[0]
    numbers = tokenizer.convert_tokens_to_ids(list(near.words))
    cosines = torch.nn.functional.cosine_similarity(table[numbers], table[numbers[0]], dim=-1)
    order = [near.words[i] for i in cosines.argsort(descending=True).tolist() if i]
    assert near([word], 0) == order[:3]
    assert near(["zzzz"], 0) == []
    with pytest.raises(ValueError, match="among has no word that is one token"):
        near_words(model, tokenizer, among=["unbelievable"])
    with pytest.raises(ValueError, match="count must be at least 1, not 0"):
        near_words(model, tokenizer, count=0)


def test_where_gradients_do_not_depend_on_the_input_zero_is_a_theorem() -> None:
    trace = aw.trace(*aw.zoo.additive(), "habgecdf")
    still = attack(trace, "saliency", search=AttackSearch(steps=3, draws=3))
    assert (still.distance, still.chance, still.bound) == (0, 0, 0)
    assert "a theorem about linear models" in still.describe()
    moved = attack(trace, "input_x_gradient", search=AttackSearch(budget=0.02, steps=3, draws=3))
    assert moved.bound is not None
    assert moved.distance <= moved.bound


@pytest.mark.parametrize(
    "spec",
    [
        ("saliency", {"noise": 0.15, "draws": 3}),
        ("integrated_gradients", {"rule": "expected", "steps": 4}),
    ],
)
def test_gradients_at_other_points_than_those_that_are_compared_have_no_bound(spec: Any) -> None:
    trace = aw.trace(*aw.zoo.additive(), "habgecdf")
    attacked = attack(trace, spec, search=AttackSearch(steps=3, draws=3))
    assert attacked.bound is None
    assert "theorem" not in attacked.describe()


def test_a_zero_without_a_bound_is_no_proof() -> None:
    trace = aw.trace(*aw.zoo.additive(), "habgecdf")
    attacked = attack(trace, "rollout", search=AttackSearch(steps=1, draws=1))
    assert (attacked.distance, attacked.bound) == (0, None)
    assert "does not prove that none can" in attacked.describe()


def test_a_model_that_is_not_linear_has_no_bound(text: Any) -> None:
    attacked = attack(text, "saliency", search=AttackSearch(steps=2, draws=1))
    assert attacked.bound is None
    assert "theorem" not in attacked.describe()


def test_no_shift_within_its_limits_exceeds_the_largest_distance() -> None:
    generator = np.random.default_rng(0)
    for _ in range(30):
        values = generator.normal(size=7)
        shifts = generator.uniform(0, 0.15, size=7)
        limit = largest_distance(values, shifts)
        moved = values + shifts * generator.choice([-1.0, 1.0], size=(10, 7))
        assert max(rank_distance(values, other) for other in moved) <= limit + 1e-9
    assert largest_distance(values, np.zeros(7)) == 0


def test_a_scorecard_holds_the_attacks(text: Any) -> None:
    card = attacks(
        [text, text],
        {"a": "saliency", "b": ("input_x_gradient", {"reduce": "l1"})},
        search=AttackSearch(steps=2, draws=2),
    )
    attacked = attack(text, "saliency", search=AttackSearch(steps=2, draws=2))
    np.testing.assert_allclose(
        card.of("a")[:, :, 0],
        [[attacked.distance, attacked.chance, attacked.top_changed, attacked.chance_top_changed]] * 2,
    )
    assert card.methods == ("a", "b")
    assert type(card.view()).__name__ == "ScorecardView"


def test_a_view_shows_both_texts_both_maps_and_both_predictions(text: Any) -> None:
    by_embeddings = attack(text, "saliency", search=AttackSearch(steps=1, draws=1))
    # A function has no name by which a view could compute it again: it shows the measured values.
    by_words = attack(text, aw.rollout, words=["cat"], search=AttackSearch(tolerance=1))
    for attacked in (by_embeddings, by_words):
        view = attacked.view()
        p, q = (f"{probability:.0%}" for probability in attacked.probability)
        assert view.names == (f"before: {attacked.label} {p}", f"after: {attacked.label} {q}")
        for name, shown in zip(view.names, (attacked.before, attacked.after), strict=True):
            values = [view.value(name, element) for element in range(len(shown.values))]
            np.testing.assert_allclose(values, shown.values, rtol=1e-6)
    old, new = (trace.text.split() for trace in by_words.traces)
    labels = [b if a == b else f"{a} → {b}" for a, b in zip(old, new, strict=True)]
    assert list(view.explanation().labels)[1:-1] == labels
    assert sum("→" in label for label in labels) == 1


def test_a_method_with_options_has_the_direction_of_its_own_gradient(text: Any) -> None:
    attacked = attack(text, ("integrated_gradients", {"steps": 3}), search=AttackSearch(steps=1, draws=1))
    assert attacked.direction == "integrated_gradients"
    assert "has none here" not in attacked.describe()


def test_without_a_valid_change_the_result_says_so(text: Any) -> None:
    attacked = attack(text, "saliency", search=AttackSearch(budget=2, tolerance=0, steps=1, draws=1))
    assert (attacked.best, attacked.distance, attacked.chance) == (None, 0, 0)
    assert "nothing is known of saliency" in repr(attacked)
    assert np.isnan(
        attacks(text, "saliency", search=AttackSearch(budget=2, tolerance=0, steps=1, draws=1)).of("saliency")
    ).all()


def test_bad_input_is_named(text: Any) -> None:
    with pytest.raises(ValueError, match="budget must be a share"):
        attack(text, "saliency", search=AttackSearch(budget=-1))
    with pytest.raises(ValueError, match="tolerance must be a difference"):
        attack(text, "saliency", search=AttackSearch(tolerance=2))
    with pytest.raises(ValueError, match="draws must be at least 1, not 0"):
        attack(text, "saliency", search=AttackSearch(draws=0))
    with pytest.raises(TypeError, match="trace is a list"):
        attack([text], "saliency")
    with pytest.raises(ValueError, match="method has 2 methods"):
        attack(text, ["saliency", "lrp"])
    with pytest.raises(ValueError, match="explanations is empty"):
        attacks(text, [])
    with pytest.raises(ValueError, match="method 'nothing' is unknown"):
        attack(text, "nothing")
    with pytest.raises(TypeError, match="is finished"):
        attack(text, aw.saliency(text))
    with pytest.raises(ValueError, match="method 'lime' reads texts without some of the tokens"):
        attack(text, "lime")
    with pytest.raises(ValueError, match="'mixing_ratio' has several targets"):
        attack(text, "mixing_ratio")
    with pytest.raises(ValueError, match="words is empty"):
        attack(text, "saliency", words=[])
    with pytest.raises(TypeError, match="words='cat' is one text"):
        attack(text, "saliency", words="cat")
    with pytest.raises(ValueError, match="traces is empty"):
        attacks([], "saliency")
    short = aw.trace(text.model, text.tokenizer, "the cat")
    with pytest.raises(ValueError, match="trace has 2 tokens that are not special"):
        attack(short, "saliency")
    number = aw.trace(random_classifier(labels=1), text.tokenizer, text.text)
    with pytest.raises(ValueError, match="trace predicts a number"):
        attack(number, "saliency")


def test_former_keywords_of_the_search_warn_and_give_the_same(text: Any) -> None:
    search = AttackSearch(steps=2, draws=2, seed=4)
    with pytest.warns(DeprecationWarning, match=r"attack: 'steps'.*search=aw.evaluate.AttackSearch\("):
        former = attack(text, "saliency", steps=2, draws=2, seed=4)
    assert former.tried == attack(text, "saliency", search=search).tried
    with pytest.warns(DeprecationWarning, match="attacks: 'steps', 'draws', 'seed' belong in search"):
        scores = attacks(text, "saliency", steps=2, draws=2, seed=4)
    assert (scores.samples == attacks(text, "saliency", search=search).samples).all()
    with pytest.raises(TypeError, match=r"search takes an aw\.evaluate\.AttackSearch, not 3"):
        attack(text, "saliency", search=3)


@pytest.mark.slow
def test_all_methods_move_far_beyond_chance_on_the_demo_classifier(shared: Path) -> None:
    """The first sentence of the reference, whose table of fifty says the same of the median."""
    reference = json.loads((shared / "reference" / "attack" / "attack.json").read_text("utf-8"))
    text = aw.trace(*aw.demo_model("classifier"), reference["sentences"][0])
    methods = {name: ("integrated_gradients", {"steps": 4}) if "integrated" in name else name for name in SIX}
    # More steps and draws could only get farther.
    card = attacks([text], methods, search=AttackSearch(steps=4, draws=3))
    for name in SIX:
        moved, chance = card.of(name)[0, :2, 0]
        assert moved > 2 * chance, name
