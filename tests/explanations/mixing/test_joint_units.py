"""Units whose tokens' vectors are added before they are measured, against adding them by hand."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from attnwidgets.explanations.mixing.alti import alti
from attnwidgets.explanations.mixing.attention_norm import attention_norm, globenc
from attnwidgets.explanations.mixing.value_zeroing import value_zeroing
from attnwidgets.tracing.algebra.block_runs import block_of
from attnwidgets.tracing.algebra.contributions import parts_of
from attnwidgets.tracing.recording.run import trace
from attnwidgets.tracing.text.units import Unit
from tests.explanations.ways import apart, traced
from tests.tracing import tiny
from tests.tracing.families import FAMILIES

METHODS = {
    "attention_norm": attention_norm,
    "N-Enc": lambda trace, **options: attention_norm(trace, "enc", **options),
    "per head": lambda trace, **options: attention_norm(trace, per_head=True, **options),
    "shares": lambda trace, **options: attention_norm(trace, "res", normalize="row", **options),
    "globenc": globenc,
    "alti": alti,
    "alti, rolled out": lambda trace, **options: alti(trace, "l2", rolled_out=True, **options),
}
# Out of order, of several lengths, and one longer than a chunk.
SPANS = ((1, 2), (0,), (5, 3), (4, 6, 7))


def unit_of(spans: tuple[tuple[int, ...], ...]) -> Unit:
    return Unit("span", tuple(f"s{number}" for number in range(len(spans))), spans, (False,) * len(spans))


def spans_of(n_tokens: int) -> tuple[tuple[int, ...], ...]:
    rest = tuple(range(8, n_tokens))
    return (*SPANS, rest) if rest else SPANS


def vectors(trace: object, layer: int, stage: str) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return every token's vector in every other [query, key, dim] and their sum."""
    block = block_of(trace, layer, "self", "test")
    parts = parts_of(block, stage)
    shares = (
        torch.einsum("hij,hjv,hvd->ijd", parts.weights, parts.values, parts.matrix) * parts.row[:, None, None]
    )
    if parts.residual is not None:
        tokens = range(len(shares))
        shares[tokens, tokens] += parts.residual
    return shares, block.middle if parts.reference is None else parts.reference


def by_hand(measured: np.ndarray, spans: tuple[tuple[int, ...], ...]) -> np.ndarray:
    """Return the mean of rows [token, column] over the tokens of every span."""
    return np.stack([measured[list(span)].mean(axis=0) for span in spans])


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("family", ["BERT", "Llama", "Gemma 2", "DINOv2 with registers", "GPT-NeoX"])
def test_a_unit_of_one_token_each_is_the_token_result(family: str, name: str) -> None:
    result = traced(family, torch.float64)
    whole = METHODS[name](result)
    spans = tuple((token,) for token in range(whole.shape[-1]))
    alone = Unit("alone", whole.query_labels, spans, whole.query_unit.special)
    single = METHODS[name](result, unit=alone)
    assert single.unit == "alone"
    assert np.array_equal(single.values, whole.values)


@torch.no_grad()
@pytest.mark.parametrize("family", ["BERT", "Llama", "GPT-2", "ViT"])
@pytest.mark.parametrize("stage", ["attn", "res", "res_ln", "enc"])
def test_lengths_are_those_of_sums_of_vectors(family: str, stage: str) -> None:
    result = traced(family, torch.float64)
    shares, _ = vectors(result, 1, stage)
    spans = spans_of(len(shares))
    summed = torch.stack([shares[:, list(span)].sum(1) for span in spans], dim=1)
    joint = attention_norm(result, stage, unit=unit_of(spans), layers=1)
    assert joint.shape == (1, len(spans), len(spans))
    assert apart(joint.layer(1), by_hand(summed.norm(dim=-1).numpy(), spans)) < 1e-6
    # A sum of lengths is another measure, and never smaller.
    added = attention_norm(result, stage, layers=1).to(unit_of(spans)).layer(1)
    assert (added - joint.layer(1)).min() > -1e-6
    assert apart(added, joint.layer(1)) > 1e-3


@torch.no_grad()
@pytest.mark.parametrize("distance", ["l1", "l2"])
@pytest.mark.parametrize("family", ["BERT", "Llama", "GPT-2", "ViT"])
def test_contributions_are_those_of_sums_of_vectors(family: str, distance: str) -> None:
    result = traced(family, torch.float64)
    shares, whole = vectors(result, 1, "res_ln")
    spans = spans_of(len(shares))
    summed = torch.stack([shares[:, list(span)].sum(1) for span in spans], dim=1)
    power = int(distance[1])
    near = whole.norm(p=power, dim=-1)[:, None] - (summed - whole[:, None]).norm(p=power, dim=-1)
    near = near.clamp(min=0)
    expected = by_hand((near / near.sum(-1, keepdim=True)).nan_to_num(0.0).numpy(), spans)
    for chunk_size in (None, 1, 3):
        joint = alti(result, distance, unit=unit_of(spans), layers=1, chunk_size=chunk_size)
        assert apart(joint.layer(1), expected) < 1e-6
    assert np.allclose(joint.layer(1).sum(-1), 1, atol=1e-6) or family == "ViT"


