"""Every method estimates its memory, refuses a trace that does not fit, and runs it when forced."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import attnwidgets as aw
from attnwidgets.evaluate.removals.removal import ElementRemoval
from attnwidgets.explanations.targets.named import resolve_target
from attnwidgets.tracing import free_memory, pass_memory
from attnwidgets.tracing.free_memory import spoken_bytes
from attnwidgets.tracing.recording.run import trace
from tests.models.build import Kind, build
from tests.tracing import tiny

if TYPE_CHECKING:
    from attnwidgets.tracing.trace import Trace

IDS = [5, 17, 31, 9, 44, 8, 23, 60, 11]
ESTIMATED = [name for name in aw.methods().names if aw.methods()[name].takes is not None]


@pytest.fixture(scope="module")
def traced() -> Trace:
    made: Trace = trace(tiny.build(tiny.TEXT["Llama"]), None, IDS)
    return made


@pytest.fixture(scope="module")
def hybrid() -> Trace:
    made: Trace = trace(build(Kind("qwen3_next", "causal")), None, IDS)
    return made


def free(monkeypatch: pytest.MonkeyPatch, size: float) -> None:
    for module in (free_memory, pass_memory):
        monkeypatch.setattr(module, "free_bytes", lambda *_: int(size))


@pytest.mark.parametrize("name", ESTIMATED)
def test_what_has_no_room_is_refused_unless_it_is_forced(
    name: str, traced: Trace, hybrid: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = aw.methods()[name]
    traced = hybrid if method.refusal(traced) else traced
    ran: list[int] = []
    handle = traced.model.register_forward_pre_hook(lambda *_: ran.append(1))
    need = method.memory(traced)
    free(monkeypatch, need - 1)
    words = (
        rf"{name} over 9 tokens takes about [\d.]+ [kM]B, and [\d.]+ [kM]B are free\. "
        r"Take a shorter text, or a device with more memory, or pass force=True to run it anyway\."
    )
    with pytest.raises(ValueError, match=words):
        method.function(traced)
    assert not ran
    forced = method.function(traced, force=True)
    free(monkeypatch, 10**12)
    plain = method.function(traced)
    handle.remove()
    np.testing.assert_array_equal(forced.values, plain.values)


@pytest.mark.parametrize("name", ["faithfulness", "single_removals", "infidelity"])
def test_metrics_are_refused_and_forced_as_well(
    name: str, traced: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    metric = getattr(aw.evaluate, name)
    assert "force" in inspect.signature(metric).parameters
    options: dict[str, Any] = {"operator": "attention_mask"}
    plain = metric(traced, ["input_x_gradient"], **options)
    free(monkeypatch, 1)
    with pytest.raises(ValueError, match=r"take[sn]? about|shorter text"):
        metric(traced, ["input_x_gradient"], **options)
    forced = metric(traced, ["input_x_gradient"], **options, force=True)
    np.testing.assert_allclose(forced.values, plain.values, rtol=1e-4, atol=1e-6)


def test_estimates_grow_with_the_square_of_the_tokens(traced: Trace) -> None:
    twice = trace(traced.model, None, IDS * 2)
    for name in ESTIMATED:
        assert aw.methods()[name].memory(twice) == pytest.approx(4 * aw.methods()[name].memory(traced))
    assert aw.methods()["attention"].memory(traced) == 0
    # Of a map without heads, whose rollout is estimated as that of the trace.
    means = aw.attention(traced).mean()
    assert aw.methods()["rollout"].memory(means) == aw.methods()["rollout"].memory(traced)


def test_the_table_of_methods_says_what_they_take(traced: Trace) -> None:
    table = aw.methods(traced)
    need = aw.methods()["rollout"].memory(traced)
    assert f"takes about {spoken_bytes(need)}" in repr(table)
    assert "<td" in table._repr_html_()
    assert "takes about" not in repr(aw.methods())


@pytest.mark.parametrize("name", ["lrp", "saliency", "occlusion", "signed_attention"])
def test_methods_with_a_check_of_their_own_are_forced_as_well(
    name: str, traced: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    method = aw.methods()[name].function
    method(traced)  # an architecture's verdict for LRP is had once
    free(monkeypatch, 1)
    with pytest.raises(ValueError, match=rf"{name} (keeps the whole pass|runs) .* shorter text"):
        method(traced)
    assert np.isfinite(method(traced, force=True).values).all()


def test_force_holds_for_its_own_call_alone(traced: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    free(monkeypatch, 1)
    aw.rollout(traced, force=True)
    with pytest.raises(ValueError, match="rollout over 9 tokens"):
        aw.rollout(traced)
    with pytest.raises(TypeError, match="takes no keyword 'forse'"):
        aw.rollout(traced, forse=True)  # type: ignore[call-arg]


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("can't allocate memory: you tried ...")])
def test_what_the_allocator_refuses_is_said_in_words(
    error: Exception, traced: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(type(traced), "layers", fail)
    monkeypatch.setattr("attnwidgets.explanations.registry.registry.sizes_of", lambda *_: None)
    with pytest.raises(ValueError, match=r"attention takes more memory than is free\. Take a shorter text"):
        aw.attention(traced)


def test_removals_run_as_many_at_once_as_there_is_room_for(
    traced: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches: list[int] = []
    handle = traced.model.register_forward_hook(lambda *args: batches.append(len(args[-1].logits)))
    target, unit = resolve_target(traced, None, method="test"), traced.units["token"]
    gone = np.eye(len(IDS), dtype=bool)

    def answers() -> Any:
        with ElementRemoval(traced, unit, "self", target, "attention_mask").answering(watched=False) as ask:
            return ask(gone)

    whole = answers()
    assert max(batches) == len(IDS)
    batches.clear()
    free(monkeypatch, 2 * 3 * pass_memory.pass_bytes(traced.model, traced))
    np.testing.assert_allclose(answers().number, whole.number, rtol=0, atol=1e-6)
    assert max(batches) == 3
    free(monkeypatch, 1)
    with pytest.raises(ValueError, match="removal runs LlamaForCausalLM: over 9 tokens that takes about"):
        answers()
    handle.remove()
