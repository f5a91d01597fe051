"""Answers written anew: to exact probabilities, to plain passes, and a sentence that decides by design."""

from __future__ import annotations

import copy
import re
import warnings
from collections import Counter
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import torch
import transformers as hf

import attnwidgets as aw
from attnwidgets._progress import Cancelled, observing
from attnwidgets.circuits.sentences import sampled_continuations
from attnwidgets.circuits.sentences.resampled_answers import importance_of, kl_of_counts
from attnwidgets.circuits.sentences.resampling import last_sentence, normalised
from attnwidgets.circuits.sentences.sampled_continuations import Sampling, sampled
from tests.circuits.made import counted
from tests.tracing import tiny

if TYPE_CHECKING:
    from pathlib import Path

KEPT = 6


def mamba() -> Any:
    return hf.MambaForCausalLM(
        hf.MambaConfig(vocab_size=120, hidden_size=16, num_hidden_layers=2, state_size=4)
    )


def trace_of(family: str, ends: list[int] | None = None) -> Any:
    model = tiny.build(tiny.TEXT.get(family, mamba)).double()
    model.generation_config.eos_token_id = ends
    return aw.trace(model, None, input_ids=np.random.default_rng(0).integers(3, 100, 12).tolist())


def nucleus(logits: torch.Tensor, temperature: float, top_p: float) -> dict[int, float]:
    """Return the probabilities of the tokens that may be drawn, by hand, the most probable first."""
    p = (logits.double() / temperature).softmax(-1)
    kept: dict[int, float] = {}
    for token in p.argsort(descending=True).tolist():
        kept[token] = float(p[token])
        if sum(kept.values()) >= top_p:
            break
    return {token: share / sum(kept.values()) for token, share in kept.items()}


def test_single_tokens_are_drawn_with_their_probabilities() -> None:
    trace = trace_of("Llama")
    exact = nucleus(trace.logits[KEPT - 1], 0.6, 0.9)
    draws = 1000
    (drawn,) = sampled(trace, [(KEPT, 1)], Sampling(draws, 0.6, 0.9, seed=1))
    counts = Counter(token for (token,) in drawn.ids)
    assert set(counts) <= set(exact)
    for token, p in exact.items():
        # Five standard deviations: a right sampler fails for one of 100 tokens once in 20,000 seeds.
        assert abs(counts[token] - draws * p) <= 5 * np.sqrt(draws * p * (1 - p)) + 1


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "Gemma 2", "Mamba"])
def test_continuations_are_those_of_passes_over_the_whole_text(family: str) -> None:
    ends = list(range(0, 100, 4))  # a quarter of the vocabulary, so that rows end at different tokens
    trace = trace_of(family, ends)
    cuts = [(KEPT, 7), (12, 4)]
    drawn = sampled(trace, cuts, Sampling(5, 0.8, 0.95, seed=3))
    ids = trace.input_ids.tolist()
    for number, (kept, new) in enumerate(cuts):
        uniforms = np.random.default_rng([3, number]).random((5, new))
        for row in range(5):
            text, ended = ids[:kept], False
            for step in range(new):
                with torch.no_grad():
                    logits = trace.model(torch.tensor([text])).logits[0, -1]
                exact = nucleus(logits, 0.8, 0.95)
                sums = np.cumsum(list(exact.values()))
                token = list(exact)[min(int((sums <= uniforms[row, step]).sum()), len(exact) - 1)]
                if ended := token in ends:
                    break
                text.append(token)
            assert drawn[number].ids[row] == tuple(text[kept:])
            assert drawn[number].ended[row] is ended


def test_continuations_share_the_keys_and_values_of_the_text() -> None:
    trace = trace_of("Llama")
    with counted(type(trace.model.model.layers[0])) as seen:
        sampled(trace, [(KEPT, 7)], Sampling(5, 0.6, 0.95, seed=0))
    # The text once, its second half to check the cache, and a token of each row at every step.
    assert seen["tokens"] == len(trace.model.model.layers) * (12 + 6 + 5 * 7)


def test_draws_follow_from_the_seed_alone_and_are_stored(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = trace_of("Llama")
    cuts = [(KEPT, 3), (9, 2)]
    state = torch.get_rng_state()
    first = sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0), tmp_path)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(5)
    assert sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0)) == first
    assert sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=1)) != first
    # In several batches, the same.
    with monkeypatch.context() as changed:
        changed.setattr(sampled_continuations, "together", lambda *_, **__: 3)
        assert sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0)) == first
    # What is stored is read; of an interrupted call, what was finished.
    written = sorted(tmp_path.iterdir())
    assert len(written) == 2
    written[0].write_text("{")
    again = sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0), tmp_path)
    assert again == first
    with monkeypatch.context() as changed:
        changed.delattr(sampled_continuations, "Suffixes")  # nothing is left to be drawn
        assert sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0), tmp_path) == first


