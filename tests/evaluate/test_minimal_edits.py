"""Edits of single words: the exact optima of the demo classifier, fluency counted by hand, and bad input."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate import minimal_edits
from attnwidgets.evaluate.minimal_edits import text_surprisals
from tests.tracing import tiny
from tests.tracing.test_borrow import state_of

if TYPE_CHECKING:
    from pathlib import Path

WORDS = ["dull", "long", "superb", "awful"]


@pytest.fixture(scope="module")
def judge() -> tuple[Any, Any]:
    """A tiny causal language model, whose opinions are random, and its tokenizer."""
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    tokenizer = tiny.byte_level()
    config = GPT2Config(vocab_size=len(tokenizer), n_embd=12, n_layer=2, n_head=3, n_positions=128)
    return GPT2LMHeadModel(config).eval(), tokenizer


def cases(shared: Path) -> tuple[list[str], list[Any]]:
    reference = json.loads((shared / "reference" / "concepts" / "one_word_edits.json").read_text("utf-8"))
    return reference["candidates"], reference["texts"]


@pytest.mark.slow
def test_the_best_edits_are_those_of_the_reference(shared: Path) -> None:
    model, tokenizer = aw.demo_model("classifier")
    for case in cases(shared)[1]:
        words = sorted({word for _, word, _ in case["flips"]})[:3]
        result = minimal_edits(model, tokenizer, case["text"], words)
        assert result.label == case["label"]
        assert -result.margin == pytest.approx(abs(case["margin"]), abs=1e-4)
        expected = [edit for edit in case["flips"] if edit[1] in words]
        best = [(edit.place, edit.new, edit.margin) for edit in result.flips[: len(expected)]]
        assert sorted(edit[:2] for edit in best) == sorted((place, word) for place, word, _ in expected)
        np.testing.assert_allclose([edit[2] for edit in best], [edit[2] for edit in expected], atol=1e-3)


@pytest.mark.extended
def test_as_many_edits_flip_as_in_the_reference(shared: Path) -> None:
    candidates, texts = cases(shared)
    model, tokenizer = aw.demo_model("classifier")
    for case in texts:
        result = minimal_edits(model, tokenizer, case["text"], candidates, batch_size=256)
        assert len(result.flips) == case["n_flips"]
        # A word that replaces itself is no edit.
        same = sum(word.strip(".,").lower() in candidates for word in case["text"].split(" "))
        assert len(result) == case["n_edits"] - same


def test_punctuation_stays_and_the_first_word_is_capitalised() -> None:
    model, tokenizer = aw.demo_model("classifier")
    result = minimal_edits(model, tokenizer, "Good food, fine film.", ["awful", "fine"])
    texts = {(edit.place, edit.new): edit.text for edit in result}
    assert texts[0, "awful"] == "Awful food, fine film."
    assert texts[1, "awful"] == "Good awful, fine film."
    assert texts[3, "awful"] == "Good food, fine awful."
    assert (2, "fine") not in texts
    margins = [edit.margin for edit in result]
    assert margins == sorted(margins, reverse=True)
    assert all(edit.flips == (edit.label != result.label) for edit in result)
    assert "no language model judged" in result.caveat


def test_flips_are_ranked_by_a_language_model(judge: tuple[Any, Any]) -> None:
    model, tokenizer = aw.demo_model("classifier")
    before = state_of(model), state_of(judge[0])
    text = "A fine film."
    result = minimal_edits(model, tokenizer, text, WORDS, fluency=judge)
    nats = [edit.surprisal for edit in result.flips]
    assert len(nats) > 1
    assert nats == sorted(nats)
    first = result.flips[0]
    expected = by_hand(*judge, first.text) - by_hand(*judge, text)
    assert first.surprisal == pytest.approx(expected, abs=1e-6)
    assert all(np.isnan(edit.surprisal) for edit in result if not edit.flips)
    by_margin = minimal_edits(model, tokenizer, text, WORDS, fluency=judge, by="margin")
    assert [edit.margin for edit in by_margin.flips] == sorted((e.margin for e in result.flips), reverse=True)
    assert "GPT2LMHeadModel" in result.caveat
    assert (state_of(model), state_of(judge[0])) == before


def by_hand(model: Any, tokenizer: Any, text: str) -> float:
    """Return -log p of a text, token by token."""
    ids = tokenizer(text)["input_ids"]
    start = tokenizer.bos_token_id
    ids = ids if start is None or ids[0] == start else [start, *ids]
    total = 0.0
    for end in range(1, len(ids)):
        with torch.no_grad():
            logits = model(input_ids=torch.tensor([ids[:end]])).logits[0, -1]
        total -= float(logits.double().log_softmax(-1)[ids[end]])
    return total


def test_a_masked_model_judges_by_pseudo_surprisal() -> None:
    from transformers import BertConfig, BertForMaskedLM

    torch.manual_seed(0)
    tokenizer = tiny.wordpiece()
    sizes = {"hidden_size": 12, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 8}
    model = BertForMaskedLM(BertConfig(vocab_size=len(tokenizer), **sizes)).eval()
    result = text_surprisals(model, tokenizer, ["the cat"], 4)
    ids = tokenizer("the cat")["input_ids"]
    total = 0.0
    for index in range(1, len(ids) - 1):
        masked = torch.tensor([ids])
        masked[0, index] = tokenizer.mask_token_id
        with torch.no_grad():
            total -= float(model(input_ids=masked).logits[0, index].double().log_softmax(-1)[ids[index]])
    assert result[0] == pytest.approx(total, abs=1e-5)


def test_candidates_may_depend_on_the_place() -> None:
    model, tokenizer = aw.demo_model("classifier")
    result = minimal_edits(model, tokenizer, "A fine film.", lambda words, place: WORDS if place == 1 else [])
    assert {edit.place for edit in result} == {1}
    assert result.to_rows()[0]["new"] == result[0].new
    assert "<script>" not in minimal_edits(model, tokenizer, "A <script> film.", ["dull"])._repr_html_()


def test_bad_input_is_named() -> None:
    model, tokenizer = aw.demo_model("classifier")
    for text, words, options, message in (
        ("", WORDS, {}, "no words to edit"),
        ("Good", [], {}, "candidates is empty"),
        ("Good", ["good"], {}, "only the original words"),
        ("Good", ["very good"], {}, "single words"),
        ("Good", [""], {}, "single words"),
        ("Good", WORDS, {"by": "surprisal"}, "needs fluency"),
        ("Good", WORDS, {"by": "length"}, "by"),
        ("Good", WORDS, {"batch_size": 0}, "batch_size must be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            minimal_edits(model, tokenizer, text, words, **options)
    with pytest.raises(TypeError, match="one text; give a list of words"):
        minimal_edits(model, tokenizer, "Good", "bad")
    with pytest.raises(TypeError, match="text must be a string"):
        minimal_edits(model, tokenizer, None, WORDS)
    with pytest.raises(ValueError, match="one of several classes"):
        minimal_edits(*aw.demo_model("encoder"), "Good", WORDS)


@pytest.mark.parametrize("problem", ["regression", "multi_label_classification"])
def test_numbers_and_labels_that_may_all_be_true_turn_into_no_other_class(problem):
    import transformers as hf

    config = hf.BertConfig(vocab_size=27, num_labels=3, problem_type=problem, **tiny.SMALL)
    model = tiny.build(lambda: hf.BertForSequenceClassification(config))
    with pytest.raises(ValueError, match="one of several classes, which exclude each other"):
        minimal_edits(model, tiny.wordpiece(), "the cat sat.", ["york"])
