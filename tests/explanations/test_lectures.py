"""The options named in docs/lectures.md give the lectures' formulas, and the page's numbers are true."""

from __future__ import annotations

import re

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.registry.registry import remove
from tests.explanations.made import shares

LAYERS, HEADS, N = 3, 2, 5
SENTENCES = (
    "The capital of France is Paris.",
    "The keys to the cabinet are on the table.",
    "She poured water from the pitcher to the cup until it was empty.",
    "A small test, please.",
    "Attention is not explanation, say some, and others that it is.",
    "The electroencephalographer read the trace.",
)


@pytest.fixture(scope="module")
def attention():
    return shares(LAYERS, HEADS, N, N, seed=4)


@pytest.fixture(scope="module")
def given(attention):
    return aw.from_attentions(attention, ["[CLS]", "a", "b", "c", "d"])


@pytest.mark.parametrize("identity", [True, False])
@pytest.mark.parametrize("over_heads", ["sum", "mean", "max"])
@pytest.mark.parametrize("order", ["input_first", "output_first"])
def test_rollout_as_the_lecture_writes_it(attention, given, identity, over_heads, order):
    layers = getattr(attention.astype(np.float64), over_heads)(axis=1) + identity * np.eye(N)
    expected = (
        layers[0] @ layers[1] @ layers[2] if order == "input_first" else layers[2] @ layers[1] @ layers[0]
    )
    result = aw.rollout(
        given, residual="add" if identity else None, head_reduce=over_heads, normalize=False, order=order
    )
    np.testing.assert_allclose(result.layer(-1), expected, rtol=1e-6)
    assert "rows not normalised" in result.steps
    assert ("input first" in result.steps) == (order == "input_first")


def test_rows_of_the_lectures_rollout_grow_as_said(given):
    result = aw.rollout(given, residual="add", head_reduce="sum", normalize=False)
    np.testing.assert_allclose(result.layer(-1).sum(-1), (1 + HEADS) ** LAYERS, rtol=1e-5)


def test_a_product_in_reading_order_of_transposed_matrices_is_the_transpose(attention, given):
    source_by_target = [0.5 * layer.mean(0).T + 0.5 * np.eye(N) for layer in attention.astype(np.float64)]
    product = source_by_target[0] @ source_by_target[1] @ source_by_target[2]
    np.testing.assert_allclose(product.T, aw.rollout(given).layer(-1), rtol=1e-5)


def test_a_mask_multiplied_after_the_softmax_and_divided_again_is_the_added_one():
    scores = np.random.default_rng(0).normal(size=(N, N))
    seen = np.tril(np.ones((N, N)))

    def softmax(x):
        result = np.exp(x)
        return result / result.sum(-1, keepdims=True)

    added = softmax(np.where(seen > 0, scores, -np.inf))
    after = softmax(scores) * seen
    assert after.sum(-1)[0] < 0.9
    np.testing.assert_allclose(after / after.sum(-1, keepdims=True), added)
    before = softmax(scores * seen)
    assert np.triu(before, 1).max() > 0.01


@pytest.mark.slow
def test_the_pages_code_runs_and_its_claims_hold(root, minilm):
    blocks = re.findall(r"```python\n(.*?)```", (root / "docs" / "lectures.md").read_text(), re.DOTALL)
    assert len(blocks) == 6
    trace = aw.trace(*minilm, "So it is.")
    world = {"aw": aw, "np": np, "trace": trace}
    try:
        for block in blocks:
            exec(compile(block, "lectures.md", "exec"), world)
        assert aw.check("mine").passed
        np.testing.assert_allclose(
            aw.explain(trace, "mine").values[0], aw.rollout(trace).layer(-1), atol=1e-6
        )
    finally:
        remove("mine")
    frobenius = aw.hidden_token_attribution(trace, scope="local", layers=0, normalize=False).layer(0)
    shown = world["source_by_target"].T
    np.testing.assert_allclose(shown.sum(-1), 1.0, rtol=1e-5)
    assert not np.allclose(shown, frobenius / frobenius.sum(-1, keepdims=True), rtol=1e-2)
    assert world["ignored"].values.sum() == pytest.approx(float(world["small"].logits[0]), abs=1e-5)
    assert world["received"].steps[-1] == "mean over queries, without the diagonal"


@pytest.mark.slow
def test_every_item_of_the_lectures_has_a_call_that_runs(root, minilm):
    section = (root / "docs" / "lectures.md").read_text().split("## Every item")[1]
    world = {"aw": aw, "trace": aw.trace(*minilm, SENTENCES[3])}
    world["small"] = aw.trace_module(torch.nn.ReLU(), [1.0, 2.0])
    world["np"] = np
    for block in re.findall(r"```python\n(.*?)```", section, re.DOTALL):
        exec(compile(block, "lectures.md", "exec"), world)
    rows = re.findall(r"^\| (?!item |---)(.*?) \| (.*) \|$", section, re.MULTILINE)
    assert len(rows) > 40
    for item, shown in rows:
        calls = [code for code in re.findall(r"`([^`]+)`", shown) if re.match(r"aw\.|weights\.|film\.", code)]
        assert calls or "](" in shown, item
        for call in calls:
            assert eval(call, world) is not None, item


def test_the_order_changes_more_than_the_identity(root, minilm):
    from scipy.stats import spearmanr

    page = (root / "docs" / "lectures.md").read_text()
    reversed_order, added = [], []
    for sentence in SENTENCES:
        trace = aw.trace(*minilm, sentence)
        published = aw.rollout(trace).layer(-1)[0]
        for result, options in (
            (reversed_order, {"order": "input_first"}),
            (added, {"residual": "add", "head_reduce": "sum", "normalize": False}),
        ):
            result.append(spearmanr(published, aw.rollout(trace, **options).layer(-1)[0]).statistic)
    for result in (reversed_order, added):
        assert f"{min(result):.2f} to {max(result):.2f}" in " ".join(page.split())
