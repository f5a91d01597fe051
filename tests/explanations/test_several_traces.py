"""Methods of a list of traces return a list, in the same order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets._progress import observing
from attnwidgets.explanations.registry.registry import remove
from tests.tracing import tiny

TEXTS = ["the cat sat.", "a b c", "the new york cat"]


@pytest.fixture(scope="module")
def traces() -> list[Any]:
    return aw.trace(tiny.build(tiny.TEXT["BERT"]), tiny.wordpiece(), TEXTS)


@pytest.mark.parametrize(
    "method", [method.name for method in aw.methods() if not method.required and method.speed == "instant"]
)
def test_every_quick_method_returns_what_it_returns_for_each(traces: list[Any], method: str) -> None:
    serves = [trace for trace in traces if not aw.methods()[method].refusal(trace)]
    if not serves:
        with pytest.raises(ValueError, match=r"^traces\[0\]: "):
            aw.explain(traces, method)
        return
    outcome = aw.explain(serves, method)
    assert isinstance(outcome, list)
    for result, trace in zip(outcome, serves, strict=True):
        expected = aw.explain(trace, method)
        assert result.trace_id == trace.id
        np.testing.assert_array_equal(result.values, expected.values)


def test_lists_tuples_keywords_and_options(traces: list[Any]) -> None:
    expected = [aw.rollout(trace, residual_weight=0.8) for trace in traces]
    for outcome in (
        aw.rollout(traces, residual_weight=0.8),
        aw.rollout(tuple(traces), residual_weight=0.8),
        aw.rollout(aw.attention(traces), residual_weight=0.8),  # a list of maps
    ):
        assert [result.provenance["text"] for result in outcome] == [trace.text for trace in traces]
        for result, item in zip(outcome, expected, strict=True):
            np.testing.assert_array_equal(result.values, item.values)
    assert [len(result.query) for result in aw.attention(traces, stack="self")] == [6, 5, 6]
    targets = aw.saliency(traces, target=aw.targets.token("cat", position=1))
    assert [attributions.method for attributions in targets] == ["saliency"] * 3
    assert aw.rollout([]) == []


def test_head_statistics_of_several_texts_can_be_averaged(traces: list[Any]) -> None:
    tables = aw.statistics.head_statistics(traces, "entropy")
    np.testing.assert_array_equal(tables[1]["entropy"], aw.statistics.head_statistics(traces[1])["entropy"])
    assert aw.statistics.averaged(tables).steps == ("mean over 3 texts",)


def test_every_statistic_takes_a_list(traces: list[Any]) -> None:
    statistics = aw.statistics
    for function in (
        statistics.entropy,
        statistics.head_patterns,
        statistics.sink_importance,
        statistics.sink_rate,
    ):
        for result, trace in zip(function(traces), traces, strict=True):
            assert repr(result) == repr(function(trace))


def test_a_method_of_ones_own_takes_lists_too(traces: list[Any]) -> None:
    @aw.register("first of several")
    def first(trace: Any) -> Any:
        if len(trace.tokens) == 5:
            raise ValueError("five tokens")
        return trace.attention_layer(0).mean(0)

    try:
        outcome = aw.explain([traces[0], traces[2]], "first of several")
        assert [result.method for result in outcome] == ["first of several"] * 2
        with pytest.raises(ValueError, match=r"^traces\[1\]: five tokens"):
            aw.explain(traces, "first of several")
    finally:
        remove("first of several")


def test_errors_name_the_trace(traces: list[Any]) -> None:
    with pytest.raises(TypeError, match=r"^traces\[2\] is a str, not a trace"):
        aw.rollout([*traces[:2], "the cat"])
    with pytest.raises(ValueError, match=r"^traces\[0\]: .*residual_weight"):
        aw.rollout(traces, residual_weight=2.0)
    given = aw.from_attentions(np.full((1, 1, 2, 2), 0.5))
    with pytest.raises(ValueError, match=r"^traces\[1\]: "):
        aw.saliency([traces[0], given], target=aw.targets.token("cat", position=1))


def test_progress_is_reported_for_each_trace(traces: list[Any]) -> None:
    seen: list[tuple[int, int | None]] = []

    def observe(done: int, total: int | None, desc: str) -> None:
        if desc == "rollout":
            seen.append((done, total))

    with observing(observe):
        aw.rollout(traces)
    assert seen == [(0, 3), (1, 3), (2, 3), (3, 3)]
