"""Twins: new modules over a model's weights, however the model binds its modules to each other."""

from __future__ import annotations

import copy
import functools
import gc
import weakref
from typing import Any

import pytest
import torch
from torch import nn

from attnwidgets.tracing.recording.borrow import origin, twin_of, twins_in
from attnwidgets.tracing.recording.module_calls import kept_pass
from attnwidgets.tracing.recording.run import trace
from tests.tracing import tiny
from tests.tracing.test_borrow import mixed_model, state_of

IDS = torch.tensor([[5, 17, 31, 9]])
FAMILIES = {**tiny.TEXT, **tiny.IMAGE}


def run(model: nn.Module, family: str) -> torch.Tensor:
    inputs: dict[str, Any] = {"input_ids": IDS}
    if family in tiny.IMAGE:
        inputs = {"pixel_values": torch.randn(1, 3, 24, 24, generator=torch.Generator().manual_seed(0))}
    with torch.no_grad():
        result = model(**inputs)
    return next(value for value in result.values() if isinstance(value, torch.Tensor))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_twin_computes_what_its_model_does_with_no_module_in_common(family: str) -> None:
    model = tiny.build(FAMILIES[family])
    expected = run(model, family)
    twin = twin_of(model)
    assert [name for name, _ in twin.named_modules()] == [name for name, _ in model.named_modules()]
    originals = {id(module) for module in model.modules()}
    assert not any(id(module) in originals for module in twin.modules())
    assert all(origin(a) is b for a, b in zip(twin.modules(), model.modules(), strict=True))
    # Only modules of the twin are called, all of them.
    called: list[nn.Module] = []
    for module in model.modules():
        module.register_forward_pre_hook(lambda module, *_: called.append(module))
    assert torch.equal(run(twin, family), expected)
    assert not called


def test_weights_are_shared_and_require_no_gradient() -> None:
    model = mixed_model()
    before = state_of(model)
    twin = twin_of(model)
    for (name, parameter), (same, other) in zip(
        twin.named_parameters(), model.named_parameters(), strict=True
    ):
        assert (name, parameter.data_ptr()) == (same, other.data_ptr())
        assert not parameter.requires_grad
    assert twin.transformer.wte.weight is twin.lm_head.weight, "tied"
    assert not any(module.training for module in twin.modules())
    assert state_of(model) == before
    with torch.no_grad():
        model.transformer.wte.weight[5] += 1
    assert torch.equal(run(twin, "GPT-2"), run(model.eval(), "GPT-2")), "the model goes on learning"


def test_what_is_done_to_a_twin_reaches_nobody_else() -> None:
    model = tiny.build(tiny.TEXT["Llama"])
    before, expected = state_of(model), run(model, "Llama")
    twin = twin_of(model)
    twin.train()
    twin.config._attn_implementation = "eager"
    twin.model.layers[0].register_forward_hook(lambda _, __, output: output * 0)
    twin.model.layers[1].mlp = nn.Identity()
    del twin.model.norm
    assert state_of(model) == before
    assert torch.equal(run(model, "Llama"), expected)


class Bound(nn.Module):
    """Binds its part in every way that modules have been seen to."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Linear(3, 3)
        part = self.part
        self.method = part.forward
        self.partial = functools.partial(part.forward)
        self.closure = lambda x: part(x) + 0
        self.listed = [part]
        self.named = {"part": (part,)}
        self.back = weakref.ref(self)
        self.weights = [part.weight]
        self.itself: list[Any] = [1]
        self.itself.append(self.itself)

    def forward(self, x: torch.Tensor) -> list[torch.Tensor]:
        return [
            self.method(x),
            self.partial(x),
            self.closure(x),
            self.listed[0](x),
            self.named["part"][0](x),
            self.back().part(x),
            nn.functional.linear(x, self.weights[0], self.part.bias),
        ]


def test_however_a_module_is_bound_the_twins_own_is_called() -> None:
    model = Bound()
    twin = twin_of(model)
    # Its part, where it is requested.
    twin.part._parameters["weight"] = nn.Parameter(torch.zeros(3, 3), requires_grad=False)
    result = twin(torch.ones(1, 3))
    assert len(result) == 7
    for made in result[:-1]:
        assert torch.equal(made[0], model.part.bias)
    assert all(made.requires_grad for made in model(torch.ones(1, 3)))
    assert not any(made.requires_grad for made in result)


def test_hooks_are_the_users_own_and_see_the_twins_modules() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    seen: list[nn.Module] = []
    model.bert.encoder.layer[1].register_forward_hook(lambda module, *_: seen.append(module))
    twin = twin_of(model)
    run(twin, "BERT")
    assert seen == [twin.bert.encoder.layer[1]]


def test_a_trace_leaves_no_twin_to_the_garbage_collector() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    traced = trace(model, None, [5, 17, 31, 9])
    kept = kept_pass(traced)
    assert kept is not None
    twin = weakref.ref(kept.model)
    del kept
    gc.collect()
    gc.disable()
    try:
        del traced
        assert twin() is None
    finally:
        gc.enable()


def test_a_twin_of_a_twin_is_of_the_model() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    first = twin_of(model)
    second = twin_of(first)
    assert origin(second) is model
    assert twins_in(second)[id(first.bert)] is second.bert
    assert torch.equal(run(second, "BERT"), run(model, "BERT"))


def test_compiled_parts_run_as_they_were() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    expected = run(model, "BERT")
    names = [name for name, _ in model.named_modules()]
    model.bert.encoder.layer[0] = torch.compile(model.bert.encoder.layer[0], backend="eager")
    model.bert.encoder.layer[1].compile(backend="eager")
    twin = twin_of(model)
    assert twin.bert.encoder.layer[1]._compiled_call_impl is None
    assert torch.equal(run(twin, "BERT"), expected)
    assert [name for name, _ in twin.named_modules()] != names, "the compiled part keeps its name"
    assert [name for name, _ in twin.named_modules()] == [name for name, _ in model.named_modules()]


@pytest.mark.slow
def test_twins_go_when_nobody_holds_them() -> None:
    model = tiny.build(tiny.TEXT["BERT"])
    twin = weakref.ref(twin_of(model))
    gc.collect()
    assert twin() is None
    assert copy.deepcopy(model) is not None
