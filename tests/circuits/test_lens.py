"""The logit lens: to the reference on SmolLM2, against plain arithmetic, and at its ends."""

from __future__ import annotations

import json
from importlib import import_module
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from tests.intervene.made import text

from .made import induction


def test_it_is_the_norm_and_the_head_of_every_state() -> None:
    trace = text("Llama")
    model = trace.model
    states: list[torch.Tensor] = []
    handles = [
        layer.register_forward_pre_hook(lambda _, args: states.append(args[0]))
        for layer in model.model.layers
    ]
    with torch.no_grad():
        final = model(**trace.inputs).logits[0]
        logits = [model.lm_head(model.model.norm(state))[0] for state in states]
    for handle in handles:
        handle.remove()
    lens = aw.circuits.lens(trace, 7, top=4)
    for layer, row in enumerate([*logits, final]):
        p = row.softmax(-1)
        np.testing.assert_allclose(lens.probability[layer], p[:, 7], atol=1e-6)
        np.testing.assert_allclose(
            lens.entropy[layer], torch.distributions.Categorical(p).entropy(), atol=1e-5
        )
        kl = torch.nn.functional.kl_div(row.log_softmax(-1), final.softmax(-1), reduction="none").sum(-1)
        np.testing.assert_allclose(lens.kl[layer], kl, atol=1e-5)
        ranks = (row.argsort(-1, descending=True) == 7).float().argmax(-1)
        assert np.array_equal(lens.rank[layer], ranks)
        best = row.topk(4).indices.tolist()
        assert [[token.id for token in cell] for cell in lens.top_tokens(layer=layer)[0]] == best


def test_the_last_row_is_the_model_bit_for_bit() -> None:
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    trace = aw.trace(model, tokenizer, "fadebcfadeb")
    lens = aw.circuits.lens(trace, "c")
    index = tokenizer("c", add_special_tokens=False)["input_ids"][0]
    assert np.array_equal(lens.probability[-1], trace.logits.softmax(-1)[:, index].numpy())
    assert not lens.kl[-1].any()
    assert lens.top_tokens(1, layer=-1, token=-1)[0][0][0].label == "c"


def test_blocks_that_do_nothing_give_equal_rows() -> None:
    trace = text("GPT-2")
    with torch.no_grad():
        for block in trace.model.transformer.h:
            for module in (block.attn.c_proj, block.mlp.c_proj):
                module.weight.zero_()
                module.bias.zero_()
    lens = aw.circuits.lens(trace.rerun(), 7)
    for name in ("probability", "entropy", "kl"):
        rows = getattr(lens, name)
        np.testing.assert_allclose(rows, np.broadcast_to(rows[-1], rows.shape), atol=1e-6)


def test_pieces_of_the_text_give_the_same(monkeypatch: Any) -> None:
    trace = text("GPT-2")
    whole = aw.circuits.lens(trace, 7)
    monkeypatch.setattr(import_module("attnwidgets.circuits.lens"), "_BYTES", 4 * 120 * 2)
    pieces = aw.circuits.lens(trace, 7)
    np.testing.assert_allclose(pieces.kl, whole.kl, atol=1e-6)
    assert np.array_equal(pieces.rank, whole.rank)


@pytest.mark.slow
def test_smollm2_to_the_reference(shared: Any, smollm2: Any) -> None:
    reference = json.loads((shared / "reference" / "circuits" / "lens_france.json").read_text())
    trace = aw.trace(*smollm2, reference["text"])
    lens = aw.circuits.lens(trace, reference["answer"])
    for layer, top, p_top, entropy, _, kl, rank, p in reference["rows"]:
        assert lens.rank[layer, -1] == pytest.approx(rank, abs=2)
        assert lens.probability[layer, -1] == pytest.approx(p, abs=2e-4)
        assert lens.entropy[layer, -1] == pytest.approx(entropy, abs=0.011)
        assert lens.kl[layer, -1] == pytest.approx(kl, abs=0.02)
        best = lens.top_tokens(3, layer=layer, token=-1)[0][0]
        np.testing.assert_allclose([token.probability for token in best], p_top, atol=2e-3)
        assert trace.tokenizer.decode([best[0].id]) == top[0]


def test_results_are_saved_and_drawn(tmp_path: Any) -> None:
    lens = aw.circuits.lens(induction()[0], "c")
    again = aw.load(lens.save(tmp_path / "lens.safetensors"))
    assert repr(again) == repr(lens)
    assert np.array_equal(again.rank, lens.rank)
    assert again.top_tokens(2) == lens.top_tokens(2)
    assert len(lens.to_rows()) == 3 * 12
    assert lens.to_rows()[-1]["top"] == "c"
    assert {"text/plain", "image/png"} == set(lens._repr_mimebundle_())
    written = {artist.get_text() for artist in lens.figure("kl").axes[0].texts}
    assert "c" in written


def test_what_has_no_lens_is_said() -> None:
    trace = induction()[0]
    with pytest.raises(ValueError, match="2 tokens"):
        aw.circuits.lens(trace, "ca")
    with pytest.raises(ValueError, match="top must be 1"):
        aw.circuits.lens(trace, "c", top=0)
    with pytest.raises(ValueError, match="5 tokens were kept"):
        aw.circuits.lens(trace, "c").top_tokens(6)
    with pytest.raises(ValueError, match="Did you mean 'rank'"):
        aw.circuits.lens(trace, "c").figure("ranks")
    with pytest.raises(ValueError, match="predicts classes"):
        aw.circuits.lens(aw.trace(*aw.demo_model("classifier"), "A film."))
    with pytest.raises(ValueError, match="returns no logits"):
        aw.circuits.lens(text("ELECTRA"))
    with pytest.raises(TypeError, match="not a trace"):
        aw.circuits.lens("text")


def test_the_lens_of_a_sentence_is_the_mean_log_probability_of_its_tokens() -> None:
    model, tokenizer = aw.zoo.induction(letters="abcdefgh", length=16)
    sentences = ["eb", "bc", "ha"]
    result = aw.circuits.sentence_lens(model, tokenizer, "fadebcfad", sentences)
    for column, sentence in enumerate(sentences):
        trace = aw.trace(model, tokenizer, "fadebcfad" + sentence)
        n, ids = len(trace.tokens), trace.input_ids
        for layer in range(len(result.values)):
            each = [
                np.log(aw.circuits.lens(trace, int(ids[at])).probability[layer, at - 1])
                for at in range(n - len(sentence), n)
            ]
            assert result.values[layer, column] == pytest.approx(np.mean(each), abs=1e-4)
    assert result.nearest[-1] == "eb"
    assert result.to_rows()[0].keys() == {"layer", "sentence", "log_probability"}
    assert "from layer" in repr(result)
    with pytest.raises(ValueError, match="two or more texts"):
        aw.circuits.sentence_lens(model, tokenizer, "fade", ["b"])
    with pytest.raises(TypeError, match="not a string"):
        aw.circuits.sentence_lens(model, tokenizer, "fade", "bc")
