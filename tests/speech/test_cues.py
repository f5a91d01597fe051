"""A homophone's cue: value zeroing by hand, silence in the samples, and the rest of a word without it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.evaluate.removals.removal import ElementRemoval
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.speech.cue_contribution import word_rows
from attnwidgets.speech.word_times import with_words
from attnwidgets.tracing.recording.run import trace
from tests.speech.made import RATE, heard, spoken, tones
from tests.tracing import tiny

WORDS = ("he", "ate", "a", "pear")


@pytest.fixture(scope="module")
def times() -> Any:
    result = aw.speech.align(spoken())
    # Random heads hear all words at once: drawn times make every word a part of the sound.
    ends = np.array([0.2, 0.4, 0.6, 0.75])
    starts = np.array([0.0, *ends[:-1]])
    return replace(result, start=starts, end=ends, trace=with_words(result.trace, result.words, starts, ends))


def frames(times: Any, word: int) -> list[int]:
    return list(times.trace.axes("encoder")[0].units["word"].spans[word])


def test_value_zeroing_by_words_is_that_of_the_authors(times: Any) -> None:
    model, features = times.trace.model, times.trace.inputs["input_features"]
    encoder = model.model.encoder
    with torch.no_grad():
        states = encoder(features, output_hidden_states=True, return_dict=True).hidden_states
    for number, layer in enumerate(encoder.layers):
        last = number == len(encoder.layers) - 1
        after = encoder.layer_norm if last else torch.nn.Identity()

        def run(zeroed: list[int], layer: Any = layer, number: int = number, after: Any = after) -> Any:
            def without(_: Any, __: Any, values: torch.Tensor) -> torch.Tensor:
                values = values.clone()
                values[:, zeroed] = 0
                return values

            with torch.no_grad(), layer.self_attn.v_proj.register_forward_hook(without):
                result = layer(states[number], attention_mask=None)
            return after(result[0] if isinstance(result, tuple) else result)[0].double()

        plain = run([])
        expected = np.zeros((4, 4))
        for j in range(4):
            moved = 1 - torch.cosine_similarity(plain, run(frames(times, j)), dim=-1)
            expected[:, j] = [float(moved.detach()[frames(times, i)].mean()) for i in range(4)]
        expected /= expected.sum(axis=1, keepdims=True)
        assert word_rows(times, "value_zeroing", "encoder")[number] == pytest.approx(expected, abs=1e-4)


def test_rows_of_attention_are_shares_of_words_without_padding(times: Any) -> None:
    weights = np.asarray(times.trace.attention_layer(1, "cross")).mean(0)
    position = times.trace.axes("decoder")[0].tokens.index("pear")
    expected = np.array([weights[position - 1, frames(times, word)].sum() for word in range(4)])
    rows = word_rows(times, "attention", "cross")
    assert rows[1, 3] == pytest.approx(expected / expected.sum(), rel=1e-5)
    assert word_rows(times, "attention", "decoder")[0, 0].tolist() == [0, 0, 0, 0]


def test_contribution_is_the_share_of_the_cue_beside_chance(times: Any) -> None:
    result = aw.speech.cue_contribution([(times, 3, 1), (times, 3, [0, 1])], methods=["attention"])
    rows = word_rows(times, "attention", "encoder")[:, 3]
    assert result.values[0, 0, 0] == pytest.approx(rows[:, 1])
    assert result.values[1, 0, 0] == pytest.approx(rows[:, :2].sum(-1))
    assert result.mean[:, 1, 0] == pytest.approx([1.5 / 4, 1.5 / 3, 1.5 / 4])
    rows = result.to_rows()
    assert (rows[0]["stack"], rows[0]["method"], rows[0]["n"]) == ("encoder", "attention", 2)


def test_a_cue_that_follows_its_target_is_not_in_the_decoder(times: Any) -> None:
    result = aw.speech.cue_contribution([(times, 0, 3)], methods=["attention"])
    assert np.isnan(result.mean[1]).all()
    assert np.isfinite(result.mean[[0, 2]]).all()


def test_a_silenced_cue_is_a_sound_without_it(times: Any) -> None:
    result = aw.speech.blank_out(times, target=3, cue=1)
    wave = tones()
    wave[round(0.2 * RATE) : round(0.4 * RATE)] = 0
    model, reader = times.trace.model, times.trace.tokenizer
    fresh = trace(model, reader, audio=wave, target_text="he ate a pear")
    position = fresh.axes("decoder")[0].tokens.index("pear")
    token = int(fresh.inputs["decoder_input_ids"][0, position])
    expected = [float(run.logits[position - 1].double().softmax(-1)[token]) for run in (times.trace, fresh)]
    assert result.probability[:2] == pytest.approx(expected, rel=1e-5)
    assert result.drop[0] == 0
    assert result.probability[2] != pytest.approx(expected[0], rel=1e-6)
    assert result.to_rows()[1]["condition"] == "cue silenced"


def test_silence_is_an_operator_of_sound_and_of_nothing_else(times: Any) -> None:
    words = times.trace
    assert aw.evaluate.possible_operators(words, "encoder") == ("zero", "mean", "silence")
    assert "silence" not in aw.evaluate.possible_operators(words, "decoder")
    text = trace(tiny.build(tiny.TEXT["BERT"]), None, input_ids=[1, 2, 3])
    assert "silence" not in aw.evaluate.possible_operators(text, "self")
    unit = words.axes("encoder")[0].units["word"]
    target = resolve_target(words, None, method="test")
    removal = ElementRemoval(words, unit, "encoder", target, "silence")
    gone = np.zeros((2, len(unit)), dtype=bool)
    gone[1, 1] = True
    with removal.answering(watched=False) as ask:
        number = ask(gone).number
    wave = tones()
    wave[round(0.2 * RATE) : round(0.4 * RATE)] = 0
    fresh = trace(words.model, words.tokenizer, audio=wave, target_text="he ate a pear")
    assert number == pytest.approx([float(run.logits[-1, target.index]) for run in (words, fresh)], rel=1e-4)


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda times: aw.speech.blank_out(times, 1, 1), "words other than the target, 'ate'"),
        (lambda times: aw.speech.blank_out(heard(), 0, 1), "needs an encoder-decoder"),
        (lambda times: aw.speech.cue_contribution([]), "examples is empty"),
        (
            lambda times: aw.speech.cue_contribution([(times, 1, 0)], stacks=["crosss"]),
            "Did you mean 'cross'",
        ),
        (lambda times: aw.speech.cue_contribution([(times, 1, [1])]), "words other than the target"),
    ],
)
def test_what_is_no_cue_is_refused_in_words(times: Any, call: Any, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        call(times)


def test_the_model_is_left_as_it_was(times: Any) -> None:
    model = times.trace.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    hooks = [list(module._forward_hooks) for module in model.modules()]
    aw.speech.blank_out(times, 3, 1)
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert [list(module._forward_hooks) for module in model.modules()] == hooks
