"""Targets of an answer: one for every generated token, at the position that predicted it."""

from __future__ import annotations

import pytest

import attnwidgets as aw


@pytest.fixture(scope="module")
def answered(smollm2):
    return aw.trace(*smollm2, "The capital of France is", max_new_tokens=3)


def test_every_generated_token_is_explained_where_it_was_predicted(answered):
    targets = aw.targets.generated(answered)
    start = answered.boundary
    assert [t.position for t in targets] == [start - 1, start, start + 1]
    assert [t.value for t in targets] == answered.input_ids[start:].tolist()
    # Greedily generated: each was the most probable there.
    assert [int(answered.logits[t.position].argmax()) for t in targets] == [t.value for t in targets]
    scores = aw.input_x_gradient(answered, target=targets)
    assert scores.shape == (3, len(answered.tokens))
    assert scores.target == answered.tokens[start:]
    assert not scores.values[0, start:].any()  # later tokens have no part
    assert type(scores.view()).__name__ == "RelevanceMap"


def test_a_text_that_was_only_read_has_no_answer(minilm, sentence):
    with pytest.raises(ValueError, match=r"logits|max_new_tokens"):
        aw.targets.generated(aw.trace(*minilm, sentence))


def test_the_answer_of_an_encoder_decoder_is_its_decoders():
    torch = pytest.importorskip("torch")
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    config = T5Config(
        vocab_size=40, d_model=16, d_kv=8, d_ff=16, num_layers=2, num_heads=2, decoder_start_token_id=0
    )
    trace = aw.trace(T5ForConditionalGeneration(config).eval(), None, [3, 4, 5, 1], max_new_tokens=3)
    ids = trace.inputs["decoder_input_ids"][0].tolist()
    result = aw.targets.generated(trace)
    assert [t.value for t in result] == ids[1:]
    assert [t.position for t in result] == list(range(len(ids) - 1))
