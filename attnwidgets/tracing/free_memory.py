"""Room: how much memory is left, and refusing in words what needs more."""

from __future__ import annotations

import functools
import inspect
import re
import sys
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import torch

P = ParamSpec("P")
R = TypeVar("R")

_UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}


def free_bytes(device: torch.device | None = None) -> int | None:
    """Return how much memory a device (by default the processor) has left; None where it does not say."""
    kind = "cpu" if device is None else device.type
    if kind == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    table = Path("/proc/meminfo")
    if kind != "cpu" or not table.exists():
        return None
    lines = dict(line.split(":", 1) for line in table.read_text().splitlines() if ":" in line)
    if "MemAvailable" not in lines:
        return None
    return min(int(lines["MemAvailable"].split()[0]) * 1024, *_limits())


def _limits() -> Iterator[int]:
    """Yield what limits of this process leave it: of its address space, and of its containers and jobs."""
    import resource  # of Unix alone

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    yield most - pages * resource.getpagesize() if most != resource.RLIM_INFINITY else sys.maxsize
    named = Path("/proc/self/cgroup")
    own = re.search(r"^0::/(.*)$", named.read_text(), re.MULTILINE) if named.exists() else None
    folder = Path("/sys/fs/cgroup", own.group(1) if own else "")
    for group in (folder, *folder.parents):
        limit, used, table = (group / f"memory.{name}" for name in ("max", "current", "stat"))
        if limit.exists() and used.exists() and limit.read_text().strip().isdecimal():
            cached = re.search(r"^inactive_file (\d+)", table.read_text(), re.MULTILINE)
            yield int(limit.read_text()) - int(used.read_text()) + (int(cached.group(1)) if cached else 0)


_forced: ContextVar[bool] = ContextVar("attnwidgets_forced", default=False)


@contextmanager
def forced(force: bool = True) -> Iterator[None]:
    """Refuse nothing for its memory meanwhile, where `force` is set; else what is in force stays."""
    token = _forced.set(force or _forced.get())
    try:
        yield
    finally:
        _forced.reset(token)


def forceable(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function take `force=True`, with which nothing that it runs is refused for its memory."""

    @functools.wraps(function)
    def run(*args: Any, force: bool = False, **kwargs: Any) -> R:
        with forced(force):
            return function(*args, **kwargs)

    own = inspect.signature(function)
    option = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool")
    vars(run)["__signature__"] = own.replace(parameters=[*own.parameters.values(), option])
    return cast("Callable[P, R]", run)


def is_forced() -> bool:
    """Return whether what needs more memory than there is runs all the same."""
    return _forced.get()


def spoken_bytes(count: float) -> str:
    """Return "1.2 GB", "34.0 MB" or the like."""
    unit, size = next(((unit, size) for unit, size in _UNITS.items() if count >= size / 10), ("kB", 1e3))
    return f"{count / size:,.1f} {unit}"


def require_room(purpose: str, need: float, device: torch.device | None, remedy: str) -> None:
    """Raise ValueError where something needs more memory than a device has left, unless it is forced.

    Args:
        purpose: What takes the memory, as the subject of a sentence.
        need: Bytes.
        device: Where; None is the processor.
        remedy: What to do, as a sentence without its end; `force=True` is named beside it.
    """
    free = free_bytes(device)
    if free is not None and need > free and not _forced.get():
        raise ValueError(
            f"{purpose} takes about {spoken_bytes(need)}, and {spoken_bytes(free)} are free. "
            f"{remedy}, or pass force=True to run it all the same."
        )


@contextmanager
def room_for(purpose: str, need: float, device: torch.device | None, remedy: str) -> Iterator[None]:
    """Do what `require_room` does, and say the same in place of the allocator's own words when it fails."""
    require_room(purpose, need, device, remedy)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ValueError(f"{purpose} takes more memory than there is. {remedy}.") from error


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there was not enough memory: torch's, on any device, or numpy's."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
    )
