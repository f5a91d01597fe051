"""Nothing copies a layer of attention from the model's device that a view does not show.

An accelerator's numbers reach the host as numpy arrays alone: a count of the conversions stands in for it.
"""

from __future__ import annotations

from typing import Any

import pytest
from torch.overrides import TorchFunctionMode

import attnwidgets as aw
from tests.tracing import tiny
from tests.tracing.test_rows import LONG, long_ids

HEAD = LONG * LONG
"""Numbers of a head's weights."""
LAYERS = 8  # more than travel with a view at once
MAP = 3  # axes of a layer of weights


class Copies(TorchFunctionMode):
    """Counts the numbers that become arrays in total, and the maps [head, query, key] among them."""

    def __init__(self) -> None:
        super().__init__()
        self.total, self.maps = 0, 0

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        del types
        if getattr(func, "__name__", "") in ("numpy", "tolist", "__array__"):
            self.total += args[0].numel()
            self.maps += args[0].dim() == MAP and args[0].shape[1:].numel() >= HEAD
        return func(*args, **(kwargs or {}))


@pytest.fixture(scope="module")
def model() -> Any:
    options = tiny.GQA | {"num_hidden_layers": LAYERS, "max_position_embeddings": LONG}
    return tiny.build(lambda: tiny._plain("Llama", "ForCausalLM", **options))


@pytest.fixture(scope="module")
def trace(model: Any) -> Any:
    return aw.trace(model, None, input_ids=long_ids())


def test_the_counter_counts_layers(trace: Any) -> None:
    with Copies() as copies:
        trace.attention_layer(0)
    assert copies.maps == 1
    assert copies.total == trace.attention_layer(0).numel()


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
def test_a_view_of_a_layer_copies_no_other(view: str, trace: Any) -> None:
    fresh = trace.rerun()
    with Copies() as copies:
        # Words and sentences of all layers travel with a view, since they are small.
        shown = getattr(aw, view)(fresh, layer=2, head=0, units=["token"])
        shown._repr_mimebundle_()
    shown.close()
    assert copies.maps == 1


def test_a_view_of_all_heads_copies_each_layer_once(trace: Any) -> None:
    fresh = trace.rerun()
    with Copies() as copies:
        shown = aw.Explorer(fresh)
        shown._repr_mimebundle_()
    shown.close()
    assert copies.maps <= LAYERS


def test_gradients_copy_no_weights(trace: Any) -> None:
    with Copies() as copies:
        aw.saliency(trace, 5)
    assert copies.total < HEAD
