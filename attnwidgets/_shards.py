"""Running shards of long work in this process, a pool of processes or any executor; results in order.

Shards are submitted in order, a few ahead of the first unfinished shard (`_Flight`), and results are yielded
in the same order. A worker that dies breaks its pool and fails all shards in it, so that each of them is
submitted again on its turn, which identifies the shard that ends its worker. Results that were computed
earlier (`Finished`) take their turn without running.
"""

from __future__ import annotations

import operator
import os
import uuid
from collections import deque
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from dataclasses import dataclass, field
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attnwidgets._progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

S = TypeVar("S")
R = TypeVar("R")

AHEAD = 2
"""Largest number of shards in flight per worker, finished ones that wait for their turn included."""
TRIES = 3
"""How often a shard runs if its worker dies; in `_Pool` the last time is alone."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Environment of the processes of `_Pool`: each has a single thread, as they share processors."""


@dataclass(frozen=True)
class Finished(Generic[R]):
    """A shard with a stored result: it takes its turn, but does not run."""

    result: R


def run_shards(
    function: Callable[[S], R],
    shards: Iterable[S | Finished[R]],
    jobs: int | Executor,
    *,
    desc: str,
    describe: Callable[[S], str],
    total: int | None = None,
    hint: str = "",
) -> Generator[tuple[int, R], None, None]:
    """Yield (number of the shard, the function's result for it), in the order of the shards.

    Shards start as workers become free, so `shards` may be a generator; at most `AHEAD` per worker are
    in flight. A shard whose worker dies runs again, up to `TRIES` times, in a new pool if `jobs` is a number,
    or in the executor if it survives. An interrupt, an exception, or closing the iterator cancels the shards
    that have not begun; a pool of processes ends at once.

    Args:
        function: Called with each shard; to leave this process, it and its results must pickle.
        shards: The shards, or `Finished` shards. Results are independent of `jobs` if the shards are.
        jobs: Number of processes that share the shards, 1 being this one; or an executor, which stays open.
        desc: Description of the work, for the progress bar and errors ("comparing").
        describe: Returns the name of a shard for errors ("texts 64 to 79").
        total: Number of shards; None if `shards` is a generator of unknown length.
        hint: A sentence for errors about the results of finished shards.

    Raises:
        ValueError: If `jobs` is below 1.
        TypeError: If `jobs` is neither a number nor an executor.
        RuntimeError: If the workers of a shard die again and again, or the executor does not survive.
    """
    count = workers_of(jobs)
    if isinstance(jobs, Executor):
        steps: Generator[tuple[int, R], None, None] = _Flight(function, jobs, desc, describe, hint).run(
            shards
        )
    elif min(count, count if total is None else total) <= 1:
        steps = (
            (number, shard.result if isinstance(shard, Finished) else function(shard))
            for number, shard in enumerate(shards)
        )
    else:
        pool = _Pool(count if total is None else min(count, total))
        steps = _Flight(function, pool, desc, describe, hint).run(shards)
    return _shown(steps, desc, total)


def workers_of(jobs: int | Executor) -> int:
    """Return how many shards run at once: the given number, or the workers of an executor.

    Executors of the standard library and loky have it as `_max_workers`, mpi4py's as `num_workers`, Dask's as
    the threads of its client's workers (at least 1: a cluster may still be growing). For others it is the
    number of this machine's processors.

    Raises:
        ValueError: If `jobs` is below 1.
        TypeError: If `jobs` is neither a number nor an executor.
    """
    if not isinstance(jobs, Executor):
        try:
            count = operator.index(jobs)
        except TypeError:
            hint = " Pass its get_executor()." if hasattr(jobs, "get_executor") else ""
            raise TypeError(
                "jobs takes a number of processes or a concurrent.futures.Executor, not "
                f"{type(jobs).__name__}.{hint}"
            ) from None
        if count < 1:
            raise ValueError(f"jobs must be at least 1, not {count}.")
        return count
    for name in ("_max_workers", "num_workers"):
        workers = getattr(jobs, name, None)
        if isinstance(workers, int) and workers > 0:
            return workers
    client: Any = getattr(jobs, "_client", None)
    if hasattr(client, "nthreads"):
        threads: int = sum(client.nthreads().values())
        return max(1, threads)
    return os.cpu_count() or 1


def _shown(
    steps: Generator[tuple[int, R], None, None], desc: str, total: int | None
) -> Generator[tuple[int, R], None, None]:
    """Yield steps under a progress bar, and close them on exit."""
    with closing(steps):
        yield from progress(steps, desc, total=total)


