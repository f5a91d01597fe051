"""How much memory torch holds while something runs."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch.profiler import ProfilerActivity, profile

if TYPE_CHECKING:
    from collections.abc import Callable


def peak(work: Callable[[], Any]) -> int:
    """Return the most bytes that torch held on the processor at once, beyond what it held before.

    What a kernel takes for itself (packed matrices) is not torch's, and not counted.
    """
    return max(allocations(work)[0], default=0)


def allocations(work: Callable[[], Any]) -> tuple[list[int], list[int]]:
    """Return how many bytes torch held after each allocation beyond before, and how many each took."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        work()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        seen.export_chrome_trace(str(path))
        events = json.loads(path.read_text(encoding="utf-8"))["traceEvents"]
    memory = sorted((one for one in events if one.get("name") == "[memory]"), key=lambda one: one["ts"])
    sizes = [int(one["args"]["Bytes"]) for one in memory]
    held, now = [], 0
    for size in sizes:
        now += size
        held.append(now)
    return held, [size for size in sizes if size > 0]