@torch.no_grad()
def test_long_spans_are_measured_without_a_vector_for_every_head_and_key() -> None:
    """Heads times tokens of a span exceed the width here, where sums are made head by head instead."""
    ids = [(7 * index) % 60 + 3 for index in range(40)]
    result = trace(tiny.build(tiny.TEXT["BERT"]).double(), None, ids)
    spans = (tuple(range(30)), tuple(range(30, 40)))
    shares, whole = vectors(result, 0, "res_ln")
    summed = torch.stack([shares[:, list(span)].sum(1) for span in spans], dim=1)
    unit = unit_of(spans)
    lengths = attention_norm(result, "res_ln", unit=unit, layers=0).layer(0)
    assert apart(lengths, by_hand(summed.norm(dim=-1).numpy(), spans)) < 1e-6
    near = (whole.abs().sum(-1)[:, None] - (summed - whole[:, None]).abs().sum(-1)).clamp(min=0)
    expected = by_hand((near / near.sum(-1, keepdim=True)).numpy(), spans)
    assert apart(alti(result, unit=unit, layers=0).layer(0), expected) < 1e-6
    zeroed = value_zeroing(result, unit=unit, layers=0)
    assert apart(zeroed.layer(0), value_zeroing(result, unit=unit, layers=0, chunk_size=1).layer(0)) < 1e-9


@torch.no_grad()
def test_heads_one_by_one_are_added_as_well() -> None:
    result = traced("Llama", torch.float64)
    parts = parts_of(block_of(result, 0, "self", "test"), "attn")
    shares = torch.einsum("hij,hjv,hvd->hijd", parts.weights, parts.values, parts.matrix)
    summed = torch.stack([shares[:, :, list(span)].sum(2) for span in SPANS], dim=2).norm(dim=-1).numpy()
    joint = attention_norm(result, per_head=True, unit=unit_of(SPANS), layers=0).layer(0)
    for head, rows in enumerate(summed):
        assert apart(joint[head], by_hand(rows, SPANS)) < 1e-6


def test_the_whole_text_as_one_unit_is_the_sum_itself() -> None:
    """A single vector then, the sum of all: nothing is farther, and nothing else has a share."""
    result = traced("BERT", torch.float64)
    whole = unit_of((tuple(range(8)),))
    assert np.allclose(alti(result, unit=whole).values, 1.0)
    lengths = attention_norm(result, "res", unit=whole, layers=0).layer(0)
    block = block_of(result, 0, "self", "test")
    _, _, bias = block.branch()
    assert abs(lengths[0, 0] - float((block.middle - bias).norm(dim=-1).mean())) < 1e-5


def test_products_of_layers_are_products_in_the_unit() -> None:
    result = traced("BERT", torch.float64)
    unit = unit_of(SPANS)
    layers = attention_norm(result, "enc", unit=unit).values
    assert np.allclose(globenc(result, unit=unit).layer(1), layers[1] @ layers[0], rtol=1e-5)
    layers = alti(result, unit=unit).values
    assert np.allclose(alti(result, unit=unit, rolled_out=True).layer(1), layers[1] @ layers[0], atol=1e-6)


def test_causal_units_stay_causal() -> None:
    result = traced("GPT-2", torch.float64)
    ordered = unit_of(((0, 1), (2,), (3, 4, 5), (6, 7)))
    for mapped in (attention_norm(result, unit=ordered), alti(result, unit=ordered)):
        assert mapped.causal
        assert not np.triu(mapped.values, 1).any()
    assert not attention_norm(result, unit=unit_of(SPANS)).known("causal")


def test_words_of_another_sequence_take_a_unit_for_each_side() -> None:
    result = FAMILIES["Marian"].traced()
    query, key = result.axes("cross")
    queries = tuple((token,) for token in range(len(query)))
    rows = Unit("part", tuple(map(str, range(len(query)))), queries, (False,) * len(query))
    columns = Unit("part", ("a", "b"), ((0, 1, 2), tuple(range(3, len(key)))), (False,) * 2)
    joint = attention_norm(result, unit=(rows, columns), stack="cross")
    assert joint.shape[-2:] == (len(query), 2)
    assert (joint.values <= attention_norm(result, stack="cross").to((rows, columns)).values + 1e-6).all()
    shares = alti(result, unit=(rows, columns), stack="cross").values
    assert shares.min() >= 0
    assert (shares.sum(-1) <= 1 + 1e-5).all()


@pytest.mark.parametrize("method", [attention_norm, globenc, alti, value_zeroing])
def test_wrong_units_are_named(method) -> None:
    result = traced("BERT")
    with pytest.raises(ValueError, match=r"unit 'words' is not one of.*Did you mean 'word'"):
        method(result, unit="words")
    with pytest.raises(ValueError, match="does not divide the query axis: token 2"):
        method(result, unit=unit_of(((0, 1),)))
