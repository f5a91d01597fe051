"""Scores that need a made text (induction on repeated tokens, retrieval), and real models."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets import statistics

# Induction


def test_a_perfect_induction_head_scores_one_and_others_nothing():
    length, copies = 5, 3
    n = length * copies + 1
    positions = np.arange(n)
    heads = {
        "induction": np.where(positions > length, positions - length + 1, 0),
        "duplicate": np.where(positions > length, positions - length, 0),
        "previous": np.maximum(positions - 1, 0),
        "itself": positions,
    }
    values = np.stack([np.eye(n)[targets] for targets in heads.values()])
    uniform = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
    made = aw.results.MixingMap(np.stack([*values, uniform])[None], query=[str(i) for i in positions])
    result = statistics.prefix_matching(made, length)[0]
    assert result[:4].tolist() == [1, 0, 0, 0]
    # In copy c a query at i has c earlier tokens to look at, each with a share of 1 / (i + 1).
    rows = positions[length + 1 :]
    assert result[4] == pytest.approx(np.mean([((i - 1) // length) / (i + 1) for i in rows]), abs=1e-6)
    entries = statistics.prefix_matching(made, length, over="mean")[0]
    assert entries[0] == pytest.approx(10 / 15)
    with pytest.raises(ValueError, match="1 copies of 10"):
        statistics.prefix_matching(made, 10)


def test_the_repeated_sequences_are_what_they_should_be(tiny_llama):
    rows = statistics.repeated_tokens(tiny_llama, length=6, repeats=3, sequences=2, start=1)
    assert len(rows) == 2
    assert rows[0] != rows[1]
    for row in rows:
        assert row[0] == 1
        assert row[1:7] * 3 == row[1:]
        assert len(set(row[1:7])) == 6
        assert all(4 <= token < 36 for token in row[1:7])
    assert rows == statistics.repeated_tokens(tiny_llama, length=6, repeats=3, sequences=2, start=1)
    without = statistics.repeated_tokens(tiny_llama, length=6, repeats=2, start=False, vocabulary=range(7))
    assert {len(row) for row in without} == {12}
    with pytest.raises(ValueError, match="length is 6, but there are only 5"):
        statistics.repeated_tokens(tiny_llama, length=6, vocabulary=range(5))
    with pytest.raises(ValueError, match="repeats must be"):
        statistics.repeated_tokens(tiny_llama, repeats=1)


def test_the_score_is_the_mean_over_the_sequences(tiny_llama):
    options = {"length": 6, "repeats": 3, "start": 1, "seed": 3}
    scores = aw.statistics.induction_score(tiny_llama, sequences=2, **options)
    rows = statistics.repeated_tokens(tiny_llama, sequences=2, **options)
    parts = [statistics.prefix_matching(aw.trace(tiny_llama, None, input_ids=row), 6) for row in rows]
    assert scores["induction"] == pytest.approx(np.mean(parts, axis=0))
    with pytest.raises(ValueError, match="'mean'"):
        aw.statistics.induction_score(tiny_llama, over="men", **options)


# Retrieval


class Answered:
    """A trace as `copied_share` reads it: six tokens of a prompt, three that were generated."""

    stacks = ("self",)
    tokenizer = None
    boundary = 6

    def __init__(self, attention, ids):
        import torch

        self.input_ids = torch.tensor(ids)
        self._attention = torch.tensor(attention)

    def layers(self):
        return (0,)

    def n_layers(self):
        return 1

    def n_heads(self):
        return len(self._attention)

    def attention_rows(self, _layer, _heads, queries):
        return self._attention[:, queries]


def test_a_token_is_copied_where_the_head_looked_at_it_when_it_was_predicted():
    #      0  1  2  3  4  5 | 6  7  8     the needle: 2, 3, 4
    ids = [9, 8, 5, 6, 7, 1, 5, 6, 6]
    looks = {
        "copies": {5: 2, 6: 3, 7: 3},
        "late": {6: 2, 7: 3, 8: 3},
        "elsewhere": {5: 0, 6: 1, 7: 0},
        "another token": {5: 3, 6: 4, 7: 2},
    }
    heads = np.zeros((len(looks), 9, 9), dtype=np.float32)
    for head, rows in enumerate(looks.values()):
        for row, key in rows.items():
            heads[head, row, key] = 1
    result = statistics.copied_share(Answered(heads, ids), (2, 5))
    # "copies" looked at the second token twice, which counts once; "late" looked after the fact, but the row
    # before the third generated token is the right one.
    assert result.tolist() == [pytest.approx([2 / 3, 1 / 3, 0, 0])]
    with pytest.raises(ValueError, match="tokens 0 to 5"):
        statistics.copied_share(Answered(heads, ids), (4, 7))


def test_retrieval_says_what_it_cannot_do(tiny_llama):
    with pytest.raises(ValueError, match="not part of the needle"):
        aw.statistics.retrieval_score(tiny_llama, None, "a b c", "?", answer="d")
    with pytest.raises(ValueError, match="from 0 to 1"):
        aw.statistics.retrieval_score(tiny_llama, None, "a b c", "?", depths=(2,))
    with pytest.raises(ValueError, match="max_new_tokens"):
        statistics.copied_share(aw.trace(tiny_llama, None, input_ids=[1, 2, 3]), (0, 1))


# Real models


def test_minilm_has_a_previous_and_a_next_token_head_and_rests_on_cls(minilm, sentence):
    stats = aw.statistics.head_statistics(aw.trace(*minilm, sentence))
    lead = stats.top("previous_token", 1)[0]
    assert (lead.layer, lead.head) == (0, 2)
    assert lead.value > 0.9
    assert stats.top("next_token", 1)[0].value > 0.5
    assert stats["first_token"][1:5].mean() > 0.35
    assert stats["entropy"][0].mean() > stats["entropy"][1:].mean()
    assert aw.statistics.sink_rate(aw.trace(*minilm, sentence)) > 0.5


@pytest.mark.slow
def test_smollm2s_induction_heads_are_its_retrieval_heads(smollm2):
    induction = aw.statistics.induction_score(*smollm2, sequences=1)
    heads = induction.top("induction", 4)
    assert {(head.layer, head.head) for head in heads} == {(18, 6), (17, 4), (17, 3), (17, 5)}
    assert heads[-1].value > 0.6
    assert np.median(induction["induction"]) < 0.05
    retrieval = aw.statistics.retrieval_score(
        *smollm2,
        "The secret ingredient of Anna's famous soup is smoked paprika from the island of Menorca.",
        "What is the secret ingredient of Anna's famous soup?",
        answer="smoked paprika from the island of Menorca",
        words=60,
        depths=(0.5,),
        max_new_tokens=20,
    )
    assert "Menorca" in retrieval.provenance["prompts"][0]["answer"]
    assert retrieval.top("retrieval", 1)[0][:2] == (18, 6)
    assert {head[:2] for head in retrieval.top("retrieval", 4)} & {(17, 3), (17, 4)}
    # A retrieval head by the authors' threshold, as a share of all heads.
    assert (retrieval["retrieval"] >= 0.1).mean() < 0.15
    with pytest.raises(ValueError, match="no prompt was answered"):
        aw.statistics.retrieval_score(
            *smollm2, "x y z", "?", words=10, depths=(0.5,), max_new_tokens=1, recall=0.9
        )
