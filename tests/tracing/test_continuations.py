"""aw.continuations: the texts that generate gives, the probabilities of the model, a model as it was."""

from __future__ import annotations

import itertools
import math
from typing import Any

import pytest
import torch

from attnwidgets._progress import Cancelled, observing
from attnwidgets.tracing.continuations import continuations
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny

IDS = [5, 9, 17, 23, 11]


def _gpt(**options: Any) -> Any:
    import transformers as hf

    sizes = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 40, "initializer_range": 0.3}
    config = hf.GPT2Config(**{"vocab_size": 40, "bos_token_id": 0, "eos_token_id": 0, **sizes, **options})
    return tiny.build(lambda: hf.GPT2LMHeadModel(config))


@pytest.fixture(scope="module")
def gpt() -> Any:
    return _gpt()


@pytest.fixture
def begun(gpt: Any) -> Any:
    return trace(gpt, None, torch.tensor(IDS))


def _generated(model: Any, **options: Any) -> list[list[int]]:
    prompt = torch.tensor([IDS])
    with torch.no_grad():
        made = model.generate(
            prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=6, pad_token_id=0, **options
        )
    return [[int(i) for i in row[len(IDS) :]] for row in made]


def _log_probability(model: Any, ids: tuple[int, ...], **sides: Any) -> float:
    """Of a continuation, by a single pass over all of it."""
    with torch.no_grad():
        if sides:
            whole = torch.cat([sides["decoder_input_ids"], torch.tensor([ids])], 1)
            logits = model(input_ids=sides["input_ids"], decoder_input_ids=whole).logits[0]
            begins = sides["decoder_input_ids"].shape[1]
        else:
            whole, begins = torch.tensor([[*IDS, *ids]]), len(IDS)
            logits = model(whole).logits[0]
    rows = logits.double().log_softmax(-1)[begins - 1 : -1]
    return float(rows.gather(-1, whole[0, begins:, None]).sum())


@pytest.mark.parametrize(
    ("how", "n", "options"),
    [("greedy", 1, {}), ("beam", 3, {"num_beams": 5, "num_return_sequences": 3, "length_penalty": 0.0})],
)
def test_the_texts_are_those_that_generate_gives(
    gpt: Any, begun: Any, how: Any, n: int, options: Any
) -> None:
    result = continuations(begun, how, n, max_new_tokens=6, beams=5 if how == "beam" else None)
    expected = [row[: row.index(0) + 1] if 0 in row else row for row in _generated(gpt, **options)]
    assert sorted(list(item.ids) for item in result) == sorted(expected)


@pytest.mark.parametrize("how", ["greedy", "sample", "beam"])
def test_probabilities_are_the_models_own(gpt: Any, begun: Any, how: Any) -> None:
    cuts = {"temperature": 2.0, "top_k": 30} if how == "sample" else {}
    for continuation in continuations(begun, how, 1 if how == "greedy" else 4, max_new_tokens=8, **cuts):
        assert len(continuation.ids) == len(continuation.tokens) == len(continuation.log_probabilities)
        assert continuation.log_probability == pytest.approx(
            _log_probability(gpt, continuation.ids), abs=1e-4
        )
        assert continuation.probability == pytest.approx(math.exp(continuation.log_probability))


def test_a_continuation_says_what_it_is_in_a_line(begun: Any) -> None:
    (result,) = continuations(begun, max_new_tokens=3)
    told = repr(result)
    assert told.startswith(f"<Continuation {result.text!r}: {len(result.ids)} token")
    assert f"probability {result.probability:.3g}" in told


