"""Nothing copies a layer of attention from the model's device that a view does not show.

An accelerator's numbers reach the host as numpy arrays alone, so a count of what becomes one stands in for the
device.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.overrides import TorchFunctionMode

import attnwidgets as aw
from tests.tracing.test_rows import LONG, long_ids, long_model

HEAD = LONG * LONG
"""Numbers of a head's weights."""


class Copies(TorchFunctionMode):
    """Counts the numbers of tensors that become arrays or lists: in total, and of the largest."""

    def __init__(self) -> None:
        super().__init__()
        self.total = self.largest = 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if getattr(func, "__name__", "") in ("numpy", "tolist", "__array__"):
            self.total += args[0].numel()
            self.largest = max(self.largest, args[0].numel())
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def model() -> Any:
    return long_model()


@pytest.fixture(scope="module")
def trace(model: Any) -> Any:
    return aw.trace(model, None, input_ids=long_ids())


def test_the_counter_counts_layers(trace: Any) -> None:
    with Copies() as copies:
        trace.attention_layer(0)
    assert copies.largest == trace.attention_layer(0).numel()


def test_a_trace_copies_no_weights(model: Any) -> None:
    with Copies() as copies:
        aw.trace(model, None, input_ids=long_ids())
    assert copies.total < HEAD


def test_rows_and_heads_are_copied_alone(trace: Any) -> None:
    fresh = trace.rerun()
    with Copies() as copies:
        fresh.attention_rows(1, [0], [LONG - 1])
    assert copies.total == LONG
    with Copies() as copies:
        fresh.attention_rows(1, [0])
    assert copies.total == HEAD


@pytest.mark.parametrize("view", ["Heatmap", "TokenStrip", "HeadView"])
def test_views_of_a_layer_copy_no_other(view: str, trace: Any) -> None:
    fresh = trace.rerun()
    with Copies() as copies:
        shown = getattr(aw, view)(fresh, layer=0, head=0)
        shown._repr_mimebundle_()
    shown.close()
    assert copies.largest <= HEAD * HEADS
    assert copies.total <= 1.5 * HEAD * HEADS


def test_gradients_copy_no_weights(trace: Any) -> None:
    with Copies() as copies:
        aw.saliency(trace, 5)
    assert copies.total < HEAD
