"""Errors of measures of context mixing at bad input: the argument, the mistake, the remedy."""

from __future__ import annotations

import numpy as np
import pytest

from attnwidgets.explanations.registry.registry import methods
from attnwidgets.tracing.from_attentions import from_attentions
from attnwidgets.tracing.recording import proof
from attnwidgets.tracing.recording.run import trace
from tests.explanations.ways import traced
from tests.tracing import tiny
from tests.tracing.families import UNFOLLOWED

ON_BLOCKS = {"recorded model", "blocks", "own blocks"}
MIXING = {"attention", "map", *ON_BLOCKS}
MEASURES = [
    method
    for method in methods()
    if method.function.__module__.startswith("attnwidgets.")
    and any(need.name in MIXING for need in method.requirements)
    and "target" not in method.options  # methods with a target have other tests
]
ON_THE_MODEL = [m for m in MEASURES if any(need.name in ON_BLOCKS for need in m.requirements)]


def having(option: str) -> list:
    return [method for method in MEASURES if option in method.options]


def named(methods_: list) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("method", methods_, ids=lambda method: method.name)


@named(having("layers"))
def test_a_layer_that_is_not_there_is_named_with_those_that_are(method) -> None:
    with pytest.raises(IndexError, match=r"layer 7 is out of range: there are layers 0 to 1"):
        method.function(traced("GPT-2"), layers=7)
    with pytest.raises(TypeError, match=r"layer takes an integer"):
        method.function(traced("GPT-2"), layers="first")
    with pytest.raises(IndexError, match="selects nothing"):
        method.function(traced("GPT-2"), layers=[])


@named(having("stack"))
def test_a_stack_that_is_not_there_is_named_with_those_that_are(method) -> None:
    with pytest.raises(
        ValueError, match=r"stack 'slef' is not in this trace, which has 'self'.*Did you mean 'self'"
    ):
        method.function(traced("GPT-2"), stack="slef")
    with pytest.raises(
        ValueError, match=r"'encodr' is not .*'encoder', 'decoder', 'cross'.*Did you mean 'encoder'"
    ):
        method.function(traced("T5"), stack="encodr")


@named(having("unit"))
def test_a_unit_that_is_not_there_is_named_with_those_that_are(method) -> None:
    with pytest.raises(ValueError, match=r"unit 'wrod' .*'token', 'word'.*Did you mean 'word'"):
        method.function(traced("GPT-2"), unit="wrod")


@named([method for method in MEASURES if method.kind == "map"])
def test_a_unit_of_a_map_that_is_not_there_is_named(method) -> None:
    with pytest.raises(ValueError, match=r"unit 'wrod'.*Did you mean 'word'"):
        method.function(traced("GPT-2")).to("wrod")
    with pytest.raises(IndexError, match="layer 5 is out of range"):
        method.function(traced("GPT-2")).layer(5)


@named(MEASURES)
def test_what_is_no_trace_is_named_with_what_to_do(method) -> None:
    with pytest.raises(TypeError, match=r"str, not a trace; make one with aw\.trace"):
        method.function("a sentence")
    with pytest.raises(
        TypeError, match=rf"list, not a trace; .* makes a list of traces: \[aw\.{method.name}\("
    ):
        method.function(["a sentence"])
    with pytest.raises(TypeError, match=r"takes no keyword 'stak'.*Did you mean 'stack'"):
        method.function(traced("GPT-2"), stak="self")
    with pytest.raises(TypeError, match=r"takes no keyword 'stream'.*Did you mean 'stack'"):
        method.function(traced("GPT-2"), stream="self")


@named(ON_THE_MODEL)
def test_numbers_without_their_model_are_refused_with_the_reason(method) -> None:
    given = from_attentions(np.full((1, 1, 2, 2), 0.5), tokens=["a", "b"])
    with pytest.raises(ValueError, match=rf"{method.name}.*(without|no model|needs the model).*aw\.trace"):
        method.function(given)
    assert "without" in method.refusal(given)


@named(ON_THE_MODEL)
@pytest.mark.parametrize("family", UNFOLLOWED)
def test_a_model_that_hides_its_attention_is_refused_with_the_reason(method, family: str) -> None:
    with pytest.raises(ValueError, match=rf"{method.name}.*outside transformers' attention interface"):
        method.function(UNFOLLOWED[family].traced())


@named(ON_THE_MODEL)
def test_nan_inside_a_model_names_the_layer_that_makes_it(method, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(proof, "_proved", set())  # as if it were the first model of its kind
    model = tiny.build(tiny.TEXT["GPT-2"])
    model.transformer.h[1].mlp.c_proj.weight.data[0] = float("nan")
    result = trace(model, None, [5, 17, 31])
    with pytest.raises(ValueError, match=r"layer 1 \(transformer\.h\.1\).*first to return NaN"):
        method.function(result).map.layer(1)
