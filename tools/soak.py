"""Repeat the tests and list those that did not always give the same answer: `make soak RUNS=5`.

    python tools/soak.py --runs 5 -- -k lrp

Every second run stands beside busy loops, one for each core; in every third, kernels handle the messages of
views late, so that a test that does not wait for them fails. Each run has an order of its own: files always,
and the tests within a file unless they drive a browser, where a page is shared. Exits with 1 if a test failed
in any run, or if two runs differ.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
import xml.etree.ElementTree as ET
from collections import Counter
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

LATE = {"AW_MESSAGE_DELAY": "0.4"}  # seconds; read by tests/warm_kernels.py
# Ends with this process, also where that is killed.
LOOP = "import os; parent = os.getppid()\nwhile os.getppid() == parent: pass"


@contextmanager
def load(processes: int) -> Iterator[None]:
    """Keep `processes` cores busy."""
    loops = [subprocess.Popen([sys.executable, "-c", LOOP]) for _ in range(processes)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def outcomes(report: Path) -> dict[str, str]:
    """Return the outcome of every test in a JUnit report: passed, skipped, failed or error."""
    found = {}
    for case in ET.parse(report).iter("testcase"):
        kinds = [child.tag for child in case if child.tag in {"skipped", "failure", "error"}]
        name = f"{case.get('classname')}::{case.get('name')}"
        found[name] = {"failure": "failed"}.get(kinds[0], kinds[0]) if kinds else "passed"
    return found


def main() -> int:
    """Run the tests as often as asked, then compare the runs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("out/soak"))
    parser.add_argument("--seed", type=int, default=int(time.time()), help="of the orders")
    parser.add_argument("pytest", nargs="*", help="arguments of pytest, after --")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    seen: list[dict[str, str]] = []
    for run in range(given.runs):
        report = given.out / f"run-{run}.xml"
        options = f"-q -m 'not extended' -p no:cacheprovider --hypothesis-seed=0 --shuffle={given.seed + run}"
        options += f" -n {given.workers} --dist loadfile --no-loadscope-reorder --junitxml={report}"
        command = [sys.executable, "-m", "pytest", *shlex.split(options), *given.pytest]
        loops = os.cpu_count() or 1 if run % 2 else 0
        late = {} if (run + 1) % 3 else LATE
        begun = time.monotonic()
        report.unlink(missing_ok=True)
        with load(loops), (given.out / f"run-{run}.log").open("w") as log:
            subprocess.run(command, check=False, stdout=log, stderr=log, env=os.environ | late)
        if not report.exists():
            print(f"run {run} wrote no report: see {log.name}")
            return 1
        seen.append(outcomes(report))
        counts = ", ".join(f"{count} {kind}" for kind, count in sorted(Counter(seen[-1].values()).items()))
        minutes = (time.monotonic() - begun) / 60
        beside = f", beside {loops} busy loops" if loops else ""
        beside += ", messages late" if late else ""
        print(f"run {run}{beside}: {counts}, {minutes:.1f} min, order {given.seed + run}", flush=True)
    return judge(seen)


def judge(seen: list[dict[str, str]]) -> int:
    """Print the tests that failed or differ between runs; return the exit status."""
    answers = {name: [run.get(name, "absent") for run in seen] for name in sorted(set().union(*seen))}
    unsteady = {name: found for name, found in answers.items() if len(set(found)) > 1}
    broken = [name for name, found in answers.items() if set(found) <= {"failed", "error"}]
    for name, found in unsteady.items():
        print(f"{name}: {', '.join(found)}")
    for name in broken:
        print(f"{name}: fails in every run")
    print(f"{len(answers)} tests, {len(seen)} runs: {len(unsteady)} differ, {len(broken)} always fail")
    return int(bool(unsteady or broken))


if __name__ == "__main__":
    sys.exit(main())
