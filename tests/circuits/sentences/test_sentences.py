"""Sentence maps: to the reference on SmolLM2, to plain arithmetic, and at their ends."""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import kurtosis

import attnwidgets as aw
from attnwidgets.circuits.sentences.receiver_heads import normalised_kurtosis
from attnwidgets.circuits.sentences.rewriting import _first_sentence
from attnwidgets.circuits.sentences.sampled_continuations import Sampling, sampled
from tests.circuits.made import counted
from tests.tracing import tiny

long_work = importlib.import_module("attnwidgets.circuits.sentences.sentence_attribution")

PARTS = [(0, 3), (3, 5), (5, 7)]


def trace_of(family: str, count: int = 7) -> Any:
    ids = np.random.default_rng(0).integers(3, 100, count).tolist()
    return aw.trace(tiny.build(tiny.TEXT[family]).double(), None, input_ids=ids)


@pytest.mark.parametrize("family", ["Llama", "GPT-2", "BERT", "Gemma 2"])
def test_suppression_is_a_run_in_which_others_do_not_read_the_sentence(family):
    trace = trace_of(family)
    result = aw.circuits.sentence_attribution(trace, unit=PARTS)
    causal = trace.is_causal()
    expected = np.zeros((3, 3))
    before = trace.logits.log_softmax(-1)
    for j, (start, stop) in enumerate(PARTS):
        hidden = [at for at in range(start, stop) if at]
        readers = [at for at in range(7) if at not in hidden and (at >= stop or not causal)]
        if not readers:
            continue
        after = trace.rerun(aw.suppress(trace, hidden, readers)).logits.log_softmax(-1)
        kl = torch.nn.functional.kl_div(after, before, log_target=True, reduction="none").sum(-1)
        expected[:, j] = [float(kl[first:last].mean()) for first, last in PARTS]
    np.testing.assert_allclose(result.values[0], expected, atol=1e-6)
    assert result.unit == "span"
    if causal:
        assert not np.triu(result.values[0]).any()


def test_only_tokens_after_a_sentence_run():
    trace = trace_of("Llama", 40)
    block = type(trace.model.model.layers[0])
    parts = [(start, start + 4) for start in range(0, 40, 4)]
    with counted(block) as seen:
        aw.circuits.sentence_attribution(trace, unit=parts)
    passes = seen["tokens"] / (len(trace.model.model.layers) * 40)
    assert passes <= len(parts) / 2 + 2  # half a pass a sentence, another for the cache, half a check


def test_a_sliding_window_has_no_cache_to_cut():
    trace = trace_of("Gemma 2", 20)
    parts = [(0, 8), (8, 14), (14, 20)]
    result = aw.circuits.sentence_attribution(trace, unit=parts).values[0]
    after = trace.rerun(aw.suppress(trace, range(1, 8), range(8, 20))).logits.log_softmax(-1)
    kl = torch.nn.functional.kl_div(after, trace.logits.log_softmax(-1), log_target=True, reduction="none")
    assert result[1, 0] == pytest.approx(float(kl.sum(-1)[8:14].mean()), abs=1e-6)


@pytest.mark.parametrize("changed", [False, True], ids=["as computed", "changed after the softmax"])
@pytest.mark.parametrize("family", ["Llama", "BERT"])
def test_attention_is_streamed_to_the_same_sums(family, changed, monkeypatch):
    from attnwidgets.circuits.sentences import sentence_units
    from attnwidgets.tracing import row_sums

    trace = trace_of(family, 60)
    if changed:
        trace = trace.rerun(aw.suppress(trace, [3, 4], range(9, 60)))
    # Blocks of 16 queries.
    monkeypatch.setattr(sentence_units, "_BLOCK_BYTES", 1)
    monkeypatch.setattr(row_sums, "_CPU_BYTES", 1)
    parts = [(0, 25), (25, 31), (31, 60)]
    whole = aw.circuits.sentence_attribution(trace, "attention", unit=parts, skip_first_token=False)
    np.testing.assert_allclose(whole.values, aw.attention(trace).to(parts).values, atol=1e-6)
    without = aw.circuits.sentence_attribution(trace, "attention", unit=parts)
    weights = aw.attention(trace).values
    assert without.values[1, 2, 1, 0] == pytest.approx(weights[1, 2, 25:31, 1:25].sum() / 6, abs=1e-6)
    assert without.values[1, 2, 0, 0] == pytest.approx(weights[1, 2, 1:25, 1:25].sum() / 24, abs=1e-6)
    published = aw.circuits.sentence_attribution(trace, "attention", unit=parts, as_published=True)
    assert published.values[1, 2, 2, 1] == pytest.approx(weights[1, 2, 31:, 25:31].mean(), abs=1e-6)


