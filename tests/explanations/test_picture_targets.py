"""Targets of models that read pictures and sound: a similarity, a detected class, a token of a frame."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.pictures import PICTURES


def traced(family: str) -> Any:
    entry = PICTURES[family]
    return entry.trace_of(tiny.build(entry.make), entry.picture())


@pytest.mark.parametrize("family", ["CLIP", "SigLIP"])
def test_the_similarity_of_a_picture_and_its_caption_is_a_target(family: str) -> None:
    result = traced(family)
    with torch.no_grad():
        expected = result.model(**result.inputs).logits_per_image
    torch.testing.assert_close(result.logits, expected[0])
    named = aw.saliency(result, stack="vision")
    by_hand = aw.saliency(result, lambda out: out.logits_per_image[:, 0], stack="vision")
    np.testing.assert_array_equal(named.values, by_hand.values)
    assert named.target == result.axes("text")[0].text
    assert np.asarray(named.values).any()
    steps = aw.integrated_gradients(
        result, steps=3, stack="vision"
    )  # several pictures, each with its caption
    assert np.asarray(steps.values).shape == (len(result.axes("vision")[0]),)


def test_the_similarity_is_followed_through_an_intervention() -> None:
    result = traced("CLIP")
    again = result.rerun(aw.ablate_heads(result, {0: [1]}, stack="vision"))
    assert again.logits.shape == result.logits.shape == (1,)
    assert not torch.equal(again.logits, result.logits)


def test_a_detector_is_asked_in_words_of_pictures() -> None:
    result = traced("YOLOS")
    names = list(result.model.config.id2label.values())
    with pytest.raises(
        ValueError, match=r"predicts a class at every detection token, target=aw.targets.token\(class"
    ):
        aw.saliency(result)
    assert result.logits is not None
    best = int(result.logits.softmax(-1)[:, 1].argmax())
    assert f"{names[1]} at {best}, where it is most probable" in aw.saliency(result, names[1]).warning
    first = aw.saliency(result, aw.targets.token(names[1], position=2))
    assert first.target == names[1]
    other = aw.saliency(result, lambda out: out.logits[:, 2, 1])
    np.testing.assert_array_equal(first.values, other.values)
    assert aw.saliency(result, aw.targets.token(len(names), position=0)).target == "nothing"


def test_a_transcriber_is_asked_in_words_of_sound() -> None:
    config = tiny.wav2vec2().config
    config.vocab_size = 9
    result = aw.trace(tiny.build(lambda: hf.Wav2Vec2ForCTC(config)), None, audio=torch.randn(200))
    with pytest.raises(ValueError, match=r"predicts a token at every frame, target=aw\.targets\.token"):
        aw.saliency(result)


def test_captions_that_are_no_strings_are_refused() -> None:
    clip = PICTURES["CLIP"]
    for wrong in ([], ["a cat", 3]):
        with pytest.raises(ValueError, match="a string or a list of captions"):
            aw.trace(tiny.build(clip.make), tiny.wordpiece(), wrong, image=clip.picture())
