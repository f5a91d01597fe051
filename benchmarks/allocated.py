"""Torch's peak memory while a function runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable


def peak(work: Callable[[], Any]) -> int:
    """Return torch's peak memory on the processor in bytes, beyond what it held before.

    Memory that a kernel allocates itself (packed matrices) is not torch's and not counted.
    """
    return max(allocations(work)[0], default=0)


def allocations(work: Callable[[], Any]) -> tuple[list[int], list[int]]:
    """Return the bytes that torch held after each allocation, beyond before, and the size of each."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = sorted(
        (event for event in events if event.get("name") == "[memory]"), key=lambda event: event["ts"]
    )
    sizes = [int(event["args"]["Bytes"]) for event in memory]
    held, now = [], 0
    for size in sizes:
        now += size
        held.append(now)
    return held, [size for size in sizes if size > 0]
