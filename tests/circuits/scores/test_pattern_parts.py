"""Patterns of heads as pairs of components: to single cells, on compiled circuits, and claims about them."""

from __future__ import annotations

import random
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.circuits.claims.grammar import ClaimError
from attnwidgets.tracing.unsupported import UnsupportedModelError
from tests.circuits.scores.test_why import EVERY
from tests.tracing import tiny
from tests.tracing.families import FAMILIES, IDS, Family
from tests.zoo.made import made

TEXTS = ["fadebcfadeb", "cgaehdcgaeh", "hbdfaghbdfa", "gcfbdegcfbd", "edchbfedchb", "bhgacdbhgac", "dcbdcb"]


def induction() -> tuple[Any, Any]:
    return made("induction", letters="abcdefgh", length=16)


@pytest.mark.parametrize("family", ["GPT-2", "BERT", "Qwen3", "T5", "Gemma 2", "GPT-OSS"])
def test_a_pattern_is_the_mean_of_its_cells_by_attention(family: str) -> None:
    trace = EVERY[family].traced()
    stack = trace.stacks[0]
    layer = trace.layers(stack)[-1]
    weights = np.asarray(aw.attention(trace, stack).layer(layer), dtype=np.float64)[1]
    pairs, given, queries = 0.0, 0.0, 0
    for query, row in enumerate(weights):
        if trace.axes(stack)[0].units["token"].special[query] or (row > 0).sum() < 2:
            continue
        queries += 1
        for key in np.flatnonzero(row):
            why = aw.why(trace, query, int(key), layer=layer, head=1, foil="row", stack=stack)
            pairs = pairs + row[key] / row.sum() * why.pairs
            given += row[key] / row.sum() * sum(why.given.values())
    result = aw.circuits.pattern_parts(trace, [(layer, 1)], stack=stack)
    assert result.n_queries == queries
    head = result[layer, 1]
    # Recorded weights are float32, and sum to one only as such.
    np.testing.assert_allclose(head.pairs, pairs / queries, atol=1e-6)
    assert sum(head.given.values()) == pytest.approx(given / queries, abs=1e-6)
    # Of weights alone: how far rows are from even rows, both ways.
    seen = [row[row > 0] / row.sum() for row in weights if (row > 0).sum() > 1]
    if not any(trace.axes(stack)[0].units["token"].special):
        far = np.mean([(row - 1 / len(row)) @ np.log(row) for row in seen])
        assert head.total == pytest.approx(far, abs=1e-5)


def test_the_circuit_of_the_induction_model_is_named() -> None:
    traces = [aw.trace(*induction(), text) for text in TEXTS]
    heads = aw.circuits.pattern_parts(traces)
    assert [head.largest[:2] for head in heads.heads] == [
        ("position", "position"), ("token", "token"), ("token", "head 0.0"), ("token", "token"),
    ]  # fmt: skip
    assert heads[0, 0].pattern == "previous"
    rows = heads.to_rows()
    assert [(row["layer"], row["head"], row["key_part"]) for row in rows][2] == (1, 0, "head 0.0")
    # Without a letter before, token 0 answers: by its token.
    shares = [share for share in heads[1, 0].top(None) if abs(share.value) > 1e-3]
    assert {share[:2] for share in shares} == {("token", "head 0.0"), ("token", "token")}
    assert "head 0.0 mostly position x position: previous" in repr(heads)
    grouped = aw.circuits.pattern_parts(traces, [(1, 0)], groups="kind")[1, 0]
    assert grouped.largest[:2] == ("input", "heads")
    assert grouped.total == pytest.approx(heads[1, 0].total, abs=1e-9)


def test_texts_are_joined_query_by_query() -> None:
    first, second = (aw.trace(*induction(), text) for text in TEXTS[-2:])
    both = aw.circuits.pattern_parts([first, second], [(1, 0)])
    alone = [aw.circuits.pattern_parts(trace, [(1, 0)]) for trace in (first, second)]
    counts = [result.n_queries for result in alone]
    assert both.n_queries == sum(counts)
    expected = np.average([result[1, 0].pairs for result in alone], axis=0, weights=counts)
    np.testing.assert_allclose(both[1, 0].pairs, expected, atol=1e-9)


@pytest.mark.slow
def test_an_early_head_of_a_trained_model_compares_what_the_first_layer_wrote(smollm2: Any) -> None:
    model, tokenizer = smollm2
    trace = aw.trace(model.float(), tokenizer, "The capital of France is Paris, and the capital of Italy is")
    head = aw.circuits.pattern_parts(trace, [(2, 1)])[2, 1]
    assert head.largest[:2] == ("MLP 0", "MLP 0")


def test_patterns_without_parts_are_refused() -> None:
    with pytest.raises(ValueError, match="shown is empty"):
        aw.circuits.pattern_parts([])
    trace = FAMILIES["Llama"].traced()
    with pytest.raises(IndexError, match="head 9 is out of range"):
        aw.circuits.pattern_parts(trace, [(0, 9)])
    with pytest.raises(KeyError, match=r"head \(1, 2\) is not among these; they are \(0, 1\)"):
        aw.circuits.pattern_parts(trace, [(0, 1)])[1, 2]
    with pytest.raises(ValueError, match="no query of these texts reads two tokens"):
        aw.circuits.pattern_parts(aw.trace(trace.model, None, input_ids=IDS[:1]))
    with pytest.raises(UnsupportedModelError, match="needs queries and keys"):
        aw.circuits.pattern_parts(Family(tiny.OUTSIDE["MPNet"]).traced())
    with pytest.raises(UnsupportedModelError, match="another sequence"):
        aw.circuits.pattern_parts(FAMILIES["T5"].traced(), stack="decoder")


