"""Compiled models compute their documented answers: on all short texts, in every precision, at every size."""

from __future__ import annotations

import copy
import itertools
import random

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.zoo.made import DTYPES, EVERY, logits_of, made


def test_sizes_are_small_enough_for_a_page():
    sizes = {name: sum(p.numel() for p in made(name)[0].parameters()) for name in EVERY}
    assert max(sizes.values()) <= 400_000, sizes


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
def test_induction_continues_whatever_was_repeated(dtype):
    model, tokenizer = made("induction")
    model = copy.deepcopy(model).to(dtype)
    draw = random.Random(0)
    for period in range(2, 16):
        texts = ["".join(draw.sample("abcdefghijklmnop", period)) * 2 for _ in range(20)]
        probabilities = logits_of(model, tokenizer, texts)[:, period + 1 : -1].softmax(-1)
        following = torch.tensor(
            [["abcdefghijklmnop".index(c) for c in text[period + 1 :]] for text in texts]
        )
        right = probabilities.gather(2, following[..., None])
        # 10 for the right letter and 0 for 16 others
        assert right.min() >= np.exp(10) / (np.exp(10) + 16) - (1e-5 if dtype == torch.float32 else 4e-3)


def test_a_letter_with_two_successors_gives_each_its_share():
    model, tokenizer = made("induction")
    logits = logits_of(model, tokenizer, ["abacada"])[0, -1]
    assert logits[[1, 2, 3]].numpy() == pytest.approx(10 / 3, abs=1e-4)
    assert model.truth.answer("abacada") is None
    assert logits_of(model, tokenizer, ["abcabdaba"])[0, -1].argmax() == 1
    assert model.truth.answer("abcabdaba") == "b"


def test_nothing_to_go_by_leaves_all_tokens_equally_likely():
    model, tokenizer = made("induction")
    for text in ("", "abc"):
        torch.testing.assert_close(
            logits_of(model, tokenizer, [text])[0, -1].softmax(-1), torch.full((17,), 1 / 17)
        )
        assert model.truth.answer(text) is None
        assert model.truth.evidence(text) == {}


@pytest.mark.slow
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("how", ["same", "all", "different"])
def test_histogram_counts_in_all_4096_strings(how, dtype):
    model, tokenizer = made("histogram", how=how, letters="abcdefgh", length=4)
    texts = ["".join(letters) for letters in itertools.product("abcdefgh", repeat=4)]
    logits = logits_of(copy.deepcopy(model).to(dtype), tokenizer, texts)[:, 1:]
    counts = torch.tensor([[text.count(letter) for letter in text] for text in texts])
    assert len(texts) == 4096
    assert torch.equal(logits.argmax(-1) + 1, counts)
    expected = 10 * torch.nn.functional.one_hot(counts - 1, 4)
    # Units are flat around every count: rounding of attention does not reach the logits.
    assert (logits - expected).abs().max() < (1e-5 if dtype == torch.float32 else 0.2)


@pytest.mark.parametrize(
    ("how", "length"),
    [("same", 1), ("same", 64), ("all", 1), ("all", 40), ("different", 1), ("different", 64)],
)
def test_histogram_counts_at_every_length(how, length):
    model, tokenizer = made("histogram", how=how, letters="abcdefgh", length=length)
    draw = random.Random(0)
    texts = ["a" * length, *("".join(draw.choices("aaabcdefgh", k=length)) for _ in range(30))]
    counts = torch.tensor([[text.count(letter) for letter in text] for text in texts])
    assert torch.equal(logits_of(model, tokenizer, texts)[:, 1:].argmax(-1) + 1, counts)
    assert model.truth.answer(texts[-1], at=-1) == str(int(counts[-1, -1]))


@pytest.mark.parametrize("how", ["same", "all", "different"])
def test_histogram_counts_in_half_precision_up_to_20_letters(how):
    model, tokenizer = made("histogram", how=how, letters="abcdefgh", length=20)
    draw = random.Random(0)
    texts = ["a" * 20, *("".join(draw.choices("aaabcdefgh", k=20)) for _ in range(100))]
    counts = torch.tensor([[text.count(letter) for letter in text] for text in texts])
    half = copy.deepcopy(model).half()
    assert torch.equal(logits_of(half, tokenizer, texts)[:, 1:].argmax(-1) + 1, counts)


