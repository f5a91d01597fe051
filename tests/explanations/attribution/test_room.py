"""A text that is too long for the memory: fewer inputs at a time, and advice where none fits."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest
import torch

import attnwidgets as aw
from attnwidgets.explanations.attribution import embedding_gradients
from attnwidgets.tracing import pass_memory as memory
from tests.explanations.made import random_classifier
from tests.tracing import tiny

ONE_PASS = (aw.lrp, aw.saliency, aw.input_x_gradient, aw.chefer, aw.signed_attention)
captum = pytest.mark.skipif(importlib.util.find_spec("captum") is None, reason="captum is an extra")
WITHOUT_GRADIENTS = [pytest.param(method, marks=captum) for method in ("occlusion", "shapley_sampling")]


@pytest.fixture
def traced() -> Any:
    """A trace whose architecture was tried already."""
    trace = aw.trace(random_classifier(), tiny.wordpiece(), "the cat sat on the mat")
    aw.lrp(trace)
    return trace


@pytest.fixture
def batches(traced: Any) -> Any:
    """How many inputs each pass of the model ran."""
    seen: list[int] = []
    handle = traced.model.bert.embeddings.register_forward_hook(lambda *args: seen.append(len(args[-1])))
    yield seen
    handle.remove()


def room(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    monkeypatch.setattr(memory, "free_bytes", lambda _: int(size))


def test_integrated_gradients_take_as_many_points_as_there_is_room_for(
    traced: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = aw.integrated_gradients(traced, [0, 2], steps=12, batch_size=12)
    assert max(batches) == 12
    batches.clear()
    # Half of the free memory may be used.
    room(monkeypatch, 2 * 5 * memory.graph_bytes(traced.model, traced))
    chunked = aw.integrated_gradients(traced, [0, 2], steps=12, batch_size=12)
    assert max(batches) == 5
    np.testing.assert_allclose(chunked.values, whole.values, atol=1e-6)


def test_more_targets_than_can_be_held_are_taken_in_parts(
    traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = aw.integrated_gradients(traced, [0, 1, 2], steps=4)
    passes: list[int] = []
    handle = traced.model.register_forward_pre_hook(lambda *_: passes.append(1))
    aw.saliency(traced)  # compares the model that has a hook now
    passes.clear()
    monkeypatch.setattr(
        embedding_gradients, "_MEAN_BYTES", 8 * 12 * len(traced.tokens) * 2
    )  # two targets' gradients
    parts = aw.integrated_gradients(traced, [0, 1, 2], steps=4)
    handle.remove()
    assert len(passes) == 1 + 2 + 1  # the text, its way twice, the baseline
    np.testing.assert_allclose(parts.values, whole.values, atol=1e-7)
    assert parts.residual == pytest.approx(whole.residual, abs=1e-6)


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_what_is_taken_away_together_has_room(
    name: str, traced: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    method = getattr(aw, name)
    whole = method(traced, 1)
    batches.clear()
    room(monkeypatch, 2 * 3 * memory.pass_bytes(traced.model, traced))
    chunked = method(traced, 1)
    assert max(batches) == 3
    np.testing.assert_allclose(chunked.values, whole.values, atol=1e-6)


@pytest.mark.parametrize("method", [*ONE_PASS, aw.integrated_gradients])
def test_one_pass_that_cannot_fit_is_refused_before_it_runs(
    method: Any, traced: Any, batches: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    room(monkeypatch, memory.pass_bytes(traced.model, traced))
    said = rf"{method.__name__} keeps the whole pass .* over 8 tokens .* GB are free.* shorter text"
    with pytest.raises(ValueError, match=said) as error:
        method(traced, [0] if method is aw.lrp else 0)
    assert "aw.occlusion keeps no pass" in str(error.value)
    assert not [size for size in batches if size > 1]


@pytest.mark.parametrize("name", WITHOUT_GRADIENTS)
def test_without_a_way_back_less_is_asked_for(
    name: str, traced: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    method, need = getattr(aw, name), memory.pass_bytes(traced.model, traced)
    assert need < memory.graph_bytes(traced.model, traced)
    room(monkeypatch, need / 2)
    with pytest.raises(ValueError, match=rf"{name} runs Bert\w+: over 8 tokens that takes about") as error:
        method(traced)
    assert "way back" not in str(error.value)


def test_a_chunk_that_fails_on_its_way_back_is_told_what_to_do(traced: Any) -> None:
    class Burst(torch.autograd.Function):
        @staticmethod
        def forward(_: Any, x: torch.Tensor) -> torch.Tensor:
            return x.clone()

        @staticmethod
        def backward(_: Any, *__: torch.Tensor) -> torch.Tensor:
            raise torch.OutOfMemoryError("out of memory")

    with pytest.raises(ValueError, match=r"saliency keeps the whole pass.*Take a shorter text"):
        aw.saliency(traced, lambda outputs: Burst.apply(outputs.logits[:, 0]))
