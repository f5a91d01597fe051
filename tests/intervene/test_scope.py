"""Where interventions are in force: until the block ends, in this thread and in the tasks that it starts."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch

import attnwidgets as aw

from .made import logits, text


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_model_comes_back(error: Any) -> None:
    trace = text("Llama")
    model, plain = trace.model, logits(trace)

    def state() -> tuple[Any, ...]:
        return model.config._attn_implementation, len(model._forward_hooks), len(model._forward_pre_hooks)

    before = state()

    def interrupted() -> None:
        with aw.ablate_heads(model, (0, 1)), aw.drop_tokens(model, 2):
            assert not torch.equal(logits(trace), plain)
            raise error

    with pytest.raises(error):
        interrupted()
    assert state() == before
    assert aw.interventions() == ()
    assert torch.equal(logits(trace), plain)


def test_they_may_be_left_in_any_order() -> None:
    trace = text("GPT-2")
    plain = logits(trace)
    first, second = aw.ablate_heads(trace, (0, 1)), aw.ablate_heads(trace, (1, 2))
    with second:
        alone = logits(trace)
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert torch.equal(logits(trace), alone)
    assert aw.interventions(trace.model) == (second,)
    second.__exit__(None, None, None)
    assert torch.equal(logits(trace), plain)


def test_a_thread_sees_the_model_as_it_was_unless_it_runs_in_our_context(caplog: Any) -> None:
    trace = text("GPT-2")
    plain = logits(trace)
    result: list[torch.Tensor] = []

    def run_in_a_thread(target: Any, *args: Any) -> None:
        thread = threading.Thread(target=target, args=args)
        thread.start()
        thread.join()

    with aw.ablate_heads(trace, {0: "all"}):
        changed = logits(trace)
        run_in_a_thread(lambda: result.append(logits(trace)))
        run_in_a_thread(contextvars.copy_context().run, lambda: result.append(logits(trace)))
    assert torch.equal(result[0], plain)
    assert torch.equal(result[1], changed)
    assert not torch.equal(plain, changed)
    assert "copy_context" in caplog.text, "the thread that was left out is told how to be let in"


def test_two_threads_change_one_model_each_for_itself() -> None:
    trace = text("Llama")
    plain = logits(trace)
    heads = [(0, 0), (1, 1)]
    expected = []
    for head in heads:
        with aw.ablate_heads(trace, head):
            expected.append(logits(trace))
    wrong: list[int] = []

    def work(number: int) -> None:
        for _ in range(30):
            with aw.ablate_heads(trace, heads[number]):
                if not torch.equal(logits(trace), expected[number]):
                    wrong.append(number)
                if len(aw.interventions()) != 1:
                    wrong.append(number)
            if not torch.equal(logits(trace), plain):
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    assert aw.interventions() == ()


def test_a_task_inherits_what_is_in_force_and_changes_nothing_outside_of_it() -> None:
    trace = text("Llama")
    with aw.ablate_heads(trace, (0, 0)), aw.ablate_heads(trace, (1, 1)):
        both = logits(trace)

    async def main() -> tuple[Any, ...]:
        with aw.ablate_heads(trace, (0, 0)):
            alone = logits(trace)
            inside, done = asyncio.Event(), asyncio.Event()

            async def other() -> Any:
                with aw.ablate_heads(trace, (1, 1)):
                    ablated = logits(trace)
                    inside.set()
                    await done.wait()
                return ablated

            task = asyncio.create_task(other())
            await inside.wait()
            meanwhile = logits(trace)
            done.set()
            return alone, meanwhile, await task

    # In another thread: the browser's driver may run a loop in this one.
    with ThreadPoolExecutor(1) as pool:
        alone, meanwhile, outcome = pool.submit(asyncio.run, main()).result()
    assert torch.equal(meanwhile, alone)
    assert torch.equal(outcome, both)