class _Pool(Executor):
    """A pool of processes, which is replaced when any of them has died."""

    def __init__(self, workers: int) -> None:
        self._max_workers = workers
        self._pool: Any = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit to the pool, or to a new pool if it is broken."""
        try:
            if self._pool is not None:
                return self._pool.submit(function, *args, **kwargs)
        except BrokenExecutor:
            self.shutdown()
        from loky import ProcessPoolExecutor

        self._pool = ProcessPoolExecutor(self._max_workers, env=_ENVIRONMENT)
        return self._pool.submit(function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, also while they are busy."""
        del cancel_futures
        if self._pool is not None:
            self._pool.shutdown(wait=wait, kill_workers=True)
            self._pool = None


@dataclass
class _Shard(Generic[S]):
    """A shard in flight."""

    number: int
    content: S
    future: Future[Any]
    tries: int = 1


@dataclass
class _Flight(Generic[S, R]):
    """The shards that an executor has at a time."""

    _function: Callable[[S], R]
    _executor: Executor
    _desc: str
    _describe: Callable[[S], str]
    _hint: str
    _run: str = field(default_factory=lambda: uuid.uuid4().hex)
    _in_flight: deque[_Shard[Any]] = field(default_factory=deque)

    def run(self, shards: Iterable[S | Finished[R]]) -> Generator[tuple[int, R], None, None]:
        """Yield (number, result) in the order of the shards."""
        waiting = enumerate(shards)
        try:
            self._fill(waiting)
            while self._in_flight:
                result = self._result(self._in_flight[0])
                number = self._in_flight.popleft().number
                self._fill(waiting)  # before the caller works on the result: no worker should wait for that
                yield number, result
        finally:
            for shard in self._in_flight:
                shard.future.cancel()
            if isinstance(self._executor, _Pool):
                self._executor.shutdown()

    def _fill(self, waiting: Iterator[tuple[int, S | Finished[R]]]) -> None:
        """Submit shards until enough are in flight or none is left."""
        free = max(0, AHEAD * workers_of(self._executor) - len(self._in_flight))
        for number, content in islice(waiting, free):
            self._in_flight.append(_Shard(number, content, self._begin(number, content)))

    def _begin(self, number: int, content: S | Finished[R]) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(content, Finished):
            future.set_result(content.result)
            return future
        try:
            return self._submit(number, content, 1)
        except BrokenExecutor as error:  # it is handled when the shard's turn comes
            future.set_exception(error)
            return future

    def _submit(self, number: int, content: S, tries: int) -> Future[Any]:
        # Dask merges two calls with equal arguments, even if the first has failed.
        return self._executor.submit(_call, self._function, content, (self._run, number, tries))

    def _result(self, first: _Shard[S]) -> R:
        """Return the result of the shard whose turn it is.

        If a pool breaks, every shard in it fails, whichever caused it. They run again singly, as their
        turn comes, together only with shards submitted since the last turn. So the shard that fails alone is
        the shard that the error names.
        """
        while (error := _failure(first.future)) is not None:
            if not _died(error):
                raise error
            self._retry(first, error)
        return first.future.result()

    def _retry(self, shard: _Shard[S], error: BaseException) -> None:
        """Submit a shard again whose worker died.

        Raises:
            RuntimeError: After too many tries, or if the executor accepts no more.
        """
        name = f"{self._desc}: shard {shard.number} ({self._describe(shard.content)})"
        hint = f" {self._hint}" if self._hint else ""
        if shard.tries >= TRIES:
            raise RuntimeError(
                f"{name} ended its worker {shard.tries} times ({type(error).__name__}); it may need more "
                f"memory than a worker has.{hint}"
            ) from error
        shard.tries += 1
        try:
            shard.future = self._submit(shard.number, shard.content, shard.tries)
        except BrokenExecutor as broken:
            others = f", and the {len(self._in_flight) - 1} after it," if len(self._in_flight) > 1 else ""
            raise RuntimeError(
                f"{name}{others} had begun when a worker died, and {type(self._executor).__name__} does not "
                f"survive that: make a new one.{hint}"
            ) from broken


def _call(function: Callable[[S], R], content: S, _: tuple[str, int, int]) -> R:
    return function(content)


def _failure(future: Future[Any]) -> BaseException | None:
    """Wait for a future and return why it failed, or None."""
    try:
        return future.exception()
    except CancelledError as error:  # by the executor: we cancel no future that we wait for
        return error


def _died(error: BaseException) -> bool:
    """Return whether the worker failed, not the function that ran in it."""
    kind = type(error)
    if kind.__module__.startswith("loky."):  # its other errors are about pickling
        return kind.__name__ == "TerminatedWorkerError"
    # Dask's error is not a BrokenExecutor, since its cluster survives.
    return isinstance(error, (BrokenExecutor, CancelledError)) or kind.__name__ == "KilledWorker"
