"""The types that a checker infers for calls of public functions, checked by mypy in `make lint`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typing_extensions import assert_type

import attnwidgets as aw
from attnwidgets.statistics.table import HeadStatistics
from attnwidgets.tracing.from_attentions import GivenTrace

if TYPE_CHECKING:
    import torch


def a_text_gives_a_trace_and_texts_give_a_list(
    model: Any, tokenizer: Any, tensor: Any, ids: torch.Tensor, words: list[str]
) -> None:
    assert_type(aw.trace(model, tokenizer, "a text"), aw.results.Trace)
    assert_type(aw.trace("folder", text="a text", truncation=True), aw.results.Trace)
    assert_type(aw.trace(model, tokenizer, ["a text", "another"]), list[aw.results.Trace])
    assert_type(
        aw.trace(model, tokenizer, text=("a text", "another"), words="whitespace"), list[aw.results.Trace]
    )
    assert_type(aw.trace(model, tokenizer, words=words), aw.results.Trace)
    assert_type(aw.trace(model, tokenizer, messages=[{"role": "user", "content": "Hi"}]), aw.results.Trace)
    assert_type(aw.trace(model, tokenizer, "a text", image=tensor), aw.results.Trace)
    assert_type(aw.trace(model, input_ids=[1, 2]), aw.results.Trace)
    assert_type(aw.trace(model, input_ids=[[1, 2], [3, 4]]), aw.results.Trace | list[aw.results.Trace])
    assert_type(aw.trace("folder", "a text"), aw.results.Trace)
    assert_type(aw.trace("folder", ["a text", "another"]), list[aw.results.Trace])
    assert_type(aw.trace("folder", text=["a text", "another"]), list[aw.results.Trace])
    assert_type(aw.trace("folder", [("a question", "a choice")]), list[aw.results.Trace])
    assert_type(aw.trace("folder", [{"role": "user", "content": "Hi"}]), aw.results.Trace)
    assert_type(aw.trace(model, None, ids), aw.results.Trace | list[aw.results.Trace])
    assert_type(aw.from_attentions(tensor, ["a", "b"]), GivenTrace)
    assert_type(aw.from_attentions("folder"), GivenTrace)


def a_method_of_a_trace_gives_a_result_and_of_traces_a_list(trace: aw.results.Trace) -> None:
    assert_type(aw.rollout(trace, residual_weight=0.8), aw.results.MixingMap)
    assert_type(aw.rollout([trace, trace]), list[aw.results.MixingMap])
    assert_type(aw.saliency((trace,)), list[aw.results.Attributions])
    assert_type(aw.statistics.head_statistics([trace], "entropy"), list[HeadStatistics])


def wrong_keywords_are_errors(model: Any, tokenizer: Any, tensor: Any, trace: aw.results.Trace) -> None:
    aw.rollout(trace, residual_wieght=0.8)  # type: ignore[call-overload]
    aw.trace(model, tokenizer, "a text", truncate=True)  # type: ignore[call-overload]
    aw.from_attentions(tensor, token=["a", "b"])  # type: ignore[call-arg]
