"""A user's model behind given attention: every metric that permutes or removes, against brute force."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest
import torch

import attnwidgets as aw

TOKENS = ["a", "fine", "dull", "film"]
EMBEDDED = torch.tensor([[0.1, 0.0], [0.2, 2.0], [1.5, 0.3], [0.0, 0.1]])
SCORES = torch.tensor([0.2, 1.5, 0.9, -0.5])


def rerun(weights, kept):
    """A sum of embeddings by softmax scores; a removed token is dropped."""
    there = torch.ones(len(TOKENS)) if kept is None else kept
    stays = there.detach() > 0
    embedded = (EMBEDDED * there[:, None])[stays]
    row = SCORES[stays].softmax(-1) if weights is None else weights[0, 0, 0]
    return row @ embedded


def softmax_row():
    return SCORES.softmax(-1)


@pytest.fixture
def trace():
    return aw.from_attentions(softmax_row(), key_tokens=TOKENS, rerun=rerun, classes=["negative", "positive"])


def attention(trace):
    return aw.attention(trace).to_attributions("row", query=0).select(-1)


def probabilities(logits):
    return logits.double().softmax(-1).numpy()


def test_it_predicts_and_has_attention(trace):
    assert trace.predictions_title == "class"
    assert trace.predictions(1)[0].label == "positive"
    np.testing.assert_allclose(trace.logits, softmax_row() @ EMBEDDED, atol=1e-6)
    assert trace.model is None
    with pytest.raises(ValueError, match="this trace has no model"):
        aw.saliency(trace)


def test_permuted_and_uniform_attention_is_that_of_brute_force(trace):
    card = aw.evaluate.attention_permutation(trace, permutations=400)
    plain = probabilities(softmax_row() @ EMBEDDED)
    moved = [
        abs(probabilities(softmax_row()[list(order)] @ EMBEDDED) - plain).sum() / 2
        for order in permutations(range(4))
    ]
    uniform = abs(probabilities(EMBEDDED.mean(0)) - plain).sum() / 2
    permuted, even = card.mean[0, :, 0]
    assert sorted(moved)[8] <= permuted <= sorted(moved)[15]
    assert even == pytest.approx(uniform, abs=1e-6)


def test_adversarial_attention_is_far_and_keeps_the_answer(trace):
    result = aw.evaluate.adversarial_attention(trace, epsilon=0.05, steps=60)
    assert 0 < result.total_variation <= 0.05
    assert result.divergence > 0.05
    again = rerun(torch.as_tensor(result.attention[0])[None].float(), None)
    moved = abs(probabilities(again) - probabilities(trace.logits)).sum() / 2
    assert moved == pytest.approx(result.total_variation, abs=1e-5)


@pytest.mark.parametrize("operator", ["delete", "attention_mask"])
def test_removal_is_that_of_brute_force(trace, operator):
    card = aw.evaluate.single_removals(trace, attention(trace), operator=operator)
    whole = probabilities(trace.logits)[1]
    drops = []
    for gone in range(4):
        left = [i for i in range(4) if i != gone]
        drops.append(
            whole - probabilities(softmax_row()[left] / softmax_row()[left].sum() @ EMBEDDED[left])[1]
        )
    result = aw.evaluate.faithfulness(
        trace,
        {"drops": attention(trace)},
        removal=aw.evaluate.Removal(operator, thresholds=[0.25], oracle=None),
        metrics="comprehensiveness",
    )
    assert result.mean[0, 0, 0] == pytest.approx(drops[int(softmax_row().argmax())], abs=1e-6)
    assert np.isfinite(card.mean[:, 0]).any()


def test_gradients_reach_tokens_through_what_is_kept(trace):
    card = aw.evaluate.importance_correlation(
        trace, attention(trace), removal=aw.evaluate.Removal("delete", draws=5)
    )
    slopes = (softmax_row()[:, None] * EMBEDDED)[:, 1].abs().numpy()
    order = np.argsort(np.argsort(slopes)), np.argsort(np.argsort(softmax_row().numpy()))
    pairs = [(i, j) for i in range(4) for j in range(i)]
    signs = [np.sign((order[0][i] - order[0][j]) * (order[1][i] - order[1][j])) for i, j in pairs]
    assert card.mean[0, 0, 0] == pytest.approx(np.mean(signs))


def test_other_metrics_by_removal_run(trace):
    shown = {"attention": attention(trace)}
    options = {"operator": "delete"}
    aw.evaluate.fidelity(trace, shown, **options)
    aw.evaluate.infidelity(trace, shown, **options)
    aw.evaluate.performance_loss(trace, shown, labels=["positive"], **options)
    aw.evaluate.sparsity(attention(trace))
    assert aw.evaluate.possible_operators(trace, "self") == ("delete", "attention_mask")


def test_a_translation_keeps_its_rows():
    weights = torch.eye(3)[[1, 0, 2]] * 0.8 + 0.2 / 3
    words = torch.eye(3) * 4

    def translate(given, kept):
        there = torch.ones(3) if kept is None else kept
        rows = weights * there if given is None else given[0, 0] * there
        return rows @ (words * there[:, None])

    trace = aw.from_attentions(
        {"cross": weights[None, None, None]},
        query_tokens=["B", "A", "C"],
        key_tokens=["a", "b", "c"],
        rerun=translate,
    )
    assert trace.logits.shape == (3, 3)
    second = aw.attention(trace).to_attributions("row", query=1).select(-1)
    card = aw.evaluate.faithfulness(
        trace,
        second,
        aw.targets.token(0, position=1),
        removal=aw.evaluate.Removal("delete", thresholds=[0.3]),
        metrics="comprehensiveness",
    )
    assert card.mean[0, 0, 0] > 0.5


def test_what_does_not_fit_is_refused():
    give = {"key_tokens": TOKENS}
    with pytest.raises(TypeError, match="rerun must be a function"):
        aw.from_attentions(softmax_row(), rerun=3, **give)
    with pytest.raises(TypeError, match="rerun returned a float"):
        aw.from_attentions(softmax_row(), rerun=lambda w, k: 1.0, **give)
    with pytest.raises(ValueError, match="differs from rerun"):
        aw.from_attentions(softmax_row().flip(0), rerun=rerun, **give)
    with pytest.raises(ValueError, match="classes has 3 names"):
        aw.from_attentions(softmax_row(), rerun=rerun, classes=["a", "b", "c"], **give)
    with pytest.raises(ValueError, match="classes name the logits"):
        aw.from_attentions(softmax_row(), classes=["a", "b"], **give)
    with pytest.raises(ValueError, match="not finite"):
        aw.from_attentions(softmax_row(), rerun=lambda w, k: torch.tensor([np.nan, 1.0]), **give)
    trace = aw.from_attentions(softmax_row(), rerun=lambda w, k: rerun(w, k).detach(), **give)
    with pytest.raises(ValueError, match="do not depend on `weights`"):
        aw.evaluate.adversarial_attention(trace, steps=1)
    with pytest.raises(ValueError, match="do not depend on `kept`"):
        aw.evaluate.importance_correlation(trace, attention(trace), operator="delete")
    with pytest.raises(ValueError, match="rerun= has no embeddings"):
        aw.evaluate.faithfulness(trace, attention(trace), operator="zero")
