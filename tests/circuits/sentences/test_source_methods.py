"""The methods of aw.circuits.sources against plain runs: of shorter texts, masks made by hand, a lasso."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.circuits.sentences import sources as sources_module
from attnwidgets.circuits.sentences.part_scores import sparse_fit
from attnwidgets.circuits.sentences.suppression import Suffixes
from tests.tracing import chats, tiny

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

MESSAGES = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "My name is Ada. I like tea."},
    {"role": "assistant", "content": "Hello Ada."},
    {"role": "user", "content": "I live in Rome."},
    {"role": "user", "content": "What is my name?"},
    {"role": "assistant", "content": "It is Ada. You like tea."},
]


@pytest.fixture(scope="module")
def trace(model: Any) -> Any:
    return aw.trace(model, chats.tokenizer("chatml"), messages=MESSAGES)


def sentences_of(trace: Any) -> list[tuple[int, ...]]:
    return [trace.units["sentence"].spans[at] for at in trace.messages[-1].sentences]


def log_p(model: Any, ids: list[int], hidden: Collection[int] = (), window: int | None = None) -> np.ndarray:
    """Return log p of every token after the first, by a mask that hides tokens from those after them."""
    n = len(ids)
    at = torch.arange(n)
    allowed = at[:, None] >= at
    if window is not None:
        allowed &= at[:, None] - at < window
    for key in hidden:
        for reader in range(n):
            if reader not in hidden:
                allowed[reader, key] = False
    bias = torch.zeros(n, n).masked_fill(~allowed, torch.finfo(torch.float32).min)[None, None]
    with torch.no_grad():
        logits = model(torch.tensor([ids]), attention_mask=bias).logits[0]
    return logits[:-1].double().log_softmax(-1)[at[:-1], torch.tensor(ids)[1:]].numpy()


def lost(model: Any, trace: Any, hidden: Collection[int]) -> np.ndarray:
    """Return the nats that each sentence loses with tokens hidden [sentence]."""
    ids = trace.input_ids.tolist()
    changed = log_p(model, ids) - log_p(model, ids, hidden)
    return np.array([changed[[token - 1 for token in span]].sum() for span in sentences_of(trace)])


def test_removed_is_the_text_without_the_part(model: Any, trace: Any) -> None:
    result = aw.circuits.sources(trace, method="removed")
    ids = trace.input_ids.tolist()
    before = log_p(model, ids)
    first, second = sentences_of(trace)
    gone = [*(message.tokens for message in trace.messages[:5]), first]
    expected = np.zeros((2, 6))
    for column, tokens in enumerate(gone):
        left = [token for token in range(len(ids)) if token not in tokens]
        after = log_p(model, [ids[token] for token in left])
        for row, span in enumerate((first, second)):
            remaining = [token for token in span if token not in tokens]
            expected[row, column] = sum(
                before[token - 1] - after[left.index(token) - 1] for token in remaining
            )
    np.testing.assert_allclose(result.scores.values, expected, atol=1e-4)
    assert not result.scores.warning.count("whole text")
    # A part that ends where the answer begins: the token before the part predicts the answer.
    start, stop = second[0], second[-1] + 1
    spans = [(0, first[0]), (first[0], start), (start, len(ids))]
    last = aw.circuits.sources(trace, (start, stop), unit=spans, method="removed")
    after = log_p(model, ids[: first[0]] + ids[start:])
    expected = before[start - 1 : stop - 1].sum() - after[first[0] - 1 :][: stop - start].sum()
    assert np.asarray(last.scores.values)[:, -2].sum() == pytest.approx(expected, abs=1e-4)


def test_relevance_is_that_of_the_tokens_added(trace: Any) -> None:
    result = aw.circuits.sources(trace, method="lrp")
    ids = trace.input_ids.tolist()
    for row, span in enumerate(sentences_of(trace)):
        targets = [aw.targets.token(ids[token], position=token - 1) for token in span]
        whole = np.asarray(aw.lrp(trace, target=targets).values).sum(0)
        parts = [whole[list(message.tokens)].sum() for message in trace.messages[:5]]
        np.testing.assert_allclose(np.asarray(result.scores.values)[row, :5], parts, atol=1e-5)
    assert set(result.to_rows()[0]) == {"sentence", "part", "role", "logits"}
    values = np.asarray(result.scores.values)[0]
    best = max((1, 2, 3), key=lambda part: values[part])
    assert result.strongest()[0] == (result.scores.labels[best] if values[best] > 0 else None)


def test_subsets_fit_what_random_halves_lose(model: Any, trace: Any) -> None:
    result = aw.circuits.sources(trace, method="subsets", samples=6, seed=3)
    drawn = np.random.default_rng(3).random((6, 3)) < 0.5
    drawn[~drawn.any(1), 0] = True
    free = [trace.messages[number].tokens for number in (1, 2, 3)]
    losses = np.array(
        [lost(model, trace, [token for at in np.flatnonzero(row) for token in free[at]]) for row in drawn]
    )
    for row, span in enumerate(sentences_of(trace)):
        expected = sparse_fit(drawn, losses[:, row] / len(span)) * len(span)
        np.testing.assert_allclose(np.asarray(result.scores.values)[row, 1:4], expected, atol=1e-4)
    # Text apart from the messages is hidden alone.
    hidden = aw.circuits.sources(trace)
    apart = [0, 4, 5]
    np.testing.assert_allclose(
        np.asarray(result.scores.values)[:, apart], np.asarray(hidden.scores.values)[:, apart], atol=1e-5
    )
    assert result.scores.provenance["options"]["seed"] == 3


def test_the_sparse_fit_is_the_lasso_of_scikit_learn() -> None:
    linear_model = pytest.importorskip("sklearn.linear_model")
    draw = np.random.default_rng(0)
    hidden = draw.random((24, 10)) < 0.5
    hidden[:, 4] = True  # a column that never changes has no weight
    values = hidden @ np.array([2.0, -0.5, 0.3, *[0.0] * 7]) + 0.05 * draw.normal(size=24)
    scale = np.where(hidden.std(0) > 0, hidden.std(0), 1)
    lasso = linear_model.Lasso(alpha=0.01, tol=1e-10, max_iter=100_000)
    expected = lasso.fit((hidden - hidden.mean(0)) / scale, values).coef_ / scale
    np.testing.assert_allclose(sparse_fit(hidden, values), expected, atol=1e-6)
    assert (expected == 0).sum() > 1


def test_pairs_are_hidden_together(model: Any, trace: Any) -> None:
    pairs = aw.circuits.sources(trace).pairs(top=2)
    relevance = np.asarray(aw.circuits.sources(trace, method="lrp").scores.values)
    for row in range(2):
        best = sorted(sorted((1, 2, 3), key=lambda part: -relevance[row, part])[:2])
        tokens = [token for part in best for token in trace.messages[part].tokens]
        assert pairs.both[row, best[0], best[1]] == pytest.approx(lost(model, trace, tokens)[row], abs=1e-4)
        assert pairs.both[row, best[1], best[0]] == pairs.both[row, best[0], best[1]]
        alone = [lost(model, trace, trace.messages[part].tokens)[row] for part in best]
        gap = pairs.both[row, best[0], best[1]] - sum(alone)
        assert pairs.interaction[row, best[0], best[1]] == pytest.approx(gap, abs=1e-4)
    assert set(pairs.to_rows()[0]) == {
        *("sentence", "first", "second", "both", "first alone", "second alone", "interaction")
    }
    every = aw.circuits.sources(trace, method="lrp").pairs()
    assert sum(row["sentence"] == "It is Ada." for row in every.to_rows()) == 3


def test_a_fact_that_stands_twice_is_covered_by_its_copy() -> None:
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    trace = aw.trace(model, tokenizer, "abhcabgdab")  # after <s>; b follows a twice before the end
    spans = [(0, 1), (1, 3), (3, 5), (5, 7), (7, 9), (9, 10), (10, 11)]
    result = aw.circuits.sources(trace, (10, 11), unit=spans)
    values = np.asarray(result.scores.values)[0]
    assert result.scores.labels[:5] == ("a b", "h c", "a b", "g d", "a")
    np.testing.assert_allclose(values[:4], 0, atol=0.01)
    assert result.strongest() == (None,)
    assert "no span matters much" in repr(result)
    assert "cover for each other" in repr(result)
    pairs = result.pairs()
    assert pairs.both[0, 0, 2] == pytest.approx(pairs.interaction[0, 0, 2], abs=0.01)
    assert pairs.both[0, 0, 2] > 2
    assert pairs.covering() == (("a b", "a b"),)
    assert repr(pairs) == "<SourcePairs: 'b': 'a b' and 'a b'>"
    np.testing.assert_allclose(pairs.both[0][[0, 0, 1, 1, 2], [1, 3, 2, 3, 3]], 0, atol=0.01)


def test_a_window_is_read_whole_and_said() -> None:
    config = hf.MistralConfig(
        vocab_size=400, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=37,
        num_key_value_heads=2, sliding_window=8,
    )  # fmt: skip
    model = tiny.build(lambda: hf.MistralForCausalLM(config))
    trace = aw.trace(model, chats.tokenizer("chatml"), messages=MESSAGES)
    ids = trace.input_ids.tolist()
    result = aw.circuits.sources(trace)
    assert "every pass read the whole text: a sliding window has dropped keys" in result.scores.warning
    before = log_p(model, ids, window=8)
    tokens = trace.messages[4].tokens
    changed = before - log_p(model, ids, tokens, window=8)
    for row, span in enumerate(sentences_of(trace)):
        expected = changed[[token - 1 for token in span]].sum()
        assert np.asarray(result.scores.values)[row, 4] == pytest.approx(expected, abs=1e-4)


def test_finished_passes_are_read_again(trace: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = aw.circuits.sources(trace)
    plain, runs = Suffixes.logits, []

    def counted(self: Suffixes, hidden: Any, start: int) -> Any:
        if len(runs) == 3:
            raise KeyboardInterrupt
        runs.append(start)
        return plain(self, hidden, start)

    monkeypatch.setattr(Suffixes, "logits", counted)
    with pytest.raises(KeyboardInterrupt):
        aw.circuits.sources(trace, cache=tmp_path)
    runs.clear()
    result = aw.circuits.sources(trace, cache=tmp_path)
    assert len(runs) == 3  # of six passes
    np.testing.assert_array_equal(result.scores.values, expected.scores.values)
    runs.clear()
    aw.circuits.sources(trace, cache=tmp_path)
    assert not runs
    with ThreadPoolExecutor(1) as executor:  # records the text again, as another process does
        elsewhere = aw.circuits.sources(trace, jobs=executor, cache=tmp_path)
    np.testing.assert_array_equal(elsewhere.scores.values, expected.scores.values)


def test_other_threads_give_the_same(trace: Any) -> None:
    with ThreadPoolExecutor(2) as executor:
        result = aw.circuits.sources(trace, method="removed", jobs=executor)
    expected = aw.circuits.sources(trace, method="removed")
    np.testing.assert_allclose(result.scores.values, expected.scores.values, atol=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("warm_workers")
def test_other_processes_give_the_same(trace: Any) -> None:
    result = aw.circuits.sources(trace, jobs=2)
    expected = aw.circuits.sources(trace)
    np.testing.assert_allclose(result.scores.values, expected.scores.values, atol=1e-5)


def test_the_cost_is_said_before_and_what_is_refused(trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match=r"method 'attention'"):
        aw.circuits.sources(trace, method="attention")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="samples must be at least 1, not 0"):
        aw.circuits.sources(trace, method="subsets", samples=0)
    n = len(trace.tokens)
    spans = [(0, n - 4), (n - 4, n)]
    with pytest.raises(ValueError, match=r"removed.*holds all tokens before the answer.*hidden"):
        aw.circuits.sources(trace, (n - 4, n), unit=spans, method="removed")
    with pytest.raises(ValueError, match=r"pairs are made of 2 parts or more: top is 6, and 1 parts"):
        aw.circuits.sources(trace, (n - 4, n), unit=spans).pairs()
    assert "no message matters much" in repr(aw.circuits.sources(trace))  # random weights
    monkeypatch.setattr(sources_module, "LONG_WORK", 1)
    with pytest.warns(UserWarning, match=rf"takes 6 passes of up to {n} tokens"):
        aw.circuits.sources(trace)
    with pytest.warns(UserWarning, match=r"subset|fit.* takes 7 passes"):
        aw.circuits.sources(trace, method="subsets", samples=4)