def test_drawing_can_be_stopped_and_goes_on_from_what_is_finished(tmp_path: Path) -> None:
    trace = trace_of("Llama")
    cuts = [(KEPT, 1), (9, 3)]

    def stop(done: int, total: int | None, desc: str) -> None:
        if total == 8 and done == 5:  # continuations of both; one of the second is drawn
            raise Cancelled

    with observing(stop), pytest.raises(Cancelled):
        sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0), tmp_path)
    assert len(list(tmp_path.iterdir())) == 1
    again = sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0), tmp_path)
    assert again == sampled(trace, cuts, Sampling(4, 0.6, 0.95, seed=0))


def test_kl_is_that_of_smoothed_counts() -> None:
    p, q = np.array([3.5, 1.5, 0.5]) / 5.5, np.array([0.5, 1.5, 5.5]) / 7.5
    assert kl_of_counts([3, 1, 0], [0, 1, 5]) == pytest.approx(float((p * np.log(p / q)).sum()))
    # Answers of other sentences add nothing.
    first, second = np.array([[30, 10, 0, 0]]), np.array([[0, 10, 50, 0]])
    result = importance_of(first, second, 0.95, 0)
    assert result.value[0] == pytest.approx(float(kl_of_counts([30, 10, 0], [0, 10, 50])))
    few = importance_of(np.array([[5, 4]]), np.array([[20, 10]]), 0.95, 0)
    assert all(np.isnan(x[0]) for x in few)


def test_chance_and_intervals_tell_noise_from_effect() -> None:
    rng = np.random.default_rng(0)
    p, q = np.array([0.5, 0.3, 0.1, 0.1]), np.array([0.2, 0.3, 0.1, 0.4])
    same = importance_of(rng.multinomial(100, p, 60), rng.multinomial(100, p, 60), 0.95, 0)
    # Each of 60 is above the 95 % quantile with a probability of 5 %: 9 or more happen once in 200 seeds.
    assert (same.value > same.chance).sum() <= 8
    assert (same.p > 0.05).all()
    assert (same.low == 0).sum() >= 57 - 5
    other = importance_of(rng.multinomial(100, p, 60), rng.multinomial(100, q, 60), 0.95, 0)
    true = float((p * np.log(p / q)).sum())
    assert (other.p < 0.05).mean() > 0.9
    inside = (other.low <= true) & (true <= other.high)
    assert inside.sum() >= 60 * 0.95 - 3 * np.sqrt(60 * 0.95 * 0.05)
    # As many answers as draws: KL is large, and so it is by chance.
    single = np.eye(2, dtype=np.int64).repeat(50, axis=1)
    noise = importance_of(single[:1], single[1:], 0.95, 0)
    assert noise.value[0] > 0.5
    assert noise.p[0] > 0.5


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ("The answer is **17**.", "the answer is 17"),
        ("“Yes!”", "yes"),
        ("10 apples - all of them", "10  apples, all of them."),
    ],
)
def test_answers_that_differ_in_spelling_are_equal(first: str, second: str) -> None:
    assert normalised(first) == normalised(second)


def test_answers_that_differ_in_a_number_are_not() -> None:
    assert len({normalised(text) for text in ("5", "-5", "5%", "$5", "0.5", "?")}) == 6
    assert last_sentence("12 minus 2 is 10. So it is 10.5 kg. ") == "So it is 10.5 kg."
    assert last_sentence(" ") == ""


@pytest.fixture(scope="module")
def planted() -> Any:
    """An answer "ka。bb。ka。" of a model that repeats what followed a letter: its first sentence decides."""
    model, tokenizer = aw.zoo.induction(letters="abk。", length=64)
    trace = aw.trace(model, tokenizer, "ba。ka。bb。ka。")
    return aw.circuits.sources(trace, (4, 13), unit="sentence")


def after_k(text: str) -> str:
    return (re.findall("k(.)", text) or [""])[-1]


def bag(texts: list[str]) -> np.ndarray:
    return np.array([[text.count(letter) for letter in "abk"] for text in texts], dtype=float)


def resampled(sources: Any, draws: int = 40, **options: Any) -> Any:
    with pytest.warns(UserWarning, match=rf"up to {48 * draws:,} new tokens, in {draws} continuations from"):
        return sources.resample(draws, max_new_tokens=12, **options)


