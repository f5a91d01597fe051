"""Calls stopped anywhere, by a hook that raises or by an interrupt, leave the model unchanged."""

from __future__ import annotations

import signal
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import attnwidgets as aw
from tests.tracing import tiny

from .fuzzing import fingerprint, fuzz

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType

IDS = [*range(1, 20)]
CALLS: dict[str, Callable[[Any, Any], Any]] = {
    "trace": lambda model, _: aw.trace(model, None, IDS),
    "generation": lambda model, _: aw.trace(model, None, IDS, max_new_tokens=3),
    "continuations": lambda _, trace: aw.continuations(trace, max_new_tokens=3),
    "value zeroing": lambda _, trace: aw.value_zeroing(trace).values,
    "lrp": lambda _, trace: aw.lrp(trace).values,
    "alti": lambda _, trace: aw.alti(trace).values,
    "decompx": lambda _, trace: aw.decompx(trace).values,
    "saliency": lambda _, trace: aw.saliency(trace).values,
    "chefer": lambda _, trace: aw.chefer(trace).values,
    "integrated gradients": lambda _, trace: aw.integrated_gradients(trace).values,
    "occlusion": lambda _, trace: aw.occlusion(trace).values,
    "rerun": lambda _, trace: trace.rerun(aw.ablate_heads(trace, {1: [0]})),
}
RAISED = [RuntimeError, KeyboardInterrupt, SystemExit, MemoryError, RecursionError, StopIteration, KeyError]


@pytest.fixture(scope="module")
def traced() -> tuple[Any, Any, str]:
    model = tiny.build(tiny.TEXT["Llama"])
    model.train()
    model.model.layers[0].eval()
    model.model.embed_tokens.weight.requires_grad_(requires_grad=False)
    before = fingerprint(model)
    trace = aw.trace(model, None, IDS)
    for call in CALLS.values():  # import everything now: an interrupted import would break later tests
        call(model, trace)
    return model, trace, before


def test_hooks_that_raise(traced: Any) -> None:
    model, trace, before = traced
    modules = [module for module in model.modules() if not list(module.children())]

    def a_hook(r: Any) -> None:
        kind, name, at, module = r.choice(RAISED), r.choice([*CALLS]), r.randint(1, 4), r.choice(modules)
        calls = 0

        def hook(*_: Any) -> None:
            nonlocal calls
            calls += 1
            if calls == at:
                raise kind("boom")

        before_hook = r.random() < 0.5
        handle = module.register_forward_pre_hook(hook) if before_hook else module.register_forward_hook(hook)
        try:
            CALLS[name](model, trace)
        except BaseException as error:
            if "boom" not in f"{error}{error.__cause__}{error.__context__}":
                raise
        else:
            assert calls < at or kind is StopIteration, f"{name} swallowed {kind.__name__}"
        finally:
            handle.remove()
        assert fingerprint(model) == before, f"{name} left the model changed after {kind.__name__}"

    fuzz(a_hook, 70)


@contextmanager
def ringing(seconds: float) -> Iterator[None]:
    """Raise KeyboardInterrupt after a while, as Ctrl+C does, but never after the block.

    It waits while a context is entered or left: state of Python's contexts is restored in Python, and an
    interrupt at that very moment stops that too.
    """
    armed = [True]

    def ring(_: int, frame: FrameType | None) -> None:
        if not armed[0]:
            return
        stack = traceback.extract_stack(frame)
        if any(Path(f.filename).name == "contextlib.py" and f.name != "inner" for f in stack):
            signal.setitimer(signal.ITIMER_REAL, 0.001)
        else:
            raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        armed[0] = False
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_interrupts_at_any_moment(traced: Any) -> None:
    model, trace, before = traced
    expected = aw.trace(model, None, IDS).logits
    stopped = 0

    def an_interrupt(r: Any) -> None:
        nonlocal stopped
        name = r.choice([*CALLS])
        try:
            with ringing(0.001 + 0.15 * r.random() ** 2):
                CALLS[name](model, trace)
        except KeyboardInterrupt:
            stopped += 1
        assert fingerprint(model) == before, f"{name} left the model changed"

    fuzz(an_interrupt, 120)
    assert stopped
    assert torch.equal(aw.trace(model, None, IDS).logits, expected)
