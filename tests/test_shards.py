"""Shards: in order, a few at a time, by any executor, through dead workers and interrupts."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from itertools import count, islice
from multiprocessing import get_context
from typing import TYPE_CHECKING, Any

import cloudpickle
import pytest

from attnwidgets._progress import Cancelled, observing
from attnwidgets._shards import AHEAD, TRIES, Finished, run_shards, workers_of

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Workers cannot import this module: an installed package may be called "tests" as well.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


def run(function: Any, shards: Any, jobs: Any, **more: Any) -> Iterator[tuple[int, Any]]:
    return run_shards(
        function, shards, jobs, desc="squaring", describe=lambda shard: f"number {shard}", **more
    )


def square(number: int) -> int:
    return number * number


def last_first(number: int) -> tuple[int, int]:
    """Takes the longer, the earlier a number comes."""
    time.sleep(max(0, 4 - number) / 20)
    return number, os.getpid()


def dies_once(given: tuple[int, Path]) -> int:
    """Kills its process at 2, the first time."""
    number, folder = given
    if number == 2 and not (folder / "died").exists():
        (folder / "died").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    time.sleep(0.05)
    return number * number


def dies_always(given: tuple[int, Path]) -> int:
    number, folder = given
    if number == 2:
        with (folder / "deaths").open("a") as log:
            log.write("x")
        os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_one_job_runs_in_this_process_shard_by_shard() -> None:
    taken: list[int] = []
    result = run(lambda number: (taken.append(number), os.getpid())[1], count(), 1)
    assert list(islice(result, 3)) == [(index, os.getpid()) for index in range(3)]
    assert taken == [0, 1, 2]


@pytest.mark.slow
def test_processes_return_results_in_order_also_of_functions_made_here() -> None:
    result = list(run(lambda number: last_first(number), range(6), 2))  # noqa: PLW0108 - no name to pickle it by
    assert [(index, number) for index, (number, _) in result] == [(at, at) for at in range(6)]
    assert os.getpid() not in {process for _, (_, process) in result}
    assert len({process for _, (_, process) in result}) == 2


class Noted(Executor):
    """Runs submitted shards when the result is requested, and counts the open ones."""

    _max_workers = 3

    def __init__(self) -> None:
        self.open: list[Future[Any]] = []
        self.closed = False

    def submit(self, function: Any, /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_result(function(*args, **kwargs))
        self.open.append(future)
        return future

    def shutdown(self, *_: Any, **__: Any) -> None:
        self.closed = True


def test_a_stream_is_read_as_far_as_twice_the_workers_need_and_an_executor_stays_open() -> None:
    read: list[int] = []

    def stream() -> Iterator[int]:
        for number in count():
            read.append(number)
            yield number

    executor = Noted()
    result = run(square, stream(), executor)
    assert [next(result) for _ in range(5)] == [(at, at * at) for at in range(5)]
    assert len(read) == 5 + AHEAD * 3
    result.close()
    assert not executor.closed


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_is_finished_takes_its_turn_and_nothing_runs(jobs: int) -> None:
    shards = [2, Finished(-1), Finished(-2), 3]
    assert list(run(square, shards, jobs)) == [(0, 4), (1, -1), (2, -2), (3, 9)]


def test_an_executor_of_threads_shares_this_process() -> None:
    with ThreadPoolExecutor(2) as threads:
        assert list(run(square, range(5), threads)) == [(at, at * at) for at in range(5)]
        assert threads.submit(square, 3).result() == 9


@pytest.mark.slow
def test_a_shard_whose_worker_died_runs_again(tmp_path: Path) -> None:
    result = list(run(dies_once, [(at, tmp_path) for at in range(8)], 2))
    assert (tmp_path / "died").exists()
    assert result == [(at, at * at) for at in range(8)]


@pytest.mark.slow
def test_a_shard_that_ends_every_worker_is_named_after_all_before_it(tmp_path: Path) -> None:
    result = run(dies_always, [(at, tmp_path) for at in range(8)], 2, hint="The others are kept.")
    assert [next(result), next(result)] == [(0, 0), (1, 1)]
    with pytest.raises(
        RuntimeError, match=r"shard 2 \(number \(2, .*ended its worker 3 times.*others are kept"
    ):
        next(result)
    assert (tmp_path / "deaths").read_text() == "x" * TRIES


@pytest.mark.slow
def test_an_executor_that_does_not_survive_is_told_with_the_shard() -> None:
    shards = [signal.SIGCHLD, signal.SIGCHLD, signal.SIGKILL, signal.SIGCHLD]
    with (
        ProcessPoolExecutor(1, get_context("spawn")) as pool,
        pytest.raises(
            RuntimeError,
            match=r"shard 2 \(number 9\), and the 1 after it, .*ProcessPoolExecutor does not survive .*kept",
        ),
    ):
        list(run(signal.raise_signal, shards, pool, hint="The others are kept."))


@pytest.mark.slow
def test_dask_is_an_executor_like_any_other() -> None:
    distributed = pytest.importorskip("distributed")
    options = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": None}
    with distributed.LocalCluster(**options) as cluster, distributed.Client(cluster) as client:
        executor = client.get_executor()
        assert workers_of(executor) == 2
        assert list(run(square, [*range(9), 3, 3], executor)) == list(
            enumerate([*(at * at for at in range(9)), 9, 9])
        )
        with pytest.raises(LookupError, match="no 2"):
            list(run(fails, range(5), executor))
        assert executor.submit(square, 3).result() == 9, "it is left open"
        with pytest.raises(TypeError, match=r"Client\. Pass its get_executor"):
            run(square, range(3), client)


@pytest.mark.slow
def test_dask_survives_a_dead_worker_and_names_what_ends_all(tmp_path: Path) -> None:
    dask = pytest.importorskip("dask")
    distributed = pytest.importorskip("distributed")
    shards = [(at, tmp_path) for at in range(8)]
    options = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": None}
    with (
        dask.config.set({"distributed.scheduler.allowed-failures": 0}),  # else it retries by itself
        distributed.LocalCluster(**options) as cluster,
        distributed.Client(cluster) as client,
    ):
        executor = client.get_executor()
        result = list(run(lambda shard: dies_once(shard), shards, executor))  # noqa: PLW0108 - travels by value
        assert result == [(at, at * at) for at in range(8)]
        with pytest.raises(RuntimeError, match=r"shard 2 \(number \(2, .*ended its worker 3 times.*KilledW"):
            list(run(lambda shard: dies_always(shard), shards, executor))  # noqa: PLW0108
        client.wait_for_workers(2, timeout=60)  # a cluster that closes while it restarts a worker raises
    assert (tmp_path / "died").exists()


@pytest.mark.slow
def test_what_cannot_be_sent_to_a_process_is_told_at_once() -> None:
    lock = threading.Lock()
    with pytest.raises(Exception, match=r"pickle"):
        list(run(lambda _: lock, range(5), 2))


def fails(number: int) -> int:
    if number == 2:
        raise LookupError("no 2")
    return number


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_what_fails_by_itself_is_raised_as_it_is(jobs: int) -> None:
    with pytest.raises(LookupError, match="no 2"):
        list(run(fails, range(5), jobs))


def sleeps(_: int) -> None:
    time.sleep(600)


@pytest.mark.slow
def test_an_interrupt_ends_the_processes_at_once() -> None:
    begun = time.monotonic()
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
    threading.Timer(1, lambda: signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            list(run(sleeps, range(8), 2))
    finally:
        signal.signal(signal.SIGINT, before)
    assert time.monotonic() - begun < 500  # a worker sleeps for 600 s


def test_an_observer_hears_of_shards_and_may_stop_them() -> None:
    heard: list[tuple[int, int | None, str]] = []

    def observer(*step: Any) -> None:
        heard.append(step)
        if step[0] == 2:
            raise Cancelled

    executor = Noted()
    with pytest.raises(Cancelled), observing(observer):
        list(run(square, count(), executor, total=9))
    assert heard == [(0, 9, "squaring"), (1, 9, "squaring"), (2, 9, "squaring")]
    assert len(executor.open) == 2 + AHEAD * 3


def test_jobs_of_another_kind_are_named() -> None:
    for jobs, error, message in (
        (0, ValueError, "at least 1"),
        ("two", TypeError, "jobs takes a number of processes or a concurrent.futures.Executor, not str"),
    ):
        with pytest.raises(error, match=message):
            run(square, range(3), jobs)


def test_executors_say_how_many_workers_they_have() -> None:
    class Unknown(Noted):
        _max_workers = None  # type: ignore[assignment]

    class Mpi(Unknown):
        num_workers = 5

    assert workers_of(4) == 4
    assert workers_of(Noted()) == 3
    assert workers_of(Mpi()) == 5
    assert workers_of(Unknown()) == os.cpu_count()
