"""Parcels: objects that shards need (a model, a tokenizer), opened once in each worker and checked."""

from __future__ import annotations

import io
import pickle
import tempfile
import threading
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

MOST_BYTES = 100_000_000
"""Largest object that an executor on other machines may send with every shard."""
_ON_THIS_MACHINE = ("concurrent.futures.", "loky.")
"""Executors whose processes see this machine's files."""

_lock = threading.Lock()
_opened: dict[str, tuple[str, Any]] = {}


@dataclass(frozen=True)
class Parcel:
    """An object that workers make or read once, and keep until they open another of its kind.

    Args:
        kind: "model", "tokenizer": a worker holds a single object of each.
        description: Its description, for errors ("model 'bert-base'").
        fingerprint: A hash of its content.
        check: Returns the fingerprint of the opened object.
        make: Makes or reads it.
    """

    kind: str
    description: str
    fingerprint: str
    check: Callable[[Any], str]
    make: Callable[[], Any]

    def open(self) -> Any:
        """Return the object.

        Raises:
            ValueError: If its name has another content in this process.
        """
        with _lock:
            fingerprint, value = _opened.get(self.kind, ("", None))
            if fingerprint != self.fingerprint:
                _opened.pop(self.kind, None)
                value = self.make()
                if self.check(value) != self.fingerprint:
                    raise ValueError(
                        f"{self.description} is not the same in a worker as where the run began: its name "
                        "refers to something else there. Name a folder that all workers see, or use jobs=1."
                    )
                _opened[self.kind] = self.fingerprint, value
            return value


@dataclass(frozen=True)
class Here:
    """An object that stays in this process."""

    value: Any

    def open(self) -> Any:
        """Return it."""
        return self.value


@contextmanager
def parcel(
    value: Any,
    jobs: int | Executor,
    *,
    kind: str,
    description: str,
    check: Callable[[Any], str],
    make: Callable[[], Any] | None = None,
    fingerprint: str = "",
) -> Iterator[Parcel | Here]:
    """Lend a parcel with `value` while shards run.

    If `make` is given, it is sent instead of the object, as for a name. An object is pickled once: into a
    file for processes of this machine, or to be sent with every shard by other executors.

    Args:
        value: The object that shards need.
        jobs: The `jobs` argument of `run_shards`.
        kind: "model", "tokenizer": a worker holds a single object of each.
        description: Its description, for errors.
        check: A module-level function that returns a hash of the content of the opened object.
        make: Makes it in the worker; this should hold names only, since it is pickled with every shard.
        fingerprint: `check(value)`, if it was computed already.

    Raises:
        ValueError: If an object is too large to be sent with every shard.
    """
    if stays(jobs):
        yield Here(value)
        return
    fingerprint = fingerprint or check(value)
    if make is not None:
        yield Parcel(kind, description, fingerprint, check, make)
        return
    if not isinstance(jobs, Executor) or type(jobs).__module__.startswith(_ON_THIS_MACHINE):
        with tempfile.TemporaryDirectory(prefix="attnwidgets-", ignore_cleanup_errors=True) as folder:
            path = Path(folder) / "parcel.pt"
            _write(value, path)
            yield Parcel(kind, description, fingerprint, check, _File(str(path)))
        return
    buffer = io.BytesIO()
    _write(value, buffer)
    size = buffer.getbuffer().nbytes
    if size > MOST_BYTES:
        raise ValueError(
            f"{description} is an object of {size / 1e6:,.0f} MB, which {type(jobs).__name__} would send "
            "with every shard: pass the folder or hub id it is loaded from, so that every worker loads "
            "it once."
        )
    yield Parcel(kind, description, fingerprint, check, _Bytes(buffer.getvalue()))


def stays(jobs: int | Executor) -> bool:
    """Return whether shards run in this process, which holds the objects."""
    return jobs == 1 or isinstance(jobs, ThreadPoolExecutor)


def _write(value: Any, target: Any) -> None:
    import cloudpickle
    import torch

    torch.save(value, target, pickle_module=cloudpickle)


@dataclass(frozen=True)
class _File:
    """An object in a file, whose tensors the processes of a machine share."""

    path: str

    def __call__(self) -> Any:
        import torch

        # Written by this run a moment ago.
        return torch.load(self.path, weights_only=False, mmap=True, pickle_module=pickle)


@dataclass(frozen=True)
class _Bytes:
    """An object as bytes."""

    content: bytes

    def __call__(self) -> Any:
        import torch

        return torch.load(io.BytesIO(self.content), weights_only=False, pickle_module=pickle)
