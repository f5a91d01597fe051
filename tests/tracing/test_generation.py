"""`max_new_tokens=` writes the most probable tokens, whatever the model's options are."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

IDS = [5, 17, 31, 9]
NEW = 6
LEFT_OVER = [
    {"num_return_sequences": 2},
    {"num_return_sequences": 2, "num_beams": 4, "early_stopping": True, "length_penalty": 2.0},
    {"num_beams": 4, "num_beam_groups": 2, "diversity_penalty": 1.0},
    {"penalty_alpha": 0.6, "top_k": 4},
    {"dola_layers": "low"},
    {"force_words_ids": [[7]], "num_beams": 2},
    {"stop_strings": ["a"]},
    {"do_sample": True, "temperature": 5.0, "top_p": 0.3, "min_p": 0.1},
    {"repetition_penalty": 3.0, "no_repeat_ngram_size": 1, "encoder_repetition_penalty": 2.0},
    {"min_length": 3, "min_new_tokens": 3, "max_length": 5, "max_time": 1e-9},
    {"guidance_scale": 3.0},
    {"sequence_bias": {(9,): 100.0}},
    {"exponential_decay_length_penalty": (1, 2.0)},
    {"prompt_lookup_num_tokens": 3},
    {"token_healing": True},
    {"output_scores": True, "return_dict_in_generate": True, "output_attentions": True},
    {"use_cache": False, "cache_implementation": "static"},
]


def by_hand(model: Any, start: list[int], ends: tuple[int, ...] = (), **inputs: Any) -> list[int]:
    """Return ids that a loop of passes gives, each the most probable; `start` are the ids before them."""
    ids = list(start)
    argument = "decoder_input_ids" if inputs else "input_ids"
    while len(ids) < len(start) + NEW and (len(ids) == len(start) or ids[-1] not in ends):
        with torch.no_grad():
            logits = model(**inputs, **{argument: torch.tensor([ids])}).logits[0, -1]
        for name in ("suppress_tokens", "bad_words_ids"):
            logits[torch.tensor(getattr(model.generation_config, name) or [], dtype=int).flatten()] = -1e9
        forced = model.generation_config.forced_bos_token_id
        ids.append(int(logits.argmax()) if forced is None or len(ids) > 1 else forced)
    return ids


@pytest.mark.parametrize("left", LEFT_OVER, ids="+".join)
def test_left_over_options_change_nothing(left: dict[str, Any]) -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    expected = by_hand(model, IDS)
    for name, value in left.items():
        setattr(model.generation_config, name, value)
    before = model.generation_config.to_dict()
    result = trace(model, None, IDS, max_new_tokens=NEW)
    assert result.input_ids.tolist() == expected
    assert result.boundary == len(IDS)
    assert model.generation_config.to_dict() == before
    (continuation,) = aw.continuations(trace(model, None, IDS), max_new_tokens=NEW)
    assert list(continuation.ids) == expected[len(IDS) :]


def test_what_ends_a_text_still_ends_it() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    third = by_hand(model, IDS)[len(IDS) + 2]
    model.generation_config.eos_token_id = [third, 119]
    result = trace(model, None, IDS, max_new_tokens=NEW).input_ids.tolist()
    assert result == by_hand(model, IDS, (third, 119))
    assert result[-1] == third
    assert len(result) <= len(IDS) + 3


def _bart() -> Any:
    sides = tiny._seq2seq_options()
    return hf.BartForConditionalGeneration(hf.BartConfig(**sides, forced_eos_token_id=None))


@pytest.mark.parametrize("name", ["T5", "Marian", "BART"])
@pytest.mark.parametrize(
    "own", [{}, {"forced_bos_token_id": 50}, {"bad_words_ids": [[88], [60]], "suppress_tokens": [3]}]
)
def test_a_decoder_begins_and_may_write_what_its_model_says(name: str, own: dict[str, Any]) -> None:
    model = tiny.build({**tiny.SEQ2SEQ, "BART": _bart}[name])
    options = model.generation_config
    options.eos_token_id = options.forced_eos_token_id = None
    if "bad_words_ids" in own:  # of what it would write
        first, second = by_hand(model, [0], input_ids=torch.tensor([IDS]))[1:3]
        own = {"bad_words_ids": [[first]], "suppress_tokens": [second]}
    for key, value in own.items():
        setattr(options, key, value)
    expected = by_hand(model, [0], input_ids=torch.tensor([IDS]))
    options.num_beams, options.num_return_sequences, options.no_repeat_ngram_size = 3, 2, 1
    result = trace(model, None, IDS, max_new_tokens=NEW)
    assert [int(token) for token in result.axes("decoder")[0].tokens] == expected


def test_whisper_keeps_its_task() -> None:
    model = tiny.whisper()
    options = model.generation_config
    options.update(begin_suppress_tokens=[], suppress_tokens=[], eos_token_id=2)
    for name, value in {
        "is_multilingual": True,
        "lang_to_id": {"<|en|>": 40, "<|de|>": 41},
        "task_to_id": {"transcribe": 42, "translate": 43},
        "no_timestamps_token_id": 44,
        "language": "de",
        "task": "translate",
    }.items():
        setattr(options, name, value)
    options.num_return_sequences = options.num_beams = 2
    torch.manual_seed(0)
    sound = torch.randn(8, 40)
    result = trace(model, None, audio=sound, max_new_tokens=NEW)
    expected = by_hand(model, [0, 41, 43, 44], input_features=sound[None])
    assert [int(token) for token in result.axes("decoder")[0].tokens] == expected
    assert result.boundary == 4