def test_no_layer_is_built_for_sentence_sums():
    trace = trace_of("Llama", 60)
    aw.circuits.sentence_attribution(trace, "attention", unit=[(0, 25), (25, 60)]).layer(0)
    assert not trace._kept


@pytest.mark.slow
def test_a_sentence_is_written_anew_and_the_rest_read_after_it():
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=32)
    trace = aw.trace(model, tokenizer, "fadebcfadebfad")
    parts = [(0, 4), (4, 9), (9, 12), (12, 15)]
    with pytest.warns(UserWarning, match=r"up to 64 new tokens in 2 generations of 2, and 6 forward passes"):
        result = aw.circuits.sentence_attribution(trace, "resample", unit=parts, samples=2, seed=3)
    ids = trace.input_ids.tolist()
    before = trace.logits.log_softmax(-1)
    expected = np.zeros((4, 4))
    written = sampled(trace, [(4, 18), (9, 14)], Sampling(2, 0.6, 0.95, seed=3))
    for number, (start, stop) in enumerate(parts[1:3], 1):
        for item in written[number - 1].ids:
            new = list(item)[: stop - start]  # no letter ends a sentence
            after = aw.trace(model, tokenizer, input_ids=[*ids[:start], *new, *ids[stop:]]).logits
            after = after[start + len(new) :].log_softmax(-1)
            kl = torch.nn.functional.kl_div(after, before[stop:], log_target=True, reduction="none").sum(-1)
            for row, (first, last) in enumerate(parts):
                if first >= stop:
                    expected[row, number] += float(kl[first - stop : last - stop].mean()) / 2
    np.testing.assert_allclose(result.values[0], expected, atol=1e-5)
    assert expected.any()
    with pytest.warns(UserWarning, match="new tokens"):
        again = aw.circuits.sentence_attribution(trace, "resample", unit=parts, samples=2, seed=3)
    np.testing.assert_array_equal(again.values, result.values)


def test_a_sentence_that_is_written_ends_where_a_sentence_ends():
    class Letters:
        def decode(self, ids):
            return "".join(map(chr, ids))

    written = list(map(ord, "So it is. And"))
    assert bytes(_first_sentence(written, 5, Letters())) == b"So it is."
    assert bytes(_first_sentence(written[:6], 4, Letters())) == b"So i"
    assert _first_sentence(written, 3, None) == written[:3]


def test_what_takes_long_says_so_before_it_starts(monkeypatch):
    monkeypatch.setattr(long_work, "LONG_WORK", 1)
    trace = trace_of("Llama", 20)
    started = []
    monkeypatch.setattr(long_work, "effects", lambda *_: started.append(1))
    said = pytest.raises(UserWarning, match="suppressing 3 sentences takes about 3 forward passes of 20 tok")
    with warnings.catch_warnings(), said:
        warnings.simplefilter("error")
        aw.circuits.sentence_attribution(trace, unit=[(0, 8), (8, 14), (14, 20)])
    assert not started


def test_maps_of_sentences_are_saved_and_drawn(tmp_path):
    result = aw.circuits.sentence_attribution(trace_of("Llama"), unit=PARTS)
    again = aw.load(result.save(tmp_path / "map.safetensors"))
    np.testing.assert_array_equal(again.values, result.values)
    assert result.to_rows()[3]["query"] == result.query_labels[1]
    assert result.figure()


def test_kurtosis_is_scipys_and_its_ceiling_is_reached():
    scores = np.random.default_rng(0).random((5, 9))
    ceiling = 9 - 5 + 1 / 8
    np.testing.assert_allclose(normalised_kurtosis(scores) * ceiling, kurtosis(scores, axis=1), atol=1e-12)
    peaked = np.eye(9)[:3]
    np.testing.assert_allclose(normalised_kurtosis(peaked), 1)
    assert np.isnan(normalised_kurtosis(np.full((1, 9), 0.1))).all()


def planted(count: int = 30, anchor: int = 5) -> Any:
    """Attention of three heads: to the query's sentence, to a fixed sentence, and to all earlier tokens."""
    n = 2 * count
    near, far = np.eye(n), np.eye(n)
    far[2 * anchor + 4 :] = 0
    far[2 * anchor + 4 :, 2 * anchor : 2 * anchor + 2] = 0.5
    recent = np.tril(np.ones((n, n)))
    recent /= recent.sum(1, keepdims=True)
    labels = [f"t{at}" for at in range(n)]
    return aw.from_attentions(np.stack([near, far, recent])[None], labels)


