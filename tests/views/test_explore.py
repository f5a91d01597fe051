"""aw.explore shows whatever people have in hand."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny

TEXT = "the cat sat."
TOKENS = ("[CLS]", "the", "cat", "sat", ".", "[SEP]")


@pytest.fixture(scope="module")
def bert() -> tuple[Any, Any]:
    return tiny.build(tiny.TEXT["BERT"], implementation="eager"), tiny.wordpiece()


@pytest.fixture(scope="module")
def outputs(bert: Any) -> Any:
    model, tokenizer = bert
    with torch.no_grad():
        return model(**tokenizer(TEXT, return_tensors="pt"), output_attentions=True)


def test_a_model_a_name_or_a_pipeline_and_a_text(bert: Any, tmp_path: Any) -> None:
    model, tokenizer = bert
    for part in bert:
        part.save_pretrained(tmp_path)
    pipeline = hf.pipeline("fill-mask", model=model, tokenizer=tokenizer)
    for explorer in (
        aw.explore(str(tmp_path), TEXT),
        aw.explore(str(tmp_path), text=TEXT),
        aw.explore(pipeline, TEXT),
        aw.explore(model, tokenizer, TEXT),
        aw.explore(model, TEXT, tokenizer),
        aw.explore(model, text=TEXT, tokenizer=tokenizer),
    ):
        assert explorer.trace.tokens == TOKENS
        assert explorer.trace.logits is not None


def test_a_result_is_shown_as_it_is(bert: Any) -> None:
    trace = aw.trace(*bert, TEXT)
    assert aw.explore(trace).trace is trace
    assert aw.explore(trace, methods=["rollout"]).selection.method == "rollout"
    assert aw.explore(aw.rollout(trace)).selection.method == "rollout"
    for several in (aw.explore(aw.trace(*bert, [TEXT, "the cat"])), aw.explore(*bert, [TEXT, "the cat"])):
        assert several.trace.text == TEXT
        several.show_text(1)
        assert several.trace.text == "the cat"
    with pytest.raises(TypeError, match=r"text= is for a model that runs on a text, and a Trace was given"):
        aw.explore(trace, text=TEXT)
    with pytest.raises(TypeError, match=r"max_new_tokens= is for a model"):
        aw.explore(trace, max_new_tokens=3)


def test_outputs_caches_and_arrays_are_labelled_by_tokens_or_text(bert: Any, outputs: Any) -> None:
    model, tokenizer = bert
    cache = {f"blocks.{i}.attn.hook_pattern": layer for i, layer in enumerate(outputs.attentions)}
    ids = tokenizer(TEXT)["input_ids"]
    expected = aw.trace(model, tokenizer, TEXT)
    for attentions in (outputs, cache, outputs.attentions, torch.stack(outputs.attentions).numpy()):
        for explorer in (
            aw.explore(attentions, tokens=list(TOKENS)),
            aw.explore(attentions, list(TOKENS)),
            aw.explore(attentions, tokenizer, TEXT),
            aw.explore(attentions, TEXT, tokenizer),
            aw.explore(attentions, tokenizer, ids),
        ):
            assert explorer.trace.tokens == TOKENS
            torch.testing.assert_close(
                explorer.trace.attention_layer(1), expected.attention_layer(1), atol=1e-6, rtol=0
            )
    assert aw.explore(outputs).trace.tokens == tuple("012345")


def test_what_does_not_go_together_is_answered(bert: Any, outputs: Any) -> None:
    model, tokenizer = bert
    with pytest.raises(ValueError, match=r"label given attention by their tokenizer"):
        aw.explore(outputs, TEXT)
    with pytest.raises(TypeError, match=r"max_new_tokens= is for a model"):
        aw.explore(outputs, list(TOKENS), max_new_tokens=2)
    with pytest.raises(TypeError, match="tokens= labels given attention"):
        aw.explore(model, tokenizer, TEXT, tokens=list(TOKENS))
    with pytest.raises(TypeError, match="model must be a hub id"):
        aw.explore(object(), tokenizer, TEXT)
    with pytest.raises(ValueError, match="sdpa"):
        aw.explore(SimpleNamespace(attentions=()), list(TOKENS))
    assert np.isclose(aw.explore(outputs, words="whitespace").trace.attention_layer(0).sum(-1), 1).all()
