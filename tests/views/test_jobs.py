"""The queue to a kernel's main loop: no job beside a running cell, the latest first, all of them told."""

from __future__ import annotations

import asyncio
import json
import queue
import signal
import threading
from types import SimpleNamespace

import pytest

import attnwidgets as aw
from attnwidgets.explanations.registry import registry
from attnwidgets.views.wire import jobs

from .slow import Front, Slow


class Kernel:
    """A kernel of ipykernel 7: a main loop, and the lock that its cells hold while they run."""

    def __init__(self):
        self.io_loop = self
        self.loop = asyncio.new_event_loop()
        self._main_asyncio_lock = asyncio.Lock()

    def add_callback(self, turn):
        self.loop.call_soon_threadsafe(lambda: self.loop.create_task(turn()))

    def run_cell(self, during=lambda: None):
        """Run a cell that awaits something while `during` happens, and then the waiting jobs."""

        async def cell():
            async with self._main_asyncio_lock:
                await asyncio.sleep(0.01)
                during()
                await asyncio.sleep(0.02)

        async def until_idle():
            await cell()
            while others := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(others)

        self.loop.run_until_complete(until_idle())


@pytest.fixture
def kernel(monkeypatch):
    # After browser tests the loop that drives the browser stands still in this thread; it is set aside.
    browsers = asyncio._get_running_loop()
    asyncio._set_running_loop(None)
    made = Kernel()
    monkeypatch.setattr(jobs, "running_shell", lambda: SimpleNamespace(kernel=made))
    yield made
    made.loop.close()
    asyncio._set_running_loop(browsers)


@pytest.fixture
def slow():
    made = Slow()
    registry.put(made.method())
    yield made
    registry.remove("slow")


@pytest.fixture
def page(given, slow, monkeypatch):
    return Front(aw.Explorer(given()).store, monkeypatch)


def in_a_thread(call):
    thread = threading.Thread(target=call)
    thread.start()
    thread.join()


def test_a_request_beside_a_running_cell_waits_for_it(kernel, page, slow):
    seen = []

    def during():
        in_a_thread(lambda: page.choose("slow"))
        seen.append((list(slow.layers), page.of(page.number)))

    kernel.run_cell(during)
    assert seen == [([], ["waits"])]
    assert slow.layers == [0]
    assert slow.threads == [threading.main_thread()]
    assert page.of(page.number)[-1] == "made"


def test_other_requests_are_answered_meanwhile(kernel, page):
    answers = []

    def during():
        page.choose("slow")
        number = page.tile(2, source="attention/token/self", head=1)
        answers.append(page.of(number))

    kernel.run_cell(during)
    assert answers == [["tile"]]


def test_of_layers_that_wait_only_the_last_is_computed(kernel, page, slow):
    kernel.run_cell(lambda: page.choose("slow"))
    numbers = []
    kernel.run_cell(lambda: numbers.extend(page.tile(layer) for layer in (1, 2, 0, 2)))
    assert slow.layers == [0, 2]
    assert [page.of(number)[-1] for number in numbers] == ["cancelled", "tile", "tile", "tile"]
    assert page.last(numbers[0])["superseded"] is True


def test_what_waits_can_be_stopped(kernel, page, slow):
    def during():
        number = page.choose("slow")
        page.ask(kind="cancel", job=number)
        assert page.last(number) == {"kind": "cancelled", "id": number, "superseded": False}

    kernel.run_cell(during)
    assert slow.layers == []
    kernel.run_cell(lambda: page.choose("slow"))
    assert slow.layers == [0]


def test_what_runs_can_be_stopped_from_another_thread(kernel, page, slow):
    def stop(_layer, step):
        if step == 1:
            in_a_thread(lambda: page.ask(kind="cancel", job=numbers[0]))

    slow.at_step = stop
    numbers = []
    kernel.run_cell(lambda: numbers.append(page.choose("slow")))
    assert page.of(numbers[0])[-1] == "cancelled"
    assert slow.layers == []


class OneThread:
    """A kernel of ipykernel 6: messages to a busy thread stay in the socket until it looks."""

    def __init__(self):
        self.kernel = self.shell_stream = self.msg_queue = self
        self._queue, self.socket = [], []

    def arrives(self, content):
        sent = json.dumps({"comm_id": "c", "data": {"method": "custom", "content": content}}).encode()
        self.socket.append([b"id", b"<IDS|MSG>", b"signature", b"{}", b"{}", b"{}", sent])

    def flush(self, _):
        self._queue += [(i, None, (frames,)) for i, frames in enumerate(self.socket)]
        self.socket.clear()


def test_a_kernel_with_another_kind_of_queue_has_no_messages_waiting(monkeypatch):
    kernel = SimpleNamespace(shell_stream=object(), msg_queue=queue.Queue())  # Solara's
    monkeypatch.setattr(jobs, "running_shell", lambda: SimpleNamespace(kernel=kernel))
    assert list(jobs.unheard()) == []


def test_a_kernel_with_one_thread_hears_that_its_job_is_cancelled(page, slow, monkeypatch):
    kernel, steps = OneThread(), []
    monkeypatch.setattr(jobs, "running_shell", lambda: kernel)
    monkeypatch.setattr("attnwidgets.views.wire.jobs._PROGRESS_EVERY", 0)

    def at_step(_layer, step):
        kernel.socket.append([b"something else"])
        kernel.arrives({"kind": "cancel", "job": page.number + (step == 0)})  # at first that of another job
        steps.append(step)

    slow.at_step = at_step
    number = page.choose("slow")
    assert page.of(number)[-1] == "cancelled"
    assert slow.layers == []
    assert steps == [0, 1]
    assert len(kernel._queue) == 4, "messages that it saw are handled later"


def test_an_interrupt_of_the_kernel_stops_a_job_and_nothing_else(kernel, page, slow):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as ipykernel does between cells
    try:

        def interrupt(_layer, step):
            if step == 1:
                signal.raise_signal(signal.SIGINT)

        slow.at_step = interrupt
        numbers = []
        kernel.run_cell(lambda: numbers.append(page.choose("slow")))
        assert page.of(numbers[0])[-1] == "cancelled"
        assert signal.getsignal(signal.SIGINT) == signal.SIG_IGN
        slow.at_step = lambda layer, step: None
        kernel.run_cell(lambda: numbers.append(page.choose("slow")))
        assert page.of(numbers[1])[-1] == "made"
    finally:
        signal.signal(signal.SIGINT, before)


def test_closing_the_view_drops_what_waits(kernel, given, slow, monkeypatch):
    explorer = aw.Explorer(given())
    page = Front(explorer.store, monkeypatch)

    def during():
        page.choose("slow")
        explorer.close()

    kernel.run_cell(during)
    assert slow.layers == []


def test_a_kernel_without_a_loop_answers_at_once(monkeypatch):
    """Solara's: its class is of ipykernel, and it has only the lock."""
    made = SimpleNamespace(_main_asyncio_lock=asyncio.Lock())
    monkeypatch.setattr(jobs, "running_shell", lambda: SimpleNamespace(kernel=made))
    called = []
    jobs.on_main_loop(lambda: called.append(True))
    assert called