def test_one_function_three_opposite_maps():
    text = "abacabadab"
    is_a = np.array([letter == "a" for letter in text])
    rows = {}
    for how in ("same", "all", "different"):
        model, tokenizer = made("histogram", how=how)
        rows[how] = aw.attention(aw.trace(model, tokenizer, text)).values[0, 0, 1]
    np.testing.assert_allclose(rows["same"], np.append(1, is_a) / 6, atol=1e-6)
    np.testing.assert_allclose(rows["all"], 1 / 11, atol=1e-6)
    np.testing.assert_allclose(rows["different"], np.append(1, ~is_a) / 6, atol=1e-6)


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("name", ["additive", "negation"])
def test_the_score_is_the_closed_form(name, dtype):
    model, tokenizer = made(name)
    weights, lowered = model.truth.weights, copy.deepcopy(model).to(dtype)
    draw = random.Random(0)
    for length in range(1, model.truth.length + 1):
        texts = ["".join(draw.choices(model.truth.letters, k=length)) for _ in range(200)]
        turned = [(-1) ** (text.count("n") if name == "negation" else 0) for text in texts]
        scores = [s * sum(weights.get(letter, 0) for letter in t) for t, s in zip(texts, turned, strict=True)]
        expected = torch.tensor([[-score, score] for score in scores])
        torch.testing.assert_close(logits_of(lowered, tokenizer, texts), expected, rtol=0, atol=1e-5)
        answers = [model.truth.answer(text) for text in texts]
        assert answers == [("positive" if s > 0 else "negative") if s else None for s in scores]


def test_weights_and_the_negating_letter_are_the_readers_choice():
    model, tokenizer = aw.zoo.negation("!ab", 3, no="!", weights={"a": 2, "b": -0.5})
    assert logits_of(model, tokenizer, ["!ab"])[0].tolist() == pytest.approx([1.5, -1.5], abs=1e-6)
    assert model.truth.weights == {"a": 2.0, "b": -0.5}


@pytest.mark.slow
def test_two_hops_are_followed_in_any_order_of_the_pairs():
    model, tokenizer = made("two_hop")
    draw, asked = random.Random(0), 0
    for _ in range(300):
        chain = draw.sample("abcdefgh", 6)
        pairs = [chain[0] + chain[1], chain[1] + chain[2], chain[3] + chain[4], chain[4] + chain[5]]
        draw.shuffle(pairs)
        text = " ".join([*pairs, chain[0]])
        best = logits_of(model, tokenizer, [text])[0, -1].softmax(-1)
        assert "abcdefgh"[best.argmax()] == model.truth.answer(text) == chain[2], text
        assert best.max() > 0.999
        asked += 1
    assert asked == 300


def test_two_hops_from_a_letter_that_leads_nowhere_have_no_answer():
    model, tokenizer = made("two_hop")
    for text in ("bc ef h", "ab ef a", "a"):
        assert model.truth.answer(text) is None
        torch.testing.assert_close(
            logits_of(model, tokenizer, [text])[0, -1].softmax(-1), torch.full((9,), 1 / 9), msg=text
        )


def words(length, depth, pairs=("()", "[]"), open_=()):
    """All beginnings of bracket words of a length, no deeper than a depth."""
    if not length:
        yield ""
        return
    if len(open_) < depth:
        for opening, closing in pairs:
            yield from (opening + rest for rest in words(length - 1, depth, pairs, (*open_, closing)))
    if open_:
        yield from (open_[-1] + rest for rest in words(length - 1, depth, pairs, open_[:-1]))


@pytest.mark.parametrize("dtype", DTYPES[:2])
@pytest.mark.parametrize("length", range(1, 9))
def test_dyck_closes_the_right_bracket_in_all_words(length, dtype):
    model, tokenizer = made("dyck")
    model = copy.deepcopy(model).to(dtype)
    texts = list(words(length, 3))
    outputs = logits_of(model, tokenizer, texts)[:, -1].softmax(-1)
    for text, probabilities in zip(texts, outputs, strict=True):
        answer = model.truth.answer(text)
        if answer is None:
            torch.testing.assert_close(probabilities, torch.full((5,), 0.2))
        else:
            assert probabilities["()[]".index(answer)] > 0.999, text


def test_dyck_attends_to_the_top_of_the_stack_and_nowhere_else():
    model, tokenizer = aw.zoo.dyck("()[]{}", depth=5, length=40)
    draw, text, stack, tops = random.Random(1), "", [], [0]
    while len(text) < 40:
        if stack and (len(stack) == 5 or draw.random() < 0.5):
            text += ")]}"["([{".index(text[stack.pop() - 1])]
        else:
            text += draw.choice("([{")
            stack.append(len(text))
        tops.append(stack[-1] if stack else 0)
    rows = aw.attention(aw.trace(model, tokenizer, text)).values[1, 0]
    assert rows.argmax(-1).tolist() == tops
    np.testing.assert_allclose(rows.max(-1), 1, atol=1e-6)
    assert [next(iter(model.truth.evidence(text, at)), 0) for at in range(41)] == tops


def test_a_bracket_that_closes_nothing_is_refused():
    truth = made("dyck")[0].truth
    with pytest.raises(
        ValueError, match=r"text '\(\]' closes a bracket with '\]' \(token 2\) that is not open"
    ):
        truth.evidence("(]")
    with pytest.raises(ValueError, match=r"deeper than 3 at token 4"):
        truth.evidence("((((")
