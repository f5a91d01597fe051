from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.block_maps import shares
from attnwidgets.explanations.mixing.rollout import rollout
from attnwidgets.tracing.recording.run import trace
from tests.explanations.mixing.against_authors import SENTENCES, numbers, traces
from tests.tracing import tiny
from tests.tracing.families import FAMILIES

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
CASES = {
    "alti_layer_contributions": {},
    "alti_rollout": {"rolled_out": True},
    "alti_l2_layer_contributions": {"distance": "l2"},
    "alti_l2_rollout": {"distance": "l2", "rolled_out": True},
}


@pytest.fixture(scope="module", params=["float32", "float64"])
def traced(request, shared):
    return request.param, traces(shared, request.param)


@pytest.mark.slow
@pytest.mark.parametrize("key", CASES)
def test_contributions_are_the_authors(traced, shared, key) -> None:
    dtype, result = traced
    expected = numbers(shared, "alti")
    for name in SENTENCES:
        assert np.abs(alti(result[name], **CASES[key]).values - expected[f"{name}/{key}"]).max() < 1e-4
        same = alti(result[name], **CASES[key], compat="authors").values
        tolerance = 5e-6 if dtype == "float32" else 1e-9
        assert np.abs(same - expected[f"{name}/{key}"]).max() < tolerance


def test_after_the_second_norm_they_are_the_authors(traced, shared) -> None:
    dtype, result = traced
    expected = numbers(shared, "alti")
    for name in SENTENCES:
        same = alti(result[name], after="norm2", compat="authors").values
        off = np.abs(same - expected[f"{name}/alti_ln2_layer_contributions"]).max()
        assert off < (1e-4 if dtype == "float32" else 1e-9)


@pytest.mark.parametrize("family", [*tiny.TEXT])
def test_rows_are_shares_in_every_family(family) -> None:
    result = trace(tiny.build(tiny.TEXT[family]), None, IDS)
    for options in ({}, {"distance": "l2"}, {"rolled_out": True}, {"after": "norm2"}):
        contributions = alti(result, **options)
        values = contributions.values
        totals = values.sum(-1)
        assert (values >= 0).all()
        # A row without any contribution is zero, and takes its share from later products.
        assert (np.isclose(totals, 1.0, atol=1e-5) | (totals == 0) | ("rolled_out" in options)).all()
        assert (totals < 1 + 1e-5).all()
        assert (totals > 0).any()
        if result.is_causal():
            assert not np.triu(values, 1).any()
            assert np.allclose(values[:, 0, 0], 1.0)


def test_a_sliding_window_leaves_what_it_hides_at_zero() -> None:
    result = trace(tiny.build(tiny.TEXT["Gemma 2"]), None, IDS)
    hidden = result.attention_layer(0).sum(0).numpy() == 0
    assert hidden[8, :4].all()
    assert not alti(result).layer(0)[hidden].any()


@pytest.mark.slow
def test_single_precision_holds_at_length(minilm) -> None:
    """Sums of absolute values, taken from each other, would miss by 3e-4 here."""
    model, _ = minilm
    ids = torch.randint(1000, 20000, (1, 160), generator=torch.Generator().manual_seed(0))
    exact = alti(trace(copy.deepcopy(model).double(), None, ids), layers=[0, 1, 2])
    assert np.abs(alti(trace(model, None, ids), layers=[0, 1, 2]).values - exact.values).max() < 1e-5


def test_chunks_and_layers_change_nothing() -> None:
    result = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    whole = alti(result).values
    assert np.allclose(alti(result, chunk_size=2).values, whole, atol=1e-6)
    assert np.allclose(alti(result, layers=1).values[0], whole[1], atol=1e-6)
    assert alti(result, rolled_out=True, layers=-1).layers == (1,)
    assert np.allclose(alti(result, rolled_out=True).layer(1), whole[1] @ whole[0], atol=1e-6)


def test_a_decoders_reading_of_its_encoder_leaves_a_share_to_the_token_itself() -> None:
    result = FAMILIES["Marian"].traced()
    cross = alti(result, stack="cross")
    n_queries, n_keys = (len(axis) for axis in result.axes("cross"))
    assert cross.shape == (2, n_queries, n_keys)
    totals = cross.values.sum(-1)
    assert ((totals >= 0) & (totals < 1)).all()
    assert (totals > 0).any()
    assert "what the token keeps of itself" in cross.warning
    decoded = alti(result, stack="decoder")
    assert np.allclose(decoded.values.sum(-1), 1)
    rolled = alti(result, stack="decoder", rolled_out=True)
    assert "what its blocks read from the encoder is left out" in rolled.warning
    assert "left out" in rollout(result, stack="decoder").warning
    assert not decoded.warning
    with pytest.raises(ValueError, match=r"after=.norm2. needs blocks with self-attention"):
        alti(result, after="norm2", stack="cross")
    with pytest.raises(ValueError, match="needs a map of self-attention"):
        alti(result, rolled_out=True, stack="cross")


def test_a_row_without_any_contribution_stays_zero() -> None:
    rows = shares(torch.tensor([[0.0, 0.0], [1.0, 3.0]]))
    assert torch.equal(rows, torch.tensor([[0.0, 0.0], [0.25, 0.75]], dtype=torch.float64))


def test_wrong_options_name_what_is_taken() -> None:
    result = trace(tiny.build(tiny.TEXT["BERT"]), None, IDS)
    with pytest.raises(ValueError, match=r"distance 'l3' is not one of 'l1', 'l2'"):
        alti(result, "l3")
    with pytest.raises(ValueError, match="compat 'author' is not one of"):
        alti(result, compat="author")
    with pytest.raises(ValueError, match="chunk_size must be at least 1"):
        alti(result, chunk_size=0)
    with pytest.raises(ValueError, match="after 'norm3'"):
        alti(result, after="norm3")