def test_the_sentence_that_decides_is_told_from_others(planted: Any) -> None:
    result = resampled(planted, answer=after_k, embed=bag)
    assert result.sentences == ("k a 。", "b b 。", "k a 。")
    assert result.counts.shape == (4, len(result.answers))
    assert result.answers[0] == "a"
    # With the first sentence k is followed by a; without it, by any letter, or does not occur.
    assert result.counts[1:, 0].tolist() == [40, 40, 40]
    assert result.counts[0, 0] < 20
    assert "(no answer)" in result.answers
    assert result.resampling.value[0] == pytest.approx(float(kl_of_counts(*result.counts[:2])))
    assert result.resampling.low[0] > result.resampling.chance[0]
    assert result.resampling.value[1:].tolist() == [0, 0]
    assert result.strongest() == ("k a 。",)
    assert result.warning.startswith("160 of 160 answers reached the largest number of tokens before they ")
    assert "no counterfactual importance of 1 of 3 sentences: in fewer than 10 draws" in result.warning
    assert all(text.startswith("ka。bb。") for text in result.texts[2])


def test_different_sentences_are_at_most_as_similar_as_the_median(planted: Any) -> None:
    result = resampled(planted, answer=after_k, embed=bag)
    originals, similarity = ["ka", "bb", "ka"], []
    new = [[text[3 * at :].split("。")[0] for text in row] for at, row in enumerate(result.texts[:3])]
    for original, row in zip(originals, new, strict=True):
        vectors, base = bag(row), bag([original])[0]
        lengths = np.linalg.norm(vectors, axis=1) * np.linalg.norm(base)
        similarity.append(vectors @ base / np.where(lengths == 0, 1, lengths))
    median = np.median(np.concatenate(similarity))
    for at, row in enumerate(similarity):
        least = min(median + 1e-6, 1 - 1e-6)
        kept = [text for text, value in zip(result.texts[at], row, strict=True) if value < least]
        expected = Counter(after_k(text) or "(no answer)" for text in kept)
        assert {a: n for a, n in zip(result.answers, result.different[at], strict=True) if n} == expected
    # "bb" is always replaced by "ka" ; the last sentence is the same in 16 draws.
    assert result.different.sum(axis=1)[1:].tolist() == [
        40,
        40 - Counter(new[2])["ka"] - Counter(new[2])["ba"],
    ]


def test_tables_and_html_hold_shares_with_intervals(planted: Any) -> None:
    result = resampled(planted, answer=after_k)  # compared by the model's own states
    rows = result.to_rows()
    assert [row["sentence"] for row in rows] == list(result.sentences)
    assert rows[0]["resampling"] == result.resampling.value[0]
    assert {"resampling chance", "resampling p", "counterfactual low", "different"} <= set(rows[0])
    shares = result.shares().to_rows()
    kept = next(row for row in shares if row["side"] == "kept")
    assert (kept["answer"], kept["count"], kept["share"], kept["high"]) == ("a", 40, 1.0, 1.0)
    assert kept["low"] == pytest.approx(aw.people.wilson(40, 40)[0])
    html = result._repr_html_()
    assert "40 × a" in html
    assert "160 of 160 answers reached" in html
    assert repr(result).startswith("<ResampledAnswers: 'k a 。' changed the final answers")


def test_what_says_nothing_is_said(planted: Any) -> None:
    numbers = count()
    result = resampled(planted, 10, answer=lambda _: str(next(numbers)))
    assert (
        "most answers were given once, and KL says nothing: answer= names what is compared" in result.warning
    )
    # Answers that do not end have no last sentence.
    assert resampled(planted, 10).answers == ("(not ended)",)


def test_what_cannot_be_resampled_is_refused(planted: Any) -> None:
    for options, match in [
        ({"draws": 9}, "draws must be 10 or more, not 9"),
        ({"temperature": 0}, "temperature must be above 0, not 0"),
        ({"top_p": 0}, "top_p is a sum of probabilities"),
        ({"seed": -1}, "seed must be 0 or more"),
        ({"level": 1}, "level=1 is not above 0"),
        ({"max_new_tokens": 0}, "max_new_tokens must be 1 or more"),
    ]:
        with pytest.raises(ValueError, match=match):
            planted.resample(**options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with pytest.raises(
            ValueError, match=r"embed returns \(3,\), not a finite vector for each of 3 texts"
        ):
            planted.resample(embed=lambda texts: np.ones(len(texts)))
        with pytest.raises(TypeError, match="answer must return a string, not None"):
            planted.resample(max_new_tokens=1, embed=bag, answer=lambda _: None)
    seeing = copy.copy(planted)
    object.__setattr__(seeing, "_parts", replace(planted._parts, trace=copy.copy(planted.trace)))
    seeing.trace.inputs = dict(planted.trace.inputs) | {"pixel_values": torch.zeros(1)}
    with pytest.raises(ValueError, match=r"does not continue texts here \(this trace has pixel_values\)"):
        seeing.resample()
    trace = trace_of("Llama")
    bare = aw.circuits.sources(trace, (6, 12), unit=[(0, 4), (4, 12)])
    with pytest.raises(ValueError, match="trace with the model's tokenizer"):
        bare.resample()
    with pytest.raises(ValueError, match=r"call it on what aw\.circuits\.sources returned"):
        aw.results.Sources(planted.scores, planted.roles, planted.spans).resample()
