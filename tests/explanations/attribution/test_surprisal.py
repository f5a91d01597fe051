"""aw.surprisal: -log p of the tokens of the text, in bits or nats, by token and by word."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny


@pytest.fixture(scope="module")
def read():
    import transformers as hf

    config = hf.GPT2Config(vocab_size=262, n_embd=32, n_layer=2, n_head=4, initializer_range=0.4)
    return aw.trace(
        tiny.build(lambda: hf.GPT2LMHeadModel(config)), tiny.byte_level(), "the cat sat on the mats"
    )


def test_it_is_the_cross_entropy_of_every_token_but_the_first(read):
    with torch.no_grad():
        logits = read.model(read.input_ids[None]).logits[0, :-1].double()
    expected = torch.nn.functional.cross_entropy(logits, read.input_ids[1:], reduction="none").numpy()
    nats = aw.surprisal(read, measure="nats")
    np.testing.assert_allclose(nats.values[1:], expected, rtol=1e-5)
    assert nats.values[0] == 0
    assert "first token" in nats.warning
    np.testing.assert_allclose(aw.surprisal(read).values[1:], expected / np.log(2), rtol=1e-5)
    assert aw.surprisal(read).title == "surprisal in bits"


def test_words_add_up_what_their_pieces_are(read):
    bits = aw.surprisal(read)
    words = bits.to("word")
    assert len(words.values) < len(bits.values)
    for value, span in zip(words.values, read.units["word"].spans, strict=True):
        assert value == pytest.approx(bits.values[list(span)].sum(), rel=1e-5)


def test_of_an_encoder_decoder_the_decoder_is_read():
    trace = aw.trace(tiny.build(tiny.SEQ2SEQ["Marian"]), tiny.wordpiece(), "the cat", target_text="a cat sat")
    ids = trace.inputs["decoder_input_ids"][0]
    expected = -trace.logits.double().log_softmax(-1)[range(len(ids) - 1), ids[1:]].numpy()
    result = aw.surprisal(trace, measure="nats")
    assert result.stack == "decoder"
    np.testing.assert_allclose(result.values[1:], expected, rtol=1e-5)


def test_a_masked_model_is_refused_and_masks_one_token_after_the_other():
    model, tokenizer = tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece()
    trace = aw.trace(model, tokenizer, "the cat sat")
    with pytest.raises(ValueError, match="pseudo=True"):
        aw.surprisal(trace)
    result = aw.surprisal(trace, pseudo=True, measure="nats", batch_size=2)
    special = trace.units["token"].special
    for index, token in enumerate(trace.input_ids.tolist()):
        masked = trace.input_ids.clone()
        masked[index] = tokenizer.mask_token_id
        with torch.no_grad():
            expected = -float(model(masked[None]).logits[0, index].log_softmax(-1)[token])
        assert result.values[index] == pytest.approx(0 if special[index] else expected, abs=1e-4)
    assert not result.warning


@pytest.mark.parametrize(
    ("options", "words"), [({"measure": "bit"}, "'bits'"), ({"pseudo": True}, "mask token")]
)
def test_what_it_cannot_be_asked_is_refused(read, options, words):
    with pytest.raises(ValueError, match=words):
        aw.surprisal(read, **options)


def test_logits_that_were_not_kept_are_asked_for(read):
    short = aw.trace(read.model, read.tokenizer, "the cat sat", memory=3000)
    with pytest.raises(ValueError, match="memory="):
        aw.surprisal(short)