def test_a_planted_receiver_head_is_found_in_texts_of_any_length():
    parts = [[(2 * at, 2 * at + 2) for at in range(count)] for count in (30, 60)]
    short, long = (aw.circuits.receiver_heads(planted(len(unit)), unit=unit)["receiver"][0] for unit in parts)
    for result in (short, long):
        assert result[1] > 0.9
        assert np.isnan(result[0])
        assert result[2] < 0.5


def test_receiver_heads_are_averaged_over_texts_and_say_when_they_are_too_few():
    trace = trace_of("Llama", 40)
    single = aw.circuits.receiver_heads(trace, unit=[(at, at + 2) for at in range(0, 40, 2)])
    twice = aw.circuits.receiver_heads([trace, trace], unit=[(at, at + 2) for at in range(0, 40, 2)])
    np.testing.assert_allclose(twice["receiver"], single["receiver"])
    assert not single.warning
    few = aw.circuits.receiver_heads(trace, unit=[(at, at + 4) for at in range(0, 40, 4)])
    assert "only 10 sentences" in few.warning
    assert len(few.top("receiver", 3)) == 3
    with pytest.raises(ValueError, match="5 are followed"):
        aw.circuits.receiver_heads(trace, unit=[*((at, at + 4) for at in range(0, 32, 4)), (32, 40)])
    with pytest.raises(ValueError, match=r"aw\.circuits\.receiver_heads"):
        aw.statistics.head_statistics(trace, "receiver")


def test_what_has_no_sentences_is_said():
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    trace = aw.trace(model, tokenizer, "fadeb")
    with pytest.raises(ValueError, match="only one"):
        aw.circuits.sentence_attribution(trace)
    with pytest.raises(ValueError, match="unit 'sentences' is not known"):
        aw.circuits.sentence_attribution(trace, unit="sentences")
    with pytest.raises(ValueError, match="Did you mean 'attention'"):
        aw.circuits.sentence_attribution(trace, "attentions")
    with pytest.raises(ValueError, match="samples must be 1 or more"):
        aw.circuits.sentence_attribution(trace, "resample", samples=0)
    with pytest.raises(ValueError, match="as_published is of"):
        aw.circuits.sentence_attribution(trace, "resample", as_published=True)
    with pytest.raises(ValueError, match='BertForMaskedLM does not continue texts here; method="suppress"'):
        aw.circuits.sentence_attribution(trace_of("BERT"), "resample", unit=PARTS)
    with pytest.raises(TypeError, match="not a trace"):
        aw.circuits.sentence_attribution("text")
    with pytest.raises(TypeError, match="takes a trace or several"):
        aw.circuits.receiver_heads(["text"])
    given = planted()
    with pytest.raises(ValueError, match="needs no model"):
        aw.circuits.sentence_attribution(given, unit=[(0, 30), (30, 60)])
    with pytest.raises(ValueError, match="proximity must be"):
        aw.circuits.receiver_heads(given, proximity=0)


@pytest.mark.extended
def test_smollm2_to_the_reference(shared, smollm2):
    reference = np.load(shared / "reference" / "circuits" / "anchors_hand_text.npz")
    model, tokenizer = smollm2
    trace = aw.trace(model, tokenizer, input_ids=reference["ids"].tolist())
    of = reference["sentence"]
    parts = [(int(np.flatnonzero(of == at)[0]), int(np.flatnonzero(of == at)[-1]) + 1) for at in range(11)]
    options = {"unit": parts, "skip_first_token": False}
    result = aw.circuits.sentence_attribution(trace, as_published=True, **options).values[0]
    below = np.tril_indices(11, -1)
    np.testing.assert_allclose(result[below], reference["supp"][below], atol=0.05)
    heads = aw.circuits.receiver_heads(trace, **options)
    ceiling = 7 - 5 + 1 / 6
    np.testing.assert_allclose(heads["receiver"] * ceiling, reference["kurt4"], atol=2e-3)


def test_two_sentences_have_none_to_write_anew():
    with pytest.warns(UserWarning, match="up to 0 new tokens"):
        result = aw.circuits.sentence_attribution(trace_of("Llama"), "resample", unit=[(0, 3), (3, 7)])
    assert not result.values.any()
