"""A claim is written from a head and pins, and names its origin."""

from __future__ import annotations

import types

import pytest

import attnwidgets as aw
from attnwidgets.views.base import expressions
from tests.explanations.made import random_classifier
from tests.tracing import tiny

TEXT = "fadebcfadeb"


@pytest.fixture(scope="module")
def traced():
    return aw.trace(*aw.zoo.induction(letters="abcdefgh", length=16), TEXT)


def asked(view, cells, head=0, layer=1, unit="token"):
    source = next(item.id for item in view.store.sources() if item.unit == unit)
    args = {"source": source, "layer": layer, "head": head, "cells": cells}
    return expressions.expression(view._expressible, "claim", **args)[0]["code"]


@pytest.mark.parametrize("made", [aw.Explorer, aw.Heatmap, aw.HeadView, aw.HeadGrid])
def test_a_cell_becomes_a_claim_that_can_be_checked(made, traced, monkeypatch):
    view = made(traced)
    assert view.options["makesClaims"]
    names = {"aw": aw, "model": traced.model, "tokenizer": traced.tokenizer}
    monkeypatch.setattr(expressions, "running_shell", lambda: types.SimpleNamespace(user_ns=names))
    code = asked(view, [[11, 6]])
    assert code.startswith("aw.circuits.claim('head 1.0 attends from b to c').check(model, tokenizer, ")
    result = eval(code, names).result()
    assert (result.texts[0].source, result.texts[0].target) == ((11,), (6,))
    weight = float(traced.attention_layer(1)[0, 11, 6])
    assert result.mean == pytest.approx(weight)


@pytest.mark.parametrize(
    ("cells", "sentence", "tokens"),
    [
        ([[11, -1], [-1, 6]], "attends from b to c", ((11,), (6,))),
        ([[6, -1], [11, -1]], "attends from b to c", ((11,), (6,))),
        ([[11, 6], [11, 5]], "attends from b to bc", ((11,), (5, 6))),
        ([[11, 6], [11, 4]], "attends from later to earlier", ((11,), (4, 6))),
        ([[7, 1]], "attends from later to earlier", ((7,), (1,))),
    ],
)
def test_two_tokens_or_several_cells_name_the_roles(cells, sentence, tokens, traced):
    code = asked(aw.Heatmap(traced), cells)
    assert f"head 1.0 {sentence}'" in code
    view = eval(code, {"aw": aw, "model": traced.model, "tokenizer": traced.tokenizer})
    assert (view.result().texts[0].source, view.result().texts[0].target) == tokens


@pytest.mark.parametrize(
    ("layer", "head", "does"), [(1, 0, "induction"), (0, 0, "previous token"), (0, 1, "diagonal")]
)
def test_a_head_alone_becomes_a_claim_of_what_it_does_most(layer, head, does, traced):
    assert f"head {layer}.{head} is {does}" in asked(aw.HeadGrid(traced), [], head, layer)
    assert f"head {layer}.{head} is {does}" in asked(aw.HeadGrid(traced), [[3, -1]], head, layer)


def test_words_are_claims_about_their_tokens():
    trace = aw.trace(random_classifier(), tiny.wordpiece(), "the unbelievable cat")
    view = aw.Explorer(trace)
    code = asked(view, [[3, 2]], layer=0, unit="word")
    assert "attends from cat to " in code
    shown = eval(code, {"aw": aw, "model": trace.model, "tokenizer": trace.tokenizer})
    spans = trace.axes()[0].units["word"].spans
    assert shown.result().texts[0].target == spans[2]


def test_what_is_no_claim_says_why(traced):
    view = aw.Heatmap(traced)
    for cells, why in (
        ([[3, 3]], "about two tokens"),
        ([[1, -1], [2, -1], [3, -1]], "from one token to another"),
        ([[4, 0]], "special tokens"),
    ):
        with pytest.raises(LookupError, match=why):
            asked(view, cells)
    given = aw.Heatmap(aw.attention(traced))
    assert not given.options["makesClaims"]
    with pytest.raises(LookupError, match="with a model and its tokenizer"):
        asked(given, [[4, 2]])
    ids = aw.trace(traced.model, None, input_ids=[[8, 1, 2]])
    assert not aw.Heatmap(ids).options["makesClaims"]
