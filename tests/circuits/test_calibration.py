"""Calibrated attention, against arithmetic; and the influence of heads on texts, on compiled models."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import attnwidgets as aw

from .made import pair


@pytest.mark.parametrize("family", ["BERT", "Llama"])
def test_rows_keep_their_sums_and_sinks_what_is_said(family):
    trace, _ = pair(family)
    sinks = [(1, 2, 0), (1, 2, 3), (0, 1, -1)]
    changed = trace.rerun(aw.circuits.calibrate_attention(trace, sinks, 0.25))
    assert changed.interventions == ("sinks of head 1 of layer 0 and head 2 of layer 1 scaled by 0.25",)
    first = trace.attention_layer(0)[1]
    expected = first * ((1 - 0.25 * first[:, -1:]) / (1 - first[:, -1:]))
    expected[:, -1] = 0.25 * first[:, -1]
    assert torch.allclose(changed.attention_layer(0)[1], expected, atol=1e-12)
    other = torch.tensor([0, 2, 3])
    assert torch.equal(changed.attention_layer(0)[other], trace.attention_layer(0)[other])
    # Layer 1 reads other states: the sums of its rows are checked, and rows with nothing but sinks.
    weights = changed.attention_layer(1)
    assert torch.allclose(weights.sum(-1), torch.ones_like(weights.sum(-1)))
    if family == "Llama":
        assert float(weights[2, 0, 0]) == pytest.approx(1)  # the first token reads itself alone
    same = trace.rerun(aw.circuits.calibrate_attention(trace, sinks, 1.0))
    assert torch.allclose(same.logits, trace.logits, atol=1e-12)
    assert aw.interventions() == ()


def test_rows_of_a_strong_sink_keep_their_sums():
    trace, _ = pair("Llama")
    # All but a millionth of every row on the first token, in float32.
    n = len(trace.tokens)
    rows = np.full((n, n), 3e-6)
    rows[:, 0] = 0
    rows = np.tril(rows)
    rows[:, 0] = 1 - rows.sum(axis=1)
    model = trace.model.float()
    single = aw.trace(model, None, input_ids=trace.input_ids)
    with aw.edit_attention(single, (1, 2), rows), aw.circuits.calibrate_attention(single, [(1, 2, 0)], 0.4):
        weights = single.rerun().attention_layer(1)[2]
    assert float((weights.double().sum(-1) - 1).abs().max()) < 1e-6
    assert torch.allclose(weights[1:, 0], torch.tensor(0.4 * rows[1:, 0], dtype=torch.float32), rtol=1e-4)


def test_sinks_are_found_and_a_cache_changes_nothing():
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    trace = aw.trace(model, tokenizer, "fadebcfadebcfad")
    sinks = aw.statistics.attention_sinks(trace)
    assert (1, 1, 0) in {(sink.layer, sink.head, sink.position) for sink in sinks}
    # The decoy that rests on <s> writes nothing; the head that copies is not among the sinks named here.
    decoy = [sink for sink in sinks if (sink.layer, sink.head) == (1, 1)]
    changed = trace.rerun(aw.circuits.calibrate_attention(trace, decoy, 0.0))
    assert torch.equal(changed.logits, trace.logits)
    inputs = tokenizer("fadebcfade", return_tensors="pt")
    written = []
    for cache in (True, False):
        with aw.circuits.calibrate_attention(model, [(0, 0, 3), (1, 0, 2)], 0.1):
            made = model.generate(
                **inputs, max_new_tokens=4, do_sample=False, use_cache=cache, output_logits=True,
                return_dict_in_generate=True,
            )  # fmt: skip
        written.append(torch.stack(made.logits))
    assert torch.allclose(*written, atol=1e-4)


def test_what_is_no_sink_is_said():
    trace, _ = pair("Llama")
    with pytest.raises(ValueError, match="scale must be from 0 to 1"):
        aw.circuits.calibrate_attention(trace, [(0, 0, 0)], float("nan"))
    with pytest.raises(ValueError, match="sinks is empty"):
        aw.circuits.calibrate_attention(trace, [])
    with pytest.raises(TypeError, match="a sink is"):
        aw.circuits.calibrate_attention(trace, [(0, 0)])
    with pytest.raises(IndexError):
        aw.circuits.calibrate_attention(trace, [(0, 9, 0)])
    with pytest.raises(ValueError, match="sinks has position 40"):
        aw.circuits.calibrate_attention(trace, [(0, 0, 40)])


@pytest.mark.parametrize("how", ["zero", "uniform"])
def test_texts_that_need_a_head_are_named(how):
    model, tokenizer = aw.zoo.trained("induction")
    rng = np.random.default_rng(0)
    rows = ["".join(rng.permutation(list("abcdefghijklmnopqrstuvwx"))[:8]) for _ in range(3)]
    texts = [rows[0] * 3, rows[1] * 3, "".join(rng.permutation(list("abcdefghijklmnopqrstuvwx")))]
    result = aw.circuits.attention_influence(model, tokenizer, texts, (1, 1), how=how, draws=2)
    assert result.control.shape == (2, 3)
    assert all((1, 1) not in drawn and len(drawn) == 1 for drawn in result.drawn)
    assert result.influence[:2].min() > 0.1
    assert result.influence[2] < 0.05  # nothing repeats there
    assert result.ranked()[-1][0] == texts[2]
    # Losses against the model itself.
    inputs = tokenizer(texts[0], return_tensors="pt")
    with torch.no_grad():
        loss = model(**inputs, labels=inputs["input_ids"]).loss
    assert result.loss[0] == pytest.approx(float(loss), rel=1e-5)
    assert "random heads" in repr(result)


def test_what_cannot_be_measured_is_said():
    model, tokenizer = aw.zoo.trained("induction")
    with pytest.raises(ValueError, match="texts is empty"):
        aw.circuits.attention_influence(model, tokenizer, [], (1, 1))
    with pytest.raises(ValueError, match="1 others are too few"):
        aw.circuits.attention_influence(model, tokenizer, "abc", [(0, 0), (0, 1), (1, 0)])
    with pytest.raises(ValueError, match="draws must be"):
        aw.circuits.attention_influence(model, tokenizer, "abc", (1, 1), draws=0)
    with pytest.raises(ValueError, match="needs a decoder"):
        aw.circuits.attention_influence(*aw.zoo.trained("histogram"), "abcabcabca", (0, 0))
