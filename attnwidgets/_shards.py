"""Shards of long work: run in this process, in a pool of processes, or by any executor; results in order."""

from __future__ import annotations

import operator
import os
import uuid
from collections import deque
from concurrent.futures import BrokenExecutor, CancelledError, Executor, Future
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from attnwidgets._progress import progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

S = TypeVar("S")
R = TypeVar("R")

AHEAD = 2
"""Shards in flight per worker, at most; finished ones that wait for their turn count too."""
TRIES = 3
"""How often a shard runs whose worker dies; in our own pool the last time is alone."""
_ENVIRONMENT = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
"""Of our own processes: each computes in one thread, since its siblings have the other processors."""


@dataclass(frozen=True)
class Finished(Generic[R]):
    """A shard whose result is known (kept on disk): it takes its turn, but nothing runs."""

    result: R


def run_shards(
    function: Callable[[S], R],
    shards: Iterable[S | Finished[R]],
    jobs: int | Executor,
    *,
    desc: str,
    describe: Callable[[S], str],
    total: int | None = None,
    kept: str = "",
) -> Generator[tuple[int, R], None, None]:
    """Yield (number of the shard, what the function returns for it), in the order of the shards.

    Shards are taken as workers come free, so that `shards` may be a stream; at most `AHEAD` per worker are
    held. One whose worker dies runs again, up to `TRIES` times, in a new pool where `jobs` is a number, else
    where the executor survives. An interrupt, an exception, or a caller who closes the iterator cancels what
    has not begun; our own pool ends at once.

    Args:
        function: What is done with a shard; it must pickle if it leaves this process, as must its results.
        shards: The shards, or `Finished` ones. What belongs to one must not depend on `jobs`, if results
            should not either.
        jobs: How many processes share the shards, 1 being this one; or an executor, which is left open.
        desc: What is being done, for the progress bar and errors ("comparing").
        describe: Returns what a shard is called in errors ("texts 64 to 79").
        total: How many shards there are, if known.
        kept: A sentence for errors about what became of the shards that were finished.

    Raises:
        ValueError: If `jobs` is below 1.
        TypeError: If `jobs` is neither a number nor an executor.
        RuntimeError: If the workers of a shard die again and again, or the executor does not survive.
    """
    count = workers_of(jobs)
    if isinstance(jobs, Executor):
        steps: Generator[tuple[int, R], None, None] = _Flight(function, jobs, desc, describe, kept).run(
            shards
        )
    elif min(count, count if total is None else total) <= 1:
        steps = (
            (place, shard.result if isinstance(shard, Finished) else function(shard))
            for place, shard in enumerate(shards)
        )
    else:
        pool = _Pool(count if total is None else min(count, total))
        steps = _Flight(function, pool, desc, describe, kept).run(shards)
    return _shown(steps, desc, total)


def workers_of(jobs: int | Executor) -> int:
    """Return how many shards run at once: the number given, or what an executor says of itself.

    Executors of the standard library and loky say it in `_max_workers`, mpi4py's in `num_workers`, Dask's by
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
        said = getattr(jobs, name, None)
        if isinstance(said, int) and said > 0:
            return said
    client: Any = getattr(jobs, "_client", None)
    if hasattr(client, "nthreads"):
        threads: int = sum(client.nthreads().values())
        return max(1, threads)
    return os.cpu_count() or 1


def _shown(
    steps: Generator[tuple[int, R], None, None], desc: str, total: int | None
) -> Generator[tuple[int, R], None, None]:
    """Yield steps under a progress bar, and close them whatever happens."""
    with closing(steps):
        yield from progress(steps, desc, total=total)


class _Pool(Executor):
    """Our own processes, which are made anew when one has died."""

    def __init__(self, workers: int) -> None:
        self._max_workers = workers
        self._pool: Any = None

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit to the pool; to a new one where it is broken."""
        try:
            if self._pool is not None:
                return self._pool.submit(function, *args, **kwargs)
        except BrokenExecutor:
            self.shutdown()
        from loky import ProcessPoolExecutor

        self._pool = ProcessPoolExecutor(self._max_workers, env=_ENVIRONMENT)
        return self._pool.submit(function, *args, **kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = True) -> None:
        """End the processes, also those at work."""
        del cancel_futures
        if self._pool is not None:
            self._pool.shutdown(wait=wait, kill_workers=True)
            self._pool = None


