"""Sums over rows of attention: as those of the whole layer, by family, masks, biases and sizes of scores."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.tracing import row_sums
from tests.intervene.made import t5
from tests.tracing import tiny

FACTORS = torch.zeros(4, 60, dtype=torch.float64)
FACTORS[0, :20] = 0.05
FACTORS[1, 20:50] = torch.linspace(-1, 1, 30)
FACTORS[3, 59] = 1


def trace_of(family: str) -> Any:
    if family == "T5":
        return t5()
    ids = np.random.default_rng(0).integers(3, 100, 60).tolist()
    return aw.trace(tiny.build(tiny.TEXT[family]).double(), None, input_ids=ids)


@pytest.mark.parametrize("times", [1, 400], ids=["small scores", "large scores"])
@pytest.mark.parametrize("family", ["Llama", "GPT-2", "BERT", "OPT", "Gemma 2", "ModernBERT", "T5"])
def test_they_are_those_of_the_whole_layer(family: str, times: int, monkeypatch: Any) -> None:
    monkeypatch.setattr(row_sums, "_CPU_BYTES", 1)  # blocks of 16 queries
    trace = trace_of(family)
    for stack in trace.stacks:
        for recorded in trace.stack_table[stack].layers:
            layer = replace(recorded, call=replace(recorded.call, query=recorded.call.query * times))
            weights = torch.from_numpy(layer.weights())
            factors = FACTORS[:, : weights.shape[1]]
            result = torch.zeros(len(weights), len(factors), weights.shape[2], dtype=torch.float64)
            for sums, first, part in row_sums.row_sums(layer, factors):
                result[:, sums, first : first + part.shape[-1]] += part
            torch.testing.assert_close(result, factors @ weights, atol=1e-9, rtol=1e-7)


def test_what_is_hidden_is_not_computed(monkeypatch: Any) -> None:
    monkeypatch.setattr(row_sums, "_CPU_BYTES", 1)
    layer = trace_of("Llama").stack_table["self"].layers[0]
    ends = [first + part.shape[-1] for _, first, part in row_sums.row_sums(layer, torch.ones(1, 60))]
    assert ends == [16, 32, 60]


def test_queries_that_may_read_nothing_read_everything_alike() -> None:
    layer = trace_of("Llama").stack_table["self"].layers[0]
    mask = layer.call.settings["mask"].clone()
    mask[..., 7, :] = torch.finfo(mask.dtype).min
    layer = replace(layer, call=replace(layer.call, settings={**layer.call.settings, "mask": mask}))
    factors = torch.zeros(1, 60, dtype=torch.float64)
    factors[0, 7] = 1
    (_, first, part), *_ = row_sums.row_sums(layer, factors)
    assert first == 0
    torch.testing.assert_close(part[:, 0], torch.full((len(part), 60), 1 / 60, dtype=torch.float64))
