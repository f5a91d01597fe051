"""Named patterns of heads and similar heads: against plain loops over rows, and made heads."""

from __future__ import annotations

import math

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.statistics.patterns import PATTERNS
from tests.explanations.made import shares

TOKENS = ["[CLS]", "the", "cat", "saw", "the", "cat", "the", "[SEP]"]
CONTENT = range(1, 7)
N = len(TOKENS)


def recorded(values, tokens=TOKENS):
    return aw.from_attentions(np.asarray(values, dtype=np.float32), list(tokens))


def keys_of(name, i):
    """The keys that a query reads by a pattern, by its definition."""
    return {
        "previous": [i - 1] if i - 1 in CONTENT else [],
        "next": [i + 1] if i + 1 in CONTENT else [],
        "first": [0],
        "self": [i],
        "duplicate": [j for j in CONTENT if j < i and TOKENS[j] == TOKENS[i]],
        "separator": [N - 1],
    }[name]


@pytest.mark.parametrize("causal", [False, True])
def test_values_are_those_counted_row_by_row(causal):
    values = shares(2, 3, N, N, causal=causal)
    values[1, 1, 3] = 0  # a query that is masked altogether
    result = aw.statistics.head_patterns(recorded(values))
    assert ("next" in result.names) != causal
    for name in set(result.names) - {"broad", "sink", "same word"}:
        for layer in range(2):
            for head in range(3):
                rows = []
                for i in CONTENT:
                    keys = [j for j in keys_of(name, i) if j <= i or not causal]
                    row = values[layer, head, i]
                    if keys and row.sum() > 0:
                        rows.append(sum(row[j] for j in keys) / row.sum())
                expected = np.mean(rows) if rows else math.nan
                assert result[name][layer, head] == pytest.approx(expected, abs=1e-6, nan_ok=True), name


def test_what_goes_to_special_tokens_stays_in_the_denominator():
    values = np.zeros((1, 1, N, N))
    values[..., -1] = 0.9
    for i in range(N):
        values[0, 0, i, max(0, i - 1)] += 0.1
    result = aw.statistics.head_patterns(recorded(values))
    assert result["previous"].item() == pytest.approx(0.1)
    assert result["separator"].item() == pytest.approx(0.9)
    assert result.own == [["separator"]]


def test_only_patterns_that_apply_are_listed():
    plain = aw.statistics.head_patterns(recorded(shares(1, 2, 4, 4, causal=True), "abcd"))
    assert set(plain.left_out) == {"next", "same word", "duplicate", "punctuation", "separator", "no token"}
    assert "causal" in plain.left_out["next"]
    assert "twice" in plain.left_out["duplicate"]
    with pytest.raises(ValueError, match="'next'"):
        plain["next"]


def test_punctuation_is_what_holds_no_letter_and_no_digit():
    tokens = ["[CLS]", "well", ",", "it", "##'", "rains", "...", "3.5", "␣", "[SEP]"]
    marks, values = [2, 4, 6], shares(1, 2, len(tokens), len(tokens))
    patterns = aw.statistics.head_patterns(recorded(values, tokens))
    for head in range(2):
        rows = values[0, head]
        each = [sum(rows[i, j] for j in marks) / rows[i].sum() for i in range(1, 9)]
        assert patterns["punctuation"][0, head] == pytest.approx(np.mean(each), abs=1e-6)
    values[0, 0] = np.eye(len(tokens))[2]  # all on the comma
    patterns = aw.statistics.head_patterns(recorded(values, tokens))
    assert patterns.own[0][0] == "punctuation"
    assert patterns.strongest()[0].name != "punctuation"
    plain = aw.statistics.head_patterns(recorded(shares(1, 1, 3, 3), "abc"))
    assert plain.left_out["punctuation"] == "no element is a punctuation mark"


def test_the_strongest_pattern_relates_tokens_of_the_text():
    values = np.tile(np.full((N, N), 1 / N), (2, 2, 1, 1))
    values[0, 0] = np.eye(N)[0]  # all on [CLS]
    values[0, 1] = np.eye(N)  # itself
    values[1, 1] = np.eye(N)[[0, 0, 1, 2, 3, 4, 5, 6]]  # the token before
    result = aw.statistics.head_patterns(recorded(values))
    pattern, head = result.strongest()
    assert (pattern.name, head[:2]) == ("previous", (1, 1))
    assert result.own == [["first", "self"], ["broad", "previous"]]
    assert [item[:2] for item in result.top("previous", 1)] == [(1, 1)]


def test_related_tokens_are_statistics_too():
    values = shares(1, 2, N, N)
    trace = recorded(values)
    stats = aw.statistics.head_statistics(trace, "duplicate_token", queries="text")
    assert stats["duplicate_token"] == pytest.approx(
        aw.statistics.head_patterns(trace)["duplicate"], abs=1e-6
    )
    trace = recorded(values[..., :3, :3], "abc")
    with pytest.raises(ValueError, match="occurs twice"):
        aw.statistics.duplicate_token(trace)


def test_pieces_of_a_word_are_read_together(minilm):
    trace = aw.trace(*minilm, "unbelievable tokenization")
    word = trace.axes()[0].units["word"]
    groups = [span for span, special in zip(word.spans, word.special, strict=True) if not special]
    values, expected = aw.attention(trace).layer(0)[2], []
    for span in groups:
        if len(span) > 1:
            expected += [sum(values[i, j] for j in span if j != i) / values[i].sum() for i in span]
    result = aw.statistics.head_patterns(trace)["same word"][0, 2]
    assert expected
    assert result == pytest.approx(np.mean(expected), abs=1e-6)


def test_the_nearest_heads_by_their_rows():
    values = shares(2, 3, N, N)
    values[1, 2] = values[0, 1]
    trace = recorded(values)
    ranked = aw.statistics.similar_heads(trace, 0, 1, k=None)
    assert len(ranked) == 5
    assert ranked[0] == (1, 2, pytest.approx(0, abs=1e-9))
    last = ranked[-1]
    divergences = []
    for i in CONTENT:
        p, q = (np.float64(values[at][i]) / values[at][i].sum() for at in ((0, 1), last[:2]))
        m = (p + q) / 2
        divergences.append(
            sum(a * math.log(a / c) + b * math.log(b / c) for a, b, c in zip(p, q, m, strict=True)) / 2
        )
    assert last.value == pytest.approx(np.mean(divergences), abs=1e-6)
    other = recorded(values[:, ::-1])
    assert aw.statistics.similar_heads(trace, 0, 1, other, k=1)[0][:2] in {(0, 1), (1, 0)}
    with pytest.raises(ValueError, match="over the same elements"):
        aw.statistics.similar_heads(trace, 0, 1, recorded(shares(1, 1, 3, 3), "abc"))


def test_every_pattern_says_what_it_is():
    for item in PATTERNS:
        assert item.definition.endswith(".")
        assert item.title
        assert item.words.split()[0] in {"reads", "rests"}
