"""Run make targets, some beside each other, and say how long each took: `steps.py PLAN LANE [LANE ...]`.

A lane is a list of targets in quotes that run one after another; lanes run at the same time. The first lane
writes as it runs. What the others write is shown when a step ends, so that lines of two steps never mix. All
lanes run to their end, also after a failure; the exit status is 1 if any step failed.
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

MAKE = [os.environ.get("MAKE", "make"), "--no-print-directory"]
# The tests wait for browsers now and then: checks in other lanes use that time and never delay them.
BEHIND = ["nice", "-n", "5"]


def main(plan: str, *lanes: str) -> int:
    """Run all lanes; return the exit status."""
    say(f"{plan}: {' | '.join(lanes)}")
    begun = time.monotonic()
    writing = threading.Lock()

    def run(number: int) -> list[tuple[str, float, int]]:
        return [step(name, writing, is_first=number == 0) for name in lanes[number].split()]

    with ThreadPoolExecutor(len(lanes)) as pool:
        done = [one for steps in pool.map(run, range(len(lanes))) for one in steps]
    width = max(len(name) for name, _, _ in done)
    say(f"{plan}: {clock(time.monotonic() - begun)}")
    for name, seconds, status in done:
        say(f"  {name:{width}}  {clock(seconds)}{'' if status == 0 else '  FAILED'}")
    return int(any(status for _, _, status in done))


def step(name: str, writing: threading.Lock, *, is_first: bool) -> tuple[str, float, int]:
    """Run one target; return its name, seconds and exit status."""
    begun = time.monotonic()
    if is_first:
        status = subprocess.run([*MAKE, name], check=False).returncode
    else:
        ran = subprocess.run(
            [*BEHIND, *MAKE, name], check=False, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        status = ran.returncode
        with writing:
            say(f"== {name}: {'done' if status == 0 else 'FAILED'} after {clock(time.monotonic() - begun)}")
            sys.stdout.write(ran.stdout)
            sys.stdout.flush()
    return name, time.monotonic() - begun, status


def clock(seconds: float) -> str:
    """Write seconds as minutes."""
    return f"{int(seconds) // 60}:{int(seconds) % 60:02d} min"


def say(line: str) -> None:
    """Print a line at once."""
    print(line, flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
