"""Heads of a task by sparse codes: a compiled circuit, a trained circuit beside patching, and no task."""

from __future__ import annotations

import numpy as np
import pytest

import attnwidgets as aw


def texts(letters: str, count: int, length: int, seed: int, *, repeats: bool) -> list[str]:
    """Random letters, of which the last stood before, or none twice."""
    rng = np.random.default_rng(seed)
    drawn = [list(rng.permutation(list(letters))[: length + 1]) for _ in range(count)]
    last = [int(rng.integers(length - 2)) if repeats else length for _ in drawn]
    return ["".join([*some[:length], some[at]]) for some, at in zip(drawn, last, strict=True)]


@pytest.mark.slow
def test_the_head_that_copies_is_found():
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    examples = [texts("abcdefgh", 24, 6, seed, repeats=repeats) for seed, repeats in ((0, True), (1, False))]
    result = aw.circuits.heads_by_codes(model, tokenizer, *examples, d_sae=64, steps=150)
    assert result.top(1)[0][:2] == (1, 0)
    assert result.scores[1, 0] > 0.9
    rest = result.scores[[0, 0, 1], [0, 1, 1]]
    assert np.abs(rest).max() < 0.4
    assert result.explained > 0.8
    again = aw.circuits.heads_by_codes(model, tokenizer, *examples, d_sae=64, steps=150)
    assert np.array_equal(result.scores, again.scores)
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("fadebcfadeb", "fadebafadeb"))
    assert result.agreement(aw.circuits.patch(clean, corrupt, "c", foil="a", sites="head")) == 1
    assert "head 1.0" in repr(result)
    # The same texts as both kinds: no code is of a single kind.
    same = aw.circuits.heads_by_codes(model, tokenizer, examples[0], examples[0], d_sae=64, steps=50)
    assert np.nanmax(same.scores) <= 0


@pytest.mark.slow
def test_a_trained_head_that_always_writes_is_not_found():
    # It writes a letter in either case, where patching sees that it is right.
    model, tokenizer = aw.zoo.trained("induction")
    letters = "abcdefghijklmnop"
    examples = [texts(letters, 32, 8, seed, repeats=repeats) for seed, repeats in ((0, True), (1, False))]
    result = aw.circuits.heads_by_codes(model, tokenizer, *examples, steps=150)
    clean, corrupt = (aw.trace(model, tokenizer, text) for text in ("abcdefgabc", "abcnefgabc"))
    patched = aw.circuits.patch(clean, corrupt, "d", foil="n", sites="head").heads
    assert patched[1, 1] > 0.5
    assert np.abs(result.scores).max() < 0.4


def test_agreement_is_the_area_under_the_curve():
    scores = np.array([[0.9, 0.1], [0.5, 0.5]])
    coded = aw.results.CodedHeads(scores, scores, 1.0, 8, 8)
    assert coded.agreement(np.array([[1.0, 0], [0, 0.3]])) == pytest.approx(7 / 8)
    assert np.isnan(coded.agreement(np.zeros((2, 2))))
    with pytest.raises(ValueError, match="patched has heads"):
        coded.agreement(np.zeros((2, 3)))


def test_what_does_not_fit_is_said():
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    some = texts("abcdefgh", 8, 6, 0, repeats=True)
    with pytest.raises(ValueError, match="negative takes 8 texts"):
        aw.circuits.heads_by_codes(model, tokenizer, some, some[:7])
    with pytest.raises(ValueError, match="positive takes 8 texts"):
        aw.circuits.heads_by_codes(model, tokenizer, "abcdefgh", some)
    with pytest.raises(ValueError, match="position 20 is out of range"):
        aw.circuits.heads_by_codes(model, tokenizer, some, some, position=20)
    with pytest.raises(ValueError, match="k must be at most"):
        aw.circuits.heads_by_codes(model, tokenizer, some, some, d_sae=2, k=3)
    with pytest.raises(ValueError, match="steps must be"):
        aw.circuits.heads_by_codes(model, tokenizer, some, some, steps=0)