@pytest.mark.slow
def test_what_a_head_reads_is_a_claim() -> None:
    sentences = {
        "head 1.0 looks where head 0.0 wrote": "holds",
        "head 1.1 looks where head 0.0 wrote": "fails",
        "head 1.0 looks where head 0.1 wrote more than random": "fails",
    }
    reports = [aw.circuits.claim(sentence).check(*induction(), TEXTS) for sentence in sentences]
    assert [report.verdict for report in reports] == [*sentences.values()]
    [first] = reports[0]
    assert first.baselines == {"other writers": pytest.approx(0, abs=1e-6)}
    assert "attention lost without head 0.0 in the keys 0.4" in str(reports[0])
    # By hand: rows whose letter occurred before lose the weight of the letter after it.
    text = TEXTS[0]
    row = np.asarray(aw.attention(aw.trace(*induction(), text)).layer(1))[0]
    # Of a letter that is there once, token 0 has all; of another it is left with a half and the rest.
    expected = np.mean([row[at, 1:].sum() for at in range(1, len(text) + 1)])
    assert first.texts[0].value == pytest.approx(expected, abs=1e-4)


@pytest.mark.slow
def test_both_hops_are_claims_that_hold() -> None:
    chance = random.Random(0)
    texts = []
    for _ in range(8):
        letters = chance.sample("abcdefgh", 6)
        pairs = ["".join(letters[at] for at in pair) for pair in ((0, 1), (1, 2), (3, 4), (5, 3))]
        texts.append(" ".join(pairs) + " " + letters[0])
    sentences = [f"head {layer}.0 looks where head {of}.0 wrote" for layer, of in ((1, 0), (2, 0), (2, 1))]
    report = aw.circuits.check_claims(*made("two_hop"), sentences, texts, margin=0.05)
    # The output of head 1.0 is in the query of head 2.0, and in no key that it reads.
    assert [result.verdict for result in report] == ["holds", "holds", "fails"]


def scrambled() -> tuple[Any, Any]:
    """The induction model with random weights of the usual size."""
    model, tokenizer = induction()
    model = deepcopy(model)
    generator = torch.Generator().manual_seed(0)
    for name, parameter in model.named_parameters():
        if parameter.dim() > 1:
            parameter.data = 0.02 * torch.randn(parameter.shape, generator=generator)
        else:
            parameter.data = torch.ones_like(parameter) if "weight" in name else torch.zeros_like(parameter)
    for module in model.modules():
        if isinstance(module, torch.nn.LayerNorm):
            module.eps = 1e-5
    return model, tokenizer


@pytest.mark.slow
def test_of_random_weights_sums_are_exact_and_no_claim_holds() -> None:
    model, tokenizer = scrambled()
    trace = aw.trace(model, tokenizer, TEXTS[0])
    for head in (0, 1):
        why = aw.why(trace, 11, 6, layer=1, head=head, foil=3)
        weights = np.asarray(aw.attention(trace).layer(1), dtype=np.float64)[head, 11]
        assert why.total == pytest.approx(np.log(weights[6] / weights[3]), abs=1e-5)
    sentences = [f"head 1.{head} looks where head 0.{of} wrote" for head in (0, 1) for of in (0, 1)]
    sentences += [f"head 1.{head} looks where MLP 0 wrote" for head in (0, 1)]
    report = aw.circuits.check_claims(model, tokenizer, sentences, TEXTS + [text[::-1] for text in TEXTS])
    assert "holds" not in {result.verdict for result in report}


@pytest.mark.parametrize(
    ("sentence", "says"),
    [
        ("head 1.0 looks where head 1.1 wrote", "a layer before 1"),
        ("head 1.0 looks where MLP 1 wrote", "a layer before 1"),
        ("head 1.0 looks where token wrote", "expected a head or an MLP"),
        ("head 1.0 looks at head 0.0", 'expected "where"'),
        ("head 1.0 looks where head 0.0", 'expected "wrote"'),
    ],
)
def test_a_sentence_that_says_no_writer_is_pointed_at(sentence: str, says: str) -> None:
    with pytest.raises(ClaimError, match=says):
        aw.circuits.claim(sentence)


def test_a_writer_that_is_not_there_is_named() -> None:
    with pytest.raises(ValueError, match=r"head 0\.7 does not exist: head 0\.0, head 0\.1"):
        aw.circuits.claim("head 1.0 looks where head 0.7 wrote").check(*induction(), TEXTS)
    with pytest.raises(ValueError, match='"shuffled" is for "attends from"'):
        aw.circuits.claim("head 1.0 looks where head 0.0 wrote more than shuffled").check(*induction(), TEXTS)


def test_a_claim_about_a_writer_is_written_as_it_is_read() -> None:
    for sentence in (
        "head 1.0 looks where head 0.1 wrote",
        "head 3.2 looks where MLP 0 wrote more than random",
    ):
        assert str(aw.circuits.claim(sentence)) == sentence
