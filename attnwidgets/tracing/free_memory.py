"""Free memory, byte budgets, and errors for work that needs more memory than is free."""

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
    from collections.abc import Callable, Iterator, Mapping

    import torch

P = ParamSpec("P")
R = TypeVar("R")

_UNITS = {"GB": 1e9, "MB": 1e6, "kB": 1e3}
_PREFIXES = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_PREFIXES |= {"KI": 2**10, "MI": 2**20, "GI": 2**30}


def byte_budget(memory: str | int) -> int:
    """Return a byte budget given as a number or as "500MB", "1GB", "2GiB"; infinity means no limit.

    Raises:
        ValueError: If it is not a positive size.
    """
    if isinstance(memory, (int, float)) and not isinstance(memory, bool) and memory > 0:
        return int(min(memory, sys.maxsize))
    size = re.fullmatch(r"\s*(\d+\.?\d*|\.\d+)\s*([KMGT]?I?)B?\s*", str(memory).upper())
    if size and size[2] in _PREFIXES and float(size[1]) > 0:
        return int(float(size[1]) * _PREFIXES[size[2]])
    raise ValueError(
        f"memory must be a number of bytes, a size like '500MB' or '1GB', or float('inf'), not {memory!r}"
    )


def free_bytes(device: torch.device | None = None) -> int | None:
    """Return the free memory of a device (by default the CPU) in bytes; None if it is unknown."""
    kind = "cpu" if device is None else device.type
    if kind == "cuda":
        import torch

        free, _ = torch.cuda.mem_get_info(device)
        return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    table = _text_of("/proc/meminfo") if kind == "cpu" else ""
    available = re.search(r"^MemAvailable: +(\d+)", table, re.MULTILINE)
    return min(int(available.group(1)) * 1024, *_limits()) if available else None


def _limits() -> Iterator[int]:
    """Yield the bytes that limits leave this process: of its address space, its containers and its jobs."""
    import resource  # Unix only

    most = resource.getrlimit(resource.RLIMIT_AS)[0]
    if most == resource.RLIM_INFINITY:
        yield sys.maxsize
    else:
        yield most - int(_text_of("/proc/self/statm").split()[0]) * resource.getpagesize()
    group_path = re.search(r"^0::/(.*)$", _text_of("/proc/self/cgroup"), re.MULTILINE)
    parts = [part for part in (group_path.group(1) if group_path else "").split("/") if part]
    for depth in range(len(parts), -1, -1):
        group = "/".join(["/sys/fs/cgroup", *parts[:depth]])
        limit = _text_of(f"{group}/memory.max").strip()
        if limit.isdecimal() and (used := _text_of(f"{group}/memory.current")):
            cached = re.search(r"^inactive_file (\d+)", _text_of(f"{group}/memory.stat"), re.MULTILINE)
            yield int(limit) - int(used) + (int(cached.group(1)) if cached else 0)


def _text_of(path: str) -> str:
    """Return the text of a file of the kernel; "" if there is none."""
    try:
        return Path(path).read_bytes().decode("ascii", errors="replace")
    except OSError:
        return ""


_forced: ContextVar[bool] = ContextVar("attnwidgets_forced", default=False)


@contextmanager
def forced(force: bool = True) -> Iterator[None]:
    """Disable memory checks in the block if `force` is set; otherwise leave them as they are."""
    token = _forced.set(force or _forced.get())
    try:
        yield
    finally:
        _forced.reset(token)


def forceable(function: Callable[P, R]) -> Callable[P, R]:
    """Let a function take `force=True`, which disables the memory checks of everything it runs."""

    @functools.wraps(function)
    def run(*args: Any, force: bool = False, **kwargs: Any) -> R:
        with forced(force):
            return function(*args, **kwargs)

    signature = inspect.signature(function)
    option = inspect.Parameter("force", inspect.Parameter.KEYWORD_ONLY, default=False, annotation="bool")
    vars(run)["__signature__"] = signature.replace(parameters=[*signature.parameters.values(), option])
    return cast("Callable[P, R]", run)


def is_forced() -> bool:
    """Return whether memory checks are disabled."""
    return _forced.get()


def spoken_bytes(count: float) -> str:
    """Return "1.2 GB", "34.0 MB" or the like."""
    unit, size = next(((unit, size) for unit, size in _UNITS.items() if count >= size / 10), ("kB", 1e3))
    return f"{count / size:,.1f} {unit}"


def require_room(
    purpose: str, need: float, device: torch.device | None, remedy: str, *, can_force: bool = True
) -> None:
    """Raise ValueError if something needs more memory than a device has left, unless checks are disabled.

    Args:
        purpose: The work that needs the memory, as the subject of a sentence.
        need: Bytes.
        device: The device; None is the CPU.
        remedy: Advice, as a sentence without its end; `force=True` is appended to it.
        can_force: Whether there is a `force` to pass.
    """
    free = free_bytes(device)
    if free is not None and need > free and not _forced.get():
        otherwise = ", or pass force=True to run it anyway" if can_force else ""
        raise ValueError(
            f"{purpose} takes about {spoken_bytes(need)}, and {spoken_bytes(free)} are free. "
            f"{remedy}{otherwise}."
        )


@contextmanager
def room_for(purpose: str, need: float, device: torch.device | None, remedy: str) -> Iterator[None]:
    """Check as `require_room` does, and replace the allocator's error by an error with advice."""
    require_room(purpose, need, device, remedy)
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not out_of_memory(error):
            raise
        raise ValueError(f"{purpose} takes more memory than is free. {remedy}.") from error


def out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: torch's, on any device, or numpy's."""
    return (
        isinstance(error, MemoryError)
        or type(error).__name__ == "OutOfMemoryError"
        or (isinstance(error, RuntimeError) and "allocate memory" in str(error))
    )


def less_of(inputs: Mapping[str, Any]) -> str:
    """Return an input that needs less memory than a model's inputs, in words."""
    if "input_values" in inputs or "input_features" in inputs:
        return "a shorter sound"
    if "pixel_values" in inputs and "input_ids" not in inputs:
        return "a smaller picture"
    return "a shorter text"
