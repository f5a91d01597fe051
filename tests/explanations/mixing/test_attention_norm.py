from __future__ import annotations

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.attention_norm import attention_norm, mixing_ratio
from attnwidgets.explanations.registry.registry import explain
from attnwidgets.tracing.recording.run import trace
from tests.explanations.mixing.against_authors import relative
from tests.tracing import tiny
from tests.tracing.families import FAMILIES

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
VARIANTS = ("attn", "res", "res_ln", "enc")


def test_rows_are_shares_only_where_asked_for() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, IDS)
    assert not attention_norm(result).stochastic
    rows = attention_norm(result, "enc", normalize="row")
    assert rows.stochastic
    assert np.allclose(rows.values.sum(-1), 1.0, atol=1e-6)
    assert np.allclose(rows.to("word").values, rows.values)  # every id is a word


@pytest.mark.parametrize("family", [name for name in tiny.TEXT if name not in ("BERT", "RoBERTa")])
def test_every_family_has_every_variant(family) -> None:
    result = trace(tiny.build(tiny.TEXT[family]), None, IDS)
    values = {variant: attention_norm(result, variant) for variant in VARIANTS}
    post = family in ("DistilBERT", "ELECTRA", "ALBERT")
    for variant, lengths in values.items():
        assert lengths.values.min() >= 0
        assert lengths.causal == result.is_causal()
        if result.is_causal():
            assert not np.triu(lengths.values, 1).any()
        late = variant in ("res_ln", "enc")
        assert ("no norm after" in lengths.warning) == (late and not post)
        if late:
            assert np.array_equal(lengths.values, values["res"].values) != post


def test_only_the_layer_that_is_opened_is_computed(monkeypatch) -> None:
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    opened = []
    from attnwidgets.tracing.mixers import runs

    real = runs.parts_of
    monkeypatch.setattr(runs, "parts_of", lambda block, stage: opened.append(stage) or real(block, stage))
    lengths = attention_norm(result)
    assert opened == []
    lengths.layer(1)
    lengths.layer(1)
    assert opened == ["attn"]


def test_padding_in_a_batch_changes_nothing() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    long = torch.tensor([[*IDS], [*IDS[:4], 0, 0, 0, 0, 0]])
    mask = (torch.arange(9) < torch.tensor([[9], [4]])).long()
    batch = trace(model, None, input_ids=long, attention_mask=mask)
    alone = trace(model, None, IDS[:4])
    assert relative(attention_norm(batch[1], "enc").values, attention_norm(alone, "enc").values) < 1e-5


def test_wrong_options_name_what_is_taken() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, IDS)
    with pytest.raises(ValueError, match=r"variant 'resln' is not one of .* Did you mean 'res_ln'"):
        attention_norm(result, "resln")
    with pytest.raises(ValueError, match="normalize 'rows'"):
        attention_norm(result, normalize="rows")
    with pytest.raises(ValueError, match=r"per_head requires variant=.attn."):
        attention_norm(result, "res", per_head=True)
    with pytest.raises(IndexError, match="layer 7 is out of range"):
        attention_norm(result, layers=7)
    with pytest.raises(TypeError, match="Did you mean 'variant'"):
        explain(result, "attention_norm", varian="res")
    cross = trace(tiny.build(tiny.SEQ2SEQ["Marian"]), None, IDS)
    for stack in ("decoder", "cross"):
        with pytest.raises(
            ValueError,
            match=rf"variant=.enc. needs blocks with self-attention only.* {stack!r} also read another "
            "sequence; pass stack='encoder'",
        ):
            attention_norm(cross, "enc", stack=stack)
    assert attention_norm(cross, "res_ln").stack == "encoder"


def test_a_decoder_that_reads_an_encoder_is_measured_on_both_sides() -> None:
    result = FAMILIES["Marian"].traced()
    reads = {variant: attention_norm(result, variant, stack="cross") for variant in ("attn", "res", "res_ln")}
    n_queries, n_keys = (len(axis) for axis in result.axes("cross"))
    assert reads["attn"].shape == (2, n_queries, n_keys)
    assert np.array_equal(reads["attn"].values, reads["res"].values)
    assert not np.allclose(reads["attn"].values, reads["res_ln"].values)
    assert "the residual connection belongs to none of the tokens read" in reads["res"].warning
    assert not reads["attn"].warning
    assert attention_norm(result, per_head=True, stack="cross").shape == (2, 4, n_queries, n_keys)
    decoded = attention_norm(result, "res_ln", stack="decoder")
    assert decoded.causal
    assert not decoded.warning
    ratios = mixing_ratio(result, stack="cross")
    assert ((ratios.values > 0) & (ratios.values < 1)).all()
    assert np.allclose(mixing_ratio(result, "attn", stack="cross").values, 1)
