"""Make an environment with the peers, beside the packages of this one: python benchmarks/peers.py FOLDER.

Each peer is installed by itself, so that one which does not install leaves the others alone; its name and the
last line of pip's message are printed, and the benchmarks leave it out. The last line of the output is the
environment's Python.
"""

from __future__ import annotations

import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

PEERS = {
    "bertviz": "bertviz==1.4.1",
    "circuitsvis": "circuitsvis==1.43.3",
    "inspectus": "inspectus==0.2.0",
    "attnview": "attnview==0.5.1",
}
"""By name of the module, what pip installs."""


def environment(folder: Path) -> Path:
    """Return the Python of an environment that sees the packages of this one, made if it is not there."""
    python = folder / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    if not python.exists():
        venv.create(folder, with_pip=True)
        where = "import sysconfig; print(sysconfig.get_path('purelib'))"
        packages = subprocess.run([python, "-c", where], capture_output=True, text=True, check=True)
        outer = Path(packages.stdout.strip()) / "outer.pth"
        outer.write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def install(python: Path, module: str, requirement: str) -> str:
    """Install a peer; return why it cannot be used, or ""."""
    present = [str(python), "-c", f"import {module}"]
    if subprocess.run(present, capture_output=True, check=False).returncode == 0:
        return ""
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    for command in (pip, present):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            return (done.stderr.strip().splitlines() or ["no message"])[-1]
    return ""


def main() -> None:
    """Install the peers, and print which did not install."""
    python = environment(Path(sys.argv[1]).resolve())
    for module, requirement in PEERS.items():
        if reason := install(python, module, requirement):
            print(f"{requirement} did not install, and is left out: {reason}")
    print(python)


if __name__ == "__main__":
    main()