def test_enough_beams_find_the_most_probable(begun: Any, gpt: Any) -> None:
    with torch.no_grad():
        first = gpt(torch.tensor([IDS])).logits[0, -1].log_softmax(-1)
        second = gpt(torch.tensor([[*IDS, token] for token in range(40)])).logits[:, -1].log_softmax(-1)
    ends = gpt.config.eos_token_id
    both = {(a, b): float(first[a] + second[a, b]) for a, b in itertools.product(range(40), repeat=2)}
    alone = {ids: value for ids, value in both.items() if ids[0] != ends} | {(ends,): float(first[ends])}
    best = sorted(alone, key=lambda ids: -alone[ids])[:3]
    result = continuations(begun, "beam", 3, max_new_tokens=2, beams=40)
    assert [item.ids for item in result] == best


def test_draws_are_those_of_the_seed_and_of_what_is_drawn_from(begun: Any) -> None:
    def draw(seed: int, **options: Any) -> list[tuple[int, ...]]:
        result = continuations(begun, "sample", 5, seed=seed, max_new_tokens=6, **options)
        return [item.ids for item in result]

    assert draw(1) == draw(1) != draw(2)
    (best,) = continuations(begun, max_new_tokens=6)
    for narrow in ({"top_k": 1}, {"top_p": 1e-6}, {"temperature": 1e-3}):
        assert set(draw(3, **narrow)) == {best.ids}


def test_a_checkpoints_penalties_do_not_count() -> None:
    model = _gpt(initializer_range=1.0)
    model.generation_config.update(repetition_penalty=50.0, no_repeat_ngram_size=1)
    (result,) = continuations(trace(model, None, torch.tensor(IDS)), max_new_tokens=6)
    text = list(IDS)
    for _ in range(len(result.ids)):
        with torch.no_grad():
            text.append(int(model(torch.tensor([text])).logits[0, -1].argmax()))
    assert list(result.ids) == text[len(IDS) :]


def test_an_encoder_decoder_goes_on_where_its_decoder_ends() -> None:
    model = tiny.build(tiny.SEQ2SEQ["Marian"])
    begun = trace(model, None, torch.tensor(IDS))
    sides = {name: begun.inputs[name] for name in ("input_ids", "decoder_input_ids")}
    result = continuations(begun, "sample", 3, max_new_tokens=5)
    for item in result:
        expected = _log_probability(model, item.ids, **sides)
        assert item.log_probability == pytest.approx(expected, abs=1e-4)


def test_the_model_and_the_random_numbers_are_as_they_were(gpt: Any, begun: Any) -> None:
    gpt.train()
    options, random = gpt.generation_config.to_dict(), torch.get_rng_state()
    steps = []

    def stop(done: int, total: int | None, _: str) -> None:
        steps.append((done, total))
        if done == 2:
            raise Cancelled

    try:
        continuations(begun, "sample", 2, max_new_tokens=4)
        with observing(stop), pytest.raises(Cancelled):
            continuations(begun, "beam", 2, max_new_tokens=8)
        assert steps[0] == (0, 8)
        assert gpt.training
        assert gpt.generation_config.to_dict() == options
        assert torch.equal(torch.get_rng_state(), random)
    finally:
        gpt.eval()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"how": "beams"}, "'beam'"),
        ({"n": 2}, "greedy is one text"),
        ({"temperature": 0.5}, "how='sample'"),
        ({"how": "sample", "temperature": 0}, "above 0"),
        ({"how": "sample", "top_k": 0}, "top_k"),
        ({"how": "sample", "top_p": 1.5}, "at most 1"),
        ({"how": "beam", "n": 4, "beams": 2}, "at least n"),
        ({"max_new_tokens": 0}, "1 or more"),
        ({"max_new_tokens": 36}, "takes 40 tokens, and the text has 5"),
    ],
)
def test_options_out_of_range_are_refused(begun: Any, options: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        continuations(begun, **options)


def test_what_does_not_generate_is_refused() -> None:
    bert = trace(tiny.build(tiny.TEXT["BERT"]), None, torch.tensor(IDS))
    with pytest.raises(ValueError, match="BertForMaskedLM does not"):
        continuations(bert)
    given = from_attentions(torch.full((1, 1, 2, 2), 0.5), ["a", "b"])
    with pytest.raises(ValueError, match="has no model"):
        continuations(given)