@dataclass
class _Shard(Generic[S]):
    """A shard in flight."""

    place: int
    content: S
    future: Future[Any]
    tries: int = 1


class _Flight(Generic[S, R]):
    """The shards that an executor has at one time."""

    def __init__(
        self,
        function: Callable[[S], R],
        executor: Executor,
        desc: str,
        describe: Callable[[S], str],
        kept: str,
    ) -> None:
        self._function, self._executor = function, executor
        self._desc, self._describe, self._kept = desc, describe, kept
        self._run = uuid.uuid4().hex
        self._held: deque[_Shard[Any]] = deque()

    def run(self, shards: Iterable[S | Finished[R]]) -> Generator[tuple[int, R], None, None]:
        """Yield (number, result) in the order of the shards."""
        waiting = enumerate(shards)
        try:
            self._fill(waiting)
            while self._held:
                result = self._result(self._held[0])
                place = self._held.popleft().place
                self._fill(waiting)  # before the caller works on the result: no worker should wait for that
                yield place, result
        finally:
            for one in self._held:
                one.future.cancel()
            if isinstance(self._executor, _Pool):
                self._executor.shutdown()

    def _fill(self, waiting: Iterator[tuple[int, S | Finished[R]]]) -> None:
        """Submit shards until enough are held or none is left."""
        while len(self._held) < AHEAD * workers_of(self._executor):
            try:
                place, content = next(waiting)
            except StopIteration:
                return
            self._held.append(_Shard(place, content, self._begun(place, content)))

    def _begun(self, place: int, content: S | Finished[R]) -> Future[Any]:
        future: Future[Any] = Future()
        if isinstance(content, Finished):
            future.set_result(content.result)
            return future
        try:
            return self._submit(place, content, 1)
        except BrokenExecutor as error:  # it is met when the shard's turn comes
            future.set_exception(error)
            return future

    def _submit(self, place: int, content: S, tries: int) -> Future[Any]:
        # Dask takes two calls with equal arguments for one, also if the first has failed.
        return self._executor.submit(_call, self._function, content, (self._run, place, tries))

    def _result(self, first: _Shard[S]) -> R:
        """Return the result of the shard whose turn it is.

        Where a pool breaks, every shard in it fails, whoever is to blame. They run again one by one, as their
        turn comes; only what was submitted since the last turn runs beside. So the one that fails alone is
        the one that is named.
        """
        while (error := _end_of(first.future)) is not None:
            if not _died(error):
                raise error
            self._again(first, error)
        return first.future.result()

    def _again(self, shard: _Shard[S], error: BaseException) -> None:
        """Submit a shard again whose worker died.

        Raises:
            RuntimeError: Where that was tried often enough, or the executor takes no more.
        """
        name = f"{self._desc}: shard {shard.place} ({self._describe(shard.content)})"
        kept = f" {self._kept}" if self._kept else ""
        if shard.tries >= TRIES:
            raise RuntimeError(
                f"{name} ended its worker {shard.tries} times ({type(error).__name__}); it may need more "
                f"memory than a worker has.{kept}"
            ) from error
        shard.tries += 1
        try:
            shard.future = self._submit(shard.place, shard.content, shard.tries)
        except BrokenExecutor as broken:
            others = f", and the {len(self._held) - 1} after it," if len(self._held) > 1 else ""
            raise RuntimeError(
                f"{name}{others} had begun when a worker died, and {type(self._executor).__name__} does not "
                f"survive that: make a new one.{kept}"
            ) from broken


def _call(function: Callable[[S], R], content: S, _: tuple[str, int, int]) -> R:
    return function(content)


def _end_of(future: Future[Any]) -> BaseException | None:
    """Wait for a future and return why it failed; None where it did not."""
    try:
        return future.exception()
    except CancelledError as error:  # by the executor: we cancel nothing whose result we wait for
        return error


def _died(error: BaseException) -> bool:
    """Return whether it was the worker that failed, not what ran in it."""
    kind = type(error)
    if kind.__module__.startswith("loky."):  # its other errors say that something cannot be pickled
        return kind.__name__ == "TerminatedWorkerError"
    # Dask's error is no BrokenExecutor, since its cluster lives on.
    return isinstance(error, (BrokenExecutor, CancelledError)) or kind.__name__ == "KilledWorker"
